"""Elementwise math, casts, and the ops that exist for their gradient."""

import numpy as np

from parity.spec import const, f, family, ints, outcome

case, program = family(__name__)

INF, NAN = float("inf"), float("nan")
WHOLE = ["abs", "ceil", "fix", "floor", "negative", "relu", "rint", "round", "sign", "square", "trunc"]
ANYWHERE = [
    "arcsinh",
    "arctan",
    "cbrt",
    "cos",
    "cosh",
    "degrees",
    "erf",
    "exp",
    "expm1",
    "radians",
    "rcbrt",
    "reciprocal",
    "sigmoid",
    "sin",
    "sinh",
    "softsign",
    "tan",
    "tanh",
]
POSITIVE = ["gamma", "gammaln", "log", "log10", "log1p", "log2", "rsqrt", "sqrt"]
WITHIN_ONE = ["arccos", "arcsin", "arctanh", "erfinv"]

# ---- one array ----

for name in WHOLE + ANYWHERE:
    case(name, f(3, 4, lo=-3, hi=3))
for name in POSITIVE:
    case(name, f(3, 4, lo=0.1, hi=5))
for name in WITHIN_ONE:
    case(name, f(3, 4, lo=-0.9, hi=0.9))
case("arccosh", f(3, 4, lo=1.1, hi=5))
case("gamma", const([-2.5, -1.5, -0.5, 0.5, 10.25, 30.5]))  # the sign alternates; large values stay exact
case("gammaln", const([-2.5, -1.5, -0.5, 0.5, 10.25, 100.5]))
case("logical_not", const([-1, 0, 2, NAN]), _grad=False)
for name in WHOLE:
    case(name, const([-2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5, 0.49999997, 8388609]))
    case(name, const([-INF, INF]))
    case(name, ints(2, 3, lo=-9, hi=9, dtype="int32"), _grad=False)
    case(name, const([3, 0, 200], dtype="uint8"), _grad=False)
    # MXNet squares in float32, neomx exactly.
    case(name, const([-3, 0, 2**30 + 1], dtype="int64"), _grad=False, _off=2**31 + 1 if name == "square" else 0)
for name in ["cbrt", "rcbrt", "reciprocal"]:
    case(name, const([-8, -1, 0, 1, 27]))
for name in ANYWHERE + POSITIVE + WITHIN_ONE:
    # Half precision: MXNet rounds after every step.
    case(name, f(4, lo=0.2, hi=0.9, dtype="float16"))
# Integers are computed with and cut; roots and logarithms of whole results come out whole.
for name in ["sqrt", "cbrt", "log", "log2", "exp", "gamma", "reciprocal", "tanh", "degrees"]:
    case(name, const([1, 8, 5, 2], dtype="int32"), _grad=False)
case("sqrt", const([0, 1, 4, 9, 144], dtype="uint8"), _grad=False)
case("cbrt", const([27, 64, 125, -1000], dtype="int64"), _grad=False)
case("log10", const([1, 10, 100, 1000, 999], dtype="int32"), _grad=False)
case("logical_not", const([3, 0], dtype="int8"), _grad=False)

# ---- two arrays ----

ARITHMETIC = ["add", "sub", "mul", "div", "mod", "power", "maximum", "minimum", "hypot"]
QUESTIONS = [
    "equal",
    "not_equal",
    "greater",
    "greater_equal",
    "lesser",
    "lesser_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
]

