"""Elementwise functions of one array, or of two arrays that are broadcast.

An argument may be a number. Functions of numbers alone are NumPy's, and return NumPy scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as onp

from .. import numpy as np  # this package; its names are complete when functions are called
from ..base import numeric_types
from ..ndarray.invoke import apply
from ..ops.table import OPS
from ..symbol import Symbol
from .call import call, call_converted
from .multiarray import ndarray, unsupported
from .symbol import with_number

__all__ = [
    "abs",
    "absolute",
    "add",
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctan2",
    "arctanh",
    "around",
    "bitwise_and",
    "bitwise_not",
    "bitwise_or",
    "bitwise_xor",
    "cbrt",
    "ceil",
    "clip",
    "copysign",
    "cos",
    "cosh",
    "deg2rad",
    "degrees",
    "divide",
    "equal",
    "exp",
    "expm1",
    "fabs",
    "fix",
    "floor",
    "greater",
    "greater_equal",
    "hypot",
    "invert",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "lcm",
    "ldexp",
    "less",
    "less_equal",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "maximum",
    "minimum",
    "mod",
    "multiply",
    "nan_to_num",
    "negative",
    "not_equal",
    "power",
    "rad2deg",
    "radians",
    "reciprocal",
    "remainder",
    "rint",
    "round",
    "round_",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "subtract",
    "tan",
    "tanh",
    "true_divide",
    "trunc",
    "where",
]

Function = Callable[..., Any]

# The keywords of NumPy's ufuncs, with the only supported value of each.
_KEYWORDS: dict[str, Any] = {"where": True, "casting": "same_kind", "order": "K", "dtype": None, "subok": True}


def _check_keywords(name: str, keywords: dict[str, Any]) -> None:
    for key, value in keywords.items():
        if key not in _KEYWORDS:
            raise TypeError(f"{key} is an invalid keyword to function {name!r}. Expected out or {', '.join(_KEYWORDS)}")
        if not (value if key == "where" else value == _KEYWORDS[key]):
            raise NotImplementedError(f"{name}: {key}={value} is not implemented. Expected {_KEYWORDS[key]!r}")


def _named(function: Function, name: str, doc: str | None) -> Function:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _of_numbers(name: str) -> Function:
    """Return NumPy's function of that name. Some names only exist in MXNet, or were removed from NumPy."""
    function: Function = getattr(onp, "around" if name == "round_" else name)
    return function


def _unary(name: str, op_name: str) -> Function:
    def function(x: Any, out: Any = None, **kwargs: Any) -> Any:
        if kwargs:
            _check_keywords(name, kwargs)
        if isinstance(x, ndarray):
            return apply(OPS[op_name], (x,), {}, out, ndarray)
        return _unary_of_other(name, op_name, x, out)

    return _named(function, name, OPS[op_name].fn.__doc__)


def _unary_of_other(name: str, op_name: str, x: Any, out: Any, **attrs: Any) -> Any:
    if isinstance(x, numeric_types):
        return _of_numbers(name)(x, **attrs)
    if isinstance(x, Symbol):
        return call(op_name, (x,), out, **attrs)
    raise unsupported(x)


def _apply_binary(name: str, array_op: str, scalar_op: str, left_op: str, x1: Any, x2: Any, out: Any) -> Any:
    """Apply a binary function. `scalar_op` is for a number on the right, `left_op` for a number on the left."""
    if isinstance(x1, ndarray):
        if isinstance(x2, ndarray):
            return apply(OPS[array_op], (x1, x2), {}, out, ndarray)
        if isinstance(x2, numeric_types):
            return apply(OPS[scalar_op], (x1,), {"scalar": x2}, out, ndarray)
        raise unsupported(x2)
    if isinstance(x2, ndarray):
        if isinstance(x1, numeric_types):
            return apply(OPS[left_op], (x2,), {"scalar": x1}, out, ndarray)
        raise unsupported(x1)
    for x in (x1, x2):
        if not isinstance(x, (*numeric_types, Symbol)):
            raise unsupported(x)
    if isinstance(x1, Symbol):
        return call(array_op, (x1, x2)) if isinstance(x2, Symbol) else with_number(scalar_op, x1, x2)
    return with_number(left_op, x2, x1, reflected=True) if isinstance(x2, Symbol) else _of_numbers(name)(x1, x2)


