"""Optimizers: fused against single updates, states in files and from MXNet, and errors."""

import copy
import pathlib
import pickle
import weakref

import numpy as np
import pytest
import torch

import neomx as mx
from neomx.formats import pickled
from parity import record_states

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "states"
SHAPES = [(3, 4), (5,), (2, 3, 2), (1,)]


def flat(state):
    if state is None:
        return []
    return [array for each in state for array in flat(each)] if isinstance(state, (list, tuple)) else [state]


def variables(seed=0, shapes=SHAPES):
    rng = np.random.RandomState(seed)
    weights = [mx.nd.array(rng.uniform(-1, 1, shape)) for shape in shapes]
    for weight in weights:
        weight.attach_grad()
    return weights


def one_by_one(updater):
    """Disable fused updates, so that the updater calls the optimizer's own method."""
    updater._fused.update = lambda optimizer, states, indices, *_: range(len(indices))
    return updater


def steps(updater, weights, numbers=range(12), between=lambda updater, step: None):
    """Run updates with gradients seeded by the step, and return weights and states."""
    for number in numbers:
        rng = np.random.RandomState(number + 100)
        for weight in weights:
            weight.grad[:] = mx.nd.array(rng.uniform(-9, 9, weight.shape))
        between(updater, number)
        updater(list(range(len(weights))), [weight.grad for weight in weights], weights)
    return [each.asnumpy() for each in (*weights, *[a for i in range(len(weights)) for a in flat(updater.states[i])])]


def assert_same(received, expected, rtol=2e-6):
    assert len(received) == len(expected)
    for one, other in zip(received, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=1e-6)


FUSED = [
    ("sgd", {}),
    ("sgd", {"momentum": 0.9}),
    ("adam", {"learning_rate": 0.05}),
    ("adam", {"beta1": 0.5, "beta2": 0.6, "epsilon": 0.1}),
    ("ccsgd", {"momentum": 0.9}),
    ("nag", {}),
    ("nag", {"momentum": 0.9}),
    ("rmsprop", {"learning_rate": 0.05, "gamma1": 0.8}),
    ("rmsprop", {"learning_rate": 0.05, "centered": True, "clip_weights": 0.7}),
    ("adagrad", {"learning_rate": 0.1}),
    ("adamw", {"learning_rate": 0.05}),
    ("lamb", {"learning_rate": 0.05}),
    ("lamb", {"learning_rate": 0.05, "bias_correction": False, "lower_bound": 0.5, "upper_bound": 1.5}),
]


