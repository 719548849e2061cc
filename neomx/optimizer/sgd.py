"""Gradient descent and variants: momentum, Nesterov momentum, signs, noise, delay compensation."""

from __future__ import annotations

import math
import os
from typing import Any

import torch

from .. import ndarray as nd
from ..dtype import to_torch
from ..ndarray import NDArray
from .base import Index, Optimizer, is_half, register
from .fused import Tensors, clipped, rule
from .part import Part, Steps


def zeros_of(weight: NDArray, stype: str | None = None, dtype: Any = None) -> NDArray:
    """Return zeros with the shape and context of a weight, by default with its dtype."""
    if stype in (None, "default"):  # in the same memory format
        return NDArray(torch.zeros_like(weight._data, dtype=None if dtype is None else to_torch(dtype)), weight.context)
    return nd.zeros(weight.shape, ctx=weight.context, dtype=dtype or weight.dtype, stype=stype)


def aggregation() -> int:
    """Return the number of weights that MXNet passes to one call of `update`."""
    return int(os.environ.get("MXNET_OPTIMIZER_AGGREGATION_SIZE", "4"))


class OfLists(Optimizer):
    """An optimizer whose `update` takes one weight or a list, and whose ops also update float32 copies."""

    def update(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Update a weight and its state, or lists of them, in place."""
        self._update_listed(index, weight, grad, state, masters=False)

    def update_multi_precision(self, index: Any, weight: Any, grad: Any, state: Any) -> None:
        """Run `update`, with float32 copies if they are used."""
        first = weight[0] if isinstance(weight, (list, tuple)) else weight
        self._update_listed(index, weight, grad, state, masters=self.multi_precision and is_half(first))

    def _update_listed(self, index: Any, weight: Any, grad: Any, state: Any, masters: bool) -> None:
        if not isinstance(index, (list, tuple)):
            index, weight, grad, state = [index], [weight], [grad], [state]
        self._update_count(index)
        self._update_each(index, weight, grad, state, masters)

    def _steps_multi_precision(self, index: list, weight: list, grad: list, state: list) -> Steps:
        self._update_count(index)
        yield from self._steps(index, weight, grad, state, self.multi_precision and is_half(weight[0]))

    def _update_each(self, index: list, weight: list, grad: list, state: list, masters: bool) -> None:
        raise NotImplementedError


class MasterLast(OfLists):
    """An optimizer whose state of a half precision weight is (momentum, float32 copy)."""

    momentum: float

    def create_state_multi_precision(self, index: Index, weight: NDArray) -> Any:
        """Return the state of a weight. With `multi_precision`, it is (state, float32 copy) for half precision."""
        if self.multi_precision and is_half(weight):
            master = weight.astype("float32")
            return self.create_state(index, master), master
        self._warn_of_half(weight)
        return self.create_state(index, weight)

    def _split_state(self, weight: NDArray, state: Any) -> tuple[NDArray | None, Any]:
        """Return the float32 copy of a weight, or None, and the remaining state."""
        return state[::-1] if self.multi_precision and is_half(weight) else (None, state)

    def _update_each(self, index: list, weight: list, grad: list, state: list, masters: bool) -> None:
        lrs, wds = self._get_lrs(index), self._get_wds(index)
        settings = {**self._scaling(), **self._momentum()}
        for row in zip(index, weight, grad, state, lrs, wds, strict=True):
            i, w, g, s, lr, wd = row
            inner, master = s if masters else (s, None)
            self._update_one(i, w, g, inner, master, dict(settings, lr=lr, wd=wd))

    def _momentum(self) -> dict[str, float]:
        """Return the momentum argument for an op, if there is momentum."""
        return {"momentum": self.momentum} if self.momentum > 0 else {}

    def _update_one(
        self, index: Index, weight: NDArray, grad: NDArray, state: Any, master: Any, settings: dict[str, Any]
    ) -> None:
        raise NotImplementedError


@register
class SGD(MasterLast):
    """Gradient descent with momentum.

    state = momentum * state - lr * (rescale_grad * clip(grad) + wd * weight); weight += state. With `lazy_update`,
    a row_sparse gradient updates only the rows that it contains.
    """

    updates_apart = True

    def __init__(self, momentum: float = 0.0, lazy_update: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lazy_update = lazy_update
        self.aggregate_num = aggregation()

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return the momentum, or None if it is 0."""
        if self.momentum == 0.0:
            return None
        return zeros_of(weight, weight.stype if self.lazy_update else "default")

    def _update_one(
        self, index: Index, weight: NDArray, grad: NDArray, state: Any, master: Any, settings: dict[str, Any]
    ) -> None:
        sgd_step(weight, grad, state, master, dict(settings, lazy_update=self.lazy_update))


def sgd_step(weight: NDArray, grad: NDArray, momentum: Any, master: Any, settings: dict[str, Any]) -> None:
    """Run an SGD step with the op for this case: with or without momentum and a float32 copy."""
    masters = () if master is None else (master,)
    prefix = "" if master is None else "mp_"
    if momentum is None:
        settings = {key: value for key, value in settings.items() if key != "momentum"}
        getattr(nd, f"{prefix}sgd_update")(weight, grad, *masters, out=weight, **settings)
    else:
        getattr(nd, f"{prefix}sgd_mom_update")(weight, grad, momentum, *masters, out=weight, **settings)


@register
class ccSGD(SGD):
    """An alias of SGD for old programs."""


@rule(SGD)
@rule(ccSGD)
def sgd(
    optimizer: SGD | NAG, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> None:
    """Update many weights by SGD.

    With momentum, torch's kernel gets the rate -1: the momentum already includes the rate, and `1 - dampening` is the
    factor of a gradient in it.
    """
    scale = optimizer.rescale_grad
    if optimizer.clip_gradient:
        grads, scale = clipped(optimizer, grads), 1.0
    common: Any = {"weight_decay": wd / scale, "nesterov": False, "maximize": False, "is_first_step": False}
    if states[0] is None:
        torch._fused_sgd_(weights, grads, [], momentum=0.0, lr=lr * scale, dampening=0.0, **common)
        return
    momenta = [state._data for state in states]
    momentum = optimizer.momentum
    if momentum <= 0:  # the kernel treats 0 as no momentum
        torch._foreach_zero_(momenta)
        momentum = 1.0
    torch._fused_sgd_(weights, grads, momenta, momentum=momentum, lr=-1.0, dampening=1 + lr * scale, **common)


@register
class NAG(MasterLast):
    """Gradient descent with Nesterov momentum."""

    updates_apart = True

    def __init__(self, momentum: float = 0.0, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return the momentum, or None if it is 0."""
        return zeros_of(weight) if self.momentum != 0.0 else None

    def _update_one(
        self, index: Index, weight: NDArray, grad: NDArray, state: Any, master: Any, settings: dict[str, Any]
    ) -> None:
        if state is None:
            sgd_step(weight, grad, None, master, settings)
        elif master is None:
            nd.nag_mom_update(weight, grad, state, out=weight, **settings)
        else:
            nd.mp_nag_mom_update(weight, grad, state, master, out=weight, **settings)


@rule(NAG)
def nag(optimizer: NAG, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int) -> None:
    """Update many weights by NAG. As in the op, the momentum includes the decay of the new weight."""
    if states[0] is None:
        sgd(optimizer, weights, grads, states, lr, wd, count)
        return
    scale, momentum = optimizer.rescale_grad, max(optimizer.momentum, 0.0)
    if optimizer.clip_gradient:
        grads, scale = clipped(optimizer, grads), 1.0
    momenta = [state._data for state in states]
    torch._foreach_mul_(momenta, momentum)
    torch._foreach_add_(momenta, grads, alpha=-lr * scale)
    if wd:
        torch._foreach_mul_(weights, 1 - lr * wd * (1 + momentum))
    torch._foreach_add_(weights, grads, alpha=-lr * scale)
    torch._foreach_add_(weights, momenta, alpha=momentum)
    if wd:
        torch._foreach_add_(momenta, weights, alpha=-lr * wd)


@register
class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics: half a gradient step plus noise with the rate as its variance."""

    updates_alike = False  # each replica has noise of its own

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight in place."""
        lr, wd = self._begin(index)
        weight[:] += -lr / 2 * (self._scaled(grad) + wd * weight) + _noise(weight, math.sqrt(lr))


def _noise(weight: NDArray, scale: float) -> NDArray:
    """Return noise for a weight. A Part gets its part of the whole weight's noise, equal on ranks with equal seeds."""
    shape = weight.whole_shape if isinstance(weight, Part) else weight.shape
    noise = nd.random.normal(0, scale, shape=shape, dtype=weight.dtype, ctx=weight.context)
    return NDArray(weight.cut(noise._data), weight.context) if isinstance(weight, Part) else noise


@register
class Signum(Optimizer):
    """Signum: steps by the sign of the gradient (with momentum 0) or of its running average."""

    updates_apart = True

    def __init__(self, learning_rate: float = 0.01, momentum: float = 0.9, wd_lh: float = 0.0, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.momentum = momentum
        self.wd_lh = wd_lh

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return the momentum, or None if it is 0."""
        return zeros_of(weight, weight.stype) if self.momentum != 0.0 else None

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
        lr, wd = self._begin(index)
        if state is None:
            nd.signsgd_update(weight, grad, out=weight, lr=lr, wd=wd, **self._scaling())
        else:
            settings = dict(self._scaling(), momentum=self.momentum, wd_lh=self.wd_lh)
            nd.signum_update(weight, grad, state, out=weight, lr=lr, wd=wd, **settings)


@register
class DCASGD(Optimizer):
    """Delay-compensated gradient descent, for gradients computed from older weights."""

    def __init__(self, momentum: float = 0.0, lamda: float = 0.04, **kwargs: Any):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.lamda = lamda

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return (the momentum or None, the weight before the last update)."""
        return (zeros_of(weight) if self.momentum != 0.0 else None), weight.copy()

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
        lr, wd = self._begin(index)
        grad = self._scaled(grad)
        momentum, previous = state
        step = -lr * (grad + wd * weight + self.lamda * grad * grad * (weight - previous))
        if momentum is not None:
            momentum[:] = self.momentum * momentum + step
            step = momentum
        previous[:] = weight
        weight[:] += step


@register
class Test(Optimizer):
    """For tests: adds the gradient to the weight, and stores the sum."""

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return an array for the weight after the last update."""
        return zeros_of(weight, dtype="float32")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
        weight[:] += grad * self.rescale_grad
        state[:] = weight
