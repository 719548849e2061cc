"""The linear probe finds the optimum of regularized logistic regression."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.learn import LinearProbe, features


def data(count=60, seed=0):
    random = np.random.default_rng(seed)
    y = random.integers(0, 3, count)
    x = random.standard_normal((count, 4)) * [1, 10, 0.1, 1] + np.eye(3, 4)[y] * [2, 20, 0.2, 0] + 5
    x[:, 3] = 7  # constant
    return x, y


def test_gradient_of_the_objective_is_zero_at_the_solution():
    x, y = data()
    probe = LinearProbe(3, l2=0.01).fit(x, y)
    scaled = np.divide(x - x.mean(0), x.std(0), out=np.zeros_like(x), where=x.std(0) > 0)
    rows = np.concatenate([scaled, np.ones((60, 1))], 1)
    weight = probe.weight.numpy()
    p = np.exp(rows @ weight.T)
    p /= p.sum(1, keepdims=True)
    slope = (p - np.eye(3)[y]).T @ rows / 60 + 0.01 * weight * ([1] * 4 + [0])
    assert np.abs(slope).max() < 1e-6
    assert probe.accuracy(x, y) == (p.argmax(1) == y).mean() > 0.7
    np.testing.assert_array_equal(probe.predict(x), p.argmax(1))
    other = LinearProbe(3, l2=0.01).fit(x[::-1], y[::-1])  # the unique solution, from other rounding
    np.testing.assert_allclose(other.weight.numpy(), weight, atol=1e-5)


def test_unfinished_search_warns():
    with pytest.warns(UserWarning, match="the gradient is still .* after 1 steps. Pass more steps or a larger l2"):
        LinearProbe(3, steps=1).fit(*data())


def test_features_come_from_the_network_in_prediction_mode():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=4), nn.Dropout(0.9))
    net.initialize()
    x, y = data(10)
    batches = gluon.data.DataLoader(gluon.data.ArrayDataset(x.astype("float32"), y.astype("float32")), 4)
    with autograd.record():  # does not matter
        rows, labels = features(net, batches)
    np.testing.assert_allclose(rows, net(nd.array(x)).asnumpy(), rtol=1e-5)
    np.testing.assert_array_equal(labels, y)
    images = features(lambda x: x.reshape((-1, 2, 2)), batches)[0]
    assert images.shape == (10, 4)


def test_wrong_input_is_rejected():
    x, y = data()
    with pytest.raises(mx.MXNetError, match="call fit first"):
        LinearProbe(3).predict(x)
    with pytest.raises(ValueError, match="labels must be from 0 to 1, received 0 to 2"):
        LinearProbe(2).fit(x, y)
    with pytest.raises(ValueError, match=r"each of 60 samples, received the shape \(59,\)"):
        LinearProbe(3).fit(x, y[1:])
    with pytest.raises(ValueError, match=r"shape \(samples, features\), received \(60,\)"):
        LinearProbe(3).fit(x[:, 0], y)
    with pytest.raises(mx.MXNetError, match="fitted to 4 features, received 3"):
        LinearProbe(3).fit(x, y).predict(x[:, :3])
    with pytest.raises(ValueError, match="l2 must be positive, so that the solution is unique, received 0"):
        LinearProbe(3, l2=0)
    with pytest.raises(mx.MXNetError, match="no samples on any worker"):
        LinearProbe(3).fit(x[:0], y[:0])
    with pytest.raises(mx.MXNetError, match="there are no batches"):
        features(lambda x: x, [])