@pytest.mark.parametrize("more", [{}, {"wd": 0.1}, {"clip_gradient": 0.2, "wd": 0.1}])
@pytest.mark.parametrize(("name", "settings"), FUSED)
def test_fused_step_equals_single_updates(name, settings, more):
    def updater():
        schedule = mx.lr_scheduler.FactorScheduler(3, 0.7)
        optimizer = mx.optimizer.create(name, lr_scheduler=schedule, rescale_grad=1 / 24, **settings, **more)
        optimizer.set_lr_mult({1: 0.5, 2: 0.0})
        optimizer.set_wd_mult({0: 3.0})
        return mx.optimizer.get_updater(optimizer)

    def change(updater, step):
        updater.optimizer.rescale_grad = 1 / (24 + step // 4)
        if step == 5:
            updater.optimizer.set_lr_mult({2: 2.0})

    expected = steps(one_by_one(updater()), variables(), between=change)
    assert_same(steps(updater(), variables(), between=change), expected)


@pytest.mark.parametrize(("name", "settings"), FUSED)
def test_dense_weights_use_fused_update(name, settings, monkeypatch):
    updater = mx.optimizer.get_updater(mx.optimizer.create(name, **settings))
    monkeypatch.setattr(type(updater.optimizer), "update_multi_precision", None)
    steps(updater, variables(), range(2))
    assert updater.optimizer.num_update == 2


def test_subclass_uses_its_own_update():
    class Counting(mx.optimizer.SGD):
        calls = 0

        def update(self, index, weight, grad, state):
            Counting.calls += 1
            super().update(index, weight, grad, state)

        update_multi_precision = update

    steps(mx.optimizer.get_updater(Counting()), variables(), range(2))
    assert Counting.calls == 2  # one call for all four weights, as aggregate_num requests


@pytest.mark.parametrize(("name", "settings"), FUSED)
def test_states_can_be_read_and_written_between_steps(name, settings):
    """A reference to a state sees its updates, and writing to it affects later steps."""

    def held(updater, weights):
        steps(updater, weights, range(2))
        states = flat(updater.states[0])
        steps(updater, weights, range(2, 5))
        seen = [state.asnumpy() for state in states]
        for state in states:
            state[:] = 0.25
        return [*seen, *steps(updater, weights, range(5, 8))]

    def updater():
        return mx.optimizer.get_updater(mx.optimizer.create(name, rescale_grad=1 / 7, **settings))

    assert_same(held(updater(), variables()), held(one_by_one(updater()), variables()))


def test_noncontiguous_gradients_and_replaced_arrays():
    def run(updater):
        (weight,) = variables(shapes=[(3, 4)])
        for _ in range(2):
            weight._data.grad = torch.arange(12.0).view(4, 3).t()
            updater([0], [weight.grad], [weight])
        other = weight * 2
        other.attach_grad()
        other.grad[:] = 1
        updater([0], [other.grad], [other])
        return [weight.asnumpy(), other.asnumpy(), updater.states[0].asnumpy()]

    make = lambda: mx.optimizer.get_updater(mx.optimizer.SGD(momentum=0.9))  # noqa: E731
    assert_same(run(make()), run(one_by_one(make())))


def test_update_does_not_change_gradient():
    for optimizer in (mx.optimizer.SGD(clip_gradient=0.1), mx.optimizer.Adam(), mx.optimizer.Adam(clip_gradient=0.1)):
        optimizer.rescale_grad = 0.5
        weight = variables()[0]
        weight.grad[:] = 3
        mx.optimizer.get_updater(optimizer)([0], [weight.grad], [weight])
        assert (weight.grad.asnumpy() == 3).all()


def test_backward_after_update():
    """As in MXNet, backward uses the current weights."""
    weight = variables(shapes=[(2,)])[0]
    with mx.autograd.record():
        y = weight * weight
    y.backward(retain_graph=True)
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5))
    updater([0], [weight.grad], [weight])
    y.backward()
    np.testing.assert_allclose(weight.grad.asnumpy(), 2 * weight.asnumpy())


def test_dcasgd_with_momentum():
    """MXNet fails in this case, so the test compares with the formula."""
    optimizer = mx.optimizer.DCASGD(momentum=0.5, lamda=0.1, learning_rate=0.1, wd=0.01)
    w, g = mx.nd.array([1.0, 2.0]), mx.nd.array([0.5, -1.0])
    state = optimizer.create_state(0, w)
    weight, grad, previous, momentum = w.asnumpy(), g.asnumpy(), w.asnumpy(), 0
    for _ in range(3):
        optimizer.update(0, w, g, state)
        step = -0.1 * (grad + 0.01 * weight + 0.1 * grad * grad * (weight - previous))
        momentum = 0.5 * momentum + step
        previous, weight = weight, weight + momentum
    np.testing.assert_allclose(w.asnumpy(), weight, rtol=1e-6)
    np.testing.assert_allclose(state[0].asnumpy(), momentum, rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "nag", "adam", "lamb", "lars"])
