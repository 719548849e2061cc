"""Functions of single elements in mx.np: one array, two that broadcast, an array and a number."""

from ..spec import const, f, family, ints, outcome

case, program = family(__name__)

INTEGERS = ("int8", "uint8", "int32", "int64")
NEAR_ZERO = ("arcsin", "arccos", "arctan", "arcsinh", "arctanh", "sin", "cos", "tan", "sinh", "cosh", "tanh", "expm1")
POSITIVE = ("log", "log10", "log2", "log1p", "sqrt", "reciprocal", "arccosh")
ANY = ("abs", "absolute", "fabs", "cbrt", "exp", "square", "negative", "degrees", "radians", "sign")
ROUNDING = ("rint", "ceil", "floor", "trunc", "fix")
TESTS = ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "logical_not")

for name in NEAR_ZERO + ANY + ROUNDING:
    case.np("np." + name, f(2, 3, lo=-0.9, hi=0.9))
    case.np("np." + name, f(4, dtype="float64", lo=-0.9, hi=0.9))
    case.np("np." + name, f(4, dtype="float16", lo=-0.9, hi=0.9))
for name in POSITIVE:
    case.np("np." + name, f(2, 3, lo=1.1, hi=3))
    case.np("np." + name, f(4, dtype="float64", lo=1.1, hi=3))
    case.np("np." + name, f(4, dtype="float16", lo=1.1, hi=3))
for name in NEAR_ZERO + POSITIVE + ANY + ROUNDING:
    case.np("np." + name, const(0.5 if name != "arccosh" else 1.5))
    case.np("np." + name, f(0, 3))
    case.np("np." + name, 0.75 if name != "arccosh" else 2.5)
    values = {"arcsin": [0, 1], "arccos": [0, 1], "arctanh": [0]}.get(name, [1, 2, 3])  # where they are defined
    for dtype in INTEGERS:
        case.np("np." + name, const(values, dtype=dtype))
for name in ("abs", "sign", "negative", "square", "floor", "cbrt", "sin"):
    case.np("np." + name, const([-3, -1, 0, 2], dtype="int32"))
for name in ("rint", "ceil", "floor", "trunc", "fix", "around", "round", "round_"):
    case.np("np." + name, const([-2.5, -1.5, -0.5, -0.2, 0, 0.3, 0.5, 1.5, 2.5, 3.7]))
for name in ("abs", "sign", "sqrt", "cbrt", "log", "reciprocal", "arcsin", "arctanh", "square"):
    case.np("np." + name, const([0.0, 1.0]))  # the ends of what is defined, and their gradients
for name in TESTS:
    case.np("np." + name, const([0.0, -1.0, float("nan"), float("inf"), float("-inf")]), _grad=False)
    case.np("np." + name, const([0.0, float("nan"), float("inf"), float("-inf")], dtype="float16"), _grad=False)
    case.np("np." + name, const([0, 1, 2], dtype="int32"))
    case.np("np." + name, const([True, False], dtype="bool"))
    case.np("np." + name, f(0, 2), _grad=False)
    case.np("np." + name, 0.0)
for name in ("bitwise_not", "invert"):
    for dtype in INTEGERS + ("bool",):
        case.np("np." + name, const([0, 1, 5], dtype=dtype))
    case.np("np." + name, 5)
for decimals in (0, 1, 2, -1):
    case.np("np.around", f(5, lo=-30, hi=30), decimals)
    case.np("np.around", f(5, lo=-30, hi=30, dtype="float64"), decimals=decimals)
case.np("np.around", const([1, 2], dtype="int64"), 1)
case.np("np.around", 1.567, 2)
for dtype in ("float16", "float32", "float64"):
    values = const([1.5, float("nan"), float("inf"), float("-inf")], dtype=dtype)
    case.np("np.nan_to_num", values)
    case.np("np.nan_to_num", values, nan=1.0, posinf=2.0, neginf=-3.0)
case.np("np.nan_to_num", const([1, 2], dtype="int32"))
case.np("np.nan_to_num", const([True, False], dtype="bool"))
case.np("np.nan_to_num", const([1.5, float("nan")]), copy=False, _grad=False)

# ---- two ----

