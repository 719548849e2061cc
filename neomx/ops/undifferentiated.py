"""Ops that MXNet differentiates to zero: discrete choices such as matching, suppressing and sorting boxes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Tensor = torch.Tensor


class _Zero(torch.autograd.Function):
    """Hands results over and gives every input a gradient of zeros."""

    @staticmethod
    def forward(ctx: Any, results: tuple[Tensor, ...], *inputs: Tensor) -> Any:
        ctx.save_for_backward(*inputs)
        return tuple(result.view_as(result) for result in results)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *[torch.zeros_like(tensor) for tensor in ctx.saved_tensors]


def zero_gradient(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Compute `fn` outside the autograd graph; while recording, join its results to the graph with zero gradients."""

    @functools.wraps(fn)
    def call(*inputs: Tensor, **attrs: Any) -> Any:
        with torch.no_grad():
            result = fn(*inputs, **attrs)
        if not (torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)):
            return result
        single = isinstance(result, Tensor)
        joined = _Zero.apply((result,) if single else tuple(result), *[x for x in inputs if x is not None])
        return joined[0] if single else joined

    return call
