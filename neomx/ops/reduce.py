"""Reductions over axes.

`axis` is None or () (all axes), an int or a tuple. `exclude` reduces over the axes that are not in `axis`.
A full reduction returns shape (1,), because `nd` has no 0-d arrays.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..base import MXNetError
from .shape import never_0d
from .shapes import Shapes
from .table import Axis, DType, op, typed

Tensor = torch.Tensor


def axes_of(data: Tensor, axis: tuple[int, ...] | None, exclude: bool = False) -> tuple[int, ...]:
    """Return the axes to reduce over as nonnegative ints."""
    rank = data.dim()
    if not axis:
        return tuple(range(rank))
    if len(axis) == 1 and not exclude and -rank <= axis[0] < rank:
        return axis
    for a in axis:
        if not -rank <= a < rank:
            raise MXNetError(f"axis {a} is out of range for an array with {rank} dimension(s)")
    named = tuple(a % rank for a in axis)
    if len(set(named)) != len(named):
        raise MXNetError(f"axis {axis} contains a dimension twice")
    return tuple(a for a in range(rank) if a not in named) if exclude else named


def dims(axes: tuple[int, ...] | None) -> Any:
    """Return axes in the form that torch parses fastest: a single axis as an int."""
    return axes[0] if axes is not None and len(axes) == 1 else axes


@op("sum", "sum_axis")
def sum(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The sum of the elements."""
    axes = axes_of(data, axis, exclude)
    return never_0d(torch.sum(data, dims(axes), keepdims, dtype=data.dtype)) if axes else data.clone()