ARITHMETIC = ("add", "subtract", "multiply", "divide", "true_divide", "mod", "remainder", "power")
SAME_DTYPE = ("maximum", "minimum", "arctan2", "hypot", "copysign", "ldexp")
COMPARISONS = ("equal", "not_equal", "greater", "greater_equal", "less", "less_equal")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor")

for name in ARITHMETIC + SAME_DTYPE:
    path = "np." + name
    with_number = {"_grad": name != "copysign"}  # MXNet's gradient of that one fails
    of_number = {
        "_grad": name not in ("copysign", "arctan2")
    }  # and of arctan2(number, x) it is that of another function
    for dtype in ("float32", "float64", "float16"):
        case.np(path, f(2, 3, lo=0.5, hi=3, dtype=dtype), f(2, 3, lo=0.5, hi=3, dtype=dtype))
        case.np(path, f(2, 3, lo=0.5, hi=3, dtype=dtype), 2, **with_number)
        case.np(path, f(2, 3, lo=0.5, hi=3, dtype=dtype), 2.5, **with_number)
        case.np(path, 2.5, f(2, 3, lo=0.5, hi=3, dtype=dtype), **of_number)
    case.np(path, f(2, 1, 3, lo=0.5, hi=3), f(4, 1, lo=0.5, hi=3))
    case.np(path, f(2, 3, lo=0.5, hi=3), const(1.5))
    case.np(path, const(1.5), const(2.5))
    case.np(path, f(0, 3), f(1, 3))
    case.np(path, f(2, 0), 1.5, **with_number)
    case.np(path, 3, 2)
    case.np(path, 2.5, 2)
    for dtype in INTEGERS:
        if name not in ("arctan2", "hypot"):
            case.np(path, const([1, 2, 3, 7], dtype=dtype), const([3, 1, 2, 2], dtype=dtype))
        case.np(path, const([1, 2, 3, 7], dtype=dtype), 2)
        case.np(path, const([1, 2, 3, 7], dtype=dtype), 2.5)
        case.np(path, 3, const([1, 2, 3, 5], dtype=dtype))
    case.np(path, const([True, False], dtype="bool"), 2)
    case.np(path, 2, const([True, True], dtype="bool"))
for name in ("mod", "copysign", "arctan2", "subtract", "maximum", "minimum", "hypot"):
    path = "np." + name
    case.np(path, const([-3.5, 3.5, -3.5, 3.5, 2, -2]), const([2.0, -2, -2, 2, 2, -2]))
    case.np(path, const([-3.5, 3.5, 0.0]), -2, _grad=name != "copysign")
    case.np(path, -2, const([-3.5, 3.5, 0.5]), _grad=name not in ("copysign", "arctan2"))
case.np("np.mod", const([-3, 3, -3, 3, 4], dtype="int32"), const([2, -2, -2, 0, 2], dtype="int32"))
case.np("np.mod", const([-3, 3, -3, 3], dtype="int32"), -2)
case.np("np.mod", const([2.0, -3.0]), const([0.0, 0.0]), _grad=False)
case.np("np.power", const([0.0, 1.0, 2.0]), const([0.0, 2.0, -1.0]), _grad=False)  # at 0 to the 0 MXNet's is nan
case.np("np.power", const([0.0, -1.0, 2.0]), 2)
case.np("np.power", const([0.0, 1.0, 2.0]), 0, _grad=False)
case.np("np.maximum", const([float("nan"), 1.0]), const([1.0, float("nan")]), _grad=False)
case.np("np.minimum", const([float("nan"), 1.0]), const([1.0, float("nan")]), _grad=False)
case.np("np.maximum", const([1.0, 2.0]), const([1.0, 3.0]))
case.np("np.minimum", const([1.0, 2.0]), const([1.0, 1.0]))
case.np("np.ldexp", f(4), const([-1.0, 0.0, 2.0, 3.0]))
case.np("np.true_divide", const([1, 2], dtype="int32"), 0)
for name in ("add", "multiply", "power"):
    for a in INTEGERS + ("bool", "float16", "float32", "float64"):
        for b in INTEGERS + ("bool", "float16", "float32", "float64"):
            if {a, b} != {"int8", "uint8"}:
                case.np("np." + name, ints(3, lo=1, hi=4, dtype=a), ints(3, lo=1, hi=3, dtype=b))
