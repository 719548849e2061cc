"""Reading the rows of a row-sparse Parameter that a batch needs."""

from __future__ import annotations

from typing import Any

import torch

from .. import ndarray as nd
from ..base import modes
from ..ndarray import NDArray
from ..ndarray.sparse_array import RowSparseNDArray


class _Rows(torch.autograd.Function):
    """Keep some rows and set the others to zero. As in MXNet, the gradient is passed on unchanged."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(weight).index_copy_(0, rows, weight[rows])

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


def rows_of(weight: NDArray, row_id: NDArray) -> NDArray:
    """Return a row-sparse array of these rows. While recording, its gradient goes to `weight`."""
    rows = nd.sparse.retain(weight.detach().tostype("row_sparse"), row_id)  # type: ignore[attr-defined]
    if not (modes.recording and weight._data.requires_grad):
        return rows
    with torch.enable_grad():
        in_graph = _Rows.apply(weight._data, row_id._data.long().unique())
    return RowSparseNDArray(rows._parts, rows.shape, weight.context, in_graph)
