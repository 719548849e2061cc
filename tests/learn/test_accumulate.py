"""Micro-batches and clipping in one process; tests/learn/test_learn_workers.py compares workers with one process."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

LOSS = gluon.loss.L2Loss()


def network():
    net = nn.HybridSequential()
    net.add(nn.Dense(4, in_units=3, activation="tanh"), nn.Dense(2, in_units=4))
    net.initialize(mx.init.Xavier())
    return net


def backward(net, x, y):
    with autograd.record():
        loss = LOSS(net(x), y)
    loss.backward()


def gradients(net):
    return {name: param.grad().asnumpy() for name, param in net.collect_params().items()}


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("count", [1, 3, 7, 100])
def test_gradients_of_parts_add_up(count, hybridize):
    net = network()
    x, y = nd.random.normal(shape=(7, 3)), nd.random.normal(shape=(7, 2))
    backward(net, x, y)
    expected = gradients(net)
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
    for _ in range(2):  # the second time, gradients start from zero again
        sizes = []
        for part_x, part_y in learn.micro_batches(trainer, count, x, y):
            sizes.append(len(part_x))
            backward(net, part_x, part_y)
        assert sum(sizes) == 7 and len(sizes) == min(count, 7) and max(sizes) - min(sizes) <= 1
        for name, value in gradients(net).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
        trainer.step(7)


def test_frozen_parameters_stay_frozen_and_newly_trained_ones_add_up():
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
    x, y = nd.ones((4, 3)), nd.ones((4, 2))
    learn.freeze(net, net[0])
    for part in learn.micro_batches(trainer, 2, x, y):
        backward(net, *part)
    assert [param.grad_req for param in net.collect_params().values()] == ["null", "null", "add", "add"]
    trainer.step(4)
    learn.unfreeze(net)
    for part in learn.micro_batches(trainer, 2, x, y):
        backward(net, *part)
    found = gradients(net)
    trainer.step(4)
    for part in learn.micro_batches(trainer, 1, x, y):
        backward(net, *part)
    for name, value in gradients(net).items():
        np.testing.assert_allclose(value, found[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("max_norm", [0.1, 100.0])
def test_clipped_step_applies_the_scaled_mean(max_norm):
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
    x, y = nd.random.normal(shape=(6, 3)), nd.random.normal(shape=(6, 2))
    before = {name: param.data().asnumpy() for name, param in net.collect_params().items()}
    backward(net, x, y)
    means = {name: value / 6 for name, value in gradients(net).items()}
    norm = np.sqrt(sum((value.astype("float64") ** 2).sum() for value in means.values()))
    assert 0.1 < norm < 100
    found = learn.clipped_step(trainer, 6, max_norm)
    assert found == pytest.approx(norm, rel=1e-5)
    for name, param in net.collect_params().items():
        expected = before[name] - 0.5 * means[name] * min(1, max_norm / norm)
        np.testing.assert_allclose(param.data().asnumpy(), expected, rtol=1e-5, atol=1e-6)


def test_parameters_without_a_new_gradient_do_not_count():
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0})
    x, y = nd.random.normal(shape=(6, 3)), nd.random.normal(shape=(6, 2))
    backward(net, x, y)
    trainer.step(6)
    with autograd.record():
        loss = net[1](nd.ones((6, 4))).sum()
    loss.backward()
    expected = np.sqrt(sum((param.grad().asnumpy() ** 2).sum() for param in net[1].collect_params().values())) / 6
    found = learn.clipped_step(trainer, 6, 100, ignore_stale_grad=True)
    assert found == pytest.approx(expected, rel=1e-5)


def test_loss_scale_does_not_change_the_norm():
    net = network()
    x, y = nd.random.normal(shape=(6, 3)), nd.random.normal(shape=(6, 2))
    norms = []
    for scale in (1.0, 1024.0):
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.0, "rescale_grad": 1 / scale})
        with autograd.record():
            loss = LOSS(net(x), y) * scale
        loss.backward()
        norms.append(learn.clipped_step(trainer, 6, 1.0))
    assert norms[0] == pytest.approx(norms[1], rel=1e-6)


def test_invalid_arguments_are_rejected():
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    x = nd.ones((4, 3))
    for call, kind, text in (
        (lambda: learn.micro_batches(net, 2, x), TypeError, "expected a gluon.Trainer"),
        (lambda: learn.micro_batches(trainer, 0, x), ValueError, "count must be a positive integer, received 0"),
        (lambda: learn.micro_batches(trainer, 2), TypeError, "expected the arrays of a batch"),
        (lambda: learn.micro_batches(trainer, 2, [1, 2]), TypeError, "received list"),
        (lambda: learn.micro_batches(trainer, 2, x, x[:3]), ValueError, r"received \[4, 3\]"),
        (lambda: learn.clipped_step(trainer, 4, 0), ValueError, "max_norm must be a number above 0"),
        (lambda: learn.clipped_step(trainer, 0, 1), ValueError, "batch_size must be a nonzero number, received 0"),
        (lambda: learn.clipped_step(None, 4, 1), TypeError, "expected a gluon.Trainer"),
    ):
        with pytest.raises(kind, match=text):
            call()
    updated_in_store = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    with pytest.raises(mx.MXNetError, match="create the Trainer with update_on_kvstore=False"):
        learn.clipped_step(updated_in_store, 4, 1.0)
    sparse = nn.Embedding(5, 2, sparse_grad=True)
    sparse.initialize()
    with pytest.raises(mx.MXNetError, match="is row-sparse"):
        learn.clipped_step(gluon.Trainer(sparse.collect_params(), "sgd"), 1, 1.0)


def test_ordinary_steps_after_micro_batches_do_not_accumulate():
    def weights(count):
        net = gluon.nn.Dense(1, in_units=3)
        net.initialize(mx.init.One())
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.05})
        x = nd.arange(24).reshape((8, 3)) / 24
        for step in range(6):
            parts = learn.micro_batches(trainer, count, x) if step in (0, 3) and count else [(x,)]
            for (part,) in parts:
                with autograd.record():
                    loss = (net(part) - part.sum(axis=1, keepdims=True) * 2) ** 2
                loss.backward()
            trainer.step(8)
        return net.weight.data().asnumpy()

    np.testing.assert_allclose(weights(2), weights(0), rtol=1e-6)  # sums of parts are rounded differently