for name in ("subtract", "mod", "true_divide"):
    for a in ("float16", "float32", "float64"):
        for b in INTEGERS + ("bool",):
            case.np("np." + name, ints(3, lo=1, hi=4, dtype=a), ints(3, lo=1, hi=2, dtype=b))
            case.np("np." + name, ints(3, lo=1, hi=2, dtype=b), ints(3, lo=1, hi=4, dtype=a))
case.np("np.add", const([100], dtype="int8"), 100)
case.np("np.add", const([200], dtype="uint8"), 300)
case.np("np.multiply", const([2**53 + 1], dtype="int64"), 1)
case.np("np.maximum", const([3], dtype="uint8"), -1)
for name in COMPARISONS:
    path = "np." + name
    for dtype in ("float32", "float64", "float16", "bool") + INTEGERS:
        case.np(path, ints(2, 3, lo=0, hi=3, dtype=dtype), ints(2, 3, lo=0, hi=3, dtype=dtype))
        case.np(path, ints(4, lo=0, hi=4, dtype=dtype), 1)
        case.np(path, ints(4, lo=0, hi=4, dtype=dtype), 1.5)
        case.np(path, 2, ints(4, lo=0, hi=4, dtype=dtype))
    case.np(path, f(2, 1, 3), f(4, 1))
    case.np(path, f(0, 3), 1)
    case.np(path, const([1.0, float("nan")]), const([float("nan"), 1.0]))
    case.np(path, const([3, 4], dtype="uint8"), -1)
    case.np(path, 2, 3.5)
for name in BITS:
    for dtype in INTEGERS + ("bool",):
        case.np("np." + name, const([0, 1, 5, 6], dtype=dtype), const([1, 1, 3, 2], dtype=dtype))
        case.np("np." + name, const([0, 1, 5, 6], dtype=dtype), 3)
        case.np("np." + name, 3, const([0, 1, 5, 6], dtype=dtype))
    case.np("np." + name, ints(2, 1, dtype="int32"), ints(3, dtype="int32"))
    case.np("np." + name, 6, 3)
for dtype in INTEGERS:
    case.np("np.lcm", const([4, 6, 0, 5], dtype=dtype), const([6, 4, 5, 1], dtype=dtype))
    case.np("np.lcm", const([4, 6, 0, 5], dtype=dtype), 10)
case.np("np.lcm", const([4, -6], dtype="int32"), const([-6, 4], dtype="int32"))
case.np("np.lcm", 4, 6)

# ---- bounds and choices ----

for dtype in ("float32", "float64", "float16"):
    case.np("np.clip", f(2, 3, dtype=dtype), -0.5, 0.5)
    case.np("np.where", const([True, False, True], dtype="bool"), f(3, dtype=dtype), f(3, dtype=dtype))
    # MXNet's gradients of a choice between an array and a number go to the elements that were not chosen.
    case.np("np.where", const([True, False, True], dtype="bool"), f(3, dtype=dtype), 2, _grad=False)
    case.np("np.where", const([True, False, True], dtype="bool"), 2, f(3, dtype=dtype), _grad=False)
case.np("np.clip", const([0.0, 1.0, 2.0]), 0, 1)
case.np("np.clip", f(2, 3), None, 0.5)
case.np("np.clip", f(2, 3), a_min=-0.5, a_max=None)
case.np("np.clip", const([1, 2, 3], dtype="int32"), 1.5, 2.5)
case.np("np.clip", f(0, 3), 0, 1)
case.np("np.clip", 3, 0, 1)
case.np("np.where", const([1.0, 0.0, -1.0]), f(3), f(3))
case.np("np.where", const([1, 0, 2], dtype="int32"), f(2, 3), f(2, 1))
case.np("np.where", const([[True], [False]], dtype="bool"), f(3), f(3))
case.np("np.where", const([True, False], dtype="bool"), 1.5, 2)
case.np("np.where", const([True, False], dtype="bool"), const([1, 2], dtype="int32"), 1.5)
case.np("np.where", const([True, False], dtype="bool"), 1.5, const([1, 2], dtype="int64"))
case.np("np.where", const([True, False], dtype="bool"), const([1, 2], dtype="int8"), const([3, 4], dtype="int8"))
case.np("np.where", True, f(3), f(3))
case.np("np.where", 0, 1.5, 2.5)
case.np("np.where", f(0, 2), f(0, 2), f(0, 2))


