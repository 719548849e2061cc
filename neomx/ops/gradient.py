"""Ops that serve to change gradients and leave the values unchanged, or nearly so."""

from __future__ import annotations

import torch

from ..base import MXNetError
from .elementwise import round_away
from .table import op

Tensor = torch.Tensor


@op("_copy", "identity", may_alias=True, infer="same")
def identity(data: Tensor) -> Tensor:
    """A copy."""
    return data.view_as(data)


@op("_copyto", "_npi_copyto", may_alias=True, infer="same")
def copyto(data: Tensor) -> Tensor:
    """A copy into the array `out=`, which may be in another context."""
    return data


@op("_identity_with_attr_like_rhs", may_alias=True, infer="same")
def identity_with_attr_like_rhs(lhs: Tensor, rhs: Tensor) -> Tensor:
    """A copy of `lhs`, which must have the shape of `rhs`."""
    if lhs.shape != rhs.shape:
        raise MXNetError(f"expected arrays of the same shape, got {tuple(lhs.shape)} and {tuple(rhs.shape)}")
    return lhs.view_as(lhs)


@op("BlockGrad", "stop_gradient", may_alias=True, infer="same")
def block_grad(data: Tensor) -> Tensor:
    """A copy that blocks gradients."""
    return data.detach()


class _Replaced(torch.autograd.Function):
    """The identity, with a gradient that a function computes from the incoming one."""

    @staticmethod
    def forward(ctx, x, gradient):
        ctx.gradient = gradient
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return ctx.gradient(grad), None


@op("make_loss", may_alias=True, outputs=("loss",), infer="same")
def make_loss(data: Tensor) -> Tensor:
    """A copy whose gradient is always 1, as the output of a network that computes its own loss."""
    return _Replaced.apply(data, torch.ones_like)


@op("_contrib_gradientmultiplier", may_alias=True, infer="same")
def gradientmultiplier(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
    """A copy whose gradient is multiplied by `scalar`."""
    return _Replaced.apply(data, lambda grad: grad * scalar)


class _StraightThrough(torch.autograd.Function):
    """A step function with the gradient of the identity (straight-through estimator)."""

    @staticmethod
    def forward(ctx, x, step):
        return step(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


@op("_contrib_round_ste", infer="same")
def round_ste(data: Tensor) -> Tensor:
    """The nearest integer, halves rounded away from zero, with the gradient of the identity."""
    return _StraightThrough.apply(data, round_away)


@op("_contrib_sign_ste", infer="same")
def sign_ste(data: Tensor) -> Tensor:
    """The sign, -1, 0 or 1, with the gradient of the identity."""
    return _StraightThrough.apply(data, torch.sign)