def test_bfloat16_with_float32_copies(name):
    optimizer = mx.optimizer.create(name, learning_rate=0.001, multi_precision=True)
    updater = mx.optimizer.get_updater(optimizer)
    half, whole = mx.nd.ones(4).astype("bfloat16"), mx.nd.ones(4)
    exact = mx.optimizer.get_updater(mx.optimizer.create(name, learning_rate=0.001))
    for _ in range(5):
        updater([0], [mx.nd.ones(4).astype("bfloat16")], [half])
        exact([0], [mx.nd.ones(4)], [whole])
    (master,) = [array for array in flat(updater.states[0]) if abs(array.asnumpy()[0] - whole.asnumpy()[0]) < 1e-5]
    np.testing.assert_allclose(master.asnumpy(), whole.asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(half.asnumpy(), whole.asnumpy(), rtol=4e-3)


def test_lamb_updates_single_half_precision_weight():
    """MXNet does not update the float32 copy when a program updates a single weight."""
    optimizer = mx.optimizer.LAMB(learning_rate=0.1, multi_precision=True)
    weight = mx.nd.array([1, -2, 3]).astype("float16")
    state = optimizer.create_state_multi_precision(0, weight)
    for _ in range(3):
        before = weight.asnumpy()
        optimizer.update_multi_precision(0, weight, mx.nd.ones(3).astype("float16"), state)
        assert (weight.asnumpy() != before).all()


def test_half_precision_without_copies_warns():
    with pytest.warns(UserWarning, match="multi_precision=True"):
        mx.optimizer.Adam().create_state_multi_precision(0, mx.nd.ones(2).astype("float16"))


def test_sgld_uses_seeded_generator():
    def run(seed):
        mx.random.seed(seed)
        weight = mx.nd.ones(1000)
        mx.optimizer.SGLD(learning_rate=0.04).update(0, weight, mx.nd.zeros(1000), None)
        return weight.asnumpy()

    assert (run(1) == run(1)).all() and (run(1) != run(2)).any()
    assert run(1).std() == pytest.approx(0.2, rel=0.1)


# ---- states as bytes ----


def trained(name, numbers, whole, **settings):
    updater = mx.optimizer.get_updater(mx.optimizer.create(name, rescale_grad=1 / 8, **settings))
    weights = variables()
    steps(updater, weights, numbers)
    return updater, weights, updater.get_states(dump_optimizer=whole)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *FUSED,
        ("nadam", {"lr_scheduler": mx.lr_scheduler.CosineScheduler(20, warmup_steps=2)}),
        ("lbsgd", {"batch_scale": 3, "param_idx2name": {0: "a_weight", 1: "b_bias"}}),
        ("lars", {"momentum": 0.9, "lr_scheduler": mx.lr_scheduler.MultiFactorScheduler([2, 4, 7], 0.5)}),
    ],
)
def test_training_continues_from_saved_states(name, settings):
    updater, weights, saved = trained(name, range(5), True, **copy.deepcopy(settings))
    resumed = mx.optimizer.get_updater(mx.optimizer.Test())
    resumed.set_states(saved)
    copies = [weight.copy() for weight in weights]
    for each in copies:
        each.attach_grad()
    assert type(resumed.optimizer) is type(updater.optimizer)
    assert_same(steps(resumed, copies, range(5, 9)), steps(updater, weights, range(5, 9)))


def test_states_are_a_params_file_not_a_pickle():
    _, _, saved = trained("adam", range(2), True)
    arrays = mx.nd.load_frombuffer(saved)
    assert b'"Adam"' in arrays["header"].asnumpy().tobytes() and len(arrays) == 1 + 2 * len(SHAPES)


@pytest.mark.parametrize("name", sorted(record_states.optimizers(mx)))
def test_training_continues_from_states_of_mxnet(name):
    optimizer, dtype, whole = record_states.optimizers(mx)[name]
    updater = mx.optimizer.get_updater(mx.optimizer.Test() if whole else optimizer)
    updater.set_states((FIXTURES / f"{name}.states").read_bytes())
    if not whole:  # then the file has no update counts either
        updater.optimizer.begin_num_update = updater.optimizer.num_update = 3
    weights = mx.nd.load(str(FIXTURES / f"{name}-start.params"))
    for number in (3, 4):
        record_states.step(mx, updater, weights, number)
    tolerance = 1e-3 if dtype == "float16" else 1e-6
    for weight, expected in zip(weights, mx.nd.load(str(FIXTURES / f"{name}-end.params")), strict=True):
        np.testing.assert_allclose(weight.asnumpy(), expected.asnumpy(), rtol=tolerance, atol=1e-6)


class Malice:
    ran = False

    def __reduce__(self):
        return _harm, ()


def _harm():
    Malice.ran = True


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickled_code_is_never_executed(protocol):
    updater = mx.optimizer.get_updater(mx.optimizer.SGD())
    for content in ({0: Malice()}, ({}, Malice()), Malice()):
        with pytest.raises(mx.MXNetError):
            updater.set_states(pickle.dumps(content, protocol))
    assert not Malice.ran and updater.states == {}


def test_invalid_states_are_rejected():
    updater = mx.optimizer.get_updater(mx.optimizer.SGD())
    _, _, saved = trained("sgd", range(1), True, momentum=0.9)
    real = (FIXTURES / "adam.states").read_bytes()
    for data in (b"", b"nothing", pickle.dumps([1]), pickle.dumps({1, 2}), pickle.dumps({})[:-1], b"\x80\x04."):
        with pytest.raises(mx.MXNetError):
            updater.set_states(data)
    for data in (saved, real):
        for cut in range(0, len(data) - 1, 7):
            with pytest.raises(mx.MXNetError):
                updater.set_states(data[:cut])
    with pytest.raises(mx.MXNetError, match="header"):
        updater.set_states(mx.nd.serialize.save_tobuffer({"a": mx.nd.ones(2)}))
    with pytest.raises(TypeError, match="bytes"):
        updater.set_states("text")


