"""`group2ctx`: parts of a symbol on different contexts. tests/parity/cases/group2ctx.py compares with MXNet."""

import numpy as np
import pytest
import torch

import neomx as mx

CONTEXTS = {"dev1": mx.cpu(1), "dev2": mx.cpu(2)}


def two_layers():
    with mx.AttrScope(ctx_group="dev1"):
        net = mx.sym.Activation(mx.sym.FullyConnected(mx.sym.var("x"), num_hidden=4, name="first"), act_type="tanh")
    with mx.AttrScope(ctx_group="dev2"):
        return mx.sym.FullyConnected(mx.sym.BatchNorm(net, name="bn", fix_gamma=False), num_hidden=2, name="last")


def step(bound):
    rng = np.random.RandomState(0)
    for array in bound.arg_arrays:
        array[:] = rng.uniform(-1, 1, array.shape)
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((4, 2)))
    return [a.asnumpy() for a in (*bound.outputs, *bound.grad_arrays, *bound.aux_arrays)]


def test_two_contexts_compute_the_same_as_one():
    apart = step(two_layers().simple_bind(mx.cpu(), x=(4, 3), group2ctx=CONTEXTS))
    together = step(two_layers().simple_bind(mx.cpu(), x=(4, 3)))
    assert len(apart) == len(together) == 10
    for a, b in zip(apart, together, strict=True):
        np.testing.assert_array_equal(a, b)


def test_gradients_may_be_stored_on_another_context():
    weight = mx.sym.var("weight")  # not in a group, so on the default context
    with mx.AttrScope(ctx_group="dev1"):
        net = mx.sym.FullyConnected(mx.sym.var("x"), weight, num_hidden=2, no_bias=True)
    bound = net.simple_bind(mx.cpu(), x=(3, 2), group2ctx=CONTEXTS)
    bound.arg_dict["x"][:] = 2
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((3, 2)))
    assert (bound.grad_dict["weight"].context, bound.outputs[0].context) == (mx.cpu(), mx.cpu(1))
    assert bound.grad_dict["weight"].asnumpy().tolist() == [[6, 6], [6, 6]]


def test_monitors_see_the_context_of_each_output():
    bound, seen = two_layers().simple_bind(mx.cpu(), x=(4, 3), group2ctx=CONTEXTS), {}
    bound.set_monitor_callback(lambda name, array: seen.update({name: array.context}))
    bound.forward()
    assert seen["first_output"] == mx.cpu(1)
    assert seen["last_output"] == seen["bn_output"] == mx.cpu(2)


@pytest.fixture
def other_device(monkeypatch):
    """A context whose device differs from the CPU for torch. Its tensors have no values."""
    ctx = mx.cpu(9)
    monkeypatch.setattr(ctx, "device", torch.device("meta"))
    return ctx


def test_tensors_move_between_devices(other_device):
    bound = two_layers().simple_bind(mx.cpu(), x=(4, 3), group2ctx={"dev1": mx.cpu(1), "dev2": other_device})
    assert {name for name, a in bound.arg_dict.items() if a._data.is_meta} == {
        "bn_gamma",
        "bn_beta",
        "last_weight",
        "last_bias",
    }
    assert bound.forward()[0]._data.is_meta


def test_state_must_be_on_the_device_of_its_op(other_device):
    net, groups = two_layers(), {"dev1": mx.cpu(), "dev2": other_device}
    good = net.simple_bind(mx.cpu(), x=(4, 3), group2ctx=groups)
    states = {name: mx.nd.zeros((4,)) for name in good.aux_dict}
    with pytest.raises(mx.MXNetError, match=r"'bn' runs on cpu\(9\) but modifies 'bn_moving_mean'.*same ctx_group"):
        net.bind(mx.cpu(), good.arg_dict, aux_states=states, group2ctx=groups)


@pytest.mark.parametrize(
    ("groups", "error", "words"),
    [
        ({"dev1": mx.cpu(1)}, mx.MXNetError, "'dev2', for which group2ctx has no context"),
        ({"dev1": "cpu", "dev2": mx.cpu()}, TypeError, "must be Contexts, received dev1='cpu'"),
        ([mx.cpu()], TypeError, "dictionary of Contexts, received list"),
        ({"dev1": mx.cpu(), "dev2": mx.gpu(99)}, mx.MXNetError, r"cannot allocate on gpu\(99\)"),
    ],
)
def test_invalid_groups_raise(groups, error, words):
    with pytest.raises(error, match=words):
        two_layers().simple_bind(mx.cpu(), x=(4, 3), group2ctx=groups)


def test_array_on_another_context_requires_groups():
    with pytest.raises(mx.MXNetError, match=r"y is on cpu\(4\), but the symbol is bound to cpu\(0\)"):
        (mx.sym.var("y") * 2).bind(mx.cpu(), [mx.nd.ones((2,), ctx=mx.cpu(4))])
