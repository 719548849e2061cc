"""Reductions: sums, extrema, averages and logical reductions."""

from __future__ import annotations

from typing import Any

from ..ndarray.invoke import is_recorded
from .call import call, call_converted, reduced
from .multiarray import ndarray

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
    """Sum of the elements along axes. The default dtype is int64 for booleans, otherwise the array's dtype."""
    if type(a) is ndarray and dtype is None and initial is None and not keepdims:
        return reduced("_np_sum", a, axis, out)
    return call("_np_sum", (a,), out, axis=axis, dtype=dtype, keepdims=keepdims, initial=initial)


def prod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Product of the elements along axes. The default dtype is int64 for booleans, otherwise the array's dtype."""
    return call("_np_prod", (a,), out, axis=axis, dtype=dtype, keepdims=keepdims)


product = prod


def max(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """Maximum along axes. If several elements are equal, each gets the whole gradient."""
    if type(a) is ndarray and not keepdims:
        return reduced("_np_max", a, axis, out)
    return call("_np_max", (a,), out, axis=axis, keepdims=keepdims)


def min(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """Minimum along axes. If several elements are equal, each gets the whole gradient."""
    if type(a) is ndarray and not keepdims:
        return reduced("_np_min", a, axis, out)
    return call("_np_min", (a,), out, axis=axis, keepdims=keepdims)


amax = max
amin = min


def mean(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Mean of the elements along axes. The default dtype for integers is float32."""
    if type(a) is ndarray and dtype is None and not keepdims:
        return reduced("_npi_mean", a, axis, out)
    return call("_npi_mean", (a,), out, axis=axis, dtype=dtype, keepdims=keepdims)


def std(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """Standard deviation along axes, by default in the array's dtype. As in MXNet, it has no gradient."""
    return call("_npi_std", (a,), out, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)


def var(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """Variance along axes, by default in the array's dtype. As in MXNet, it has no gradient."""
    return call("_npi_var", (a,), out, axis=axis, dtype=dtype, ddof=ddof, keepdims=keepdims)


def average(a: Any, axis: Any = None, weights: Any = None, returned: bool = False, out: Any = None) -> Any:
    """Weighted average along axes; with `returned`, also the sum of the weights."""
    arrays = (a,) if weights is None else (a, weights)
    return call("_npi_average", arrays, out, axis=axis, returned=returned, weighted=weights is not None)


def any(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """Whether any element along axes is nonzero."""
    return call("_np_any", (a,), out, axis=axis, keepdims=keepdims)


def all(a: Any, axis: Any = None, keepdims: bool = False, out: Any = None) -> Any:
    """Whether all elements along axes are nonzero."""
    return call("_np_all", (a,), out, axis=axis, keepdims=keepdims)


sometrue = any


def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: Any = None) -> Any:
    """Cumulative sum along an axis, or of the flattened array."""
    if type(a) is ndarray and type(axis) is int and dtype is None:
        return call_converted("_np_cumsum", (a,), out, {"axis": axis})
    if type(a) is ndarray and dtype is not None and is_recorded(a):  # astype has a gradient, also for integers
        return call("_np_cumsum", (a.astype(dtype),), out, axis=axis)
    return call("_np_cumsum", (a,), out, axis=axis, dtype=dtype)
