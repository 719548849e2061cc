"""A Block's torch twin behaves like a torch module and agrees with the Block.

Tolerance: both run the same kernels on the same values, so outputs are equal. Updates may be rounded in another order
(fused and foreach kernels). RTOL and ATOL allow for that: about ten times float32's rounding error over a few steps.
"""

import copy
import gc
import pickle

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint
from twin_models import IMAGES, ROWS, lenet, mlp, sgd_torch, sgd_trainer, train_block, train_torch, values

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

RTOL, ATOL = 2e-6, 2e-6


def assert_same_values(one, other, rtol=RTOL, atol=ATOL):
    for a, b in zip(values(one), values(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def gradients(net, data):
    """Return the gradients of one MXNet step."""
    with autograd.record():
        loss = (net(nd.array(data)) ** 2).mean()
    loss.backward()
    return [p.grad().asnumpy().copy() for p in net.collect_params().values() if p.grad_req != "null"]


# ---- training ----


@pytest.mark.parametrize(("make", "data"), [(mlp, ROWS), (lenet, IMAGES)])
def test_torch_sgd_equals_trainer_sgd(make, data):
    block, other = make(), make()
    expected = train_block(block, sgd_trainer(block), data)
    found = train_torch(other.torch(), sgd_torch(other.torch()), data)
    np.testing.assert_allclose(found, expected, rtol=RTOL)
    assert_same_values(other, block, rtol=1e-5, atol=1e-5)
    assert found[-1] < found[0]


def test_torch_adamw_without_decay_equals_trainer_adam():
    # The two have different decay rules and apply epsilon differently: use no decay and a tiny epsilon.
    block, other = mlp(), mlp()
    trainer = gluon.Trainer(block.collect_params(), "adam", {"learning_rate": 0.01, "epsilon": 1e-12})
    expected = train_block(block, lambda: trainer.step(1), ROWS)
    twin = other.torch()
    found = train_torch(twin, torch.optim.AdamW(twin.parameters(), lr=0.01, eps=1e-12, weight_decay=0), ROWS)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert_same_values(other, block, rtol=1e-4, atol=1e-5)  # where a gradient is almost zero, its sign decides


def test_trainer_and_torch_alternate_on_shared_memory():
    block, other = mlp(), mlp()
    expected = train_block(block, sgd_trainer(block), ROWS, steps=4)
    trainer = gluon.Trainer(other.collect_params(), "sgd", {"learning_rate": 0.02, "momentum": 0.9})
    found = train_block(other, lambda: trainer.step(1), ROWS, steps=2)
    for _ in range(2):
        other.zero_grad()
        loss = other.torch()(torch.tensor(ROWS)).square().mean()
        loss.backward()
        trainer.step(1)
        found.append(loss.item())
    np.testing.assert_allclose(found, expected, rtol=RTOL)
    assert_same_values(other, block)


def test_torch_adds_gradients_where_mxnet_overwrites_them():
    net = mlp()
    twin, once = net.torch(), gradients(mlp(), ROWS)
    for _ in range(2):
        twin(torch.tensor(ROWS)).square().mean().backward()
    for parameter, expected in zip(twin.parameters(), once, strict=True):
        np.testing.assert_allclose(parameter.grad, 2 * expected, rtol=RTOL)
    for found, expected in zip(gradients(net, ROWS), once, strict=True):
        np.testing.assert_allclose(found, expected, rtol=RTOL)


def test_dropout_and_batch_norm_follow_train_and_eval():
    net = lenet(dropout=0.5)
    twin, images = net.torch(), torch.tensor(IMAGES)
    twin.eval()
    np.testing.assert_array_equal(twin(images).detach(), net(nd.array(IMAGES)).asnumpy())
    mean = twin.get_submodule("1").running_mean.clone()
    twin(images).sum().backward()
    assert torch.equal(twin.get_submodule("1").running_mean, mean)
    twin.train()
    mx.random.seed(3)
    found = twin(images)
    mx.random.seed(3)
    with autograd.record():
        expected = net(nd.array(IMAGES))
    np.testing.assert_array_equal(found.detach(), expected.asnumpy())
    assert (found - twin.eval()(images)).abs().max() > 0.01
    found.sum().backward()
    assert not torch.equal(twin.get_submodule("1").running_mean, mean)
    with torch.no_grad():
        assert not twin(images).requires_grad


# ---- parameters, buffers, states ----


def test_names_buffers_and_state_dict():
    net = lenet()
    twin = net.torch()
    names = ["0.weight", "0.bias", "1.gamma", "1.beta", "4.weight", "4.bias", "6.weight", "6.bias"]
    assert [name for name, _ in twin.named_parameters()] == names
    assert [name for name, _ in twin.named_buffers()] == ["1.running_mean", "1.running_var"]
    assert sorted(twin.state_dict()) == sorted(net._collect_params_with_prefix())
    assert net.torch() is twin


@pytest.mark.parametrize("assign", [False, True])
def test_load_state_dict_reaches_the_block(assign):
    net, other = lenet(), lenet()
    net.torch(), other.hybridize()
    trained = train_block(other, sgd_trainer(other), IMAGES)
    step = sgd_trainer(net)
    train_block(net, step, IMAGES, steps=1)  # the Trainer has seen the tensors before they are replaced
    net.torch().load_state_dict({k: v.clone() for k, v in other.torch().state_dict().items()}, assign=assign)
    assert_same_values(net, other, rtol=0, atol=0)
    first, again = gradients(net, IMAGES), gradients(net, IMAGES)
    for a, b, c in zip(first, again, gradients(other, IMAGES), strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, c)
    assert train_block(net, step, IMAGES, steps=3)[-1] < trained[-1]


def test_to_another_dtype():
    net = lenet()
    twin = net.torch().to(torch.float64)
    assert all(param.dtype == np.float64 for param in net.collect_params().values())
    expected = net(nd.array(IMAGES, dtype="float64"))
    assert expected.dtype == np.float64
    np.testing.assert_array_equal(twin.eval()(torch.tensor(IMAGES, dtype=torch.float64)).detach(), expected.asnumpy())
    net.reset_ctx(mx.cpu(0))
    assert next(twin.parameters()).dtype is torch.float64
    net.cast("float32")
    assert next(twin.parameters()).dtype is torch.float32
    assert net(nd.array(IMAGES)).dtype == np.float32


def test_grad_req_null_is_requires_grad_false():
    net = lenet()
    net.torch()
    net[0].collect_params().setattr("grad_req", "null")
    twin = net.torch()
    assert [name for name, p in twin.named_parameters() if not p.requires_grad] == ["0.weight", "0.bias"]
    frozen = [p.detach().clone() for p in twin.get_submodule("0").parameters()]
    other = lenet()
    other[0].collect_params().setattr("grad_req", "null")
    found = train_torch(twin, sgd_torch(twin), IMAGES)
    np.testing.assert_allclose(found, train_block(other, sgd_trainer(other), IMAGES), rtol=RTOL)
    assert all(torch.equal(a, b) for a, b in zip(frozen, twin.get_submodule("0").parameters(), strict=True))


def tied():
    """Return two layers that share a weight."""
    net = nn.HybridSequential()
    first = nn.Dense(12, in_units=12, activation="tanh")
    net.add(first, nn.Dense(12, in_units=12, params=first.params))
    mx.random.seed(7)
    net.initialize(mx.init.Xavier())
    return net


def test_shared_parameters_stay_shared():
    block, other = tied(), tied()
    twin = other.torch()
    assert len(list(twin.parameters())) == 2
    expected = train_block(block, sgd_trainer(block), ROWS)
    np.testing.assert_allclose(train_torch(twin, sgd_torch(twin), ROWS), expected, rtol=RTOL)
    twin.load_state_dict({k: torch.zeros_like(v) for k, v in twin.state_dict().items()}, assign=True)
    assert other(nd.array(ROWS)).asnumpy().any() == False  # noqa: E712
    assert len(list(twin.parameters())) == 2


def test_layers_added_later_are_in_the_twin():
    net = mlp()
    twin = net.torch()
    last = nn.Dense(2, in_units=4)
    last.initialize()
    net.add(last)
    assert "2.weight" in twin.state_dict()
    assert twin(torch.tensor(ROWS)).shape == (8, 2)


def test_twin_requires_known_shapes():
    net = nn.Dense(3)
    net.initialize()
    with pytest.raises(RuntimeError, match="run one batch"):
        net.torch()
    net(nd.ones((2, 5)))
    assert net.torch().weight.shape == (3, 5)


# ---- calls ----


def test_block_accepts_torch_tensors():
    net = mlp()
    rows = torch.tensor(ROWS, requires_grad=True)
    found = net(rows)
    np.testing.assert_array_equal(found.detach(), net(nd.array(ROWS)).asnumpy())
    found.sum().backward()
    assert rows.grad is not None


@pytest.mark.parametrize("hybridize", [False, True])
def test_torch_hooks_receive_tensors_from_block_and_twin_calls(hybridize):
    net = mlp()
    if hybridize:
        net.hybridize()
        net(nd.array(ROWS))
    expected = gradients(net, ROWS)
    seen = []
    child = net.torch().get_submodule("1")
    child.register_forward_hook(lambda module, args, output: seen.append((type(args[0]), type(output))))
    child.register_full_backward_hook(lambda module, grads, output_grads: seen.append(type(output_grads[0])))
    for found, gradient in zip(gradients(net, ROWS), expected, strict=True):
        np.testing.assert_array_equal(found, gradient)
    net.torch()(torch.tensor(ROWS)).sum().backward()
    assert seen == 2 * [(torch.Tensor, torch.Tensor), torch.Tensor]


def test_hook_may_change_the_output():
    net = mlp()
    before = net(nd.array(ROWS)).asnumpy()
    handle = net.torch().register_forward_hook(lambda module, args, output: output * 2)
    np.testing.assert_array_equal(net(nd.array(ROWS)).asnumpy(), 2 * before)
    handle.remove()
    np.testing.assert_array_equal(net(nd.array(ROWS)).asnumpy(), before)


def test_functional_call():
    net = mlp()
    twin = net.torch()
    weights = {name: p.detach() for name, p in twin.named_parameters()}
    grads = torch.func.grad(lambda w: torch.func.functional_call(twin, w, (torch.tensor(ROWS),)).square().mean())(
        weights
    )
    for found, expected in zip(grads.values(), gradients(net, ROWS), strict=True):
        np.testing.assert_allclose(found, expected, rtol=RTOL, atol=1e-8)
    nothing = {name: torch.zeros_like(value) for name, value in weights.items()}
    assert not torch.func.functional_call(twin, nothing, (torch.tensor(ROWS),)).any()
    assert_same_values(net, mlp(), rtol=0, atol=0)


def test_checkpointing_does_not_change_gradients():
    net, other = lenet(dropout=0.5), lenet(dropout=0.5)
    mx.random.seed(5)
    net.torch()(torch.tensor(IMAGES)).square().mean().backward()
    mx.random.seed(5)
    body = torch.nn.Sequential(*list(other.torch().children())[:5])  # without Dropout, which uses MXNet's generator
    hidden = checkpoint(body, torch.tensor(IMAGES), use_reentrant=False)
    for layer in list(other.torch().children())[5:]:
        hidden = layer(hidden)
    hidden.square().mean().backward()
    for a, b in zip(net.torch().parameters(), other.torch().parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)
    assert_same_values(net, other, rtol=0, atol=0)


# ---- copies ----


def by_pickle(net):
    return pickle.loads(pickle.dumps(net))


@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle])
@pytest.mark.parametrize("twin", [False, True])
@pytest.mark.parametrize("hybridize", [False, True])
def test_copy_is_independent_and_trains(duplicate, twin, hybridize):
    net = lenet()
    if twin:
        net.torch()
    if hybridize:
        net.hybridize()
    step = sgd_trainer(net)
    train_block(net, step, IMAGES, steps=1)
    made = duplicate(net)
    assert_same_values(made, net, rtol=0, atol=0)
    before = values(net)
    expected = copy.deepcopy(net)
    np.testing.assert_allclose(
        train_block(made, sgd_trainer(made), IMAGES),
        train_torch(expected.torch(), sgd_torch(expected.torch()), IMAGES),
        rtol=RTOL,
    )
    for now, then in zip(values(net), before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert train_block(net, step, IMAGES, steps=1)[0] > 0


@pytest.mark.parametrize("duplicate", [copy.deepcopy, by_pickle])
def test_copy_of_twin_has_its_own_block(duplicate):
    net = mlp()
    made = duplicate(net.torch())
    assert made._block is not net and made._block.torch() is made
    np.testing.assert_allclose(
        train_torch(made, sgd_torch(made), ROWS), train_block(net, sgd_trainer(net), ROWS), rtol=RTOL
    )
    assert_same_values(made._block, net)
    assert made._block[0].weight.data()._data is made.get_submodule("0").weight


# ---- memory ----


@pytest.mark.parametrize("hybridize", [False, True])
def test_training_does_not_leak_tensors(hybridize):
    net = mlp()
    if hybridize:
        net.hybridize()
    step = sgd_trainer(net)

    def alive():
        return sum(issubclass(type(each), torch.Tensor) for each in gc.get_objects())

    train_block(net, step, ROWS, steps=50)
    gc.collect()
    before = alive()
    gc.disable()  # tensors must be freed by reference counting, not by the garbage collector
    try:
        train_block(net, step, ROWS, steps=300)
        assert alive() <= before
    finally:
        gc.enable()
