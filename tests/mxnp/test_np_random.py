"""The distributions of mx.np.random and mx.npx.random: moments and ranges. Shapes are in the parity cases."""

import math

import numpy as np
import pytest

import neomx as mx

COUNT = 40_000
EULER = 0.5772156649


@pytest.fixture(autouse=True)
def np_mode():
    mx.npx.set_np()
    mx.random.seed(1)
    yield
    mx.npx.reset_np()


# name, parameters, mean, standard deviation
DISTRIBUTIONS = [
    ("uniform", (-1.0, 3.0), 1, 4 / math.sqrt(12)),
    ("normal", (1.0, 2.0), 1, 2),
    ("lognormal", (0.5, 0.25), math.exp(0.5 + 0.25**2 / 2), 0.4368),
    ("logistic", (1.0, 2.0), 1, 2 * math.pi / math.sqrt(3)),
    ("gumbel", (1.0, 2.0), 1 + 2 * EULER, 2 * math.pi / math.sqrt(6)),
    ("exponential", (2.0,), 2, 2),
    ("rayleigh", (2.0,), 2 * math.sqrt(math.pi / 2), 2 * math.sqrt(2 - math.pi / 2)),
    ("weibull", (2.0,), math.gamma(1.5), math.sqrt(1 - math.gamma(1.5) ** 2)),
    ("pareto", (5.0,), 0.25, math.sqrt(5 / 48)),
    ("power", (2.0,), 2 / 3, math.sqrt(1 / 18)),
    ("gamma", (2.0, 3.0), 6, 3 * math.sqrt(2)),
    ("beta", (2.0, 3.0), 0.4, 0.2),
    ("chisquare", (3.0,), 3, math.sqrt(6)),
]


@pytest.mark.parametrize("arrays", [False, True])
@pytest.mark.parametrize(("name", "parameters", "mean", "deviation"), DISTRIBUTIONS)
def test_moments(name, parameters, mean, deviation, arrays):
    given = [mx.np.array(p) for p in parameters] if arrays else parameters
    drawn = getattr(mx.np.random, name)(*given, size=COUNT).asnumpy().astype("float64")
    assert np.isfinite(drawn).all()
    assert abs(drawn.mean() - mean) < 5 * deviation / math.sqrt(COUNT)
    assert abs(drawn.std() / deviation - 1) < 0.1
    assert len(np.unique(drawn)) > 0.9 * COUNT


def test_ranges():
    assert set(mx.np.random.randint(2, 5, size=1000).asnumpy().tolist()) == {2, 3, 4}
    uniform = mx.np.random.uniform(2, 3, size=1000).asnumpy()
    assert uniform.min() >= 2 and uniform.max() <= 3
    assert (mx.np.random.power(0.5, size=1000).asnumpy() <= 1).all()


def test_choice():
    p = mx.np.array([0.1, 0.2, 0.7])
    counts = np.bincount(mx.np.random.choice(3, COUNT, p=p).asnumpy()) / COUNT
    np.testing.assert_allclose(counts, [0.1, 0.2, 0.7], atol=0.02)
    assert sorted(mx.np.random.choice(6, 6, replace=False).asnumpy().tolist()) == list(range(6))
    assert sorted(mx.np.random.choice(3, 3, replace=False, p=p).asnumpy().tolist()) == [0, 1, 2]
    rows = mx.np.random.choice(mx.np.array([[1, 2], [3, 4]]), 5).asnumpy().tolist()
    assert all(row in ([1, 2], [3, 4]) for row in rows)
    for call in (
        lambda: mx.np.random.choice(3, 4, replace=False),
        lambda: mx.np.random.choice(0, 1),
        lambda: mx.np.random.choice(4, 2, p=p),
    ):
        with pytest.raises(mx.MXNetError):
            call()


def test_multinomial():
    pvals = [0.2, 0.5, 0.3]
    for given in (pvals, mx.np.array(pvals)):
        counts = mx.np.random.multinomial(10, given, size=4000).asnumpy()
        assert (counts.sum(-1) == 10).all()
        np.testing.assert_allclose(counts.mean(0), [2, 5, 3], atol=0.15)
        np.testing.assert_allclose(counts.var(0), [1.6, 2.5, 2.1], rtol=0.15)


def test_multivariate_normal():
    mean, cov = np.array([1.0, -1]), np.array([[2.0, 0.6], [0.6, 1]])
    drawn = mx.np.random.multivariate_normal(mx.np.array(mean), mx.np.array(cov), size=COUNT).asnumpy()
    np.testing.assert_allclose(drawn.mean(0), mean, atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), cov, atol=0.06)


def test_bernoulli():
    for given in ({"prob": 0.3}, {"logit": math.log(0.3 / 0.7)}, {"prob": mx.np.array(0.3)}):
        drawn = mx.npx.random.bernoulli(**given, size=COUNT).asnumpy()
        assert set(drawn.tolist()) == {0.0, 1.0}
        assert abs(drawn.mean() - 0.3) < 0.02


def test_batch_shapes():
    drawn = mx.npx.random.normal_n(mx.np.array([0.0, 5]), mx.np.array([1.0, 2]), batch_shape=COUNT).asnumpy()
    np.testing.assert_allclose(drawn.mean(0), [0, 5], atol=0.1)
    np.testing.assert_allclose(drawn.std(0), [1, 2], rtol=0.1)
    drawn = mx.npx.random.uniform_n(mx.np.array([0.0, 5]), 6.0, batch_shape=COUNT).asnumpy()
    assert drawn[:, 1].min() >= 5
    np.testing.assert_allclose(drawn.mean(0), [3, 5.5], atol=0.1)


def test_shuffle_keeps_rows_intact():
    x = mx.np.array(np.arange(200).reshape(100, 2))
    assert mx.np.random.shuffle(x) is None
    shuffled = x.asnumpy()
    assert (shuffled[:, 1] - shuffled[:, 0] == 1).all()
    assert sorted(shuffled[:, 0].tolist()) == list(range(0, 200, 2)) and shuffled[:, 0].tolist() != list(
        range(0, 200, 2)
    )


def test_normal_vectors_have_gradients():
    mean, cov = mx.np.array([1.0, -1]), mx.np.array([[2.0, 0.6], [0.6, 1]])
    mean.attach_grad()
    cov.attach_grad()
    with mx.autograd.record():
        drawn = mx.np.random.multivariate_normal(mean, cov, size=3)
    drawn.backward()
    assert mean.grad.asnumpy().tolist() == [3, 3]
    assert np.abs(cov.grad.asnumpy()).max() > 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: mx.np.random.normal(0, -1),
        lambda: mx.np.random.normal(0, mx.np.array([1.0, -1])),
        lambda: mx.np.random.gamma(0.0),
        lambda: mx.np.random.weibull(0.0),
        lambda: mx.np.random.exponential(-1.0),
        lambda: mx.npx.random.bernoulli(1.5),
        lambda: mx.npx.random.bernoulli(),
        lambda: mx.npx.random.bernoulli(0.5, 0.5),
    ],
)
def test_parameters_out_of_range_raise_value_errors(call):
    with pytest.raises(ValueError):
        call()
