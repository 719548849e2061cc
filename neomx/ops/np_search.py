"""Ops of `mx.np` that search for elements, count them, insert them and delete them."""

from __future__ import annotations

from typing import Any

import torch

from ..base import MXNetError
from .creation import number
from .table import Shapes, Types, op, typed

_FLOAT = torch.float32

Tensor = torch.Tensor


def _number(value: float, like: Tensor) -> Tensor:
    return torch.tensor(number(value, like.dtype), dtype=like.dtype, device=like.device)


def _nonzero_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Any:
    """Declare the number of rows unknown: it depends on the values."""
    return shapes if shapes[0] is None else (shapes, [(0, max(len(shapes[0]), 1))])


@op("_npx_nonzero", "_npi_nonzero", types=typed([torch.int64]), infer=_nonzero_shapes)
def np_nonzero(x: Tensor) -> Tensor:
    """The indices of the nonzero elements, one row per element."""
    return torch.atleast_1d(x.detach()).nonzero()


# ---- search and counting ----


@op("_npi_argmax", types=typed([torch.int64]))
def np_argmax(data: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element, along `axis` or in the flattened array. Ties return the first index."""
    if data.dtype is not _FLOAT or not data.numel():
        data = _searched(data, axis)
    return data.argmax(axis, keepdims)


@op("_npi_argmin", types=typed([torch.int64]))
def np_argmin(data: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element, along `axis` or in the flattened array. Ties return the first index."""
    if data.dtype is not _FLOAT or not data.numel():
        data = _searched(data, axis)
    return data.argmin(axis, keepdims)


def _searched(data: Tensor, axis: int | None) -> Tensor:
    if not data.numel() and (axis is None or data.size(axis) == 0):
        raise MXNetError("expected at least one element to search, got none")
    return data.to(torch.uint8) if data.dtype is torch.bool else data


def _unique_count(attrs: dict[str, Any]) -> int:
    return 1 + attrs["return_index"] + attrs["return_inverse"] + attrs["return_counts"]


def _unique_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [types[0], *[torch.int64] * (_unique_count(attrs) - 1)]


def _unknown_unique(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Any:
    return shapes, [None] * _unique_count(attrs)


@op("_npi_unique", outputs=_unique_count, types=_unique_types, infer=_unknown_unique)
def np_unique(
    data: Tensor,
    *,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Tensor | list[Tensor]:
    """The sorted unique elements, or the unique slices along `axis`.

    On request, also returns the index of the first occurrence of each unique element, for each element the index of
    its unique element, and the number of occurrences of each unique element.
    """
    data = data.detach().reshape(-1) if axis is None else data.detach()
    dim = 0 if axis is None else axis
    if not data.size(dim):
        none = data.new_empty(0, dtype=torch.int64)
        values, inverse, counts = data, none, none
    else:
        values, inverse, counts = torch.unique(data, return_inverse=True, return_counts=True, dim=axis)
    results = [values]
    if return_index:
        last = torch.full_like(counts, len(inverse))
        places = torch.arange(len(inverse), device=data.device)
        results.append(last.scatter_reduce_(0, inverse, places, "amin"))
    if return_inverse:
        results.append(inverse)
    if return_counts:
        results.append(counts)
    return results if len(results) > 1 else values


def _bincount_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [types[-1]]


@op(
    "_npi_bincount",
    takes={"weights": lambda a: a["has_weights"]},
    types=_bincount_types,
    infer=lambda shapes, *_: (shapes, [(0,)]),
)
def np_bincount(
    data: Tensor, weights: Tensor | None = None, *, minlength: int = 0, has_weights: bool = False
) -> Tensor:
    """The number of occurrences of each value from 0 on, or the sum of their weights."""
    if data.dim() > 1 or data.is_floating_point():
        raise MXNetError("expected a vector of integers")
    if weights is not None and weights.shape != data.shape:
        raise MXNetError(f"expected weights with the shape of data, {tuple(data.shape)}, got {tuple(weights.shape)}")
    counts = torch.bincount(data.long(), None if weights is None else weights.detach(), minlength)
    return counts.to(data.dtype if weights is None else weights.dtype)


# ---- insertion and deletion ----


def _slice_positions(
    length: int, start: int | None, stop: int | None, step: int | None, device: torch.device
) -> Tensor:
    return torch.tensor(range(*slice(start, stop, step).indices(length)), dtype=torch.int64, device=device)


def _needs_values(attrs: dict[str, Any]) -> bool:
    return attrs["val"] is None


@op("_npi_insert_scalar", takes={"values": _needs_values}, types=typed([0]))
@op("_npi_insert_slice", takes={"values": _needs_values}, types=typed([0]))
def np_insert(
    arr: Tensor,
    values: Tensor | None = None,
    *,
    val: float | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    int_ind: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """A copy with `values`, or the scalar `val`, inserted before one index along `axis` or each index of a slice.

    Without `axis`, the array is flattened first.
    """
    arr, axis = _along(arr, axis)
    values = _values(arr, values, val)
    if int_ind is not None:
        return _inserted_at(arr, int_ind, values.movedim(0, axis), axis)
    return _inserted(arr, _slice_positions(arr.size(axis), start, stop, step, arr.device), values, axis)


@op("_npi_insert_tensor", takes={"values": _needs_values, "obj": lambda a: True}, types=typed([0]))
def np_insert_tensor(
    arr: Tensor,
    values: Tensor | None = None,
    obj: Tensor | None = None,
    *,
    val: float | None = None,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    int_ind: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """A copy with `values`, or the scalar `val`, inserted before each index in `obj`."""
    if obj is None:
        raise MXNetError("missing argument obj")
    arr, axis = _along(arr, axis)
    places = obj.detach().long()
    if not places.dim():
        return _inserted_at(arr, int(places), _values(arr, values, val).movedim(0, axis), axis)
    return _inserted(arr, places, _values(arr, values, val), axis)


def _along(arr: Tensor, axis: int | None) -> tuple[Tensor, int]:
    if axis is None:
        return arr.reshape(-1), 0
    if not -arr.dim() <= axis < arr.dim():
        raise MXNetError(f"axis {axis} is out of range for an array with {arr.dim()} dimension(s)")
    return arr, axis % arr.dim()


def _values(arr: Tensor, values: Tensor | None, val: float | None) -> Tensor:
    """Return the array to insert, with at least as many dimensions as `arr`."""
    if values is None:
        if val is None:
            raise MXNetError("expected values or val")
        values = _number(val, arr)
    return values.to(arr.dtype).reshape((1,) * (arr.dim() - values.dim()) + tuple(values.shape))


def _inserted_at(arr: Tensor, index: int, values: Tensor, axis: int) -> Tensor:
    """Insert all of `values` before one index."""
    length = arr.size(axis)
    if not -length <= index <= length:
        raise MXNetError(f"index {index} is out of bounds for axis {axis} with size {length}")
    index %= length + (index >= 0) or 1
    values = values.broadcast_to((*arr.shape[:axis], values.size(axis), *arr.shape[axis + 1 :]))
    return torch.cat([arr.narrow(axis, 0, index), values, arr.narrow(axis, index, length - index)], axis)


def _inserted(arr: Tensor, places: Tensor, values: Tensor, axis: int) -> Tensor:
    """Insert each slice of `values` along `axis` before its index in `places`."""
    if len(places) == 1 and not arr.is_meta:
        return _inserted_at(arr, int(places), values, axis)
    length, count = arr.size(axis), len(places)
    _check(places, length + 1, length, axis)
    places = torch.where(places < 0, places + length, places)
    order = places.argsort(stable=True)
    places[order] += torch.arange(count, device=arr.device)
    kept = torch.ones(length + count, dtype=torch.bool, device=arr.device)
    kept[places] = False
    result = arr.new_empty((*arr.shape[:axis], length + count, *arr.shape[axis + 1 :]))
    along: tuple[Any, ...] = (slice(None),) * axis
    result[along + (places,)] = values
    result[along + (kept,)] = arr
    return result


def _check(places: Tensor, most: int, length: int, axis: int) -> None:
    if places.numel() and not places.is_meta:
        for bound in torch.aminmax(places):
            if not -length <= int(bound) < most:
                raise MXNetError(f"index {int(bound)} is out of bounds for axis {axis} with size {length}")


def _deleted_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Any:
    """Declare the size along `axis` unknown: an index array may contain duplicates."""
    if len(shapes) < 2 or shapes[0] is None:
        return shapes
    arr, axis = shapes[0], attrs["axis"]
    if axis is None:
        return shapes, [(0,)]
    return shapes, [tuple(0 if i == axis % len(arr) else n for i, n in enumerate(arr))]


@op(
    "_npi_delete",
    takes={"obj": lambda a: a["int_ind"] is None and a["step"] is None},
    types=typed([0]),
    infer=_deleted_shapes,
)
def np_delete(
    arr: Tensor,
    obj: Tensor | None = None,
    *,
    start: int | None = None,
    stop: int | None = None,
    step: int | None = None,
    int_ind: int | None = None,
    axis: int | None = None,
) -> Tensor:
    """A copy without the elements along `axis` at an index, a slice, an index array or a boolean mask."""
    arr, axis = _along(arr, axis)
    length = arr.size(axis)
    if obj is not None:
        places = obj.detach() if obj.dtype is torch.bool else obj.detach().long()
    elif int_ind is not None:
        places = torch.tensor([int_ind], device=arr.device)
    else:
        places = _slice_positions(length, start, stop, step, arr.device)
    kept = torch.ones(length, dtype=torch.bool, device=arr.device)
    if places.dtype is not torch.bool:
        _check(places, length, length, axis)
    kept[places] = False
    return arr.narrow(axis, 0, length - len(places)) if arr.is_meta else arr[(slice(None),) * axis + (kept,)]
