"""Mixed precision: as real MXNet has it where it could be run, and trained networks beside those of float32."""

import json
import pathlib

import numpy as np
import pytest
import torch

import neomx as mx
from neomx import amp, autograd, gluon, nd
from neomx.gluon import nn
from parity import amp_programs as programs

RECORDED = json.loads((pathlib.Path(__file__).parent / "parity" / "recorded" / "amp_init.json").read_text())


@pytest.fixture
def on():
    """amp.init, undone after the test."""
    yield amp.init
    amp.amp._reset()


def same(received):
    """As JSON gives it back."""
    return json.loads(json.dumps(received))


# ---- as MXNet ----


def test_names_are_those_of_mxnet():
    assert set(RECORDED["float16"]["public"]) <= set(programs.public(amp))
    assert mx.contrib.amp is amp
    from neomx.contrib.amp import init

    assert init is amp.init


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lists_are_those_of_mxnet(dtype):
    assert same(programs.lists(amp, dtype)) == RECORDED[dtype]["lists"]
    assert amp.list_fp32_ops(dtype) is not amp.list_fp32_ops(dtype)  # a program may change what it was given


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_graphs_are_those_of_mxnet(on, dtype):
    on(dtype)
    received = same(programs.symbols(mx))
    for key, expected in RECORDED[dtype]["symbols"].items():
        assert received[key] == expected, key


def test_dtypes_are_those_of_mxnet(on):
    on("bfloat16")
    assert programs.arrays(mx) == RECORDED["bfloat16"]["arrays"]


def test_the_scale_goes_as_in_mxnet(on):
    on()
    for at, (received, expected) in enumerate(
        zip(same(programs.scales(mx, amp)), RECORDED["float16"]["scales"], strict=True)
    ):
        assert received == expected, at


def test_losses_that_make_their_own_gradient_are_scaled(on):
    on()
    assert programs.own_gradients(mx) == RECORDED["float16"]["own gradients"]
    programs.scales(mx, amp)
    assert programs.own_gradients(mx) == RECORDED["float16"]["own gradients later"]


# ---- refused, or said ----


def trainer_of(**more):
    weight = gluon.Parameter("w", shape=(2,))
    weight.initialize(init=mx.init.One())
    return gluon.Trainer([weight], "sgd", {"learning_rate": 0.5}, **more)


def test_what_is_forgotten_is_said(on):
    trainer = trainer_of()
    with pytest.raises(AssertionError, match=r"amp\.init\(\) first"):
        amp.init_trainer(trainer)
    on()
    with pytest.raises(AssertionError, match="amp.init_trainer"), amp.scale_loss(nd.ones(1), trainer):
        pass
    with pytest.raises(TypeError, match="gluon.Trainer, received SGD"):
        amp.init_trainer(trainer.optimizer)
    assert amp.unscale(trainer) is None  # as in MXNet
    with pytest.raises(AssertionError, match="update_on_kvstore=False"):
        amp.init_trainer(trainer_of(kvstore="local", update_on_kvstore=True))


def test_unknown_ops_and_dtypes(on):
    with pytest.raises(AttributeError, match="Did you mean FullyConnected"):
        on("float16", target_precision_ops=["FullyConected"])
    with pytest.raises(AssertionError, match="'float16' or 'bfloat16', received target_dtype='int8'"):
        on("int8")
    assert nd.FullyConnected(nd.ones((1, 1)), nd.ones((1, 1)), no_bias=True, num_hidden=1).dtype == np.float32


def test_a_second_init_changes_nothing_and_says_so(on, caplog):
    on("bfloat16")
    on("bfloat16")
    assert not caplog.records
    on("float16")
    assert "changes nothing" in caplog.text
    assert nd.dot(nd.ones((1, 1)).astype("bfloat16"), nd.ones((1, 1))).dtype == np.float32


def test_own_lists_take_the_place_of_mxnets(on):
    on("float16", ["dot"], [("Activation", "act_type", ["relu"])], ["FullyConnected"])
    x = nd.ones((2, 2))
    half = x.astype("float16")
    assert nd.dot(x, x).dtype == np.float16
    assert nd.FullyConnected(half, half, no_bias=True, num_hidden=2).dtype == np.float32
    assert nd.Activation(half, act_type="relu").dtype == np.float32
    assert nd.Activation(half, act_type="softrelu").dtype == np.float16
    assert nd.exp(half).dtype == np.float16
    assert (half + x).dtype == np.float32


def test_reset_leaves_nothing(on):
    on()
    amp.amp._reset()
    with pytest.raises(mx.MXNetError, match="one dtype"):
        nd.ones(1) + nd.ones(1).astype("float16")
    assert mx.sym.FullyConnected(mx.sym.var("a"), num_hidden=1).tojson(False).count("amp_cast") == 0
