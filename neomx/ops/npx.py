"""Ops of `mx.npx` that differ in MXNet from the older ops with the same names."""

from __future__ import annotations

import torch

from ..base import InvalidValueError
from .table import OPS, op, typed

Tensor = torch.Tensor


@op("_npx_relu", infer="same")
def npx_relu(data: Tensor) -> Tensor:
    """max(x, 0)."""
    return torch.relu(data)


@op("_npx_sigmoid", infer="same")
def npx_sigmoid(data: Tensor) -> Tensor:
    """1 / (1 + exp(-x))."""
    return OPS["sigmoid"].fn(data)


@op("_npx_constraint_check", types=typed([torch.bool], [torch.bool]))
def constraint_check(input: Tensor, *, msg: str = "Constraint violated.") -> Tensor:
    """Return True if all elements of a boolean array are true; otherwise raise an error with the message `msg`."""
    if input.dtype is not torch.bool:
        raise TypeError("expected an array of booleans")
    if not input.is_meta and not bool(input.all()):
        raise InvalidValueError(msg)
    return input.new_ones(())
