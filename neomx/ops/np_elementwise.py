"""Elementwise ops of `mx.np`, with broadcasting and type promotion.

The rules are MXNet's: floats take precedence over integers, and wider floats over narrower ones. A scalar takes the
array's dtype, except that boolean arrays become int64 and that dividing integers returns float32. Comparisons return
booleans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..base import MXNetError
from .elementwise import enter_scalar, integers, left, number, real, right, scalar_types
from .table import OPS, Types, op, typed

Tensor = torch.Tensor
_BOOL = torch.bool
_Binary = Callable[..., Tensor]
_TypeRule = Callable[[Types, dict[str, Any]], tuple[Types, Types]]


def common_dtype(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    """Return the dtype that two dtypes promote to. Use int32 where torch would use int16, which MXNet does not have."""
    met = torch.promote_types(a, b)
    return torch.int32 if met is torch.int16 else met


def _meeting(result: Callable[[torch.dtype], torch.dtype] = lambda dtype: dtype) -> _TypeRule:
    """`types=` for an op that promotes its last two inputs. `result` maps their common dtype to the output dtype."""

    def types(given: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
        *others, a, b = given
        known = a or b
        if known is None:
            return given, [None]
        a, b = a or known, b or known
        return [*others, a, b], [result(common_dtype(a, b))]

    return types


# ---- unary ops ----


def _numbers_only(x: Tensor) -> None:
    if x.dtype is torch.bool:
        raise MXNetError("expected a numeric array, got bool. Convert it with astype")


# The functions that behave as in `mx.nd`.
_AS_IN_ND = [
    "arccos",
    "arccosh",
    "arcsin",
    "arcsinh",
    "arctan",
    "arctanh",
    "cbrt",
    "ceil",
    "cos",
    "cosh",
    "degrees",
    "exp",
    "expm1",
    "fix",
    "floor",
    "log",
    "log10",
    "log1p",
    "log2",
    "negative",
    "radians",
    "reciprocal",
    "rint",
    "sign",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
]


def _enter_unary(compute: Callable[[Tensor], Tensor], doc: str | None, *names: str) -> None:
    def unary(x: Tensor) -> Tensor:
        _numbers_only(x)
        return compute(x)

    unary.__doc__ = doc
    op(*names, infer="same")(unary)


def _enter_test(name: str, compute: Callable[[Tensor], Tensor], doc: str) -> None:
    def test(x: Tensor) -> Tensor:
        return compute(x)

    test.__doc__ = doc
    op(f"_npi_{name}", infer="same", types=typed([torch.bool]))(test)


for _name in _AS_IN_ND:
    _enter_unary(OPS[_name].fn, OPS[_name].fn.__doc__, f"_npi_{_name}")
_enter_unary(torch.abs, "|x|.", "_npi_absolute", "_npi_abs")
_enter_test("isfinite", torch.isfinite, "True where x is finite, i.e. not infinite or NaN.")
_enter_test("isinf", torch.isinf, "True where x is infinite.")
_enter_test("isnan", torch.isnan, "True where x is NaN.")
_enter_test("isneginf", torch.isneginf, "True where x is negative infinity.")
_enter_test("isposinf", torch.isposinf, "True where x is positive infinity.")
_enter_test("logical_not", torch.logical_not, "True where x is 0.")


@op("_npi_bitwise_not", infer="same")
def bitwise_not(x: Tensor) -> Tensor:
    """Bitwise NOT; logical NOT for booleans."""
    if x.is_floating_point():
        raise MXNetError("expected an array of integers or bool")
    return torch.bitwise_not(x)


@op("_npi_around", infer="same")
def around(x: Tensor, *, decimals: int = 0) -> Tensor:
    """x rounded to `decimals` decimal places, halves to the nearest even value."""
    _numbers_only(x)
    if x.is_floating_point():
        return torch.round(x, decimals=decimals) if decimals else torch.round(x)
    return x.clone() if decimals >= 0 else torch.round(x.double(), decimals=decimals).to(x.dtype)


@op("_npi_nan_to_num", infer="same", may_alias=True)
def nan_to_num(
    data: Tensor, *, copy: bool = True, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Tensor:
    """Replace NaN by `nan` and infinities by `posinf` and `neginf`, by default the largest finite values."""
    return torch.nan_to_num(data, nan, posinf, neginf) if data.is_floating_point() else data


# ---- binary ops on two arrays, or on an array and a scalar ----


def _met(lhs: Tensor, rhs: Tensor) -> tuple[Tensor, Tensor]:
    dtype = common_dtype(lhs.dtype, rhs.dtype)
    return lhs.to(dtype), rhs.to(dtype)


def _enter_binary(name: str, compute: _Binary, doc: str, types: _TypeRule | None = None) -> None:
    def binary(lhs: Tensor, rhs: Tensor) -> Tensor:
        return compute(lhs, rhs) if lhs.dtype is rhs.dtype else compute(*_met(lhs, rhs))

    binary.__doc__ = f"{doc}, with broadcasting."
    op(f"_npi_{name}", types=types or _meeting())(binary)


def _copysign(a: Tensor, b: Tensor) -> Tensor:
    """|a| with the sign of b. -0.0 counts as positive."""
    same = (a < 0) == (b < 0)
    return a * torch.where(same, 1, -1).to(a.dtype)


_ldexp, _arctan2 = real(lambda a, b: a * torch.exp2(b)), real(torch.arctan2)
_modulo, _power = OPS["broadcast_mod"].fn, OPS["broadcast_power"].fn

_enter_binary("add", torch.add, "a + b")
_enter_binary("subtract", torch.sub, "a - b")
_enter_binary("multiply", torch.mul, "a * b")
_enter_binary("mod", _modulo, "a - floor(a / b) * b, or 0 where b is 0")
_enter_binary("power", _power, "a raised to the power b")
_enter_binary("copysign", _copysign, "|a| with the sign of b")
_enter_binary("ldexp", _ldexp, "a * 2**b")
_enter_binary("lcm", torch.lcm, "Least common multiple of a and b")


def _enter_shared_scalar(name: str, of_nd: str) -> None:
    """Register the op on an array and a scalar that behaves as in `mx.nd`."""
    op(f"_npi_{name}_scalar", infer="same", types=scalar_types)(OPS[of_nd].fn)


_enter_shared_scalar("add", "_plus_scalar")
_enter_shared_scalar("subtract", "_minus_scalar")
_enter_shared_scalar("rsubtract", "_rminus_scalar")
_enter_shared_scalar("multiply", "_mul_scalar")
_enter_shared_scalar("mod", "_mod_scalar")
_enter_shared_scalar("rmod", "_rmod_scalar")
_enter_shared_scalar("power", "_power_scalar")
_enter_shared_scalar("rpower", "_rpower_scalar")
enter_scalar(right(_copysign), ("_npi_copysign_scalar",), "|x| with the sign of scalar")
enter_scalar(left(_copysign), ("_npi_rcopysign_scalar",), "|scalar| with the sign of x")
enter_scalar(right(_ldexp), ("_npi_ldexp_scalar",), "x * 2**scalar")
enter_scalar(left(_ldexp), ("_npi_rldexp_scalar",), "scalar * 2**x")
enter_scalar(right(torch.lcm), ("_npi_lcm_scalar",), "Least common multiple of x and scalar")
enter_scalar(right(_arctan2), ("_npi_arctan2_scalar",), "Elementwise arctan2(x, scalar)")
enter_scalar(left(_arctan2), ("_npi_rarctan2_scalar",), "Elementwise arctan2(scalar, x)")


@op("_npi_arctan2", types=_meeting())
def arctan2(x1: Tensor, x2: Tensor) -> Tensor:
    """The angle of the point (x2, x1), in radians."""
    return _arctan2(x1, x2) if x1.dtype is x2.dtype else _arctan2(*_met(x1, x2))


@op("_npi_hypot", types=_meeting())
def hypot(x1: Tensor, x2: Tensor) -> Tensor:
    """sqrt(x1 * x1 + x2 * x2)."""
    return OPS["broadcast_hypot"].fn(*_met(x1, x2))


# ---- division, which returns float32 for integers ----


def _quotient_dtype(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype.is_floating_point else torch.float32


def _divide(lhs: Tensor, rhs: Tensor) -> Tensor:
    return torch.div(lhs, rhs) if lhs.is_floating_point() else torch.div(lhs.float(), rhs.float())


def _quotient_types(given: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return given, [given[0] and _quotient_dtype(given[0])]


_enter_binary("true_divide", _divide, "a / b", _meeting(_quotient_dtype))


@op("_npi_true_divide_scalar", infer="same", types=_quotient_types)
def divide_by_number(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
    """x / scalar."""
    data = data if data.is_floating_point() else data.float()
    return torch.div(data, number(scalar, data))


@op("_npi_rtrue_divide_scalar", infer="same", types=_quotient_types)
def divide_number(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
    """scalar / x."""
    data = data if data.is_floating_point() else data.float()
    return torch.div(number(scalar, data), data)


# ---- comparisons and bitwise ops, whose scalar takes the array's dtype, even bool ----


def _element(scalar: float, like: Tensor) -> Tensor:
    """Convert a scalar to the dtype of `like`: truncate it for integers, compare it to 0 for booleans."""
    if like.dtype is torch.bool:
        scalar = bool(scalar)
    elif not like.is_floating_point():
        scalar = integers(like, scalar, True)[1]
    return number(scalar, like)


def _with_number_of_dtype(name: str, compute: _Binary, doc: str, types: _TypeRule | None) -> None:
    def with_number(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
        if not is_int and not data.is_floating_point() and data.dtype is not torch.bool:
            return compute(data.double(), scalar)
        return compute(data, _element(scalar, data))

    with_number.__doc__ = f"{doc}, where b is a scalar."
    op(f"_npi_{name}_scalar", infer="same", types=types)(with_number)


def _enter_comparison(name: str, compare: _Binary, sign: str) -> None:
    doc = f"True where a {sign} b"
    _enter_binary(name, compare, doc, _meeting(lambda _: torch.bool))
    _with_number_of_dtype(name, compare, doc, typed([torch.bool]))


def _enter_bits(name: str, compute: _Binary, word: str) -> None:
    _enter_binary(name, compute, f"Bitwise {word} of a and b")
    _with_number_of_dtype(name, compute, f"Bitwise {word} of a and b", None)


_enter_comparison("equal", torch.eq, "==")
_enter_comparison("not_equal", torch.ne, "!=")
_enter_comparison("greater", torch.gt, ">")
_enter_comparison("greater_equal", torch.ge, ">=")
_enter_comparison("less", torch.lt, "<")
_enter_comparison("less_equal", torch.le, "<=")
_enter_bits("bitwise_and", torch.bitwise_and, "and")
_enter_bits("bitwise_or", torch.bitwise_or, "or")
_enter_bits("bitwise_xor", torch.bitwise_xor, "xor")


# ---- selection ----


def _truth(condition: Tensor) -> Tensor:
    return condition if condition.dtype is torch.bool else condition != 0


@op("_npi_where", types=_meeting())
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """x where condition is true, else y."""
    if x.dtype is not y.dtype:
        x, y = _met(x, y)
    return torch.where(condition if condition.dtype is _BOOL else _truth(condition), x, y)


@op("_npi_where_lscalar", types=typed([1]))
def where_else(condition: Tensor, x: Tensor, *, scalar: float = 0.0) -> Tensor:
    """`scalar` where condition is true, else x."""
    return torch.where(_truth(condition), _element(scalar, x), x)


@op("_npi_where_rscalar", types=typed([1]))
def where_number(condition: Tensor, y: Tensor, *, scalar: float = 0.0) -> Tensor:
    """y where condition is true, else `scalar`."""
    return torch.where(_truth(condition), y, _element(scalar, y))


@op("_npi_where_scalar2", infer="same", types=typed([torch.float32]))
def where_numbers(condition: Tensor, *, x: float = 0.0, y: float = 0.0) -> Tensor:
    """The scalar x where condition is true, else the scalar y."""
    return torch.where(_truth(condition), x, y).float()


@op("_npi_share_memory", types=typed([torch.bool]))
def share_memory(a: Tensor, b: Tensor) -> Tensor:
    """Whether two arrays share memory."""
    return torch.tensor(_overlap(a, b), device="cpu")


def _overlap(a: Tensor, b: Tensor) -> bool:
    if not a.numel() or not b.numel() or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return False
    (begin, end), (start, stop) = _extent(a), _extent(b)
    return begin < stop and start < end


def _extent(tensor: Tensor) -> tuple[int, int]:
    """Return the first byte of a tensor's elements and the byte after the last, as offsets in its storage."""
    begin = tensor.storage_offset() * tensor.element_size()
    reach = sum((length - 1) * step for length, step in zip(tensor.shape, tensor.stride(), strict=True))
    return int(begin), int(begin + (reach + 1) * tensor.element_size())
