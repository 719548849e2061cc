"""Training on several pretend devices gives the same results as on one."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

DEVICES = [mx.gpu(1), mx.gpu(2)]


def network():
    net = nn.HybridSequential(prefix="net_")
    with net.name_scope():
        # Batch statistics would make halves of a batch train differently from the whole.
        net.add(nn.Conv2D(3, 3, padding=1), nn.BatchNorm(use_global_stats=True), nn.Activation("relu"))
        net.add(nn.MaxPool2D(), nn.Dense(4))
    return net


def batch(count=8):
    rng = np.random.RandomState(0)
    return rng.uniform(-1, 1, (count, 2, 6, 6)).astype("float32"), rng.randint(0, 4, count).astype("float32")


def train(contexts, optimizer="sgd", steps=3, hybridize=False, kvstore="device", **settings):
    """Return the weights after some steps, by name."""
    net = network()
    mx.random.seed(3)
    net.initialize(mx.init.Xavier(), ctx=mx.cpu())
    net(mx.nd.zeros((1, 2, 6, 6)))  # deferred shapes
    net.collect_params().reset_ctx(contexts)
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), optimizer, {"learning_rate": 0.1, **settings}, kvstore=kvstore)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    images, labels = batch()
    for _ in range(steps):
        parts = zip(
            gluon.utils.split_and_load(images, contexts), gluon.utils.split_and_load(labels, contexts), strict=True
        )
        with autograd.record():
            losses = [loss(net(x), y) for x, y in parts]
        assert [each.context for each in losses] == list(contexts)
        autograd.backward(losses)
        trainer.step(len(images))
    for param in net.collect_params().values():
        assert param.list_ctx() == list(contexts)
        for each in param.list_data():
            np.testing.assert_array_equal(each.asnumpy(), param.list_data()[0].asnumpy())
    return {name: param.data(contexts[0]).asnumpy() for name, param in net.collect_params().items()}


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw", "lamb", "rmsprop", "nag", "signum"])
def test_training_on_several_devices_equals_the_cpu(optimizer):
    settings = {"momentum": 0.9} if optimizer in ("sgd", "nag", "signum") else {}
    expected = train([mx.cpu()], optimizer, **settings)
    received = train(DEVICES, optimizer, **settings)
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("kvstore", ["local", "device", None])
@pytest.mark.parametrize("hybridize", [False, True])
def test_stores_and_hybridized_networks(kvstore, hybridize):
    expected = train([mx.cpu()])
    contexts = DEVICES if kvstore else DEVICES[:1]
    for name, value in train(contexts, kvstore=kvstore, hybridize=hybridize).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-4, atol=1e-5, err_msg=name)


def test_backward_runs_in_threads_of_the_device():
    # On an accelerator torch runs backward, with all its hooks, in a separate thread.
    expected = train([mx.cpu()], "adam")
    with torch.autograd.set_multithreading_enabled(True):
        received = train([mx.gpu(0)], "adam")
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=2e-4, atol=2e-5, err_msg=name)


def test_grad_req_write_and_add_in_threads_of_the_device():
    x = nd.array([1.0, 2.0], ctx=mx.gpu(0))
    with torch.autograd.set_multithreading_enabled(True):
        for request, expected in (("write", [2, 4]), ("add", [4, 8])):
            x.attach_grad(request)
            for _ in range(2):
                with autograd.record():
                    y = x * x
                y.backward()
            assert x.grad.context == mx.gpu(0)
            np.testing.assert_array_equal(x.grad.asnumpy(), expected)


def test_optimizer_states_move_between_devices(tmp_path):
    def make(contexts):
        net = nn.Dense(2, in_units=3, prefix="net_")
        net.initialize(mx.init.One(), ctx=contexts)
        return net, gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})

    def step(net, trainer, contexts, times):
        for _ in range(times):
            with autograd.record():
                losses = [(net(nd.ones((2, 3), ctx=ctx)) ** 2).sum() for ctx in contexts]
            autograd.backward(losses)
            trainer.step(2 * len(contexts))
        return net.weight.data(contexts[0]).asnumpy()

    whole = step(*make(DEVICES), DEVICES, 4)
    net, trainer = make(DEVICES)
    step(net, trainer, DEVICES, 2)
    net.save_parameters(str(tmp_path / "net.params"))
    trainer.save_states(str(tmp_path / "trainer.states"))
    for contexts in (DEVICES, [mx.gpu(0)], [mx.cpu()], [mx.gpu(3), mx.gpu(0)]):
        net, trainer = make(contexts)
        step(net, trainer, contexts, 1)
        net.load_parameters(str(tmp_path / "net.params"), ctx=contexts)
        trainer.load_states(str(tmp_path / "trainer.states"))
        np.testing.assert_allclose(step(net, trainer, contexts, 2), whole, rtol=1e-5)


def test_module_on_two_devices_equals_the_cpu():
    def fit(contexts):
        images, labels = batch(16)
        data = mx.io.NDArrayIter(images.reshape(16, -1), labels, batch_size=8, label_name="softmax_label")
        net = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=8, name="first")
        net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="tanh"), num_hidden=4, name="last")
        module = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=contexts)
        mx.random.seed(1)
        np.random.seed(1)
        module.fit(
            data,
            num_epoch=2,
            optimizer_params={"learning_rate": 0.5, "momentum": 0.9},
            initializer=mx.init.Constant(0.05),
            eval_metric=["acc", "ce"],
        )
        scores = module.score(data, ["acc", "ce"])
        return {name: value.asnumpy() for name, value in module.get_params()[0].items()}, dict(scores)

    expected, scores = fit(mx.cpu())
    received, on_devices = fit(DEVICES)
    for name, value in expected.items():
        np.testing.assert_allclose(received[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    assert on_devices == pytest.approx(scores, rel=1e-4)


def test_groups_of_a_symbol_on_separate_devices():
    with mx.AttrScope(ctx_group="first"):
        net = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=4, name="a"), act_type="tanh")
    with mx.AttrScope(ctx_group="second"):
        net = mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="bn", fix_gamma=False), num_hidden=2, name="b")

    def run(default, groups):
        bound = net.simple_bind(default, x=(4, 3), group2ctx=groups)
        rng = np.random.RandomState(0)
        for array in bound.arg_arrays:
            array[:] = rng.uniform(-1, 1, array.shape)
        bound.forward(is_train=True)
        bound.backward(nd.ones((4, 2), ctx=bound.outputs[0].context))
        return bound, [a.asnumpy() for a in (*bound.outputs, *bound.grad_arrays, *bound.aux_arrays)]

    _, expected = run(mx.cpu(), None)
    bound, received = run(mx.gpu(0), {"first": mx.gpu(1), "second": mx.gpu(2)})
    assert bound.arg_dict["a_weight"].context == bound.grad_dict["a_weight"].context == mx.gpu(1)
    assert bound.arg_dict["b_weight"].context == bound.outputs[0].context == mx.gpu(2)
    for a, b in zip(received, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_mixed_precision_with_a_scaled_loss():
    mx.amp.init("bfloat16")
    try:
        net = nn.Dense(2, in_units=3, prefix="net_")
        net.initialize(mx.init.Constant(0.5), ctx=DEVICES)
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
        mx.amp.init_trainer(trainer)
        loss = gluon.loss.L2Loss()
        with autograd.record():
            losses = [loss(net(nd.ones((2, 3), ctx=ctx)), nd.zeros((2, 2), ctx=ctx)) for ctx in DEVICES]
            with mx.amp.scale_loss(losses, trainer) as scaled:
                autograd.backward(scaled)
        trainer.step(4)
        # Each output is 0.5 * 3, the derivative of half its square; the gradient is the mean over four samples.
        np.testing.assert_allclose(net.weight.data(DEVICES[1]).asnumpy(), 0.5 - 0.1 * 0.75, rtol=1e-2)
    finally:
        mx.amp.amp._reset()


def test_gradients_are_clipped_by_their_norm_over_devices():
    arrays = [nd.array([3.0], ctx=DEVICES[0]), nd.array([4.0], ctx=DEVICES[1])]
    assert gluon.utils.clip_global_norm(arrays, 1.0) == pytest.approx(5)
    np.testing.assert_allclose([each.asscalar() for each in arrays], [0.6, 0.8], rtol=1e-5)
    assert [each.context for each in arrays] == DEVICES


def test_twin_of_a_block_stays_on_the_device():
    net = nn.Dense(2, in_units=3)
    net.initialize(ctx=mx.gpu(1))
    x = nd.ones((4, 3), ctx=mx.gpu(1))
    result = net.torch()(x.to_torch())
    assert str(result.device) == "pretend:1"
    np.testing.assert_allclose(result.detach().cpu().numpy(), net(x).asnumpy(), rtol=1e-6)


def test_recurrent_layers_with_states_on_a_device():
    for layer in (gluon.rnn.LSTM, gluon.rnn.GRU, gluon.rnn.RNN):
        results = []
        for ctx in (mx.cpu(), mx.gpu(1)):
            net = layer(4, num_layers=2, bidirectional=True, input_size=3)
            mx.random.seed(5)
            net.initialize(mx.init.Constant(0.1), ctx=ctx)
            x = nd.array(np.random.RandomState(0).uniform(-1, 1, (5, 2, 3)), ctx=ctx)
            x.attach_grad()
            with autograd.record():
                output, states = net(x, net.begin_state(2, ctx=ctx))
                total = output.sum() + sum(state.square().sum() for state in states)
            total.backward()
            assert {a.context for a in (output, *states, x.grad)} == {ctx}
            weights = net.collect_params().values()
            results.append([a.asnumpy() for a in (output, *states, x.grad, *(w.grad(ctx) for w in weights))])
        for a, b in zip(*results, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
