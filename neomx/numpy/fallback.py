"""Functions that MXNet delegates to NumPy. They run on the CPU, and autograd does not record them (see `dispatch`)."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as onp
from numpy import (
    allclose,
    apply_along_axis,
    apply_over_axes,
    argpartition,
    argwhere,
    array_equal,
    array_equiv,
    choose,
    compress,
    corrcoef,
    correlate,
    cov,
    digitize,
    divmod,
    extract,
    flatnonzero,
    float_power,
    frexp,
    heaviside,
    histogram2d,
    histogram_bin_edges,
    histogramdd,
    i0,
    interp,
    intersect1d,
    isclose,
    isin,
    ix_,
    lexsort,
    min_scalar_type,
    modf,
    nanargmax,
    nanargmin,
    nancumprod,
    nancumsum,
    nanmax,
    nanmedian,
    nanmin,
    nanpercentile,
    nanprod,
    nanquantile,
    ndim,
    packbits,
    partition,
    piecewise,
    poly,
    polyadd,
    polydiv,
    polyfit,
    polyint,
    polymul,
    polysub,
    positive,
    promote_types,
    ptp,
    real,
    result_type,
    rollaxis,
    roots,
    searchsorted,
    select,
    setdiff1d,
    setxor1d,
    signbit,
    size,
    spacing,
    take_along_axis,
    tril_indices_from,
    trim_zeros,
    triu_indices_from,
    union1d,
    unpackbits,
    unwrap,
    vander,
)

from .. import numpy as np  # this package; its names are complete when functions are called
from .dispatch import computed_by_numpy

__all__ = [
    "allclose", "alltrue", "apply_along_axis", "apply_over_axes", "argpartition", "argwhere", "array_equal",
    "array_equiv", "choose", "compress", "corrcoef", "correlate", "count_nonzero", "cov", "digitize", "divmod",
    "extract", "flatnonzero", "float_power", "frexp", "genfromtxt", "heaviside", "histogram2d", "histogram_bin_edges",
    "histogramdd", "i0", "in1d", "interp", "intersect1d", "isclose", "isin", "ix_", "lexsort", "min_scalar_type",
    "mirr", "modf", "msort", "nanargmax", "nanargmin", "nancumprod", "nancumsum", "nanmax", "nanmedian", "nanmin",
    "nanpercentile", "nanprod", "nanquantile", "ndim", "npv", "packbits", "partition", "piecewise", "poly",
    "polyadd", "polydiv", "polyfit", "polyint", "polymul", "polysub", "positive", "ppmt", "promote_types", "ptp",
    "pv", "rate", "real", "result_type", "rollaxis", "roots", "searchsorted", "select", "setdiff1d", "setxor1d",
    "signbit", "size", "spacing", "take_along_axis", "trapz", "tril_indices_from", "trim_zeros",
    "triu_indices_from", "union1d", "unpackbits", "unwrap", "vander",
]  # fmt: skip

# ---- functions that later versions of NumPy removed or changed ----


@computed_by_numpy
def alltrue(a: Any, axis: Any = None, out: Any = None, keepdims: bool = False) -> Any:
    """Whether all elements are true. Alias of `all`."""
    return onp.all(a, axis=axis, out=out, keepdims=keepdims)


@computed_by_numpy
def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """Return the number of nonzero elements: an int, or an array of counts along axes."""
    count = onp.count_nonzero(a, axis=axis, keepdims=keepdims)
    return int(count) if axis is None and not keepdims else count  # later versions of NumPy return a NumPy integer


@computed_by_numpy
def in1d(ar1: Any, ar2: Any, assume_unique: bool = False, invert: bool = False) -> Any:
    """Whether each element of the flattened `ar1` is in `ar2`."""
    return onp.isin(onp.ravel(ar1), ar2, assume_unique=assume_unique, invert=invert)


@computed_by_numpy
def msort(a: Any) -> Any:
    """Return a copy sorted along the first axis."""
    return onp.sort(a, axis=0)


@computed_by_numpy
def trapz(y: Any, x: Any = None, dx: float = 1.0, axis: int = -1) -> Any:
    """Integrate y using the trapezoidal rule."""
    rule: Any = getattr(onp, "trapezoid", None) or onp.trapz  # type: ignore[attr-defined]  # its name before NumPy 2
    return rule(y, x=x, dx=dx, axis=axis)


def genfromtxt(*args: Any, **kwargs: Any) -> Any:
    """Load an array from a text file with NumPy's function of the same name."""
    return np.array(onp.genfromtxt(*args, **kwargs))


def _financial(name: str) -> Any:
    def function(*args: Any, **kwds: Any) -> NoReturn:
        raise RuntimeError(f"{name} was removed from NumPy 1.20. Use numpy_financial.{name} on x.asnumpy()")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = "Raise RuntimeError. NumPy has removed this function."
    return function


mirr, npv, ppmt, pv, rate = map(_financial, ("mirr", "npv", "ppmt", "pv", "rate"))
