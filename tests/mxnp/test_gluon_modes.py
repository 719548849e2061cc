"""Gluon computes the same in NumPy mode as in nd mode, including losses that reject mx.np arrays in MXNet."""

import contextlib

import numpy as onp
import pytest
import torch
from launching import neomx_run, write

import neomx as mx
from neomx import autograd, gluon

LOSSES = {
    "huber": (lambda: gluon.loss.HuberLoss(0.3), (4, 3), "values"),
    "hinge": (gluon.loss.HingeLoss, (4, 1), "signs"),
    "squared_hinge": (gluon.loss.SquaredHingeLoss, (4, 1), "signs"),
    "logistic": (gluon.loss.LogisticLoss, (4, 1), "signs"),
    "kl_div": (lambda: gluon.loss.KLDivLoss(from_logits=False), (4, 3), "shares"),
    "poisson": (lambda: gluon.loss.PoissonNLLLoss(compute_full=True), (4, 3), "shares"),
    "sdml": (gluon.loss.SDMLLoss, (4, 3), "values"),
    "ctc": (gluon.loss.CTCLoss, (2, 8, 5), "words"),
}


@pytest.fixture
def np_mode():
    """Return a function that turns NumPy mode on until the test ends."""
    yield mx.npx.set_np
    mx.npx.reset_np()


def labels(kind, shape):
    rng = onp.random.RandomState(1)
    if kind == "signs":
        return rng.choice([-1.0, 1.0], shape[0])
    if kind == "shares":
        return rng.uniform(0.1, 3, shape)
    return rng.randint(0, 4, (2, 3)) if kind == "words" else rng.normal(size=shape)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_are_equal_in_both_modes(name, hybrid, np_mode):
    make, shape, kind = LOSSES[name]
    values = onp.random.RandomState(0).normal(size=shape).astype("float32")
    seen = []
    for array in (mx.nd.array, lambda data: mx.np.array(data, dtype="float32")):
        if seen:
            np_mode()
        loss = make()
        if hybrid:
            loss.hybridize()
        x = array(values)
        x.attach_grad()
        with autograd.record():
            out = loss(x, array(labels(kind, shape)))
        out.backward()
        seen.append((type(out), out.asnumpy(), x.grad.asnumpy()))
    (nd_type, *nd_values), (np_type, *np_values) = seen
    assert nd_type is mx.nd.NDArray and np_type is mx.np.ndarray
    for ours, theirs in zip(np_values, nd_values, strict=True):
        onp.testing.assert_allclose(ours.reshape(-1), theirs.reshape(-1), rtol=1e-6, atol=1e-7)


def digits_net(seed=0):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="tanh", in_units=6), gluon.nn.Dense(3, in_units=8))
    mx.random.seed(seed)
    net.initialize(mx.init.Xavier())
    return net


def train(net, array, steps=5, kvstore="device", wrap=contextlib.nullcontext):
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, kvstore=kvstore)
    error = gluon.loss.SoftmaxCrossEntropyLoss()
    losses = []
    for step in range(steps):
        rng = onp.random.RandomState(step)
        x, y = array(rng.normal(size=(4, 6)).astype("float32")), array(rng.randint(0, 3, 4).astype("float32"))
        with autograd.record(), wrap():
            loss = error(net(x), y)
        loss.backward()
        trainer.step(4)
        losses.append(loss.asnumpy().sum())
    return losses, [p.data().asnumpy() for p in net.collect_params().values()]


def test_net_created_before_numpy_mode_works_in_it(np_mode):
    """Its weights become mx.np arrays, and training continues."""
    expected = train(digits_net(), mx.nd.array)
    net = digits_net()
    before = net[0].weight.data()
    np_mode()
    assert type(net[0].weight.data()) is mx.np.ndarray and type(net[0].weight.grad()).__mro__.count(mx.np.ndarray)
    assert net[0].weight.data() is net[0].weight.data()
    losses, weights = train(net, mx.np.array)
    onp.testing.assert_allclose(losses, expected[0], rtol=1e-6)
    for ours, theirs in zip(weights, expected[1], strict=True):
        onp.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
    onp.testing.assert_array_equal(before.asnumpy(), weights[0])  # the same memory


