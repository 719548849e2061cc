"""Elementwise math on one array, an array and a scalar, two arrays of the same shape, or two that broadcast.

A result has the dtype of its input, as in MXNet: comparisons return 0 and 1 in that dtype, integer division returns
integers, and a scalar is truncated to an integer for an integer array.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_compiling
from torch.nn.functional import hardtanh, smooth_l1_loss

from ..base import MXNetError
from .creation import c_integer
from .shapes import UNKNOWN, Shapes, is_known
from .table import Types, op, typed

Tensor = torch.Tensor

# ---- unary ops ----


class _CubeRoot(torch.autograd.Function):
    """Cube root, which torch does not have. With pow, its gradient at 0 would be NaN."""

    @staticmethod
    def forward(ctx, x):
        root = torch.sign(x) * torch.abs(x).pow(1 / 3)
        ctx.save_for_backward(root)
        return root

    @staticmethod
    def backward(ctx, grad):
        (root,) = ctx.saved_tensors
        return grad / (3 * root * root)


def _gamma(x: Tensor) -> Tensor:
    """exp(lgamma) with the sign of gamma. It uses double precision because exp amplifies the error of the logarithm."""
    wide = x.double()
    below = torch.floor(wide)
    pole = (wide < 0) & (below == wide)
    sign = torch.where(wide > 0, 1, 1 - 2 * torch.remainder(below, 2)).masked_fill(pole, math.nan)
    return (sign * torch.exp(torch.lgamma(wide))).to(x.dtype)


def round_away(x: Tensor) -> Tensor:
    """Round to the nearest integer, halves away from zero."""
    whole = torch.trunc(x)
    return whole + torch.sign(x) * (torch.abs(x - whole) >= 0.5)


def _round_down(x: Tensor) -> Tensor:
    below = torch.floor(x)
    return below + (x - below > 0.5)


_Unary = dict[str, tuple[Callable[[Tensor], Tensor], str]]

# Functions that map integers to integers.
_WHOLE: _Unary = {
    "abs": (torch.abs, "|x|"),
    "ceil": (torch.ceil, "smallest integer not less than x"),
    "fix": (torch.trunc, "nearest integer towards zero"),
    "floor": (torch.floor, "largest integer not greater than x"),
    "logical_not": (lambda x: torch.logical_not(x, out=torch.empty_like(x)), "1 where x is 0, else 0"),
    "negative": (torch.neg, "-x"),
    "relu": (torch.relu, "max(x, 0)"),
    "rint": (_round_down, "nearest integer, halves rounded down"),
    "round": (round_away, "nearest integer, halves rounded away from zero"),
    "sign": (torch.sign, "-1, 0 or 1, the sign of x"),
    "square": (torch.square, "x * x"),
    "trunc": (torch.trunc, "integer part of x"),
}
_REAL: _Unary = {
    "arccos": (torch.arccos, "inverse cosine"),
    "arccosh": (torch.arccosh, "inverse hyperbolic cosine"),
    "arcsin": (torch.arcsin, "inverse sine"),
    "arcsinh": (torch.arcsinh, "inverse hyperbolic sine"),
    "arctan": (torch.arctan, "inverse tangent"),
    "arctanh": (torch.arctanh, "inverse hyperbolic tangent"),
    "cbrt": (_CubeRoot.apply, "cube root"),
    "cos": (torch.cos, "cosine"),
    "cosh": (torch.cosh, "hyperbolic cosine"),
    "degrees": (torch.rad2deg, "radians to degrees"),
    "erf": (torch.erf, "Gauss error function"),
    "erfinv": (torch.erfinv, "inverse of erf"),
    "exp": (torch.exp, "e raised to the power x"),
    "expm1": (torch.expm1, "exp(x) - 1, accurate near 0"),
    "gamma": (_gamma, "gamma function"),
    "gammaln": (torch.lgamma, "logarithm of the absolute value of gamma"),
    "log": (torch.log, "natural logarithm"),
    "log10": (torch.log10, "logarithm to base 10"),
    "log1p": (torch.log1p, "log(1 + x), accurate near 0"),
    "log2": (torch.log2, "logarithm to base 2"),
    "radians": (torch.deg2rad, "degrees to radians"),
    "rcbrt": (lambda x: 1 / _CubeRoot.apply(x), "1 / cube root"),
    "reciprocal": (torch.reciprocal, "1 / x"),
    "rsqrt": (torch.rsqrt, "1 / square root"),
    "sigmoid": (torch.sigmoid, "1 / (1 + exp(-x))"),
    "sin": (torch.sin, "sine"),
    "sinh": (torch.sinh, "hyperbolic sine"),
    "softsign": (lambda x: x / (1 + torch.abs(x)), "x / (1 + |x|)"),
    "sqrt": (torch.sqrt, "square root"),
    "tan": (torch.tan, "tangent"),
    "tanh": (torch.tanh, "hyperbolic tangent"),
}


_NPX = ("erf", "erfinv", "gamma", "gammaln")  # the functions that mx.npx also has
_CUT = ("erf", "sigmoid")  # MXNet truncates these as doubles for integers: erf(5) is below 1
# Functions without a gradient. A gradient of zeros would become NaN when multiplied by an infinite derivative.
_FLAT = {"ceil", "fix", "floor", "rint", "round", "trunc"}


def _enter_unary(name: str, compute: Callable[[Tensor], Tensor], meaning: str, whole: bool) -> None:
    flat = name in _FLAT

    def unary(data: Tensor) -> Tensor:
        if flat:
            data = data.detach()
        if whole or data.is_floating_point():
            return compute(data)
        # Use doubles: otherwise an exact root or logarithm of an integer could be truncated to the integer below.
        exact = compute(data.double())
        return (exact if name in _CUT else exact.float()).to(data.dtype)

    unary.__doc__ = meaning[0].upper() + meaning[1:] + "."
    names = (name, f"_npx_{name}") if name in _NPX else (name,)
    op(*names, infer="same")(unary)


for _name, (_compute, _meaning) in _WHOLE.items():
    _enter_unary(_name, _compute, _meaning, whole=True)
for _name, (_compute, _meaning) in _REAL.items():
    _enter_unary(_name, _compute, _meaning, whole=False)


# ---- binary ops on two arrays, or on an array and a scalar as a 0-d array ----

_Binary = Callable[..., Tensor]


def _divide(a: Tensor, b: Tensor) -> Tensor:
    return torch.div(a, b) if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


def _modulo(a: Tensor, b: Tensor) -> Tensor:
    """Return the remainder with the divisor's sign, or 0 for a divisor of 0."""
    zero = b == 0
    return torch.remainder(a, b.masked_fill(zero, 1)).masked_fill(zero, 0)