for name in ARITHMETIC:
    case("broadcast_" + name, f(2, 3, lo=0.5, hi=3), f(2, 3, lo=0.5, hi=3))
    case("broadcast_" + name, f(2, 1, 3, lo=0.5, hi=3), f(1, 4, 3, lo=0.5, hi=3))
    case("broadcast_" + name, f(3, lo=0.5, hi=3), f(2, 3, lo=0.5, hi=3))
    case("broadcast_" + name, f(2, 3, lo=0.5, hi=3), f(1, lo=0.5, hi=3))
    case(
        "broadcast_" + name,
        ints(6, lo=-9, hi=9, dtype="int32"),
        const([2, -3, 1, -1, 3, 5], dtype="int32"),
        _grad=False,
    )
    case("broadcast_" + name, const([7, 3, 200], dtype="uint8"), const([2, 3, 100], dtype="uint8"), _grad=False)
    case("broadcast_" + name, const([7, -3, 100], dtype="int8"), const([2, 3, 100], dtype="int8"), _grad=False)
    case("broadcast_" + name, f(3, lo=0.5, hi=3, dtype="float64"), f(3, lo=0.5, hi=3, dtype="float64"))
    case(
        "broadcast_" + name,
        f(3, lo=0.5, hi=3, dtype="float16"),
        f(3, lo=0.5, hi=3, dtype="float16"),
    )
for name in [
    "elemwise_add",
    "elemwise_sub",
    "elemwise_mul",
    "elemwise_div",
    "_mod",
    "_power",
    "_maximum",
    "_minimum",
    "_hypot",
]:
    case(name, f(2, 3, lo=0.5, hi=3), f(2, 3, lo=0.5, hi=3))
case("_scatter_elemwise_div", f(2, 3, lo=0.5, hi=3), f(2, 3, lo=0.5, hi=3))
case("_grad_add", f(2, 3), f(2, 3), _grad=False)
for name in ["maximum", "minimum"]:  # at a tie the left side takes the gradient
    case("broadcast_" + name, const([1, 2, 3, 3]), const([1, 3, 2, 3]))
    case("broadcast_" + name, const([[1], [2]]), const([1, 2]))
    case("broadcast_" + name, const([NAN, 1, INF]), const([1, NAN, -INF]))
case("broadcast_mod", const([-7, -3, 0, 3, 7, 5.5]), const([3, -3, 2, 5, -2, -2.5]))
case("broadcast_mod", const([-7, 3, 0]), const([0, 0, 0]), _grad=False)
case("broadcast_mod", const([-7, 3, 0], dtype="int32"), const([0, 0, 0], dtype="int32"), _grad=False)
case("broadcast_power", const([2, -2, -2, 0, 5]), const([3, 3, -1, 2, 0]), _grad=[0])
case("broadcast_div", const([1, -1, 0]), const([0, 0, 0]), _grad=False)
case("broadcast_sub", const([0, 1], dtype="uint8"), const([1, 3], dtype="uint8"), _grad=False)
for name in QUESTIONS:
    values = const([-1, 0, 0, 1, 2, NAN, INF]), const([1, 0, 3, 1, 0, 1, INF])
    case("broadcast_" + name, *values, _grad=False)
    case("_" + name, *values, _grad=False)
    case("broadcast_" + name, ints(2, 1, hi=2), ints(3, hi=2), _grad=False)
    case("broadcast_" + name, ints(4, hi=2, dtype="int32"), ints(4, hi=2, dtype="int32"), _grad=False)
    case("broadcast_" + name, ints(4, hi=2, dtype="float16"), ints(4, hi=2, dtype="float16"), _grad=False)
    for scalar in (0.0, 1.0):
        case("_%s_scalar" % name, const([-1, 0, 1, 2, NAN, INF]), _grad=False, scalar=scalar)
    case("_%s_scalar" % name, const([1, 2, 3], dtype="int32"), _grad=False, scalar=2.7)
    case("_%s_scalar" % name, const([0, 1], dtype="int64"), _grad=False, scalar=0.5)

# ---- an array and a number ----

