"""Reductions of `mx.np` over axes.

`axis` is None (all axes), an int or a tuple; () reduces nothing. A full reduction returns an array without dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from ..base import MXNetError
from .reduce import axes_of, extreme
from .table import Axis, DType, Types, op, typed

Tensor = torch.Tensor
_FLOAT = torch.float32


def np_axes(data: Tensor, axis: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return the axes to reduce over. An array without dimensions accepts axis 0 or -1, as in NumPy."""
    if axis == () or (data.dim() == 0 and axis in ((0,), (-1,))):
        return ()
    return axes_of(data, axis)


def _refuse_initial(initial: float | None) -> None:
    if initial is not None:
        raise MXNetError("initial is not supported; apply it to the result instead")


# ---- sum and product ----


def _total_dtype(data: torch.dtype, dtype: torch.dtype | None) -> torch.dtype:
    """Return the dtype of a sum or product: that of the data, but int64 for booleans."""
    return dtype or (torch.int64 if data is torch.bool else data)


def _total_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [None if types[0] is None else _total_dtype(types[0], attrs.get("dtype"))]


def _accumulating_dtype(data: Tensor, result: torch.dtype) -> torch.dtype:
    """Return the dtype for accumulation: floats stay floats until the end, even if the result is an integer."""
    if data.is_floating_point() and not result.is_floating_point:
        return data.dtype
    return torch.int64 if result is torch.bool else result


@op("_np_sum", types=_total_types)
def np_sum(
    a: Tensor, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False, initial: float | None = None
) -> Tensor:
    """The sum of the elements."""
    if dtype is None and initial is None and a.dtype is _FLOAT:  # fast path for the common case
        if axis is None and not keepdims:
            return a.sum()
        if axis != ():
            return a.sum(axis[0] if axis and len(axis) == 1 else axis, keepdims)
    _refuse_initial(initial)
    result = _total_dtype(a.dtype, dtype)
    axes = np_axes(a, axis)
    if not axes:
        return a.to(result, copy=True)
    return torch.sum(a, axes, keepdims, dtype=_accumulating_dtype(a, result)).to(result)


@op("_np_prod", "_np_product", may_alias=True, types=_total_types)
def np_prod(
    a: Tensor, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False, initial: float | None = None
) -> Tensor:
    """The product of the elements."""
    _refuse_initial(initial)
    result = _total_dtype(a.dtype, dtype)
    dtype = _accumulating_dtype(a, result)
    product = a.to(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)
    for each in sorted((i % a.dim() for i in np_axes(a, axis)), reverse=True):  # torch accepts only one axis at a time
        product = torch.prod(product, each, keepdims, dtype=product.dtype)
    return product.to(result)


# ---- extremes ----


@op("_np_max", "_np_amax")
def np_max(a: Tensor, *, axis: Axis = None, keepdims: bool = False, initial: float | None = None) -> Tensor:
    """The largest element. Each of several equal maxima receives the full gradient."""
    if a.dtype is _FLOAT and initial is None and axis != () and not a.requires_grad:  # fast path for the common case
        return a.amax(axis[0] if axis and len(axis) == 1 else axis or (), keepdims)
    return _np_extreme(a, axis, keepdims, initial, True)


@op("_np_min", "_np_amin")
def np_min(a: Tensor, *, axis: Axis = None, keepdims: bool = False, initial: float | None = None) -> Tensor:
    """The smallest element. Each of several equal minima receives the full gradient."""
    if a.dtype is _FLOAT and initial is None and axis != () and not a.requires_grad:  # fast path for the common case
        return a.amin(axis[0] if axis and len(axis) == 1 else axis or (), keepdims)
    return _np_extreme(a, axis, keepdims, initial, False)


def _np_extreme(
    a: Tensor, axis: tuple[int, ...] | None, keepdims: bool, initial: float | None, largest: bool
) -> Tensor:
    _refuse_initial(initial)
    axes = np_axes(a, axis)
    if not a.numel() and any(a.shape[i] == 0 for i in axes):
        raise MXNetError("cannot reduce zero elements; expected an array that is not empty along axis")
    return extreme(a, axes, keepdims, largest) if axes else a.clone()


# ---- mean, variance, standard deviation, weighted average ----


def _mean_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [None if types[0] is None else _mean_dtype(types[0], attrs.get("dtype"))]