@op("mean", may_alias=True)
def mean(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The mean of the elements, truncated for integers."""
    axes = axes_of(data, axis, exclude)
    if not axes:
        return data
    count = math.prod([data.shape[a] for a in axes])
    if count == 1 and data.dim() == 2 and not keepdims and len(axes) == 1:  # a column, as losses are
        return data.reshape(-1)
    if data.is_floating_point():
        return never_0d(torch.mean(data, axes, keepdims))
    return never_0d(torch.sum(data, axes, keepdims, dtype=data.dtype).div(count, rounding_mode="trunc"))


@op("nansum")
def nansum(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The sum of the elements that are not NaN."""
    axes = axes_of(data, axis, exclude)
    return never_0d(torch.nansum(data, axes, keepdims, dtype=data.dtype)) if axes else data.clone()


@op("prod", may_alias=True)
def prod(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The product of the elements."""
    axes = axes_of(data, axis, exclude)
    dtype = data.dtype
    for a in sorted(axes, reverse=True):  # torch multiplies along only one axis at a time
        data = torch.prod(data, a, keepdims, dtype=dtype)
    return never_0d(data)


@op("nanprod", may_alias=True)
def nanprod(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The product of the elements that are not NaN."""
    if data.is_floating_point():
        data = data.masked_fill(torch.isnan(data), 1)
    return prod(data, axis=axis, keepdims=keepdims, exclude=exclude)


class _Extreme(torch.autograd.Function):
    """amax and amin. Each of several equal extremes receives the full gradient, where torch distributes it."""

    @staticmethod
    def forward(ctx, data, axes, largest):
        result = torch.amax(data, axes, True) if largest else torch.amin(data, axes, True)
        ctx.save_for_backward(data, result)
        return result

    @staticmethod
    def backward(ctx, grad):
        data, result = ctx.saved_tensors
        return grad * (data == result), None, None


def extreme(data: Tensor, axes: tuple[int, ...], keepdims: bool, largest: bool) -> Tensor:
    """Return the largest or smallest elements over axes."""
    if not data.requires_grad:
        return torch.amax(data, dims(axes), keepdims) if largest else torch.amin(data, dims(axes), keepdims)
    result = _Extreme.apply(data, axes, largest)
    return result if keepdims else result.squeeze(axes)


def _extreme(data: Tensor, axis: tuple[int, ...] | None, keepdims: bool, exclude: bool, largest: bool) -> Tensor:
    axes = axes_of(data, axis, exclude)
    return never_0d(extreme(data, axes, keepdims, largest)) if axes else data.clone()


@op("max", "max_axis")
def max(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The largest element."""
    return _extreme(data, axis, keepdims, exclude, True)


@op("min", "min_axis")
def min(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The smallest element."""
    return _extreme(data, axis, keepdims, exclude, False)


@op("norm")
def norm(
    data: Tensor, *, ord: int = 2, axis: Axis = None, out_dtype: DType | None = None, keepdims: bool = False
) -> Tensor:
    """The sum of absolute values (ord=1) or the square root of the sum of squares (ord=2)."""
    if ord not in (1, 2):
        raise MXNetError("expected ord to be 1 or 2")
    wide = data if data.is_floating_point() else data.double()
    result = never_0d(torch.linalg.vector_norm(wide, ord, axes_of(data, axis), keepdims))
    return result.to(out_dtype or data.dtype)


@op("_square_sum")
def square_sum(data: Tensor, *, axis: Axis = None, keepdims: bool = False, exclude: bool = False) -> Tensor:
    """The sum of the squares of the elements."""
    return sum(data * data, axis=axis, keepdims=keepdims, exclude=exclude)


@op(
    "multi_sum_sq",
    same_dtype=True,
    takes=lambda a: [f"array_{i}" for i in range(a["num_arrays"])],
    types=typed([torch.float32], [None, 0]),
)
def multi_sum_sq(*data: Tensor, num_arrays: int) -> Tensor:
    """The sums of squares of the arrays, as one float32 array."""
    if num_arrays != len(data):
        raise MXNetError(f"expected num_arrays={num_arrays} arrays, got {len(data)}")
    if not all(tensor.is_floating_point() for tensor in data):
        raise MXNetError("expected arrays of floats")
    norms = torch._foreach_norm([tensor.detach().float() for tensor in data], 2)
    return torch.stack(norms).square()


@op("moments", outputs=2)
def moments(data: Tensor, *, axes: Axis = None, keepdims: bool = False) -> list[Tensor]:
    """The mean and the variance of the elements."""
    if not axes:
        raise MXNetError("expected axes; for the moments of all elements, list every axis")
    wide = data if data.is_floating_point() else data.double()
    variance, average = torch.var_mean(wide, axes_of(data, axes), correction=0, keepdim=keepdims)
    return [never_0d(average).to(data.dtype), never_0d(variance).to(data.dtype)]


# ---- indices of extremes, cumulative sums ----


def _where(data: Tensor, axis: int | None, keepdims: bool, largest: bool) -> Tensor:
    """Return the index of the extreme, the first if there are several, in the dtype of the data."""
    if axis is not None:
        axes_of(data, (axis,))
    find = torch.argmax if largest else torch.argmin
    return never_0d(find(data, axis, keepdims)).to(data.dtype)


@op("argmax")
def argmax(data: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the largest element along an axis, or in the flattened array."""
    return _where(data, axis, keepdims, True)


@op("argmin")
def argmin(data: Tensor, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index of the smallest element along an axis, or in the flattened array."""
    return _where(data, axis, keepdims, False)


@op("argmax_channel")
def argmax_channel(data: Tensor) -> Tensor:
    """The index of the largest element along axis 1."""
    return _where(data, 1, False, True)


def _summed_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer that the result has the shape of the data if `axis` is given."""
    return shapes if attrs["axis"] is None else outputs


@op(
    "_np_cumsum",
    "cumsum",
    infer=_summed_shapes,
    types=lambda types, a: (types, [a["dtype"] or (torch.int64 if types[0] is torch.bool else types[0])]),
)
def cumsum(a: Tensor, *, axis: int | None = None, dtype: DType | None = None) -> Tensor:
    """The cumulative sum of the elements, along an axis or of the flattened array."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    rank = a.dim()
    if not -rank <= axis < rank:
        axes_of(a, (axis,))  # raises an error that names the axis
    if dtype is None:
        if a.dtype.is_floating_point:
            return a.cumsum(axis)
        dtype = torch.int64 if a.dtype is torch.bool else a.dtype
    return torch.cumsum(a, axis, dtype=dtype)
