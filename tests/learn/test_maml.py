"""MAML's meta-gradients equal central differences in double precision, and adaptation is plain gradient descent."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.learn import adapt, call_with, maml_loss

RATE = 0.3


def network(hybridize=False, dtype="float64"):
    net = nn.HybridSequential()
    net.add(nn.Dense(5, activation="tanh", in_units=3), nn.Dense(2, in_units=5))
    net.initialize()
    random = np.random.default_rng(0)
    net.cast(dtype)
    for param in net.collect_params().values():
        param.set_data(nd.array(random.standard_normal(param.shape) * 0.5, dtype=dtype))
    if hybridize:
        net.hybridize()
    return net


def episodes(dtype="float64"):
    random = np.random.default_rng(1)
    x, query = random.standard_normal((2, 6, 3)), random.standard_normal((2, 4, 3))
    labels = random.integers(0, 2, (2, 6)), random.integers(0, 2, (2, 4))
    return [nd.array(each, dtype=dtype) for each in (x, labels[0], query, labels[1])]


LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def weights(net):
    return [param.data().asnumpy().copy() for param in net.collect_params().values()]


def meta_loss_by_descent(net, steps):
    """The sum of the episodes' losses after steps that change the network's weights with plain gradients."""
    total, start = 0.0, weights(net)
    for x, y, query, expected in zip(*episodes(), strict=True):
        for _ in range(steps):
            with autograd.record():
                value = LOSS(net(x), y).mean()
            value.backward()
            for param in net.collect_params().values():
                param.set_data(param.data() - RATE * param.grad())
        total += float(LOSS(net(query), expected).mean().asscalar())
        for param, value in zip(net.collect_params().values(), start, strict=True):
            param.set_data(nd.array(value, dtype="float64"))
    return total


def gradients(net, steps, first_order=False):
    with autograd.record():
        losses = maml_loss(net, LOSS, *episodes(), RATE, steps, first_order)
    losses.backward()
    return losses.asnumpy(), [param.grad().asnumpy().copy() for param in net.collect_params().values()]


@pytest.mark.parametrize("hybridize", [False, True])
@pytest.mark.parametrize("steps", [1, 3])
def test_meta_gradients_equal_central_differences(steps, hybridize):
    net = network(hybridize)
    before = weights(net)
    losses, found = gradients(net, steps)
    for a, b in zip(before, weights(net), strict=True):
        np.testing.assert_array_equal(a, b)  # adaptation leaves the network as it is
    assert losses.shape == (2,)
    np.testing.assert_allclose(losses.sum(), meta_loss_by_descent(net, steps), rtol=1e-12)
    step = 1e-5  # of a central difference: its error is about step ** 2 = 1e-10, times third derivatives
    for param, gradient in zip(net.collect_params().values(), found, strict=True):
        value = param.data().asnumpy().copy()
        for at in [(0,) * value.ndim, (-1,) * value.ndim]:
            sides = []
            for sign in (1, -1):
                moved = value.copy()
                moved[at] += sign * step
                param.set_data(nd.array(moved, dtype="float64"))
                sides.append(meta_loss_by_descent(net, steps))
            param.set_data(nd.array(value, dtype="float64"))
            np.testing.assert_allclose(gradient[at], (sides[0] - sides[1]) / (2 * step), rtol=1e-6, atol=1e-8)


def test_first_order_gradients_are_those_at_the_adapted_weights():
    net = network()
    _, found = gradients(net, 2, first_order=True)
    expected = [np.zeros_like(each) for each in found]
    for x, y, query, label in zip(*episodes(), strict=True):
        adapted = adapt(net, LOSS, x, y, RATE, 2)
        other = network()
        for param, value in zip(other.collect_params().values(), adapted.values(), strict=True):
            param.set_data(value)
        with autograd.record():
            value = LOSS(other(query), label).mean()
        value.backward()
        expected = [a + p.grad().asnumpy() for a, p in zip(expected, other.collect_params().values(), strict=True)]
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-14)
    assert not np.allclose(found[0], gradients(net, 2)[1][0], rtol=1e-3)  # the second order makes a difference


def test_call_with_computes_with_given_weights_and_leaves_those_of_the_network():
    net = network()
    x = episodes()[0][0]
    before = net(x).asnumpy()
    held = next(iter(net.collect_params().values())).data()  # a program may hold the array
    zeros = {name: nd.zeros(each.shape, dtype="float64") for name, each in net.torch().named_parameters()}
    assert not call_with(net, zeros, x).asnumpy().any()
    np.testing.assert_array_equal(net(x).asnumpy(), before)
    assert held.asnumpy().any()
    part = {"1.bias": nd.ones(2, dtype="float64")}
    expected = before - net[1].bias.data().asnumpy() + 1
    np.testing.assert_allclose(call_with(net, part, x).asnumpy(), expected, rtol=1e-12)


def test_adaptation_outside_record_lowers_the_loss_and_keeps_gradients():
    net = network()
    x, y = (each[0] for each in episodes()[:2])
    with autograd.record():
        before = LOSS(net(x), y).mean()
    before.backward()
    gradient = net[0].weight.grad().asnumpy().copy()
    adapted = adapt(net, LOSS, x, y, RATE, 5)
    after = LOSS(call_with(net, adapted, x), y).mean()
    assert float(after.asscalar()) < float(before.asscalar())
    np.testing.assert_array_equal(net[0].weight.grad().asnumpy(), gradient)


def test_frozen_parameters_are_not_adapted():
    net = network()
    net[0].collect_params().setattr("grad_req", "null")
    assert set(adapt(net, LOSS, episodes()[0][0], episodes()[1][0], RATE)) == {"1.weight", "1.bias"}


def test_numpy_arrays_give_the_same_gradients():
    _, expected = gradients(network(), 2)
    net = network()
    with mx.np_array(True), autograd.record():
        losses = maml_loss(net, LOSS, *(each.as_np_ndarray() for each in episodes()), RATE, 2)
    assert isinstance(losses, mx.np.ndarray)
    losses.backward()
    for a, b in zip(expected, net.collect_params().values(), strict=True):
        np.testing.assert_allclose(b.grad().asnumpy(), a, rtol=1e-12, atol=1e-15)


def test_training_with_a_trainer_finds_weights_that_adapt_better():
    net = network(dtype="float32")
    arrays = episodes("float32")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    values = []
    for _ in range(30):
        with autograd.record():
            losses = maml_loss(net, LOSS, *arrays, RATE)
        losses.backward()
        trainer.step(2)
        values.append(float(losses.mean().asscalar()))
    assert values[-1] < 0.5 * values[0]


def test_wrong_arguments_are_rejected():
    net = network()
    x, y, query, label = episodes()
    with pytest.raises(ValueError, match="positive rate and at least one step, received rate=0, steps=1"):
        adapt(net, LOSS, x[0], y[0], 0)
    with pytest.raises(mx.MXNetError, match=r"has no parameter '2\.weight'"):
        call_with(net, {"2.weight": nd.ones(1)}, x[0])
    with pytest.raises(mx.MXNetError, match=r"the same episodes, received the shapes \(1, 6, 3\), \(2, 6\)"):
        maml_loss(net, LOSS, x[:1], y, query, label, RATE)
    with pytest.raises(RuntimeError, match="has not been initialized"):
        adapt(nn.Dense(2), LOSS, x[0], y[0], RATE)


def test_unknown_shapes_are_inferred():
    net = nn.Dense(2)
    net.initialize()
    x, y, *_ = episodes("float32")
    assert adapt(net, LOSS, x[0], y[0], RATE)["weight"].shape == (2, 3)