SCALAR = [
    "plus",
    "minus",
    "rminus",
    "mul",
    "div",
    "rdiv",
    "mod",
    "rmod",
    "power",
    "rpower",
    "maximum",
    "minimum",
    "hypot",
]
for name in SCALAR:
    name = "_%s_scalar" % name
    case(name, f(2, 3, lo=0.5, hi=3), scalar=1.7)
    case(name, f(2, 3, lo=0.5, hi=3, dtype="float64"), scalar=1.7)
    case(name, f(2, 3, lo=0.5, hi=3, dtype="float16"), scalar=1.7)
    case(name, f(3, lo=0.5, hi=3))  # the number is 1 unless given
    case(name, const([-7, 3, 5, 100], dtype="int32"), scalar=2.5, _grad=False)
    case(name, const([-7, 3, 5, 100], dtype="int64"), scalar=-1.7, _grad=False)
    case(name, const([1, 3, 200], dtype="uint8"), scalar=3.9, _grad=False)
    case(name, const([-1, 3, 100], dtype="int8"), scalar=2, _grad=False)
    case(name, const([1, 3], dtype="int32"), scalar=2.5, is_int=False, _grad=False)
    case(name, const([True, True], dtype="bool"), scalar=2.5, _grad=False)
for name in ["_scatter_plus_scalar", "_scatter_minus_scalar"]:
    case(name, f(2, 3), scalar=1.7)
for scalar in (2.0, -2.0):
    case("_mod_scalar", const([-3, -2, -1, 0, 0.5, 1, 2.5]), scalar=scalar)
    case("_power_scalar", const([-3, -1, 0.5, 2]), scalar=scalar)
    for name in ["_maximum_scalar", "_minimum_scalar"]:
        case(name, const([-2, -1, 2, 3, NAN]), scalar=scalar)
case("_mod_scalar", const([-3, 0, 2]), scalar=0.0, _grad=False)
case("_rmod_scalar", const([-3, 0, 2]), scalar=5.0, _grad=False)
case("_plus_scalar", const([1, 255], dtype="uint8"), scalar=300, _grad=False)
case("_minus_scalar", const([1, 255], dtype="uint8"), scalar=2, _grad=False)
case("_greater_scalar", const([1, 255], dtype="uint8"), scalar=-1, _grad=False)
case("_maximum_scalar", const([1, 255], dtype="uint8"), scalar=300, _grad=False)
case("_mul_scalar", const([1, -1]), scalar=1e60)
case("_minimum_scalar", const([1, -1]), scalar=1e60)
case("_greater_scalar", const([0.1, 0.1000001]), scalar=0.1, _grad=False)
case("_plus_scalar", const([1], dtype="int32"), scalar=1e20, _grad=False)
case("_plus_scalar", const([1], dtype="int32"), scalar=INF, _grad=False)
case("_mul_scalar", const([1], dtype="int64"), scalar=NAN, _grad=False)


@program
def operators(mx):
    nd = mx.nd
    a, b, i = nd.array([1, 2, 3]), nd.array([[2], [0.5]]), nd.array([1, 2, 3], dtype="int32")
    results = [a + b, a - b, a * b, a / b, a % b, a**b, b > a, b >= a, b < a, b <= a, b == a, b != a, -a, abs(-a)]
    for number in (2, 2.5, True, np.float64(2.5), np.int64(2), np.float32(2.5), np.bool_(True)):
        results += [a + number, number - a, a - number, a * number, number / a, a % number, number**a, a > number]
        results += [i + number, number - i, i * number, number / i, i % number, i > number]
    a += 1
    a *= b[0]
    a -= 0.5
    a /= 2
    i += 2.9
    results += [a, i]
    return results


@program
def operators_that_refuse(mx):
    a, i = mx.nd.array([1, 2]), mx.nd.array([1, 2], dtype="int32")
    return [
        outcome(lambda: a + i),
        outcome(lambda: a == i),
        outcome(lambda: a + [1, 2]),
        outcome(lambda: a + np.array([1.0, 2.0])),
        outcome(lambda: a == None),  # noqa: E711
        outcome(lambda: a > "1"),
        outcome(lambda: a + mx.nd.array([1, 2, 3])),
        outcome(lambda: mx.nd.elemwise_add(a, mx.nd.array([1]))),
        outcome(lambda: mx.nd._internal._maximum(a, mx.nd.array([1]))),
    ]