def test_corrupt_pickles_raise_mxnet_error():
    """A corrupt byte leads to an MXNetError or to different values."""
    updater = mx.optimizer.get_updater(mx.optimizer.SGD())
    data = (FIXTURES / "sgd_half.states").read_bytes()
    rng = np.random.RandomState(0)
    refused = 0
    for _ in range(400):
        damaged = bytearray(data)
        damaged[rng.randint(len(data))] = rng.randint(256)
        try:
            updater.set_states(bytes(damaged))
        except mx.MXNetError:
            refused += 1
    assert 100 < refused < 400


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_data_is_read_from_pickles(protocol):
    data = {0: (1, -2.5, None), "a": [True, False, "ü", 2**70, b"\x00\xff"], (1, 2): {}, 300: [[]], 70000: -1}
    if protocol < 2:
        data = {key: value for key, value in data.items() if key in ((1, 2), 300)}
    assert pickled.read(pickle.dumps(data, protocol)) == data


@pytest.mark.parametrize(
    ("saved_by", "loaded_by", "message"),
    [
        (("adam", {}), ("sgd", {"momentum": 0.9}), r"is \(an array.*SGD.*needs an array of shape \(3, 4\)"),
        (("sgd", {"momentum": 0.9}), ("adam", {}), r"is an array.*Adam.*needs \(an array"),
        (("sgd", {}), ("sgd", {"momentum": 0.9}), "is nothing"),
        (("adam", {}), ("rmsprop", {"centered": True}), "RMSProp"),
    ],
)
def test_states_of_another_optimizer_are_rejected(saved_by, loaded_by, message):
    _, weights, saved = trained(saved_by[0], range(1), False, **saved_by[1])
    updater = mx.optimizer.get_updater(mx.optimizer.create(loaded_by[0], **loaded_by[1]))
    updater.set_states(saved)
    with pytest.raises(mx.MXNetError, match=message):
        steps(updater, weights, range(1))


def test_optimizer_without_states_ignores_loaded_ones():
    """As in MXNet."""
    _, weights, saved = trained("adam", range(1), False)
    updater = mx.optimizer.get_updater(mx.optimizer.SGD())
    updater.set_states(saved)
    steps(updater, weights, range(1))
    assert updater.states[0] is None


def test_update_rejects_invalid_arguments():
    updater = mx.optimizer.get_updater(mx.optimizer.SGD())
    with pytest.raises(ValueError, match="2 indices, 1 gradients and 2 weights"):
        updater([0, 1], [mx.nd.ones(2)], [mx.nd.ones(2), mx.nd.ones(2)])
    with pytest.raises(AssertionError, match="expected NDArrays to update, received a NoneType"):
        updater(0, None, mx.nd.ones(2))
    with pytest.raises(mx.MXNetError, match=r"shape \(2,\), got \(3,\)"):
        updater(0, mx.nd.ones(3), mx.nd.ones(2))
    with pytest.raises(mx.MXNetError, match="one dtype"):
        updater(0, mx.nd.ones(2).astype("float64"), mx.nd.ones(2))
    updater([], [], [])


def test_unknown_optimizer_in_states_is_rejected():
    class Private(mx.optimizer.SGD):
        pass

    saved = mx.optimizer.get_updater(Private()).get_states(dump_optimizer=True)
    updater = mx.optimizer.get_updater(mx.optimizer.SGD())
    with pytest.raises(mx.MXNetError, match="'Private'.*register"):
        updater.set_states(saved)
    updater.optimizer.lr_scheduler = lambda count: 0.1
    with pytest.raises(mx.MXNetError, match="cannot contain a function"):
        updater.get_states(dump_optimizer=True)


def test_optimizers_can_be_copied():
    optimizer = mx.optimizer.Adam(learning_rate=0.3, param_dict={0: object()})
    optimizer._update_count([0, 1])
    for other in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert other.lr == 0.3 and other.param_dict == {}
        other._update_count(0)
        assert other._all_index_update_counts == {0: {0: 2, 1: 1}} and other.num_update == 2


def test_updater_does_not_keep_arrays_alive():
    updater = mx.optimizer.get_updater(mx.optimizer.Adam())
    weight, grad = mx.nd.ones(3), mx.nd.ones(3)
    updater(0, grad, weight)
    references = weakref.ref(weight), weakref.ref(grad)
    del weight, grad
    assert [reference() for reference in references] == [None, None]


