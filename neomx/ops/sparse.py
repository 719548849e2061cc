"""Storage ops. On dense tensors, they compute the values that the front end's sparse arrays represent."""

from __future__ import annotations

from typing import Literal

import torch

from ..base import MXNetError
from .table import op

Tensor = torch.Tensor


@op("cast_storage", may_alias=True)
def cast_storage(data: Tensor, *, stype: Literal["default", "row_sparse", "csr"]) -> Tensor:
    """The same array in another storage type. A dense tensor is unchanged."""
    return data


@op("_sparse_retain")
def sparse_retain(data: Tensor, indices: Tensor) -> Tensor:
    """The array with all but the given rows set to zero."""
    rows = indices.detach().long()
    if rows.numel() and not (int(rows.min()) >= 0 and int(rows.max()) < data.shape[0]):
        raise MXNetError(f"expected row indices from 0 to {data.shape[0] - 1}")
    kept = torch.zeros(data.shape[0], dtype=torch.bool, device=data.device).index_fill_(0, rows, True)
    return torch.where(kept.reshape(-1, *[1] * (data.dim() - 1)), data, data.new_zeros(()))