def _binary(name: str, array_op: str, scalar_op: str | None = None, left_op: str | None = None) -> Function:
    scalar_op = scalar_op or f"{array_op}_scalar"
    left_op = left_op or scalar_op

    def function(x1: Any, x2: Any, out: Any = None, **kwargs: Any) -> Any:
        if kwargs:
            _check_keywords(name, kwargs)
        return _apply_binary(name, array_op, scalar_op, left_op, x1, x2, out)

    return _named(function, name, OPS[array_op].fn.__doc__)


def _plain_binary(name: str, array_op: str, left_op: str) -> Function:
    """Return a binary function that accepts no NumPy keyword except `out`."""
    scalar_op = f"{array_op}_scalar"

    def function(x1: Any, x2: Any, out: Any = None) -> Any:
        return _apply_binary(name, array_op, scalar_op, left_op, x1, x2, out)

    return _named(function, name, OPS[array_op].fn.__doc__)


abs = _unary("abs", "_npi_absolute")
absolute = _unary("absolute", "_npi_absolute")
arccos = _unary("arccos", "_npi_arccos")
arccosh = _unary("arccosh", "_npi_arccosh")
arcsin = _unary("arcsin", "_npi_arcsin")
arcsinh = _unary("arcsinh", "_npi_arcsinh")
arctan = _unary("arctan", "_npi_arctan")
arctanh = _unary("arctanh", "_npi_arctanh")
bitwise_not = _unary("bitwise_not", "_npi_bitwise_not")
cbrt = _unary("cbrt", "_npi_cbrt")
ceil = _unary("ceil", "_npi_ceil")
cos = _unary("cos", "_npi_cos")
cosh = _unary("cosh", "_npi_cosh")
deg2rad = _unary("deg2rad", "_npi_radians")
degrees = _unary("degrees", "_npi_degrees")
exp = _unary("exp", "_npi_exp")
expm1 = _unary("expm1", "_npi_expm1")
fabs = _unary("fabs", "_npi_absolute")
fix = _unary("fix", "_npi_fix")
floor = _unary("floor", "_npi_floor")
invert = _unary("invert", "_npi_bitwise_not")
isfinite = _unary("isfinite", "_npi_isfinite")
isinf = _unary("isinf", "_npi_isinf")
isnan = _unary("isnan", "_npi_isnan")
isneginf = _unary("isneginf", "_npi_isneginf")
isposinf = _unary("isposinf", "_npi_isposinf")
log = _unary("log", "_npi_log")
log10 = _unary("log10", "_npi_log10")
log1p = _unary("log1p", "_npi_log1p")
log2 = _unary("log2", "_npi_log2")
logical_not = _unary("logical_not", "_npi_logical_not")
negative = _unary("negative", "_npi_negative")
rad2deg = _unary("rad2deg", "_npi_degrees")
radians = _unary("radians", "_npi_radians")
reciprocal = _unary("reciprocal", "_npi_reciprocal")
rint = _unary("rint", "_npi_rint")
sign = _unary("sign", "_npi_sign")
sin = _unary("sin", "_npi_sin")
sinh = _unary("sinh", "_npi_sinh")
sqrt = _unary("sqrt", "_npi_sqrt")
square = _unary("square", "_npi_square")
tan = _unary("tan", "_npi_tan")
tanh = _unary("tanh", "_npi_tanh")
trunc = _unary("trunc", "_npi_trunc")