@program
def second_derivatives(mx):
    results = []
    for name in [
        "sin",
        "cos",
        "exp",
        "log",
        "sqrt",
        "sigmoid",
        "tanh",
        "reciprocal",
        "cbrt",
        "arctan",
        "abs",
        "square",
        "relu",
    ]:
        x = mx.nd.array([0.5, 1.5, 2.5])
        x.attach_grad()
        with mx.autograd.record():
            (gradient,) = mx.autograd.grad(getattr(mx.nd, name)(x), [x], create_graph=True, retain_graph=True)
        gradient.backward()
        results += [gradient, x.grad]
    return results


# ---- more elementwise ops ----

case("clip", const([-3, -1, 0, 2, 3]), a_min=-1, a_max=2)
case("clip", f(2, 3, dtype="float64"), a_min=-0.5, a_max=INF)
case("clip", const([-5, 0, 5], dtype="int32"), a_min=-1.5, a_max=2.5, _grad=False)
case("clip", const([1, 100, 250], dtype="uint8"), a_min=-1.5, a_max=200, _grad=False)
for scalar in (1.0, 2.0, 0.5):
    case("smooth_l1", const([-5, -1, -0.25, 0, 0.2, 0.25, 1, 4, 5]), scalar=scalar)
case("smooth_l1", f(2, 3, lo=-3, hi=3))
case("smooth_l1", const([-5, 0, 5], dtype="int32"), scalar=1.0, _grad=False)
case("smooth_l1", f(4, lo=-3, hi=3, dtype="float16"), scalar=1.0)
case("hard_sigmoid", const([-3, -2.5, -1, 0, 2, 2.5, 3]))
case("hard_sigmoid", f(2, 3, lo=-3, hi=3), alpha=0.5, beta=0.1)
case("_contrib_quadratic", f(2, 3), a=2, b=-3, c=4)
case("_contrib_quadratic", f(2, 3))
case("_contrib_quadratic", const([1, 2], dtype="int32"), a=1.5, b=0.5, c=1.2, _grad=False)
case("_contrib_div_sqrt_dim", f(2, 5))
case("_contrib_div_sqrt_dim", f(2, 2, 3, dtype="float64"))
case("add_n", f(2, 3), f(2, 3), f(2, 3), f(2, 3))
case("add_n", f(2, 3))
case("add_n", ints(3, dtype="int32"), ints(3, dtype="int32"), _grad=False)
case("khatri_rao", f(2, 3), f(4, 3), _grad=False)
case("khatri_rao", f(2, 2), f(1, 2), f(3, 2), _grad=False)
case("khatri_rao", f(2, 3), _grad=False)
for a, b, options in [
    ([1, 2], [1, 2.00001], {}),
    ([1, 2], [1, 2.1], {}),
    ([1, NAN], [1, NAN], {}),
    ([1, NAN], [1, NAN], {"equal_nan": False}),
    ([1, INF], [1, INF], {}),
    ([1, 2], [1, 2.1], {"rtol": 0.1}),
    ([1, 2], [1, 2.1], {"atol": 0.11}),
]:
    case("_contrib_allclose", const(a), const(b), _grad=False, **options)
case("_contrib_allclose", const([1], dtype="int32"), const([1], dtype="int32"), _grad=False)


@program
def reset_arrays(mx):
    a, b = mx.nd.array([1, 2]), mx.nd.array([[3]], dtype="float16")
    returned = mx.nd.reset_arrays(a, b, num_arrays=2)
    return [a, b, len(returned)]


# ---- for the gradient ----

for name in ["_copy", "make_loss", "_contrib_gradientmultiplier", "_contrib_round_ste", "_contrib_sign_ste"]:
    case(name, f(2, 3, lo=-3, hi=3))
    case(name, const([1, -2], dtype="int32"), _grad=False)
