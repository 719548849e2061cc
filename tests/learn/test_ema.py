"""Moving averages of weights, of Blocks and torch modules."""

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn


def network():
    net = nn.HybridSequential()
    net.add(nn.Dense(3, in_units=2), nn.BatchNorm(in_channels=3))
    net.initialize(mx.init.Xavier())
    return net


def values(net):
    return {name: param.data().asnumpy() for name, param in net._collect_params_with_prefix().items()}


def train(net, trainer):
    with autograd.record():
        loss = net(nd.random.normal(shape=(4, 2))).square().sum()
    loss.backward()
    trainer.step(4)


@pytest.mark.parametrize("warmup", [False, True])
def test_averages_follow_the_formula(warmup):
    net = network()
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.1})
    ema = learn.EMA(net, 0.8, warmup=warmup)
    expected = {name: value.astype("float64") for name, value in values(net).items()}
    for n in range(1, 41):
        train(net, trainer)
        ema.update()
        decay = min(0.8, n / (n + 9)) if warmup else 0.8
        expected = {name: decay * expected[name] + (1 - decay) * value for name, value in values(net).items()}
    before = values(net)
    with ema:
        for name, value in values(net).items():
            np.testing.assert_allclose(value, expected[name], rtol=1e-5, atol=1e-6, err_msg=name)
    for name, value in values(net).items():
        np.testing.assert_array_equal(value, before[name])
        assert np.abs(value - expected[name]).max() > 1e-3 or name.endswith(("beta", "bias"))


def test_weights_return_after_an_error_and_training_continues():
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    ema = learn.EMA(net)
    train(net, trainer)
    before = values(net)
    with pytest.raises(RuntimeError, match="in between"), ema:
        raise RuntimeError("in between")
    for name, value in values(net).items():
        np.testing.assert_array_equal(value, before[name])
    train(net, trainer)


def test_file_continues_and_is_readable_by_the_network(tmp_path):
    net = network()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.1})
    ema = learn.EMA(net, 0.9)
    for _ in range(3):
        train(net, trainer)
        ema.update()
    ema.save(tmp_path / "ema.params")
    other = learn.EMA(net, 0.9)
    other.load(tmp_path / "ema.params")
    assert other.updates == 3
    for each in (ema, other):
        each.update()
    with ema:
        first = values(net)
    with other:
        for name, value in values(net).items():
            np.testing.assert_array_equal(value, first[name])
    fresh = network()
    fresh.load_parameters(str(tmp_path / "ema.params"), ignore_extra=True)
    with pytest.raises(mx.MXNetError, match=r"1.gamma is float32 \(3,\) in .*, and missing in the network"):
        learn.EMA(net[:1]).load(tmp_path / "ema.params")
    net.save_parameters(str(tmp_path / "net.params"))
    with pytest.raises(mx.MXNetError, match="was not written by EMA.save"):
        ema.load(tmp_path / "net.params")


def test_torch_module(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    ema = learn.EMA(net, 0.5, warmup=False)
    start = net[0].weight.detach().clone()
    net(torch.randn(4, 2))
    with torch.no_grad():
        net[0].weight += 1
    ema.update()
    assert int(net[1].num_batches_tracked) == 1
    with ema:
        torch.testing.assert_close(net[0].weight.detach(), start + 0.5)
        assert int(net[1].num_batches_tracked) == 1
    torch.testing.assert_close(net[0].weight.detach(), start + 1)
    ema.save(tmp_path / "ema.params")
    other = learn.EMA(net, 0.5)
    other.load(tmp_path / "ema.params")
    with other:
        torch.testing.assert_close(net[0].weight.detach(), start + 0.5)


def test_small_changes_of_half_precision_weights_add_up():
    net = nn.Dense(1, in_units=1)
    net.initialize(mx.init.One())
    net.cast("float16")
    ema = learn.EMA(net, 0.999, warmup=False)
    net.weight.set_data(nd.array([[1.5]], dtype="float16"))
    for _ in range(100):
        ema.update()  # each moves the average by at most 0.0005, half of the distance between float16 numbers
    with ema:
        assert net.weight.data().asscalar() == pytest.approx(1.5 - 0.5 * 0.999**100, abs=1e-3)
        assert net.weight.data().dtype == np.float16


def test_invalid_use_is_rejected():
    with pytest.raises(ValueError, match="decay must be a number of at least 0 and below 1, received 1"):
        learn.EMA(network(), 1)
    with pytest.raises(TypeError, match="expected a Block or a torch module"):
        learn.EMA([])
    waiting = nn.Dense(3)
    waiting.initialize()
    with pytest.raises(mx.MXNetError, match="has not been initialized yet.*Run one batch"):
        learn.EMA(waiting)
    ema = learn.EMA(network())
    with ema:
        with pytest.raises(mx.MXNetError, match="would average the averages"):
            ema.update()
        with pytest.raises(mx.MXNetError, match="cannot be nested"):
            ema.__enter__()
