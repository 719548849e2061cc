"""Reductions: sums, extremes, averages, truth."""

from __future__ import annotations

from typing import Any

from .call import call

__all__ = [
    "all",
    "amax",
    "amin",
    "any",
    "average",
    "cumsum",
    "max",
    "mean",
    "min",
    "prod",
    "product",
    "sometrue",
    "std",
    "sum",
    "var",
]


def sum(
    a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None, out: Any = None
) -> Any:
    """The sum of the elements along axes: int64 for booleans, the array's dtype for all others unless told."""
    return call("_np_sum", (a,), out, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial)


def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The product of the elements along axes: int64 for booleans, the array's dtype for all others unless told."""
    return call("_np_prod", (a,), out, axis=axis, dtype=dtype, keepdims=keepdims)


product = prod


def max(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """The largest element along axes. Each of several equal ones takes the whole gradient."""
    return call("_np_max", (a,), out, axis=axis, keepdims=keepdims)


def min(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """The smallest element along axes. Each of several equal ones takes the whole gradient."""
    return call("_np_min", (a,), out, axis=axis, keepdims=keepdims)


amax = max
amin = min


def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """The average of the elements along axes, float32 for integers unless told."""
    return call("_npi_mean", (a,), out, axis=axis, dtype=dtype, keepdims=keepdims)


def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """The standard deviation along axes, in the array's dtype unless told. As in MXNet, it has no gradient."""
    return call("_npi_std", (a,), out, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)


def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """The variance along axes, in the array's dtype unless told. As in MXNet, it has no gradient."""
    return call("_npi_var", (a,), out, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, out: Any = None) -> Any:
    """The weighted average along axes; with `returned` also the sum of the weights."""
    arrays = (a,) if weights is None else (a, weights)
    return call("_npi_average", arrays, out, axis=axis, returned=returned, weighted=weights is not None)


def any(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """Whether any element along axes is not 0."""
    return call("_np_any", (a,), out, axis=axis, keepdims=keepdims)


def all(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """Whether no element along axes is 0."""
    return call("_np_all", (a,), out, axis=axis, keepdims=keepdims)


sometrue = any


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """The sums of the elements up to each, along an axis or in the flattened array."""
    return call("_np_cumsum", (a,), out, axis=axis, dtype=dtype)
