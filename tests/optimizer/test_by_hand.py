"""Optimizer.set_aggregate and update(): gradients that the program hands in."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd


def test_gradients_are_applied_with_the_states_of_their_weights():
    rule = mx.optim.SGD(learning_rate=0.1, momentum=0.9)
    weights, speeds = [np.ones(3), np.full(2, 2.0)], [0.0, 0.0]
    arrays = [nd.array(each) for each in weights]
    for step in range(3):
        gradients = [np.arange(3.0) + step, np.full(2, -1.0)]
        rule.set_aggregate([nd.array(each) for each in gradients], arrays)
        rule.update()
        speeds = [0.9 * speed - 0.1 * each for speed, each in zip(speeds, gradients, strict=True)]
        weights = [weight + speed for weight, speed in zip(weights, speeds, strict=True)]
    for array, expected in zip(arrays, weights, strict=True):
        np.testing.assert_allclose(array.asnumpy(), expected, rtol=1e-6)  # rounding of float32
    assert rule.num_update == 3


def net_with_gradients():
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    net.bias.grad_req = "null"
    with autograd.record():
        loss = (net(nd.ones((1, 3))) * nd.array([[1, 2]])).sum()
    loss.backward()
    return net


@pytest.mark.parametrize(
    "hand_in",
    [
        lambda rule, net: (rule.set_aggregate(net), rule.update()),
        lambda rule, net: (rule.set_aggregate(net.collect_params()), rule.update()),
        lambda rule, net: (rule.set_aggregate([net.weight]), rule.update()),
        lambda rule, net: (rule.set_aggregate(net.weight.grad()), rule.update(net.weight.data())),
        lambda rule, net: (rule.set_aggregate({"w": net.weight.grad()}, {"w": net.weight.data()}), rule.update()),
        lambda rule, net: (rule.set_aggregate([net.weight.grad()]), rule.update([net.weight])),
    ],
)
def test_blocks_parameters_and_arrays(hand_in):
    net = net_with_gradients()
    hand_in(mx.optim.SGD(learning_rate=0.5), net)
    np.testing.assert_array_equal(net.weight.data().asnumpy(), [[0.5] * 3, [0] * 3])


def test_the_optimizer_updates_as_usual_before_and_after():
    rule, weight = mx.optim.SGD(learning_rate=1.0), nd.ones(1)
    rule.set_aggregate(nd.ones(1))
    rule.update(0, weight, nd.ones(1), None)  # MXNet's call
    assert weight.asscalar() == 0
    rule.set_aggregate(nd.array([5]))  # replaces the first
    rule.update(weight)
    assert weight.asscalar() == -5
    rule.update(0, weight, nd.ones(1), None)
    assert weight.asscalar() == -6 and "update" not in rule.__getstate__()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda rule: rule.update(), TypeError, "missing"),
        (lambda rule: (rule.set_aggregate(nd.ones(1)), rule.update()), ValueError, "does not know the weights"),
        (
            lambda rule: (rule.set_aggregate([nd.ones(1)]), rule.update([nd.ones(1)] * 2)),
            ValueError,
            "the gradients are 0, the weights 0, 1",
        ),
        (
            lambda rule: (rule.set_aggregate(nd.ones(1)), rule.update(nd.ones(2))),
            ValueError,
            r"gradient 0 has shape \(1,\), but its weight \(2,\)",
        ),
        (lambda rule: rule.set_aggregate(3), TypeError, "gradients must be an array, .* received int"),
        (lambda rule: rule.set_aggregate(["a"]), TypeError, "gradients must contain arrays, received str"),
        (lambda rule: rule.set_aggregate([]), TypeError, "received list"),
    ],
)
def test_mistakes_are_named(call, kind, words):
    with pytest.raises(kind, match=words):
        call(mx.optim.SGD())


def test_parameters_on_several_contexts_need_a_trainer():
    net = gluon.nn.Dense(1, in_units=1)
    net.initialize(ctx=[mx.cpu(0), mx.cpu(1)])
    with pytest.raises(mx.MXNetError, match="is on several contexts. Use gluon.Trainer"):
        mx.optim.SGD().set_aggregate(net)
