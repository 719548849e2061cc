"""MAML: train weights from which a few gradient steps on a few examples lead to a good network."""

from __future__ import annotations

from typing import Any

import torch

from .. import autograd
from ..base import MXNetError
from ..gluon.block import Block
from ..gluon.kinds import front_of
from ..gluon.twin import follow_inside, unwrap, wrap
from ..ndarray import NDArray

Weights = dict[str, NDArray]


def call_with(net: Block, weights: Weights, *args: Any) -> Any:
    """Return `net(*args)`, computed with other arrays in place of some parameters.

    `weights` has the names of the parameters of `net.torch()`. Autograd records how the result depends on them.
    """
    twin = net.torch()
    unknown = weights.keys() - {name for name, _ in twin.named_parameters(remove_duplicate=False)}
    if unknown:
        raise MXNetError(f"call_with: {net.name} has no parameter {', '.join(map(repr, sorted(unknown)))}")
    contexts: list[Any] = []
    tensors = unwrap(args, contexts)
    if not contexts:
        raise ValueError(f"call_with expects at least one array for {net.name}")
    before = torch.is_grad_enabled()
    torch.set_grad_enabled(autograd.is_recording())
    twin.entered = True  # keep the modes of this thread
    try:
        out = torch.func.functional_call(twin, {name: each._data for name, each in weights.items()}, tensors)
    finally:
        twin.entered = False
        torch.set_grad_enabled(before)
        follow_inside(twin)  # back to the parameters' own tensors
    return wrap(out, contexts[0])


def adapt(
    net: Block, loss: Any, data: NDArray, label: NDArray, rate: float, steps: int = 1, first_order: bool = False
) -> Weights:
    """Return the weights of `net` after some steps of gradient descent, for `call_with`. The network does not change.

    Each step minimizes the mean of `loss(net(data), label)`. While autograd records, the result depends on the
    parameters of the network, so that `backward` reaches them through the steps, by second derivatives. With
    `first_order`, the gradients of the steps count as constants, which is faster.
    """
    if steps < 1 or not rate > 0:
        raise ValueError(f"adapt needs a positive rate and at least one step, received rate={rate}, steps={steps}")
    through = autograd.is_recording()
    if net._twin is None:
        with autograd.pause():
            net(data)  # initializes parameters whose shapes are unknown
    weights = {name: wrap(each) for name, each in net.torch().named_parameters() if each.requires_grad}
    if not weights:
        raise MXNetError(f"adapt: {net.name} has no trainable parameters")
    for _ in range(steps):
        with autograd.record(autograd.is_training() or not through):
            value = loss(call_with(net, weights, data), label).mean()
            slopes = autograd.grad(value, list(weights.values()), create_graph=through and not first_order)
        weights = {name: each - rate * slope for (name, each), slope in zip(weights.items(), slopes, strict=True)}
        if not through:
            for each in weights.values():
                each.attach_grad()
    return weights


def maml_loss(
    net: Block,
    loss: Any,
    support: NDArray,
    support_label: NDArray,
    query: NDArray,
    query_label: NDArray,
    rate: float,
    steps: int = 1,
    first_order: bool = False,
) -> Any:
    """Return one loss per episode: the mean loss of its queries, with the weights adapted to its support.

    The arrays are a batch of episodes, as a DataLoader of `Episodes` returns it. Call it while autograd records. Then
    `backward` and `trainer.step(episodes of all workers)` train the weights from which adaptation starts.
    """
    arrays = support, support_label, query, query_label
    if len({len(each) for each in arrays}) != 1:
        raise MXNetError(
            "maml_loss expects support, labels, queries and labels of the same episodes, received the shapes "
            + ", ".join(str(each.shape) for each in arrays)
        )
    losses = []
    for examples, labels, points, expected in zip(*arrays, strict=True):
        weights = adapt(net, loss, examples, labels, rate, steps, first_order)
        losses.append(loss(call_with(net, weights, points), expected).mean().reshape((1,)))
    return front_of(losses[0]).concat(*losses, dim=0)
