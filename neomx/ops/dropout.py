"""Dropout."""

from __future__ import annotations

from typing import Literal

import torch

from ..base import MXNetError, modes
from .random import generator
from .table import FILLED_IN, Ctx, Shape, op

Tensor = torch.Tensor


@op("Dropout", "_npx_dropout", may_alias=True, outputs=("output", "mask"), visible=1, infer="same")
def dropout(
    data: Tensor,
    *,
    p: float = 0.5,
    mode: Literal["always", "training"] = "training",
    axes: Shape = (),
    cudnn_off: bool | None = False,
    ctx: Ctx = FILLED_IN,
) -> Tensor:
    """Zero elements with probability p and divide the others by 1 - p, in training or always.

    Along `axes`, elements are zeroed or kept together.
    """
    if not 0 <= p <= 1:
        raise MXNetError("expected p to be between 0 and 1")
    shape = list(data.shape)
    for axis in axes:
        if not 0 <= axis < data.dim():
            raise MXNetError(f"expected axes between 0 and {data.dim() - 1}")
        shape[axis] = 1
    if p == 0 or not (modes.training or mode == "always"):
        return data.view_as(data)  # a view, since data itself may be a variable and the result must be computed from it
    # Comparing uniform random values takes a quarter of the time of bernoulli_.
    mask = data.new_empty(shape, dtype=torch.float32) if axes else torch.empty_like(data, dtype=torch.float32)
    mask.uniform_(generator=generator(ctx)).lt_(1 - p)
    return data * (mask.mul_(1 / (1 - p)) if p < 1 else mask).to(data.dtype)
