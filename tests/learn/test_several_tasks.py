"""A shared trunk, and losses with fixed weights, learned uncertainties and balanced gradient norms."""

import numpy as np
import pytest

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

L2 = gluon.loss.L2Loss()


def shared():
    """Return a trunk of 4 units with heads of 3 and 1."""
    trunk = nn.Dense(4, in_units=2, activation="tanh")
    net = learn.SharedTrunk(trunk, {"class": nn.Dense(3, in_units=4), "value": nn.Dense(1, in_units=4)})
    net.initialize(mx.init.Xavier())
    return net


def test_heads_share_the_trunk_hybridized_or_not(tmp_path):
    net = shared()
    x = nd.random.normal(shape=(5, 2))
    plain = net(x)
    net.hybridize()
    graph = net(x)
    assert [out.shape for out in plain] == [(5, 3), (5, 1)]
    for a, b in zip(plain, graph, strict=True):
        np.testing.assert_array_equal(a.asnumpy(), b.asnumpy())
    names = ["trunk.weight", "trunk.bias", "class.weight", "class.bias", "value.weight", "value.bias"]
    assert list(net._collect_params_with_prefix()) == names
    hidden = np.tanh(x.asnumpy() @ net.trunk.weight.data().asnumpy().T)
    expected = hidden @ net._children["class"].weight.data().asnumpy().T
    np.testing.assert_allclose(plain[0].asnumpy(), expected, rtol=1e-5, atol=1e-6)
    net.save_parameters(str(tmp_path / "net.params"))
    other = shared()
    other.load_parameters(str(tmp_path / "net.params"))
    np.testing.assert_array_equal(other(x)[1].asnumpy(), plain[1].asnumpy())


def test_fixed_weights():
    a, b = nd.array([1.0, 2.0]), nd.array([3.0, 5.0])
    np.testing.assert_array_equal(learn.weighted_loss([a, b], [2, 0.5]).asnumpy(), [3.5, 6.5])
    with pytest.raises(ValueError, match="a weight for each of 2 losses, received 1"):
        learn.weighted_loss([a, b], [1])


@pytest.mark.parametrize("hybridize", [False, True])
def test_uncertainty_weights_follow_the_formula(hybridize):
    weigh = learn.UncertaintyWeights(2)
    weigh.initialize()
    if hybridize:
        weigh.hybridize()
    weigh.log_variance.set_data(nd.array([0.5, -1.0]))
    a, b = nd.array([1.0, 2.0, 4.0]), nd.array([3.0, 5.0, 0.0])
    with autograd.record():
        total = weigh(a, b)
    total.backward()
    s = np.array([0.5, -1.0])
    expected = np.exp(-s[0]) * a.asnumpy() + np.exp(-s[1]) * b.asnumpy() + s.sum() / 2
    np.testing.assert_allclose(total.asnumpy(), expected, rtol=1e-6)
    gradient = [-np.exp(-s[0]) * 7 + 1.5, -np.exp(-s[1]) * 8 + 1.5]
    np.testing.assert_allclose(weigh.log_variance.grad().asnumpy(), gradient, rtol=1e-6)


def test_uncertainty_becomes_the_variance_of_the_noise():
    """For constant predictions, the minimum of exp(-s) * L2Loss + s / 2 is the mean squared error."""
    weigh = learn.UncertaintyWeights(2)
    weigh.initialize()
    trainer = gluon.Trainer(weigh.collect_params(), "sgd", {"learning_rate": 0.5})
    random = np.random.default_rng(0)
    noise = [nd.array(random.normal(0, scale, 400)) for scale in (0.5, 2.0)]
    for _ in range(200):
        with autograd.record():
            total = weigh(*(L2(each, nd.zeros((400,))) for each in noise))
        total.backward()
        trainer.step(400)
    expected = [float((each.asnumpy() ** 2).mean()) for each in noise]
    np.testing.assert_allclose(np.exp(weigh.log_variance.data().asnumpy()), expected, rtol=1e-3)


def gradnorm_by_hand(x, y, w, weights, initial, alpha, rate):
    """Return one step of GradNorm for two linear tasks with the scales 1 and 20, in numpy."""
    norms, means = [], []
    for target, scale in zip(y, (1.0, 20.0), strict=True):
        error = x @ w - target
        norms.append(np.linalg.norm(scale * error @ x) / len(x))
        means.append(scale * (error**2 / 2).mean())
    norms, means = np.array(norms), np.array(means)
    initial = means if initial is None else initial
    mean = (weights * norms).mean()
    ratio = means / initial
    target = mean * (ratio / ratio.mean()) ** alpha
    weights = weights * np.exp(-rate * np.sign(weights * norms - target) * weights * norms / mean)
    return weights * 2 / weights.sum(), initial


def test_gradient_norms_follow_the_formula_and_become_balanced():
    random = np.random.default_rng(1)
    x = random.standard_normal((30, 3)).astype("float32")
    y = [random.standard_normal(30).astype("float32") for _ in range(2)]
    net = nn.Dense(1, in_units=3, use_bias=False)
    net.initialize(mx.init.Constant(0.5))
    balance = learn.GradNorm(2, net.weight, alpha=0.5, rate=0.05)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01})
    weights, initial = np.ones(2), None
    for _ in range(40):
        w = net.weight.data().asnumpy()[0].astype("float64")
        used = weights
        weights, initial = gradnorm_by_hand(x, y, w, weights, initial, 0.5, 0.05)
        with autograd.record():
            out = net(nd.array(x))[:, 0]
            losses = [L2(out, nd.array(y[0])), 20 * L2(out, nd.array(y[1]))]
        balance.backward(losses)
        gradient = sum(
            weight * scale * (x @ w - target) @ x for weight, scale, target in zip(used, (1, 20), y, strict=True)
        )
        np.testing.assert_allclose(net.weight.grad().asnumpy()[0], gradient, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(balance.weights, weights, rtol=1e-4)
        trainer.step(30)
    assert 1.7 < balance.weights[0] < 2  # the second task is 20 times larger
    assert balance.weights.sum() == pytest.approx(2)


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda net: learn.SharedTrunk(net.trunk, {}), TypeError, "heads must be a dictionary"),
        (lambda net: learn.SharedTrunk(net.trunk, {"trunk": nn.Dense(2)}), ValueError, "not 'trunk': 'trunk'"),
        (lambda net: learn.SharedTrunk(net.trunk, {"a.b": nn.Dense(2)}), ValueError, "without '.'"),
        (lambda net: learn.UncertaintyWeights(0), ValueError, "tasks must be the number of tasks, received 0"),
        (lambda net: learn.GradNorm(2, net.trunk), TypeError, "shared must be a trained Parameter"),
        (lambda net: learn.GradNorm(2, net.trunk.weight, alpha=-1), ValueError, "alpha must be a number of at least 0"),
        (lambda net: learn.GradNorm(2, net.trunk.weight).backward([]), ValueError, "expected 2 losses, received 0"),
    ],
)
def test_invalid_arguments_are_rejected(call, kind, text):
    with pytest.raises(kind, match=text):
        call(shared())
    weigh = learn.UncertaintyWeights(2)
    weigh.initialize()
    with pytest.raises(ValueError, match="expected 2 losses, received 1"):
        weigh(nd.ones((2,)))
