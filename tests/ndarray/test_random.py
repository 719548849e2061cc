"""Random numbers: moments, reproducibility with seeds, and independence of contexts."""

import numpy as np
import pytest

import neomx as mx

R = mx.nd.random
COUNT = 40_000

# name: (parameters, mean, variance)
DISTRIBUTIONS = {
    "uniform": ((-1.0, 3.0), 1.0, 16 / 12),
    "normal": ((2.0, 0.5), 2.0, 0.25),
    "gamma": ((2.0, 3.0), 6.0, 18.0),
    "exponential": ((4.0,), 4.0, 16.0),
    "poisson": ((2.5,), 2.5, 2.5),
    "negative_binomial": ((3, 0.4), 4.5, 11.25),
    "generalized_negative_binomial": ((3.0, 0.4), 3.0, 6.6),
}
# Parameters of the op, if they differ from the function's.
OP_PARAMETERS = {"exponential": (0.25,)}


def check_moments(values, mean, variance):
    """Check that mean and variance are within 5 standard errors."""
    values = values.astype("float64").ravel()
    error = np.sqrt(variance / values.size)
    assert abs(values.mean() - mean) < 5 * error, "mean"
    fourth = ((values - values.mean()) ** 4).mean()
    error = np.sqrt((fourth - variance**2) / values.size)
    assert abs(values.var() - variance) < 5 * error, "variance"


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize("dtype", [None, "float16", "float32", "float64"])
def test_moments_with_numbers(name, dtype):
    parameters, mean, variance = DISTRIBUTIONS[name]
    mx.random.seed(11)
    drawn = getattr(R, name)(*parameters, shape=(COUNT // 2, 2), dtype=dtype)
    assert drawn.dtype == np.dtype(dtype or "float32") and drawn.shape == (COUNT // 2, 2)
    check_moments(drawn.asnumpy(), mean, variance)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments_with_arrays(name):
    parameters, mean, variance = DISTRIBUTIONS[name]
    mx.random.seed(12)
    arrays = [mx.nd.array([[p, p * 0.5]], dtype="float64") for p in parameters]
    drawn = getattr(R, name)(*arrays, shape=(COUNT // 2, 2))
    assert drawn.dtype == np.float32 and drawn.shape == (1, 2, COUNT // 2, 2)
    check_moments(drawn.asnumpy()[0, 0], mean, variance)
    assert getattr(R, name)(*arrays).shape == (1, 2)
    assert getattr(R, name)(*arrays, dtype="float16").dtype == np.float16


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_moments_like(name):
    parameters, mean, variance = DISTRIBUTIONS[name]
    data = mx.nd.array(np.zeros((COUNT // 2, 2)), dtype="float64")
    mx.random.seed(13)
    drawn = getattr(R, name + "_like")(data, *OP_PARAMETERS.get(name, parameters))
    assert drawn.dtype == np.float64 and drawn.shape == data.shape
    check_moments(drawn.asnumpy(), mean, variance)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_function_and_op_draw_the_same_values(name):
    parameters = DISTRIBUTIONS[name][0]
    of_op = OP_PARAMETERS.get(name, parameters)
    calls = [
        lambda: getattr(R, name)(*parameters, shape=5),
        lambda: getattr(mx.random, name)(*parameters, 5),
        lambda: getattr(mx.nd, "random_" + name)(*of_op, shape=(5,)),
        lambda: getattr(mx.nd._internal, "_random_" + name)(*of_op, shape="(5,)", dtype="None", ctx="cpu(0)"),
        lambda: getattr(R, name)(*parameters, out=mx.nd.array(np.zeros(5))),
    ]
    drawn = []
    for call in calls:
        mx.random.seed(7)
        drawn.append(call().asnumpy())
    for other in drawn[1:]:
        np.testing.assert_array_equal(drawn[0], other)


def test_randn_accepts_the_shape_as_arguments():
    mx.random.seed(3)
    drawn = R.randn(COUNT // 4, 4, loc=1, scale=2)
    assert drawn.shape == (COUNT // 4, 4)
    check_moments(drawn.asnumpy(), 1.0, 4.0)


def test_randint():
    mx.random.seed(4)
    drawn = R.randint(-2, 4, shape=(COUNT,))
    assert drawn.dtype == np.int32
    values = drawn.asnumpy()
    assert set(values.tolist()) == {-2, -1, 0, 1, 2, 3}
    check_moments(values, 0.5, 35 / 12)
    wide = R.randint(0, 2**40, shape=100, dtype="int64")
    assert wide.dtype == np.int64 and wide.asnumpy().max() > 2**33
    assert R.randint(0, 5).shape == (1,)


def test_degenerate_distributions():
    assert R.negative_binomial(3, 1, shape=4).asnumpy().tolist() == [0] * 4
    assert R.poisson(0, shape=4).asnumpy().tolist() == [0] * 4
    assert R.uniform(2, 2, shape=3).asnumpy().tolist() == [2] * 3
    mx.random.seed(5)
    check_moments(R.generalized_negative_binomial(3.0, 0, shape=COUNT).asnumpy(), 3.0, 3.0)
    mixed = R.generalized_negative_binomial(mx.nd.array([3.0, 3.0]), mx.nd.array([0.0, 0.4]), shape=COUNT).asnumpy()
    check_moments(mixed[0], 3.0, 3.0)
    check_moments(mixed[1], 3.0, 6.6)


# ---- seeds and contexts ----


def test_same_seed_repeats_the_values():
    mx.random.seed(42)
    first = [R.uniform(shape=5).asnumpy() for _ in range(3)]
    mx.random.seed(42)
    for wanted in first:
        np.testing.assert_array_equal(R.uniform(shape=5).asnumpy(), wanted)
    assert not np.array_equal(first[0], first[1])
    mx.random.seed(43)
    assert not np.array_equal(R.uniform(shape=5).asnumpy(), first[0])


def test_contexts_have_independent_streams():
    contexts = [mx.cpu(0), mx.cpu(1), mx.cpu(2), mx.cpu_pinned(0), mx.cpu_shared(0)]
    mx.random.seed(1)
    drawn = [tuple(R.uniform(shape=5, ctx=ctx).asnumpy()) for ctx in contexts]
    assert len(set(drawn)) == len(contexts)
    mx.random.seed(2)
    assert tuple(R.uniform(shape=5, ctx=mx.cpu(0)).asnumpy()) not in drawn


def test_seeding_one_context_does_not_affect_others():
    mx.random.seed(1)
    expected = R.uniform(shape=5, ctx=mx.cpu(1)).asnumpy()
    mx.random.seed(1)
    mx.random.seed(9, ctx=mx.cpu(0))
    np.testing.assert_array_equal(R.uniform(shape=5, ctx=mx.cpu(1)).asnumpy(), expected)
    mx.random.seed(9, ctx=mx.cpu(0))
    first = R.uniform(shape=5).asnumpy()
    mx.random.seed(9)
    np.testing.assert_array_equal(R.uniform(shape=5).asnumpy(), first)


def test_context_of_a_result():
    assert R.normal(shape=2, ctx=mx.cpu(1)).context == mx.cpu(1)
    with mx.cpu(2):
        assert R.randint(0, 3, shape=2).context == mx.cpu(2)
    data = mx.nd.array([0.5, 0.5], ctx=mx.cpu(1))
    assert R.multinomial(data, 3).context == mx.cpu(1)
    assert R.normal(data, data).context == mx.cpu(1)
    assert R.uniform_like(data).context == mx.cpu(1)


@pytest.mark.parametrize("value", [0, -1, 2**31, 2**40, np.int64(3)])
def test_seed_accepts_any_int(value):
    mx.random.seed(value)
    first = R.uniform(shape=3).asnumpy()
    mx.random.seed(value)
    np.testing.assert_array_equal(R.uniform(shape=3).asnumpy(), first)


def test_seed_must_be_an_int():
    with pytest.raises(ValueError, match="must be an int"):
        mx.random.seed(1.5)


def test_out_determines_shape_dtype_and_context():
    target = mx.nd.array(np.zeros((2, 3)), dtype="float64", ctx=mx.cpu(1))
    assert R.normal(out=target) is target
    assert target.asnumpy().all() and target.context == mx.cpu(1)
    integers = mx.nd.array(np.zeros(50), dtype="int64")
    R.randint(1, 4, out=integers)
    assert set(integers.asnumpy().tolist()) == {1, 2, 3}


# ---- classes and permutations ----


def test_multinomial_frequencies():
    mx.random.seed(6)
    probabilities = np.array([[0.1, 0.2, 0.7], [0.5, 0.5, 0.0]])
    drawn = R.multinomial(mx.nd.array(probabilities), COUNT)
    assert drawn.shape == (2, COUNT) and drawn.dtype == np.int32
    for row, wanted in zip(drawn.asnumpy(), probabilities, strict=True):
        frequency = np.bincount(row, minlength=3) / COUNT
        assert (np.abs(frequency - wanted) <= 5 * np.sqrt(wanted * (1 - wanted) / COUNT)).all()


@pytest.mark.parametrize(
    ("data", "shape", "expected"),
    [
        ((4,), None, (1,)),
        ((4,), 5, (5,)),
        ((4,), (5, 2), (5, 2)),
        ((2, 4), None, (2,)),
        ((2, 4), 1, (2, 1)),
        ((2, 3, 4), (5, 2), (2, 3, 5, 2)),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "float32", "uint8"])
def test_multinomial_shapes(data, shape, expected, dtype):
    data = mx.nd.array(np.full(data, 0.25))
    drawn, log_probability = R.multinomial(data, shape, get_prob=True, dtype=dtype)
    assert drawn.shape == log_probability.shape == expected
    assert drawn.dtype == np.dtype(dtype) and log_probability.dtype == np.float32
    np.testing.assert_allclose(log_probability.asnumpy(), np.log(0.25), rtol=1e-6)


def test_multinomial_gradient_is_the_reinforce_gradient():
    probabilities = mx.nd.array([[0.1, 0.9], [0.8, 0.2]])
    probabilities.attach_grad()
    rewards = mx.nd.array([[1.0, -2.0, 3.0], [0.5, 0.25, 4.0]])
    with mx.autograd.record():
        actions, log_probability = R.multinomial(probabilities, 3, get_prob=True)
        loss = -log_probability * rewards
    loss.backward()
    expected = np.zeros((2, 2))
    for row in range(2):
        for action, reward in zip(actions.asnumpy()[row], rewards.asnumpy()[row], strict=True):
            expected[row, action] -= reward / probabilities.asnumpy()[row, action]
    np.testing.assert_allclose(probabilities.grad.asnumpy(), expected, rtol=1e-5)


def test_samples_are_constants_for_autograd():
    mean = mx.nd.array([1.0, 2.0])
    mean.attach_grad()
    with mx.autograd.record():
        loss = R.normal(mean, mean) * mean
    loss.backward()
    np.testing.assert_allclose(mean.grad.asnumpy(), loss.asnumpy() / mean.asnumpy(), rtol=1e-5)


def test_shuffle_moves_whole_rows():
    mx.random.seed(8)
    data = mx.nd.array(np.arange(60).reshape(20, 3), dtype="int32")
    shuffled = R.shuffle(data)
    assert shuffled.dtype == np.int32
    rows = shuffled.asnumpy()
    assert not np.array_equal(rows, data.asnumpy())
    np.testing.assert_array_equal(rows[np.argsort(rows[:, 0])], data.asnumpy())
    firsts = np.array([R.shuffle(data).asnumpy()[0, 0] // 3 for _ in range(400)])
    check_moments(firsts, 9.5, 399 / 12)


def test_unique_zipfian():
    mx.random.seed(9)
    samples, tries = mx.nd._internal._sample_unique_zipfian(50, shape=(300, 5))
    assert samples.dtype == tries.dtype == np.int64 and tries.shape == (300,)
    values = samples.asnumpy()
    assert values.min() >= 0 and values.max() < 50
    assert all(len(set(row)) == 5 for row in values.tolist())
    assert (tries.asnumpy() >= 5).all()
    first = (values[:, 0] == 0).mean()
    wanted = np.log(2) / np.log(51)
    assert abs(first - wanted) < 5 * np.sqrt(wanted * (1 - wanted) / 300)
    everything, _ = mx.nd._internal._sample_unique_zipfian(6, shape=(2, 6))
    assert [sorted(row) for row in everything.asnumpy().tolist()] == [list(range(6))] * 2