def test_torch_trains_the_twin_of_a_net_in_numpy_mode(np_mode):
    np_mode()
    net = digits_net()
    module = net.torch()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    before = net[0].weight.data().asnumpy()
    module(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    assert not onp.array_equal(net[0].weight.data().asnumpy(), before)
    assert type(net(mx.np.ones((2, 6)))) is mx.np.ndarray


def test_autocast_computes_in_bfloat16(np_mode):
    np_mode()
    net = digits_net()
    with mx.npx.amp.autocast():
        assert net(mx.np.ones((2, 6))).to_torch().dtype is torch.bfloat16
    losses, _ = train(net, mx.np.array, wrap=mx.npx.amp.autocast)
    assert onp.isfinite(losses).all()


def test_model_zoo_and_estimator_accept_np_arrays(np_mode):
    np_mode()
    net = gluon.model_zoo.vision.resnet18_v1(classes=3, thumbnail=True)
    net.initialize()
    out = net(mx.np.ones((1, 3, 16, 16)))
    assert type(out) is mx.np.ndarray and out.shape == (1, 3)
    data = gluon.data.ArrayDataset(onp.ones((8, 6), "float32"), onp.zeros(8, "float32"))
    net = digits_net()
    accuracy = mx.metric.Accuracy()
    estimator = gluon.contrib.estimator.Estimator(
        net,
        gluon.loss.SoftmaxCrossEntropyLoss(),
        train_metrics=accuracy,
        trainer=gluon.Trainer(net.collect_params(), "sgd"),
    )
    estimator.fit(gluon.data.DataLoader(data, 4), epochs=3)
    assert net[0].weight.data().asnumpy().shape == (8, 6)


def test_metrics_accept_np_arrays(np_mode):
    np_mode()
    accuracy = mx.metric.Accuracy()
    accuracy.update(mx.np.array([0, 1]), mx.np.array([[0.7, 0.3], [0.6, 0.4]]))
    assert accuracy.get() == ("accuracy", 0.5)


def test_custom_initializer_receives_np_arrays(np_mode):
    class Own(mx.init.Initializer):
        def _init_weight(self, name, data):
            data[:] = mx.np.random.uniform(-10, 10, data.shape)
            data *= mx.np.abs(data) >= 5

    np_mode()
    layer = gluon.nn.Dense(20, in_units=30)
    layer.initialize(Own())
    values = onp.abs(layer.weight.data().asnumpy())
    assert ((values == 0) | (values >= 5)).all() and values.any()


def test_constants_of_np_arrays(np_mode):
    class Layer(gluon.HybridBlock):
        def __init__(self):
            super().__init__()
            self.c = self.params.get_constant("c", mx.np.array([1.0, 2.0]))

        def hybrid_forward(self, F, x, c):
            return x * c

    np_mode()
    layer = Layer()
    layer.initialize()
    assert layer(mx.np.ones(2)).tolist() == [1, 2]


@pytest.mark.parametrize("kind", ["local", "device"])
def test_kvstore_sums_np_arrays(kind, np_mode):
    np_mode()
    store = mx.kv.create(kind)
    store.init(3, mx.np.ones(2))
    store.push(3, [mx.np.ones(2), mx.np.ones(2)])
    out = mx.np.zeros(2)
    store.pull(3, out=out)
    assert out.tolist() == [2, 2]
    store.pushpull(3, [mx.np.ones(2), 2 * mx.np.ones(2)], out=out)
    assert out.tolist() == [3, 3]


@pytest.mark.parametrize("dtype", ["int64", "bool", "float32"])
def test_sample_weights_of_any_dtype(dtype, np_mode):
    np_mode()
    weights = mx.np.array(onp.array([[1], [0]]), dtype=dtype)
    loss = gluon.loss.L2Loss()(mx.np.ones((2, 3)), mx.np.zeros((2, 3)), weights)
    assert loss.dtype == onp.float32 and loss.tolist() == [0.5, 0]


@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("lengths", [None, [2, 3]])
def test_cells_unroll_np_arrays_like_nd_arrays(merge, lengths, np_mode):
    seen = []
    for array in (mx.nd.array, mx.np.array):
        if seen:
            np_mode()
        cell = gluon.rnn.LSTMCell(3, input_size=4)
        cell.initialize(mx.init.Constant(0.3))
        x = array(onp.random.RandomState(0).normal(size=(2, 3, 4)).astype("float32"))
        valid = None if lengths is None else array(onp.array(lengths, "float32"))
        outputs, states = cell.unroll(3, x, layout="NTC", merge_outputs=merge, valid_length=valid)
        seen.append([each.asnumpy() for each in ([outputs] if merge else outputs)] + [s.asnumpy() for s in states])
    assert type(states[0]) is mx.np.ndarray
    for ours, theirs in zip(*seen, strict=True):
        onp.testing.assert_allclose(ours, theirs, rtol=1e-6)


WORKER = """
    import sys

    import numpy as onp

    import neomx as mx
    from neomx import autograd, gluon

    mx.npx.set_np()
    rank, workers = mx.dist.rank(), mx.dist.size()
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(8, activation="tanh", in_units=6), gluon.nn.Dense(3, in_units=8))
    mx.random.seed(0)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01}, kvstore=sys.argv[2])
    error = gluon.loss.SoftmaxCrossEntropyLoss()
    for step in range(10):
        rng = onp.random.RandomState(step)
        x, y = rng.normal(size=(8, 6)).astype("float32"), rng.randint(0, 3, 8)
        mine = slice(rank * 8 // workers, (rank + 1) * 8 // workers)
        with autograd.record():
            loss = error(net(mx.np.array(x[mine])), mx.np.array(y[mine])).sum()
        loss.backward()
        trainer.step(8)
    total = mx.dist.all_reduce(mx.np.ones(2))
    assert type(total) is mx.np.ndarray and float(total.sum()) == 2 * workers
    if rank == 0:
        onp.save(sys.argv[1], onp.concatenate([p.data().asnumpy().ravel() for p in net.collect_params().values()]))
"""


def test_two_workers_match_one_worker_in_numpy_mode(tmp_path):
    """Two workers with half a batch each reach the weights of one worker with all of it, up to float32 rounding."""
    script = write(tmp_path, WORKER)
    weights = {}
    for how, arguments in {"one": ["-n", 1], "all-reduce": ["-n", 2], "servers": ["-n", 2, "-s", 1]}.items():
        out = tmp_path / f"{how}.npy"
        done = neomx_run(*arguments, script, out, "dist_sync")
        assert done.returncode == 0, done.stderr
        weights[how] = onp.load(out)
    for how in ("all-reduce", "servers"):
        onp.testing.assert_allclose(weights[how], weights["one"], rtol=2e-5, atol=2e-6, err_msg=how)