def real(compute: _Binary) -> _Binary:
    """Wrap `compute` to use double precision for integers and to truncate the result."""

    def computed(a: Tensor, b: Tensor) -> Tensor:
        return compute(a, b) if a.is_floating_point() else compute(a.double(), b.double()).to(a.dtype)

    return computed


def _truth(compare: _Binary) -> _Binary:
    """Wrap `compare` to return 0 and 1 in the dtype of its input."""

    def answer(a: Tensor, b: Tensor) -> Tensor:
        if a.shape == b.shape or not b.dim():
            # Writing values directly takes a tenth of the time of creating booleans and casting them.
            return compare(a, b, out=torch.empty_like(a))
        return compare(a, b).to(a.dtype)

    return answer


class _Pick(torch.autograd.Function):
    """maximum and minimum. At a tie the left input receives the full gradient, where torch splits it in half."""

    @staticmethod
    def forward(ctx, a, b, larger):
        ctx.save_for_backward(a, b)
        ctx.larger = larger
        return torch.maximum(a, b) if larger else torch.minimum(a, b)

    @staticmethod
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        left, right = (a >= b, a < b) if ctx.larger else (a <= b, a > b)
        return (grad * left).sum_to_size(a.shape), (grad * right).sum_to_size(b.shape), None


def _maximum(a: Tensor, b: Tensor) -> Tensor:
    return _Pick.apply(a, b, True) if a.requires_grad or b.requires_grad else torch.maximum(a, b)


def _minimum(a: Tensor, b: Tensor) -> Tensor:
    return _Pick.apply(a, b, False) if a.requires_grad or b.requires_grad else torch.minimum(a, b)