def np_mode(program):
    """A decorator that makes `function(mx, np)` a program that runs in NumPy mode."""

    def in_np_mode(function):
        def run(mx):
            mx.npx.set_np()
            try:
                return function(mx, mx.np)
            finally:
                mx.npx.reset_np()

        run.__name__ = function.__name__
        return program(run)

    return in_np_mode


in_np_mode = np_mode(program)


@in_np_mode
def second_derivatives(mx, np):
    results = []
    for name in ("sin", "cos", "tan", "arctan", "sinh", "cosh", "tanh", "log", "exp", "sqrt", "square", "reciprocal"):
        x = np.array([0.3, 0.5, 0.7])
        x.attach_grad()
        with mx.autograd.record():
            y = getattr(np, name)(x)
            first = mx.autograd.grad(y, [x], create_graph=True, retain_graph=True)[0]
        first.backward()
        results += [first, x.grad]
    return results


@in_np_mode
def results_are_written_to_out(mx, np):
    x, out, flags = np.array([1.0, -2.0]), np.zeros(2), np.zeros(2, dtype="bool")
    results = [np.sin(x, out=out) is out, out.copy(), np.add(x, 1, out) is out, out.copy()]
    results += [np.multiply(x, x, out=out) is out, out.copy(), np.equal(x, x, out=flags) is flags, flags]
    results += [np.clip(x, 0, 1, out=out) is out, out.copy(), np.around(x, 1, out=out) is out, out.copy()]
    results.append(outcome(lambda: np.sin(x, out=np.zeros(3))))
    results.append(outcome(lambda: np.sin(x, out=np.zeros(2, dtype="int32"))))
    results.append(outcome(lambda: np.add(x, x, out=np.zeros(2, dtype="float16"))))
    return results


@in_np_mode
def keywords_of_ufuncs(mx, np):
    x = np.array([0.5, 1.0])
    results = [np.sin(x, where=True, order="K", casting="same_kind", subok=True), np.add(x, x, where=True)]
    for keywords in ({"dtype": "float32"}, {"order": "C"}, {"subok": False}, {"where": False}, {"foo": 1}):
        results.append(outcome(lambda given=keywords: np.sin(x, **given)))
        results.append(outcome(lambda given=keywords: np.add(x, x, **given)))
        results.append(outcome(lambda given=keywords: np.equal(x, x, **given)))
    return results


@in_np_mode
def what_functions_refuse(mx, np):
    x, legacy = np.ones(3), mx.nd.ones(3)
    calls = [
        lambda: np.sin([1.0]),
        lambda: np.sin("a"),
        lambda: np.sin(None),
        lambda: np.sin(x.asnumpy()),
        lambda: np.sin(legacy),
        lambda: np.add(x, [1, 2, 3]),
        lambda: np.add(x.asnumpy(), x),
        lambda: np.add(x, legacy),
        lambda: np.add(x, None),
        lambda: np.add(x, 1j),
        lambda: np.add(x, np.ones(2)),
        lambda: np.bitwise_and(x, x),
        lambda: np.clip(x, None, None),
        lambda: np.add(x),
        lambda: np.equal(x, "a"),
        lambda: np.nan_to_num([1.0]),
    ]
    return [outcome(call) for call in calls]


@in_np_mode
def numbers_give_numpys_numbers(mx, np):
    values = [np.sin(1.0), np.add(1, 2), np.add(1.5, 2), np.maximum(1, 2.5), np.abs(-3), np.sqrt(4)]
    return [type(value).__name__ for value in values] + [float(value) for value in values]


@in_np_mode
def memory_that_is_shared(mx, np):
    x = np.zeros((4, 2))
    pairs = [(x, x), (x, x[1:3]), (x[:2], x[2:]), (x[:3], x[2:]), (x, x.copy()), (x, x + 1)]
    return [np.shares_memory(a, b) for a, b in pairs] + [np.may_share_memory(a, b) for a, b in pairs]
