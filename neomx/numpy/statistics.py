"""Histograms, percentiles, differences, polynomials and windows."""

from __future__ import annotations

from typing import Any

from ..base import numeric_types
from ..ndarray.ndarray import NDArray
from ..symbol import Symbol
from .call import call
from .creation import array

__all__ = [
    "diff",
    "ediff1d",
    "histogram",
    "percentile",
    "polyval",
    "quantile",
]


def histogram(
    a: Any, bins: Any = 10, range: Any = None, normed: Any = None, weights: Any = None, density: Any = None
) -> Any:
    """Return the counts of elements in each bin and the bin edges. `bins` are edges, or a number of bins in `range`."""
    for name, value in (("normed", normed), ("weights", weights), ("density", density)):
        if value is not None and value is not False:
            raise NotImplementedError(f"histogram does not support {name}, as in MXNet. Compute it from the counts")
    if isinstance(bins, numeric_types):
        if range is None:
            raise NotImplementedError("histogram requires range=(low, high) with a number of bins, as in MXNet")
        return call("_npi_histogram", (a,), bin_cnt=bins, range=range)
    if not isinstance(bins, (NDArray, Symbol)):
        raise NotImplementedError(f"histogram expects bins to be an int or an array, received {type(bins).__name__}")
    return call("_npi_histogram", (a, bins))


def percentile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = None,
    interpolation: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the q-th percentiles of the elements along axes. As in MXNet, they have no gradient."""
    if overwrite_input is not None:
        raise NotImplementedError("percentile does not support overwrite_input, as in MXNet")
    attrs = {"axis": axis, "interpolation": interpolation, "keepdims": keepdims}
    if isinstance(q, numeric_types):
        _check_percent(q, q)
        return call("_npi_percentile", (a,), out, q_scalar=q, **attrs)
    q = q if isinstance(q, (NDArray, Symbol)) else array(q)
    if isinstance(q, NDArray) and q.size:
        numbers = q.asnumpy()
        _check_percent(numbers.min(), numbers.max())
    return call("_npi_percentile", (a, q), out, **attrs)


def _check_percent(least: Any, most: Any) -> None:
    if not 0 <= least <= most <= 100:
        raise ValueError(f"expected percentiles from 0 to 100 (quantiles from 0 to 1), received {least} to {most}")


def quantile(
    a: Any,
    q: Any,
    axis: Any = None,
    out: Any = None,
    overwrite_input: Any = None,
    interpolation: str = "linear",
    keepdims: bool = False,
) -> Any:
    """Return the q-th quantiles of the elements along axes. As in MXNet, they have no gradient."""
    q = q if isinstance(q, (*numeric_types, NDArray, Symbol)) else array(q)
    return percentile(a, q * 100, axis, out, overwrite_input, interpolation, keepdims)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Any:
    """Return the differences of adjacent elements along an axis, applied n times."""
    if prepend is not None or append is not None:
        raise NotImplementedError("diff does not support prepend and append, as in MXNet. Concatenate the arrays first")
    return call("_npi_diff", (a,), n=n, axis=axis)


def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    """Return the differences of adjacent elements in the flattened array, with `to_begin` and `to_end` added."""
    arrays: list[Any] = [ary]
    attrs: dict[str, Any] = {}
    for name, value in (("to_begin", to_begin), ("to_end", to_end)):
        given = isinstance(value, (NDArray, Symbol))
        attrs |= {f"{name}_arr_given": given, f"{name}_scalar": None if given else value}
        if given:
            arrays.append(value)
    return call("_npi_ediff1d", arrays, **attrs)


def polyval(p: Any, x: Any) -> Any:
    """Evaluate the polynomial with coefficients p, highest power first, at x."""
    if not isinstance(p, (NDArray, Symbol)) or not isinstance(x, (NDArray, Symbol)):
        given = " and ".join(f"{type(each).__module__}.{type(each).__name__}" for each in (p, x))
        raise TypeError(f"polyval expects two mx.np arrays, received {given}. Use mx.np.array")
    if isinstance(p, NDArray) and p.ndim != 1:
        raise ValueError(f"polyval expects p to have 1 dimension, received {p.ndim}")
    return call("_npi_polyval", (p, x))