_power, _hypot = real(torch.pow), real(torch.hypot)
_equal, _not_equal = _truth(torch.eq), _truth(torch.ne)
_greater, _greater_equal = _truth(torch.gt), _truth(torch.ge)
_lesser, _lesser_equal = _truth(torch.lt), _truth(torch.le)
_both, _either, _one = _truth(torch.logical_and), _truth(torch.logical_or), _truth(torch.logical_xor)

# function, MXNet's names for arrays of the same shape and for broadcasting, doc
_BINARY: list[tuple[_Binary, tuple[str, ...], tuple[str, ...], str]] = [
    (torch.add, ("elemwise_add", "_plus", "_Plus", "_add"), ("broadcast_add", "broadcast_plus"), "a + b"),
    (torch.sub, ("elemwise_sub", "_minus", "_Minus", "_sub"), ("broadcast_sub", "broadcast_minus"), "a - b"),
    (torch.mul, ("elemwise_mul", "_mul", "_Mul"), ("broadcast_mul",), "a * b"),
    (_divide, ("elemwise_div", "_div", "_Div"), ("broadcast_div",), "a / b"),
    (_modulo, ("_mod", "_Mod"), ("broadcast_mod",), "a - floor(a / b) * b"),
    (_power, ("_power", "_Power"), ("broadcast_power",), "a raised to the power b"),
    (_maximum, ("_maximum", "_Maximum"), ("broadcast_maximum", "_npi_maximum"), "Elementwise maximum"),
    (_minimum, ("_minimum", "_Minimum"), ("broadcast_minimum", "_npi_minimum"), "Elementwise minimum"),
    (_hypot, ("_hypot", "_Hypot"), ("broadcast_hypot",), "sqrt(a * a + b * b)"),
    (_equal, ("_equal", "_Equal"), ("broadcast_equal",), "1 where a == b, else 0"),
    (_not_equal, ("_not_equal", "_Not_Equal"), ("broadcast_not_equal",), "1 where a != b, else 0"),
    (_greater, ("_greater", "_Greater"), ("broadcast_greater",), "1 where a > b, else 0"),
    (_greater_equal, ("_greater_equal", "_Greater_Equal"), ("broadcast_greater_equal",), "1 where a >= b, else 0"),
    (_lesser, ("_lesser", "_Lesser"), ("broadcast_lesser",), "1 where a < b, else 0"),
    (_lesser_equal, ("_lesser_equal", "_Lesser_Equal"), ("broadcast_lesser_equal",), "1 where a <= b, else 0"),
    (_both, ("_logical_and", "_Logical_And"), ("broadcast_logical_and",), "1 where both are nonzero, else 0"),
    (_either, ("_logical_or", "_Logical_Or"), ("broadcast_logical_or",), "1 where either is nonzero, else 0"),
    (_one, ("_logical_xor", "_Logical_Xor"), ("broadcast_logical_xor",), "1 where exactly one is nonzero, else 0"),
]


def _enter_exact(compute: _Binary, names: tuple[str, ...], doc: str, remedy: str = "") -> None:
    def elementwise(lhs: Tensor, rhs: Tensor) -> Tensor:
        if lhs.shape != rhs.shape:
            raise MXNetError(
                f"expected arrays of the same shape, got {tuple(lhs.shape)} and {tuple(rhs.shape)}{remedy}"
            )
        return compute(lhs, rhs)

    elementwise.__doc__ = f"{doc}, for two arrays of the same shape."
    op(*names, same_dtype=True, infer="same")(elementwise)


