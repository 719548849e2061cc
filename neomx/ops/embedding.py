"""Embedding: lookup of the rows of a weight by index."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.compiler import is_exporting

from ..base import MXNetError
from .table import DType, Shapes, Types, op

Tensor = torch.Tensor


def _rows(indices: Tensor, weight: Tensor, input_dim: int, output_dim: int, sparse: bool) -> Tensor:
    if weight.shape != (input_dim, output_dim):
        raise MXNetError(f"expected a weight of shape ({input_dim}, {output_dim}), got {tuple(weight.shape)}")
    # torch can pass a sparse gradient to a leaf, but few other ops accept one
    return F.embedding(indices, weight, sparse=sparse and weight.is_leaf and weight.requires_grad)


def _row_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> tuple[Shapes, Shapes]:
    """Infer the shapes without running the op: clamping a meta tensor would import much of torch."""
    data = shapes[0]
    found = None if data is None else (*data, attrs["output_dim"])
    return [data, (attrs["input_dim"], attrs["output_dim"])], [found]


def _types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    weight = types[1] or attrs["dtype"]
    return [types[0], weight], [weight]


@op("Embedding", "_npx_embedding", infer=_row_shapes, types=_types)
def embedding(
    data: Tensor,
    weight: Tensor,
    *,
    input_dim: int,
    output_dim: int,
    dtype: DType = torch.float32,
    sparse_grad: bool = False,
) -> Tensor:
    """Row data[i] of `weight` for each i. Indices out of range are clipped to the first or last row."""
    return _rows(data.detach().long().clamp(0, input_dim - 1), weight, input_dim, output_dim, sparse_grad)


@op("_contrib_SparseEmbedding", infer=_row_shapes, types=_types)
def sparse_embedding(
    data: Tensor,
    weight: Tensor,
    *,
    input_dim: int,
    output_dim: int,
    dtype: DType = torch.float32,
    sparse_grad: bool = False,
    deterministic: bool = False,
) -> Tensor:
    """Rows of `weight` at the indices `data`, which must be in range. The gradient of `weight` has only those rows."""
    indices = data.detach().long()
    if indices.numel() and not is_exporting() and not (int(indices.min()) >= 0 and int(indices.max()) < input_dim):
        raise MXNetError(f"expected indices from 0 to {input_dim - 1}")
    return _rows(indices, weight, input_dim, output_dim, sparse=True)