def test_program_may_clear_or_set_states():
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(momentum=0.9, learning_rate=1.0))
    weight, grad = mx.nd.zeros(2), mx.nd.ones(2)
    updater(0, grad, weight)
    updater.states = {}
    updater(0, grad, weight)
    assert weight.asnumpy().tolist() == [-2, -2]
    updater.states[1] = mx.nd.ones(2)
    updater(1, grad, mx.nd.zeros(2))
    np.testing.assert_allclose(updater.states[1].asnumpy(), -0.1, rtol=1e-6)


def test_new_gradient_arrays_for_each_update():
    """As with a key-value store."""

    def run(updater):
        weights = [mx.nd.ones((2, 2)), mx.nd.ones(3)]
        for step in range(4):
            for i, weight in enumerate(weights):
                updater(i, weight * step, weight)
        return [weight.asnumpy() for weight in weights]

    make = lambda: mx.optimizer.get_updater(mx.optimizer.Adam(rescale_grad=0.1))  # noqa: E731
    assert_same(run(make()), run(one_by_one(make())))


def test_saving_and_loading_states_is_bitwise_exact(tmp_path):
    """Adam's moments are stored divided by the batch size, which is not a power of two here."""

    def run(save_at, load_at):
        mx.random.seed(3)
        rng = np.random.RandomState(0)
        net = mx.gluon.nn.Dense(3, in_units=5)
        net.initialize()
        trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
        for step in range(8):
            if step == save_at:
                trainer.save_states(str(tmp_path / "states"))
            if step == load_at:
                trainer = mx.gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
                trainer.load_states(str(tmp_path / "states"))
            with mx.autograd.record():
                out = net(mx.nd.array(rng.normal(size=(12, 5)))) ** 2
            out.backward()
            trainer.step(12)
        return net.weight.data().asnumpy()

    expected = run(None, None)
    np.testing.assert_array_equal(run(4, None), expected)
    np.testing.assert_array_equal(run(4, 4), expected)


@pytest.mark.parametrize("name", ["sgd", "adam", "nag", "rmsprop", "adagrad"])
def test_weights_of_any_memory_format(name):
    """A convolution's weight is channels_last until a program takes a view; kernels only see the memory order."""

    def run(look):
        rng = np.random.RandomState(0)
        net = mx.gluon.nn.Conv2D(3, 2, in_channels=4)
        net.initialize()
        net.weight.set_data(mx.nd.array(rng.normal(size=(3, 4, 2, 2))))
        options = {"momentum": 0.9} if name in ("sgd", "nag") else {}
        trainer = mx.gluon.Trainer(net.collect_params(), name, {"learning_rate": 0.1, **options})
        for step in range(6):
            with mx.autograd.record():
                out = net(mx.nd.array(rng.normal(size=(2, 4, 5, 5)))) ** 2
            out.backward()
            if step == look:
                net.weight.data()[1]  # a view, which makes the memory contiguous
            trainer.step(2)
        return net.weight.data()

    found, expected = run(3), run(None)
    assert found._data.is_contiguous() and not expected._data.is_contiguous()
    np.testing.assert_allclose(found.asnumpy(), expected.asnumpy(), rtol=1e-5, atol=1e-6)


def test_adamax_takes_no_step_for_zero_gradients():
    optimizer, weight = mx.optimizer.Adamax(learning_rate=0.5), mx.nd.array([1.0, 2.0])
    state = optimizer.create_state(0, weight)
    for _ in range(2):
        optimizer.update(0, weight, mx.nd.array([0.0, 3.0]), state)
    np.testing.assert_allclose(weight.asnumpy(), [1.0, 1.0], rtol=1e-6)


@pytest.mark.parametrize("name", ["sgd", "adam", "lars", "lbsgd", "nag"])
def test_the_factor_of_the_rate_applies_to_each_way_to_update(name):
    """A job that scales its batch with its workers sets the factor."""
    moved = []
    for rate, factor in ((0.2, 1.0), (0.4, 0.5)):
        optimizer = mx.optimizer.create(name, learning_rate=rate)
        optimizer.rate_factor = factor
        weight = mx.nd.ones((3,))
        mx.optimizer.get_updater(optimizer)([0], [mx.nd.array([1.0, 2.0, 3.0])], [weight])
        moved.append(weight.asnumpy())
    np.testing.assert_allclose(moved[0], moved[1], rtol=1e-6)
    assert np.all(moved[0] < 1)
