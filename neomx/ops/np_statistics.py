"""Percentiles, differences and polynomials of `mx.np`."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from ..base import MXNetError
from .np_reduce import np_axes
from .table import Axis, Types, op

Tensor = torch.Tensor
Interpolation = Literal["higher", "linear", "lower", "midpoint", "nearest"]


# ---- percentiles ----


def _percentile_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [torch.float64 if types[0] is torch.float64 else torch.float32]


@op("_npi_percentile", takes={"q": lambda a: a["q_scalar"] is None}, types=_percentile_types)
def np_percentile(
    a: Tensor,
    q: Tensor | None = None,
    *,
    axis: Axis = None,
    interpolation: Interpolation = "linear",
    keepdims: bool = False,
    q_scalar: float | None = None,
) -> Tensor:
    """The q-th percentiles of the elements. Several q form the first dimension of the result. It has no gradient."""
    wide = a.detach().to(torch.float64 if a.dtype is torch.float64 else torch.float32)
    percent = torch.tensor(q_scalar, dtype=torch.float64, device=a.device) if q is None else q.detach().double()
    if percent.dim() > 1:
        raise MXNetError(f"expected q to be a scalar or a vector, got {percent.dim()} dimensions")
    axes = tuple(i % a.dim() for i in np_axes(a, axis))
    kept = [i for i in range(a.dim()) if i not in axes]
    count = math.prod(a.shape[i] for i in axes)
    groups = wide.permute((*kept, *axes)).reshape((*(a.shape[i] for i in kept), count))
    if not count:
        raise MXNetError("cannot compute the percentile of zero elements")
    found = _between(groups.sort(dim=-1).values, percent.reshape(-1) / 100, interpolation).movedim(-1, 0)
    shape = [1 if i in axes else length for i, length in enumerate(a.shape)] if keepdims else [a.shape[i] for i in kept]
    return found.reshape((*percent.shape, *shape))


def _between(ordered: Tensor, fractions: Tensor, interpolation: str) -> Tensor:
    """Interpolate at fractions of the last dimension. Return NaN for rows that contain NaN."""
    place = fractions * (ordered.shape[-1] - 1)
    below, above = place.floor(), place.ceil()
    if interpolation == "lower":
        above = below
    elif interpolation == "higher":
        below = above
    elif interpolation == "nearest":
        below = above = (place + 0.5).floor()  # MXNet rounds halves up
    weight = 0.5 * (above - below) if interpolation == "midpoint" else place - below
    low, high = ordered[..., below.long()], ordered[..., above.long()]
    found = torch.where(below == above, low, low + (high - low) * weight.to(low.dtype))
    return torch.where(ordered[..., -1:].isnan(), ordered[..., -1:], found)  # NaN is sorted to the end


# ---- differences ----


@op("_npi_diff", may_alias=True)
def np_diff(a: Tensor, *, n: int = 1, axis: int = -1) -> Tensor:
    """The n-th discrete difference along an axis."""
    if n < 0:
        raise MXNetError("expected a nonnegative n")
    return torch.diff(a, n, axis)


@op(
    "_npi_ediff1d",
    same_dtype=True,
    takes={
        "input2": lambda a: a["to_begin_arr_given"] or a["to_end_arr_given"],
        "input3": lambda a: a["to_begin_arr_given"] and a["to_end_arr_given"],
    },
)
def np_ediff1d(
    input1: Tensor,
    input2: Tensor | None = None,
    input3: Tensor | None = None,
    *,
    to_begin_arr_given: bool = False,
    to_end_arr_given: bool = False,
    to_begin_scalar: float | None = None,
    to_end_scalar: float | None = None,
) -> Tensor:
    """The differences of consecutive elements of the flattened array, with optional values before and after them."""
    given = iter([each for each in (input2, input3) if each is not None])
    begin = next(given) if to_begin_arr_given else _number(input1, to_begin_scalar)
    end = next(given) if to_end_arr_given else _number(input1, to_end_scalar)
    parts = [begin, torch.diff(input1.reshape(-1)), end]
    return torch.cat([part.reshape(-1) for part in parts if part is not None])


def _number(like: Tensor, value: float | None) -> Tensor | None:
    """Return a scalar as an array with the dtype of `like`. Integer dtypes truncate it."""
    if value is None:
        return None
    return torch.full((1,), value if like.is_floating_point() else int(value), dtype=like.dtype, device=like.device)


# ---- polynomials ----


@op("_npi_polyval", same_dtype=True)
def np_polyval(p: Tensor, x: Tensor) -> Tensor:
    """The value at x of the polynomial with coefficients p, highest power first."""
    if p.dim() != 1:
        raise MXNetError(f"expected p to be a vector, got {p.dim()} dimensions")
    result = torch.zeros_like(x)
    for coefficient in p.unbind():
        result = result * x + coefficient
    return result