add = _binary("add", "_npi_add")
arctan2 = _binary("arctan2", "_npi_arctan2", left_op="_npi_rarctan2_scalar")
bitwise_and = _binary("bitwise_and", "_npi_bitwise_and")
bitwise_or = _binary("bitwise_or", "_npi_bitwise_or")
bitwise_xor = _binary("bitwise_xor", "_npi_bitwise_xor")
copysign = _binary("copysign", "_npi_copysign", left_op="_npi_rcopysign_scalar")
divide = _binary("divide", "_npi_true_divide", left_op="_npi_rtrue_divide_scalar")
hypot = _binary("hypot", "_npi_hypot")
lcm = _binary("lcm", "_npi_lcm")
ldexp = _binary("ldexp", "_npi_ldexp", left_op="_npi_rldexp_scalar")
maximum = _binary("maximum", "_npi_maximum")
minimum = _binary("minimum", "_npi_minimum")
mod = _binary("mod", "_npi_mod", left_op="_npi_rmod_scalar")
multiply = _binary("multiply", "_npi_multiply")
power = _binary("power", "_npi_power", left_op="_npi_rpower_scalar")
remainder = _binary("remainder", "_npi_mod", left_op="_npi_rmod_scalar")
subtract = _binary("subtract", "_npi_subtract", left_op="_npi_rsubtract_scalar")

equal = _plain_binary("equal", "_npi_equal", "_npi_equal_scalar")
greater = _plain_binary("greater", "_npi_greater", "_npi_less_scalar")
greater_equal = _plain_binary("greater_equal", "_npi_greater_equal", "_npi_less_equal_scalar")
less = _plain_binary("less", "_npi_less", "_npi_greater_scalar")
less_equal = _plain_binary("less_equal", "_npi_less_equal", "_npi_greater_equal_scalar")
not_equal = _plain_binary("not_equal", "_npi_not_equal", "_npi_not_equal_scalar")
true_divide = _plain_binary("true_divide", "_npi_true_divide", "_npi_rtrue_divide_scalar")


def _rounding(name: str) -> Function:
    def function(x: Any, decimals: int = 0, out: Any = None, **kwargs: Any) -> Any:
        if kwargs:
            _check_keywords(name, kwargs)
        if isinstance(x, ndarray):
            return call("_npi_around", (x,), out, decimals=decimals)
        return _unary_of_other(name, "_npi_around", x, out, decimals=decimals)

    return _named(function, name, OPS["_npi_around"].fn.__doc__)


around = _rounding("around")
round = _rounding("round")
round_ = _rounding("round_")


def nan_to_num(
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
    **kwargs: Any,
) -> Any:
    """Replace nan and infinities with numbers. Infinities become the largest finite values of the dtype by default.

    With `copy=False`, x is modified in place.
    """
    attrs = {"nan": nan, "posinf": posinf, "neginf": neginf}
    if isinstance(x, ndarray):
        return call("_npi_nan_to_num", (x,), None if copy else x, copy=copy, **attrs)
    return _unary_of_other("nan_to_num", "_npi_nan_to_num", x, None, copy=copy, **attrs)


def clip(a: Any, a_min: Any, a_max: Any, out: Any = None) -> Any:
    """Limit the elements of a to [a_min, a_max]. Either bound may be None."""
    if type(a) is ndarray and type(a_min) is float and type(a_max) is float:
        return call_converted("_npi_clip", (a,), out, {"a_min": a_min, "a_max": a_max})
    if a_min is None or a_max is None:
        if a_min is a_max:
            raise ValueError("clip: expected a_min, a_max or both, received None for both")
        a_min, a_max = -math.inf if a_min is None else a_min, math.inf if a_max is None else a_max
    if isinstance(a, numeric_types):
        return onp.clip(a, a_min, a_max)
    return call("_npi_clip", (a,), out, a_min=a_min, a_max=a_max)


def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """Return x where condition is true, otherwise y. Without x and y, return the indices of nonzero elements."""
    if type(condition) is type(x) is type(y) is ndarray:  # fast path for the common case
        return apply(OPS["_npi_where"], (condition, x, y), {}, None, ndarray)
    if x is None and y is None:
        return np.nonzero(condition)
    if x is None or y is None:
        raise TypeError("where: expected both x and y or neither")
    if isinstance(condition, numeric_types):
        return x if condition else y
    x_is_number, y_is_number = isinstance(x, numeric_types), isinstance(y, numeric_types)
    if x_is_number and y_is_number:
        return call("_npi_where_scalar2", (condition,), x=float(x), y=float(y))
    if x_is_number:
        return call("_npi_where_lscalar", (condition, y), scalar=float(x))
    if y_is_number:
        return call("_npi_where_rscalar", (condition, x), scalar=float(y))
    return call("_npi_where", (condition, x, y))
