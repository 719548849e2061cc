"""Recorded integer and boolean arrays. Torch's graph only supports floats, so each has a float proxy in the graph.

The proxy has the shape of the integers and uses no memory. It is the float tensor that they were cast from, a view of
another proxy, or the result of an op that is differentiated as if it had been called on floats.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch.compiler import is_compiling

from ..ops.precision import set_stand_in, stand_in

Tensor = torch.Tensor


def nothing_like(integers: Tensor) -> Tensor:
    """Return a float tensor with the shape of `integers` that uses no memory."""
    return torch.zeros((), device=integers.device).expand(integers.shape)


class _OnIntegers(torch.autograd.Function):
    """The proxy of integers that an op computed from recorded integers.

    Its gradient is that of the op on floats. As in MXNet, it is truncated to integers on the way.
    """

    @staticmethod
    def forward(
        ctx: Any, call: Callable[..., Any], tensors: Sequence[Tensor | None], like: Tensor, *places: Any
    ) -> Any:
        ctx.call, ctx.tensors = call, tensors
        return nothing_like(like)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        wanted = ctx.needs_input_grad[3:]
        floats = [t.detach().double() if w else t for t, w in zip(ctx.tensors, wanted, strict=True)]
        variables = [each.requires_grad_() for each, w in zip(floats, wanted, strict=True) if w]
        found: Any = [None] * len(variables)
        with torch.enable_grad():
            try:
                result = ctx.call(*floats)
            except RuntimeError:
                result = grad  # an integer-only op, such as `&`, has no gradient in MXNet either
        if result.requires_grad:
            found = torch.autograd.grad(result, variables, grad.to(result.dtype), allow_unused=True)
        grads = iter([None if each is None else each.trunc().to(grad.dtype) for each in found])
        return None, None, None, *(next(grads) if w else None for w in wanted)


def place_of_result(
    result: Tensor, call: Callable[..., Any], inputs: Sequence[Tensor | None], places: Sequence[Tensor | None]
) -> Tensor:
    """Return the proxy of integers that `call` computes from `inputs` with the proxies `places`."""
    place: Tensor = _OnIntegers.apply(call, inputs, result, *places)
    return place


def on_integers(function: Callable[..., Any], *tensors: Tensor | None, **attrs: Any) -> Any:
    """Call the function of an op. If integers with a proxy give integers, these have a proxy, too."""
    result = function(*tensors, **attrs)
    if is_compiling() or not torch.is_grad_enabled() or not isinstance(result, Tensor) or result.is_floating_point():
        return result
    places = [None if tensor is None else stand_in(tensor) for tensor in tensors]
    if any(place is not None for place in places):
        set_stand_in(result, place_of_result(result, partial(function, **attrs), tensors, places))
    return result


def derived(data: Tensor, of: Callable[[Tensor], Tensor]) -> Tensor:
    """Return `of(data)`, a view or a copy of a recorded tensor, that is also in the graph."""
    result = of(data)
    place = None if data.is_floating_point() else stand_in(data)
    if place is not None:
        set_stand_in(result, of(place))
    return result