case("_contrib_gradientmultiplier", f(2, 3), scalar=-0.5)
case("_contrib_backward_gradientmultiplier", f(2, 3), scalar=-0.5, _grad=False)
case("_contrib_round_ste", const([-2.5, -1.5, -0.5, 0, 0.5, 1.5, 2.5]))
case("_identity_with_attr_like_rhs", f(2, 3), f(2, 3), _grad=[0])
case("BlockGrad", f(2, 3), _grad=False)


@program
def gradients_that_are_not_derivatives(mx):
    x, y = mx.nd.array([1, 2]), mx.nd.array([3, 4])
    x.attach_grad()
    y.attach_grad()
    results = []
    for compute in (
        lambda: mx.nd.BlockGrad(x) * 2 * y + x,
        lambda: mx.nd.stop_gradient(x * x) * y + x,
        lambda: mx.nd.make_loss(x * x) * 3 + y,
        lambda: mx.nd.contrib.gradientmultiplier(x * x, scalar=0.5) * y,
        lambda: mx.nd._internal._identity_with_attr_like_rhs(x, y) * 2 + y + 0 * x,
        lambda: mx.nd.identity(x) + mx.nd.identity(y) * (y > 3.5),
    ):
        with mx.autograd.record():
            z = compute()
        z.backward()
        results += [z, x.grad.copy(), y.grad.copy()]
    return results


# ---- casts and mixed precision ----

for dtype in ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]:
    case("Cast", const([-1.7, -0.5, 0, 0.5, 1.7, 100.75]), dtype=dtype, _grad=dtype.startswith("float"))
    case("Cast", const([-1, 0, 5, 300, -300], dtype="int32"), dtype=dtype, _grad=False)
    case("Cast", const([1.5, 2.25], dtype="float16"), dtype=dtype, _grad=dtype.startswith("float"))
case("Cast", const([-1.5, 200.7, 300, NAN, INF]), dtype="int8", _grad=False)
case("Cast", const([-1.5, 200.7, 300, NAN, INF]), dtype="uint8", _grad=False)
case("Cast", const([1e10, NAN, INF]), dtype="int32", _grad=False)
case("Cast", const([0, -0.5, NAN]), dtype="bool", _grad=False)
case("Cast", const([2**40], dtype="int64"), dtype="int32", _grad=False)
# MXNet's CPU build casts only between some dtypes here, and rounds where its plain kernel cuts.
case("amp_cast", f(3), dtype="float32")
case("amp_cast", f(3, dtype="float16"), dtype="float16")
case("amp_cast", const([1, 2], dtype="int32"), dtype="float16", _grad=False)
case("amp_multicast", f(3), f(3), num_outputs=2)
case("all_finite", f(3), _grad=False)
case("all_finite", const([1, NAN]), _grad=False)
case("all_finite", const([1, INF], dtype="float16"), _grad=False)
case("all_finite", const([1, -INF], dtype="float64"), _grad=False)
case("multi_all_finite", f(3), f(2, 2), num_arrays=2, _grad=False)
case("multi_all_finite", f(3), const([NAN]), num_arrays=2, _grad=False)
case("multi_all_finite", f(3), _grad=False)


@program
def all_finite_so_far(mx):
    results = []
    for first, second, initial in (
        ([INF], [1], False),
        ([INF], [1], True),
        ([1], [1], False),
        ([1], [NAN], False),
    ):
        out = mx.nd.zeros((1,))
        mx.nd.all_finite(mx.nd.array(first), out=out)
        mx.nd.multi_all_finite(mx.nd.array(second), num_arrays=1, init_output=initial, out=out)
        results.append(out)
    return results


@program
def contrib_questions(mx):
    results = []
    for dtype in ("float32", "float64", "float16"):
        x = mx.nd.array([1, NAN, INF, -INF, 0], dtype=dtype)
        results += [mx.nd.contrib.isnan(x), mx.nd.contrib.isinf(x), mx.nd.contrib.isfinite(x)]
    i = mx.nd.array([1, 2], dtype="int32")
    return results + [mx.nd.contrib.isnan(i), mx.nd.contrib.isinf(i), mx.nd.contrib.isfinite(i)]
