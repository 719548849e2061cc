"""Sorting, and selection of the largest or smallest elements. Equal elements keep their order."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch.compiler import is_exporting

from ..base import MXNetError
from .table import DType, Types, op

Tensor = torch.Tensor

# From this size on, MXNet does not define the order of equal elements, and selecting k is faster than sorting.
_LONG = 32


@op("sort", "_npi_sort", outputs=2, visible=1)
def sort(data: Tensor, *, axis: int | None = -1, is_ascend: bool = True) -> Tensor:
    """The elements in order, along `axis` or flattened."""
    values, _ = _ordered(data, axis, is_ascend)
    return values


@op("argsort", "_npi_argsort")
def argsort(data: Tensor, *, axis: int | None = -1, is_ascend: bool = True, dtype: DType = torch.float32) -> Tensor:
    """The indices that sort the elements, along `axis` or flattened."""
    _, positions = _ordered(data.detach(), axis, is_ascend)
    return positions.to(dtype)


def _topk_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    results = {"value": [types[0]], "mask": [types[0]], "both": [types[0], attrs["dtype"]]}
    return types, results.get(attrs["ret_typ"], [attrs["dtype"]])


@op(
    "topk",
    "_npx_topk",
    outputs=lambda a: 1 if a["ret_typ"] in ("indices", "mask") else 2,
    visible=lambda a: 2 if a["ret_typ"] == "both" else 1,
    types=_topk_types,
)
def topk(
    data: Tensor,
    *,
    axis: int | None = -1,
    k: int = 1,
    ret_typ: Literal["both", "indices", "mask", "value"] = "indices",
    is_ascend: bool = False,
    dtype: DType = torch.float32,
) -> Tensor | list[Tensor]:
    """The k largest (or, if ascending, smallest) elements in order, their indices, both, or a mask of them.

    k < 1 selects all. `axis=None` flattens the array.
    """
    values, positions = _ordered(data, axis, is_ascend, k)
    if ret_typ == "value":
        return values
    if ret_typ == "indices":
        return positions.to(dtype)
    if ret_typ == "both":
        return [values, positions.to(dtype)]
    flat = data.detach().reshape(-1) if axis is None else data.detach()
    mask = torch.zeros_like(flat).scatter_(-1 if axis is None else axis, positions, 1)
    return mask.reshape(data.shape)


def _ordered(data: Tensor, axis: int | None, is_ascend: bool, k: int = 0) -> tuple[Tensor, Tensor]:
    """Return the first k elements in order and their indices, or all if k < 1."""
    if axis is None:
        data, axis = data.reshape(-1), 0
    length = data.size(axis)
    if k > length:
        raise MXNetError(f"k must be at most {length}, the size of the axis, got {k}")
    if k == 1:
        found = data.min(axis, keepdim=True) if is_ascend else data.max(axis, keepdim=True)
        return found.values, found.indices
    if 0 < k < length and length >= _LONG:
        return tuple(data.topk(k, axis, largest=not is_ascend, sorted=True))  # type: ignore[return-value]
    # ONNX's exporter has no stable sort. On a CPU, and by the ONNX specification, the other sort is stable too.
    how = {} if is_exporting() else {"stable": True}
    values, positions = data.sort(dim=axis, descending=not is_ascend, **how)
    return (values.narrow(axis, 0, k), positions.narrow(axis, 0, k)) if k > 0 else (values, positions)
