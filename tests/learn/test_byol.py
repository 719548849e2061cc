"""BYOL's loss agrees with its definition, no gradient reaches the target, and the target is a moving average."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.learn import BYOL


def parts(hybridize=False):
    net, predictor = nn.HybridSequential(), nn.Dense(4, in_units=4)
    net.add(nn.Dense(6, activation="relu", in_units=3), nn.Dense(4, in_units=6))
    for block in (net, predictor):
        block.initialize(mx.init.Xavier())
        if hybridize:
            block.hybridize()
    return net, predictor


def views():
    random = np.random.default_rng(0)
    return [nd.array(each) for each in random.standard_normal((2, 5, 3))]


def unit(x):
    x = x.asnumpy().astype("float64")
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("hybridize", [False, True])
def test_loss_is_the_squared_distance_of_unit_vectors(hybridize):
    net, predictor = parts(hybridize)
    byol = BYOL(net, predictor)
    one, other = views()
    found = byol(one, other).asnumpy()
    pairs = [(unit(predictor(net(a))), unit(byol.target(b))) for a, b in ((one, other), (other, one))]
    expected = sum(((p - t) ** 2).sum(1) for p, t in pairs)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)  # float32


def test_target_gets_no_gradient_and_moves_towards_the_network():
    net, predictor = parts()
    byol = BYOL(net, predictor, decay=0.75)
    start = [param.data().asnumpy().copy() for param in byol.target.collect_params().values()]
    trainer = gluon.Trainer(byol.collect_params(), "sgd", {"learning_rate": 0.5})
    assert len(trainer._params) == 6  # three layers
    with autograd.record():
        loss = byol(*views())
    loss.backward()
    trainer.step(5)
    for param, before in zip(byol.target.collect_params().values(), start, strict=True):
        np.testing.assert_array_equal(param.data().asnumpy(), before)
        assert param.grad_req == "null"
    byol.update()
    trained = [param.data().asnumpy() for param in net.collect_params().values()]
    for param, before, now in zip(byol.target.collect_params().values(), start, trained, strict=True):
        assert (now != before).any()
        np.testing.assert_allclose(param.data().asnumpy(), 0.75 * before + 0.25 * now, rtol=1e-5, atol=1e-7)


def test_wrong_arguments_are_rejected():
    with pytest.raises(ValueError, match="decay must be from 0 to 1, received 2"):
        BYOL(*parts(), decay=2)
    with pytest.raises(RuntimeError, match="Run one batch"):
        net = nn.Dense(3)
        net.initialize()
        BYOL(net, nn.Dense(3))