def _mean_dtype(data: torch.dtype, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (data if data.is_floating_point else torch.float32)


def _as_floats(data: Tensor) -> Tensor:
    return data if data.is_floating_point() else data.double()


@op("_npi_mean", types=_mean_types)
def np_mean(
    a: Tensor, *, axis: Axis = None, dtype: DType | None = None, keepdims: bool = False, initial: float | None = None
) -> Tensor:
    """The mean of the elements, float32 for integers. An integer `dtype` truncates it."""
    if dtype is None and initial is None and a.dtype is _FLOAT:  # fast path for the common case
        if axis is None and not keepdims:
            return a.mean()
        if axis != ():
            return a.mean(axis[0] if axis and len(axis) == 1 else axis, keepdims)
    _refuse_initial(initial)
    result = _mean_dtype(a.dtype, dtype)
    axes = np_axes(a, axis)
    wide = _as_floats(a)
    if result.is_floating_point and result.itemsize > wide.dtype.itemsize:
        wide = wide.to(result)
    return torch.mean(wide, axes, keepdims).to(result) if axes else a.to(result, copy=True)


def _spread_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [None if types[0] is None else _spread_dtype(types[0], attrs.get("dtype"))]


def _spread_dtype(data: torch.dtype, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or (torch.float32 if data is torch.bool else data)


def _variance(a: Tensor, axis: tuple[int, ...] | None, dtype: torch.dtype, ddof: int, keepdims: bool) -> Tensor:
    """Return the variance, in floats at least as wide as float32 and `dtype`. It has no gradient, as in MXNet."""
    wide = _as_floats(a.detach())
    wide = wide.to(torch.promote_types(torch.float32, dtype if dtype.is_floating_point else wide.dtype))
    axes = np_axes(a, axis)
    if not axes:  # each element is its own group
        wide, axes, keepdims = wide.unsqueeze(-1), (-1,), False
    count = math.prod(wide.shape[i] for i in axes)
    deviations = wide - wide.mean(axes, keepdim=True)
    return deviations.square().sum(axes, keepdims) / max(count - ddof, 0)


@op("_npi_var", types=_spread_types)
def np_var(
    a: Tensor, *, axis: Axis = None, dtype: DType | None = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """The variance of the elements, truncated for integers. It has no gradient."""
    result = _spread_dtype(a.dtype, dtype)
    return _variance(a, axis, result, ddof, keepdims).to(result)


@op("_npi_std", types=_spread_types)
def np_std(
    a: Tensor, *, axis: Axis = None, dtype: DType | None = None, ddof: int = 0, keepdims: bool = False
) -> Tensor:
    """The standard deviation of the elements, truncated for integers. It has no gradient."""
    result = _spread_dtype(a.dtype, dtype)
    return _variance(a, axis, result, ddof, keepdims).sqrt().to(result)


@op(
    "_npi_average",
    same_dtype=True,
    takes={"weights": lambda a: a["weighted"]},
    outputs=2,
    visible=lambda a: 2 if a["returned"] else 1,
)
def np_average(
    a: Tensor,
    weights: Tensor | None = None,
    *,
    axis: Axis = None,
    returned: bool = False,
    weighted: bool = True,
) -> Tensor | list[Tensor]:
    """The weighted average of the elements and, if `returned`, the sum of the weights, which has no gradient."""
    axes = np_axes(a, axis)
    if weights is None or not weighted:
        total = torch.sum(a, axes, dtype=a.dtype) if axes else a
        count = math.prod(a.shape[i] for i in axes)
        scale = torch.full((), count, dtype=a.dtype, device=a.device)
    else:
        alike = weights.shape == a.shape
        terms = a * (weights if alike else _along(a, weights, axis))
        total = torch.sum(terms, axes, dtype=a.dtype) if axes else terms
        scale = torch.sum(weights, axes if alike else (0,), dtype=a.dtype) if axes else weights
    average = total / scale if a.is_floating_point() else torch.div(total, scale, rounding_mode="trunc")
    return [average, scale.detach()] if returned else average


def _along(a: Tensor, weights: Tensor, axis: tuple[int, ...] | None) -> Tensor:
    """Reshape a vector of weights to broadcast along one axis of `a`."""
    if axis is None or len(axis) != 1 or weights.dim() != 1 or weights.shape[0] != a.shape[axis[0]]:
        raise MXNetError(
            "expected weights with the shape of a, or a vector of weights with the size of the one axis to average over"
        )
    shape = [1] * a.dim()
    shape[axis[0]] = -1
    return weights.reshape(shape)


# ---- any and all ----


@op("_np_any", "_np_sometrue", types=typed([torch.bool]))
def np_any(data: Tensor, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether any element is nonzero."""
    axes = np_axes(data, axis)
    return torch.any(data != 0, axes, keepdims) if axes else data != 0


@op("_np_all", types=typed([torch.bool]))
def np_all(data: Tensor, *, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are nonzero."""
    axes = np_axes(data, axis)
    return torch.all(data != 0, axes, keepdims) if axes else data != 0
