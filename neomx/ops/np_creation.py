"""Ops of `mx.np` that make arrays out of nothing."""

from __future__ import annotations

import torch

from .table import FILLED_IN, Ctx, DType, Shape, op

Tensor = torch.Tensor


@op("_npi_zeros")
def np_zeros(*, shape: Shape = (), ctx: Ctx = FILLED_IN, dtype: DType = torch.float32) -> Tensor:
    """An array of zeros."""
    return torch.zeros(shape, dtype=dtype, device=ctx.device)


@op("_npi_ones")
def np_ones(*, shape: Shape = (), ctx: Ctx = FILLED_IN, dtype: DType = torch.float32) -> Tensor:
    """An array of ones."""
    return torch.ones(shape, dtype=dtype, device=ctx.device)
