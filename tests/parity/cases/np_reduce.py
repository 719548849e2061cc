"""Reductions of mx.np."""

from ..spec import const, f, family, ints

case, program = family(__name__)

TIES = const([[1, 1, 0], [1, 2, 2]])
for axis in (None, 0, -1, (0, 1), (0, 2), (-1, 0), ()):
    for keepdims in (False, True):
        for name in ("sum", "prod", "max", "min", "mean", "std", "var"):
            case.np("np." + name, f(2, 3, 4), axis=axis, keepdims=keepdims)
        for name in ("any", "all"):
            case.np("np." + name, ints(2, 3, 4, hi=2), axis=axis, keepdims=keepdims)
for dtype in ("float64", "float16"):
    for name in ("sum", "prod", "max", "min", "mean", "std", "var", "cumsum"):
        case.np("np." + name, f(3, 4, dtype=dtype), axis=1)
for dtype in ("int32", "int64", "int8", "uint8"):
    for name in ("sum", "prod", "max", "min", "mean", "any", "all", "cumsum"):
        case.np("np." + name, ints(3, 4, dtype=dtype), axis=0)
        case.np("np." + name, ints(3, 4, dtype=dtype))
    case.np("np.std", const([[1, 5], [3, 9]], dtype), axis=0)
    case.np("np.var", const([[1, 5], [3, 9]], dtype), axis=0)
    case.np("np.average", ints(3, 4, lo=1, dtype=dtype), axis=1, weights=ints(4, lo=1, hi=3, dtype=dtype))
for name in ("sum", "prod", "max", "min", "mean", "any", "all", "cumsum"):
    case.np("np." + name, const([[True, False], [True, True]], "bool"), axis=1)
    case.np("np." + name, const([[True, False], [True, True]], "bool"))
for name in ("sum", "prod", "max", "min", "mean", "var", "any", "all", "cumsum", "average"):
    case.np("np." + name, f(), _grad=name != "average")
case.np("np.sum", f(), axis=0)
case.np("np.sum", const([200, 100], "uint8"))
case.np("np.sum", const([1.7, 1.6]), dtype="int32")
case.np("np.prod", const([1.7, 1.6]), dtype="int32")
case.np("np.mean", const([1.7, 1.6]), dtype="int32")
case.np("np.mean", const([-5, 3], "int32"), dtype="int32")
for dtype in ("float16", "float64", "int64"):
    for name in ("sum", "prod", "mean", "std", "var"):
        case.np("np." + name, f(2, 3, lo=1, hi=2), axis=1, dtype=dtype)
case.np("np.sum", f(2, 3), dtype="bool")
case.np("np.sum", ints(2, 3, dtype="int32"), dtype="int8")
case.np("np.mean", ints(2, 3, dtype="int32"), dtype="float64")
for name in ("max", "min", "amax", "amin"):
    case.np("np." + name, TIES)
    case.np("np." + name, TIES, axis=1)
    case.np("np." + name, const([1, float("nan"), 2]))
    case.np("np." + name, const([1, float("inf"), -float("inf")]))
case.np("np.product", f(2, 3), axis=1, keepdims=True)
case.np("np.sometrue", ints(2, 3, hi=2), axis=0)
case.np("np.any", const([float("nan"), 0]))
for name in ("std", "var"):
    case.np("np." + name, f(3, 4), axis=1, ddof=1)
    case.np("np." + name, f(3, 4), axis=1, ddof=4)
case.np("np.average", f(2, 3), axis=-1)
case.np("np.average", f(2, 3), axis=(0, 1))
case.np("np.average", f(2, 3), axis=1, returned=True)
case.np("np.average", f(2, 3), returned=True)
case.np("np.average", f(2, 3), weights=f(2, 3, lo=1, hi=2))
case.np("np.average", f(2, 3), weights=f(2, 3, lo=1, hi=2), axis=0, returned=True)
case.np("np.average", f(2, 3), weights=f(3, lo=1, hi=2), axis=1)
case.np("np.average", f(2, 3), weights=f(2, lo=1, hi=2), axis=-2, returned=True)
case.np("np.average", f(2, 3, dtype="float64"), weights=f(2, 3, lo=1, hi=2, dtype="float64"), axis=(0, 1))
case.np("np.average", f(2, 3, dtype="float16"), axis=1)
case.np("np.average", ints(2, 3, dtype="int64"), axis=1)
case.np("np.cumsum", f(2, 3))
case.np("np.cumsum", f(2, 3, 4), axis=1)
case.np("np.cumsum", ints(2, 3, dtype="int32"), dtype="float32")


@program
def np_out_of_reductions(mx):
    mx.npx.set_np()
    try:
        x = mx.np.array([[1, 2, 4], [3, 5, 9]], dtype="float32")
        calls = [
            (mx.np.sum, mx.np.zeros(())),
            (mx.np.mean, mx.np.zeros(())),
            (mx.np.prod, mx.np.zeros(())),
            (mx.np.max, mx.np.zeros(())),
            (mx.np.min, mx.np.zeros(())),
            (mx.np.std, mx.np.zeros(())),
            (mx.np.var, mx.np.zeros(())),
            (mx.np.any, mx.np.zeros((), dtype="bool")),
            (mx.np.all, mx.np.zeros((), dtype="bool")),
            (mx.np.cumsum, mx.np.zeros(6)),
            (mx.np.average, mx.np.zeros(())),
        ]
        results = []
        for function, out in calls:
            returned = function(x, out=out)
            results += [returned is out, out]
        return results
    finally:
        mx.npx.reset_np()
