"""Elementwise math: one array, an array and a number, two arrays of one shape, two that broadcast.

A result has the dtype of its input, as in MXNet: comparisons give 0 and 1 in that dtype, integers divide to
integers, and a number meeting an integer array is cut to an integer first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..base import MXNetError
from .table import op

Tensor = torch.Tensor

# ---- one array ----


def _cube_root(x: Tensor) -> Tensor:
    return torch.sign(x) * torch.abs(x).pow(1 / 3)


def _round_away(x: Tensor) -> Tensor:
    return torch.trunc(x + torch.sign(x) * 0.5)


_UNARY: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "abs": (torch.abs, "|x|"),
    "arccos": (torch.arccos, "inverse cosine"),
    "arccosh": (torch.arccosh, "inverse hyperbolic cosine"),
    "arcsin": (torch.arcsin, "inverse sine"),
    "arcsinh": (torch.arcsinh, "inverse hyperbolic sine"),
    "arctan": (torch.arctan, "inverse tangent"),
    "arctanh": (torch.arctanh, "inverse hyperbolic tangent"),
    "cbrt": (_cube_root, "cube root"),
    "ceil": (torch.ceil, "the next integer up"),
    "cos": (torch.cos, "cosine"),
    "cosh": (torch.cosh, "hyperbolic cosine"),
    "degrees": (torch.rad2deg, "radians to degrees"),
    "erf": (torch.erf, "Gauss error function"),
    "erfinv": (torch.erfinv, "inverse of erf"),
    "exp": (torch.exp, "e to the x"),
    "expm1": (torch.expm1, "exp(x) - 1, exact near 0"),
    "fix": (torch.trunc, "the next integer towards zero"),
    "floor": (torch.floor, "the next integer down"),
    "gamma": (lambda x: torch.exp(torch.lgamma(x)), "the gamma function"),
    "gammaln": (torch.lgamma, "logarithm of the absolute value of gamma"),
    "log": (torch.log, "natural logarithm"),
    "log10": (torch.log10, "logarithm to base 10"),
    "log1p": (torch.log1p, "log(1 + x), exact near 0"),
    "log2": (torch.log2, "logarithm to base 2"),
    "logical_not": (torch.logical_not, "1 where x is 0, else 0"),
    "negative": (torch.neg, "-x"),
    "radians": (torch.deg2rad, "degrees to radians"),
    "rcbrt": (lambda x: 1 / _cube_root(x), "1 / cube root"),
    "reciprocal": (torch.reciprocal, "1 / x"),
    "relu": (torch.relu, "max(x, 0)"),
    "rint": (torch.round, "the nearest integer"),
    "round": (_round_away, "the nearest integer, halves away from zero"),
    "rsqrt": (torch.rsqrt, "1 / square root"),
    "sigmoid": (torch.sigmoid, "1 / (1 + exp(-x))"),
    "sign": (torch.sign, "-1, 0 or 1"),
    "sin": (torch.sin, "sine"),
    "sinh": (torch.sinh, "hyperbolic sine"),
    "softsign": (lambda x: x / (1 + torch.abs(x)), "x / (1 + |x|)"),
    "sqrt": (torch.sqrt, "square root"),
    "square": (torch.square, "x * x"),
    "tan": (torch.tan, "tangent"),
    "tanh": (torch.tanh, "hyperbolic tangent"),
    "trunc": (torch.trunc, "the integer part"),
}


def _enter_unary(name: str, compute: Callable[[Tensor], Tensor], meaning: str) -> None:
    def unary(data: Tensor) -> Tensor:
        result = compute(data)
        return result if result.dtype is data.dtype else result.to(data.dtype)

    unary.__doc__ = meaning[0].upper() + meaning[1:] + "."
    op(name)(unary)


for _name, (_compute, _meaning) in _UNARY.items():
    _enter_unary(_name, _compute, _meaning)


# ---- two arrays, or an array and a number ----


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


class _Pick(torch.autograd.Function):
    """maximum and minimum: at a tie the left side takes the whole gradient, where torch halves it."""

    @staticmethod
    def forward(ctx, a, b, larger):
        ctx.left = torch.ge(a, b) if larger else torch.le(a, b)
        ctx.shapes = a.shape, b.shape
        return torch.maximum(a, b) if larger else torch.minimum(a, b)

    @staticmethod
    def backward(ctx, grad):
        left, right = (g.sum_to_size(s) for g, s in zip((grad * ctx.left, grad * ~ctx.left), ctx.shapes, strict=True))
        return left, right, None


def _maximum(a: Tensor, b: Tensor) -> Tensor:
    return _Pick.apply(a, b, True) if a.requires_grad or b.requires_grad else torch.maximum(a, b)


def _minimum(a: Tensor, b: Tensor) -> Tensor:
    return _Pick.apply(a, b, False) if a.requires_grad or b.requires_grad else torch.minimum(a, b)


# short name: (function, MXNet's names for same-shape arrays, for broadcasting ones, doc)
_BINARY: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], tuple[str, ...], tuple[str, ...], str]] = {
    "add": (torch.add, ("elemwise_add", "_plus", "_Plus", "_add"), ("broadcast_add", "broadcast_plus"), "a + b"),
    "sub": (torch.sub, ("elemwise_sub", "_minus", "_Minus", "_sub"), ("broadcast_sub", "broadcast_minus"), "a - b"),
    "mul": (torch.mul, ("elemwise_mul", "_mul", "_Mul"), ("broadcast_mul",), "a * b"),
    "div": (_divide, ("elemwise_div", "_div", "_Div"), ("broadcast_div",), "a / b"),
    "mod": (torch.remainder, ("_mod", "_Mod"), ("broadcast_mod",), "a - floor(a / b) * b"),
    "power": (torch.pow, ("_power", "_Power"), ("broadcast_power",), "a to the b"),
    "maximum": (_maximum, ("_maximum", "_Maximum"), ("broadcast_maximum",), "the larger one"),
    "minimum": (_minimum, ("_minimum", "_Minimum"), ("broadcast_minimum",), "the smaller one"),
    "hypot": (torch.hypot, ("_hypot", "_Hypot"), ("broadcast_hypot",), "sqrt(a * a + b * b)"),
    "equal": (torch.eq, ("_equal", "_Equal"), ("broadcast_equal",), "1 where a == b, else 0"),
    "not_equal": (torch.ne, ("_not_equal", "_Not_Equal"), ("broadcast_not_equal",), "1 where a != b, else 0"),
    "greater": (torch.gt, ("_greater", "_Greater"), ("broadcast_greater",), "1 where a > b, else 0"),
    "greater_equal": (
        torch.ge,
        ("_greater_equal", "_Greater_Equal"),
        ("broadcast_greater_equal",),
        "1 where a >= b, else 0",
    ),
    "lesser": (torch.lt, ("_lesser", "_Lesser"), ("broadcast_lesser",), "1 where a < b, else 0"),
    "lesser_equal": (
        torch.le,
        ("_lesser_equal", "_Lesser_Equal"),
        ("broadcast_lesser_equal",),
        "1 where a <= b, else 0",
    ),
    "logical_and": (
        torch.logical_and,
        ("_logical_and", "_Logical_And"),
        ("broadcast_logical_and",),
        "1 where both are not 0, else 0",
    ),
    "logical_or": (
        torch.logical_or,
        ("_logical_or", "_Logical_Or"),
        ("broadcast_logical_or",),
        "1 where one is not 0, else 0",
    ),
    "logical_xor": (
        torch.logical_xor,
        ("_logical_xor", "_Logical_Xor"),
        ("broadcast_logical_xor",),
        "1 where just one is not 0, else 0",
    ),
}


def _enter_binary(compute: Callable[[Tensor, Tensor], Tensor], exact: tuple[str, ...], broad: tuple[str, ...], doc: str) -> None:
    def elementwise(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.shape != rhs.shape:
            raise MXNetError(
                f"expected two arrays of one shape, got {tuple(lhs.shape)} and {tuple(rhs.shape)}; {broad[0]} broadcasts"
            )
        result = compute(lhs, rhs)
        return result if result.dtype is lhs.dtype else result.to(lhs.dtype)

    def broadcasting(lhs: Tensor, rhs: Tensor) -> Tensor:
        result = compute(lhs, rhs)
        return result if result.dtype is lhs.dtype else result.to(lhs.dtype)

    elementwise.__doc__ = f"{doc}, for two arrays of one shape."
    broadcasting.__doc__ = f"{doc}; dimensions of length 1 stretch to the other array's."
    op(*exact, same_dtype=True)(elementwise)
    op(*broad, same_dtype=True)(broadcasting)


for _compute2, _exact, _broad, _doc in _BINARY.values():
    _enter_binary(_compute2, _exact, _broad, _doc)


def _reverse(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda data, scalar: compute(torch.as_tensor(scalar, dtype=data.dtype, device=data.device), data)


def _with_tensor(compute: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda data, scalar: compute(data, torch.as_tensor(scalar, dtype=data.dtype, device=data.device))


_SCALAR: dict[str, tuple[Callable[..., Tensor], tuple[str, ...], str]] = {
    "plus": (torch.add, ("_plus_scalar", "_PlusScalar"), "x + scalar"),
    "minus": (torch.sub, ("_minus_scalar", "_MinusScalar"), "x - scalar"),
    "rminus": (torch.rsub, ("_rminus_scalar", "_RMinusScalar"), "scalar - x"),
    "mul": (torch.mul, ("_mul_scalar", "_MulScalar"), "x * scalar"),
    "div": (_divide, ("_div_scalar", "_DivScalar"), "x / scalar"),
    "rdiv": (_reverse(_divide), ("_rdiv_scalar", "_RDivScalar"), "scalar / x"),
    "mod": (torch.remainder, ("_mod_scalar", "_ModScalar"), "x modulo scalar"),
    "rmod": (_reverse(torch.remainder), ("_rmod_scalar", "_RModScalar"), "scalar modulo x"),
    "power": (torch.pow, ("_power_scalar", "_PowerScalar"), "x to the scalar"),
    "rpower": (_reverse(torch.pow), ("_rpower_scalar", "_RPowerScalar"), "scalar to the x"),
    "maximum": (_with_tensor(_maximum), ("_maximum_scalar", "_MaximumScalar"), "the larger of x and scalar"),
    "minimum": (_with_tensor(_minimum), ("_minimum_scalar", "_MinimumScalar"), "the smaller of x and scalar"),
    "hypot": (_with_tensor(torch.hypot), ("_hypot_scalar", "_HypotScalar"), "sqrt(x * x + scalar * scalar)"),
    "equal": (torch.eq, ("_equal_scalar", "_EqualScalar"), "1 where x == scalar, else 0"),
    "not_equal": (torch.ne, ("_not_equal_scalar", "_NotEqualScalar"), "1 where x != scalar, else 0"),
    "greater": (torch.gt, ("_greater_scalar", "_GreaterScalar"), "1 where x > scalar, else 0"),
    "greater_equal": (torch.ge, ("_greater_equal_scalar", "_GreaterEqualScalar"), "1 where x >= scalar, else 0"),
    "lesser": (torch.lt, ("_lesser_scalar", "_LesserScalar"), "1 where x < scalar, else 0"),
    "lesser_equal": (torch.le, ("_lesser_equal_scalar", "_LesserEqualScalar"), "1 where x <= scalar, else 0"),
    "logical_and": (
        _with_tensor(torch.logical_and),
        ("_logical_and_scalar", "_LogicalAndScalar"),
        "1 where x and scalar are not 0, else 0",
    ),
    "logical_or": (
        _with_tensor(torch.logical_or),
        ("_logical_or_scalar", "_LogicalOrScalar"),
        "1 where x or scalar is not 0, else 0",
    ),
    "logical_xor": (
        _with_tensor(torch.logical_xor),
        ("_logical_xor_scalar", "_LogicalXorScalar"),
        "1 where just one of x and scalar is not 0, else 0",
    ),
}


def _enter_scalar(compute: Callable[..., Tensor], names: tuple[str, ...], doc: str) -> None:
    def with_scalar(data: Tensor, *, scalar: float = 1.0) -> Tensor:
        if not data.is_floating_point():
            scalar = math.trunc(scalar)
        result = compute(data, scalar)
        return result if result.dtype is data.dtype else result.to(data.dtype)

    with_scalar.__doc__ = f"{doc}."
    op(*names)(with_scalar)


for _compute1, _names, _doc in _SCALAR.values():
    _enter_scalar(_compute1, _names, _doc)