def _broadcast_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Infer a size where both are known, or where the known one broadcasts the other."""
    a, b = shapes
    if a is None or b is None or is_known(a) and is_known(b):
        return shapes
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    return shapes, [tuple(_stretched(m, n) for m, n in pairs)]


def _stretched(m: int, n: int) -> int:
    if 1 in (m, n):
        return m if n == 1 else n
    if m != n and UNKNOWN not in (m, n):
        raise MXNetError(f"cannot broadcast sizes {m} and {n}")
    return min(m, n)


def _enter_broadcasting(compute: _Binary, names: tuple[str, ...], doc: str) -> None:
    def broadcasting(lhs: Tensor, rhs: Tensor) -> Tensor:
        return compute(lhs, rhs)

    broadcasting.__doc__ = f"{doc}, with broadcasting."
    op(*names, same_dtype=True, infer=_broadcast_shapes)(broadcasting)


for _compute2, _exact, _broad, _doc in _BINARY:
    _enter_exact(_compute2, _exact, _doc, f"; {_broad[0]} broadcasts")
    _enter_broadcasting(_compute2, _broad, _doc)
# On dense arrays, the ops on stored elements are the ordinary ops.
_enter_exact(_divide, ("_scatter_elemwise_div",), "a / b")
_enter_exact(torch.add, ("_grad_add",), "a + b")


_numbers: dict[tuple[float | str, torch.dtype], Tensor] = {}


def _make_number(scalar: float, dtype: torch.dtype) -> Tensor:
    """Convert through the widest type: a scalar that is too large becomes infinite or wraps around, as in C."""
    wide = torch.float64 if dtype.is_floating_point else torch.int64
    scalar = float(scalar) if wide is torch.float64 else scalar  # torch rejects an int of more than 64 bits
    return torch.scalar_tensor(scalar, dtype=wide, device="cpu").to(dtype)


def number(scalar: float, like: Tensor) -> Tensor:
    """Return a scalar as a 0-d array.

    The array is cached: creating one, as torch does for a scalar, takes longer than adding small arrays.
    """
    dtype = like.dtype
    if is_compiling() or type(like) is not Tensor:  # tensors made by a tracer must not be cached
        return _make_number(scalar, dtype)
    key = scalar or str(scalar), dtype  # distinguishes -0.0 from 0.0
    made = _numbers.get(key)
    if made is None:
        if len(_numbers) >= 1024:
            _numbers.clear()
        with torch.inference_mode(False):
            made = _numbers[key] = _make_number(scalar, dtype)
    return made


def right(compute: _Binary) -> _Binary:
    """Return `compute` with a scalar as its right operand."""
    return lambda data, scalar: compute(data, number(scalar, data))


def left(compute: _Binary) -> _Binary:
    """Return `compute` with a scalar as its left operand."""
    return lambda data, scalar: compute(number(scalar, data), data)


def _modulo_number(data: Tensor, scalar: float) -> Tensor:
    if not data.is_floating_point():
        return _modulo(data, number(scalar, data))  # a scalar that the dtype cannot hold wraps around, maybe to 0
    return torch.remainder(data, float(scalar)) if scalar else torch.zeros_like(data)


def _number_to_the(data: Tensor, scalar: float) -> Tensor:
    # torch's gradient of an exponent fails if the base is a CPU scalar and the exponent is on another device.
    return _power(number(scalar, data).to(data.device), data)


def _to_the_number(data: Tensor, scalar: float) -> Tensor:
    """torch has shortcuts for powers such as 2 and 0.5, but only for Python numbers."""
    if not data.is_floating_point():
        return _power(data, number(scalar, data))
    if data.dtype is torch.float16 and abs(scalar) > _LARGEST[torch.float16]:
        scalar = math.copysign(math.inf, scalar)
    return torch.pow(data, float(scalar) if abs(scalar) >= 2**63 else scalar)


_SCALAR: list[tuple[_Binary, tuple[str, ...], str]] = [
    (right(torch.add), ("_plus_scalar", "_PlusScalar"), "x + scalar"),
    (right(torch.add), ("_scatter_plus_scalar",), "x + scalar"),
    (right(torch.sub), ("_minus_scalar", "_MinusScalar"), "x - scalar"),
    (right(torch.sub), ("_scatter_minus_scalar",), "x - scalar"),
    (left(torch.sub), ("_rminus_scalar", "_RMinusScalar"), "scalar - x"),
    (right(torch.mul), ("_mul_scalar", "_MulScalar"), "x * scalar"),
    (right(torch.mul), ("_contrib_backward_gradientmultiplier",), "x * scalar: the gradient of gradientmultiplier"),
    (right(_divide), ("_div_scalar", "_DivScalar"), "x / scalar"),
    (left(_divide), ("_rdiv_scalar", "_RDivScalar"), "scalar / x"),
    (_modulo_number, ("_mod_scalar", "_ModScalar"), "x modulo scalar"),
    (left(_modulo), ("_rmod_scalar", "_RModScalar"), "scalar modulo x"),
    (_to_the_number, ("_power_scalar", "_PowerScalar"), "x raised to the power scalar"),
    (_number_to_the, ("_rpower_scalar", "_RPowerScalar"), "scalar raised to the power x"),
    # clamp passes the gradient through at a tie, as MXNet does.
    (right(torch.clamp_min), ("_maximum_scalar", "_MaximumScalar", "_npi_maximum_scalar"), "max(x, scalar)"),
    (right(torch.clamp_max), ("_minimum_scalar", "_MinimumScalar", "_npi_minimum_scalar"), "min(x, scalar)"),
    (right(_hypot), ("_hypot_scalar", "_HypotScalar", "_npi_hypot_scalar"), "sqrt(x * x + scalar * scalar)"),
    (right(_equal), ("_equal_scalar", "_EqualScalar"), "1 where x == scalar, else 0"),
    (right(_not_equal), ("_not_equal_scalar", "_NotEqualScalar"), "1 where x != scalar, else 0"),
    (right(_greater), ("_greater_scalar", "_GreaterScalar"), "1 where x > scalar, else 0"),
    (right(_greater_equal), ("_greater_equal_scalar", "_GreaterEqualScalar"), "1 where x >= scalar, else 0"),
    (right(_lesser), ("_lesser_scalar", "_LesserScalar"), "1 where x < scalar, else 0"),
    (right(_lesser_equal), ("_lesser_equal_scalar", "_LesserEqualScalar"), "1 where x <= scalar, else 0"),
    (right(_both), ("_logical_and_scalar", "_LogicalAndScalar"), "1 where x and scalar are nonzero, else 0"),
    (right(_either), ("_logical_or_scalar", "_LogicalOrScalar"), "1 where x or scalar is nonzero, else 0"),
    (right(_one), ("_logical_xor_scalar", "_LogicalXorScalar"), "1 where just one of x and scalar is nonzero, else 0"),
]


def integers(data: Tensor, scalar: float, is_int: bool) -> tuple[Tensor, float]:
    """Return an integer array and a scalar to combine: the scalar truncated as in C, or both as doubles."""
    if not is_int:
        return data.double(), scalar
    if data.dtype is torch.bool:
        data = data.long()
    return data, c_integer(scalar if isinstance(scalar, int) else float(scalar), data.dtype)


def scalar_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    """`types=` of an op on an array and a scalar."""
    integer = types[0] is not None and not types[0].is_floating_point
    if integer and not attrs["is_int"]:
        return types, [torch.float64]
    return types, [torch.int64 if types[0] is torch.bool else types[0]]


def enter_scalar(compute: _Binary, names: tuple[str, ...], doc: str) -> None:
    """Register an op on an array and a scalar under `names`."""

    def with_scalar(data: Tensor, *, scalar: float = 1.0, is_int: bool = True) -> Tensor:
        if not data.is_floating_point():
            data, scalar = integers(data, scalar, is_int)
        return compute(data, scalar)

    with_scalar.__doc__ = f"{doc}."
    op(*names, infer="same", types=scalar_types)(with_scalar)


for _compute1, _names, _doc in _SCALAR:
    enter_scalar(_compute1, _names, _doc)


# ---- an array and several scalars ----


_LARGEST = {dtype: torch.finfo(dtype).max for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
_FLOAT, _LARGEST_FLOAT = torch.float32, _LARGEST[torch.float32]


def _bound(number: float, dtype: torch.dtype, lower: bool) -> float:
    """Return a scalar as a bound in `dtype`: large floats become infinite, integers are truncated and clipped."""
    if number != number:  # NaN: no bound
        number = -math.inf if lower else math.inf
    if dtype.is_floating_point:
        return number if abs(number) <= _LARGEST[dtype] else math.copysign(math.inf, number)
    limits = torch.iinfo(dtype)
    return math.trunc(min(max(number, limits.min), limits.max))


@op("clip", "_npi_clip", infer="same")
def clip(data: Tensor, *, a_min: float, a_max: float) -> Tensor:
    """Clip the elements to [a_min, a_max]."""
    if data.dtype is _FLOAT and -_LARGEST_FLOAT <= a_min <= a_max <= _LARGEST_FLOAT:  # fast path for the common case
        return data.clamp(a_min, a_max)
    if data.dtype is torch.bool:
        raise MXNetError("expected a numeric array, got bool. Convert it with astype")
    low, high = _bound(a_min, data.dtype, lower=True), _bound(a_max, data.dtype, lower=False)
    if low > high:  # MXNet tests a_max first, so no element lies between
        return torch.where(data > high, high, low).to(data.dtype)
    return torch.clamp(data, low, high)


@op("smooth_l1", "_npx_smooth_l1", infer="same")
def smooth_l1(data: Tensor, *, scalar: float = 1.0) -> Tensor:
    """(scalar * x)^2 / 2 where |x| < 1 / scalar^2, else |x| - 1 / (2 * scalar^2)."""
    if not data.is_floating_point():
        return smooth_l1(data.double(), scalar=scalar).to(data.dtype)
    border = 1 / scalar**2 if scalar else math.inf
    return smooth_l1_loss(data, data.new_zeros(()).expand_as(data), reduction="none", beta=border)


@op("hard_sigmoid", infer="same")
def hard_sigmoid(data: Tensor, *, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
    """alpha * x + beta, clipped to [0, 1]."""
    if not data.is_floating_point():
        raise MXNetError("expected an array of floats")
    return hardtanh(data * alpha + beta, 0.0, 1.0)


@op("_contrib_quadratic", infer="same")
def quadratic(data: Tensor, *, a: float = 0.0, b: float = 0.0, c: float = 0.0) -> Tensor:
    """a * x^2 + b * x + c."""
    return ((data * a + b) * data + c).to(data.dtype)


@op("_contrib_div_sqrt_dim", infer="same")
def div_sqrt_dim(data: Tensor) -> Tensor:
    """x / sqrt(size of the last dimension)."""
    if not data.is_floating_point():
        return data // math.isqrt(data.shape[-1])
    return data / math.sqrt(data.shape[-1])


# ---- several arrays ----


@op("add_n", "ElementWiseSum", same_dtype=True, may_alias=True, infer="same")
def add_n(*args: Tensor, num_args: int = 0) -> Tensor:
    """The sum of arrays of the same shape."""
    if not args:
        raise MXNetError("expected at least one array")
    for other in args[1:]:
        if other.shape != args[0].shape:
            raise MXNetError("expected arrays of the same shape")
    total = args[0]
    if len(args) > 1:
        total = total + args[1]
    for other in args[2:]:
        # The sum may be updated in place: its gradient does not depend on its terms.
        total = total.add_(other)
    return total


@op("khatri_rao", same_dtype=True, may_alias=True)
def khatri_rao(*args: Tensor, num_args: int = 0) -> Tensor:
    """The columnwise Kronecker product of matrices."""
    if not args or any(matrix.dim() != 2 or matrix.shape[1] != args[0].shape[-1] for matrix in args):
        raise MXNetError("expected matrices with the same number of columns")
    product = args[0]
    for matrix in args[1:]:
        product = (product.unsqueeze(1) * matrix).flatten(0, 1)
    return product


@op("_contrib_allclose", same_dtype=True, types=typed([torch.uint8]))
def allclose(a: Tensor, b: Tensor, *, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = True) -> Tensor:
    """1 if |a - b| <= atol + rtol * |b| everywhere, else 0. The only op of `nd` that returns a 0-d array."""
    if a.shape != b.shape:
        raise MXNetError(f"expected arrays of the same shape, got {tuple(a.shape)} and {tuple(b.shape)}")
    return torch.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).all().to(torch.uint8)


@op("reset_arrays", mutates=("data",))
def reset_arrays(*data: Tensor, num_arrays: int) -> tuple[Tensor, ...]:
    """Set all elements of the arrays to 0 in place. Returns nothing."""
    if num_arrays != len(data):
        raise MXNetError(f"expected num_arrays={num_arrays} arrays, got {len(data)}")
    for tensor in data:
        tensor.data.zero_()
    return ()
