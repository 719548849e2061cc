"""Histograms, percentiles, differences, polynomials and windows of mx.np."""

from ..spec import const, f, family, ints

case, program = family(__name__)

case.np("np.histogram", f(20), bins=5, range=(0, 1), _grad=False)
case.np("np.histogram", f(20), bins=const([-1, 0, 0.5, 1]), _grad=False)
case.np("np.histogram", f(4, 5, dtype="float64"), bins=4, range=(-1, 1), _grad=False)
case.np("np.histogram", ints(20, dtype="int32"), bins=5, range=(0, 5), _grad=False)
for interpolation in ("linear", "lower", "higher", "nearest", "midpoint"):
    case.np("np.percentile", f(10), 30, interpolation=interpolation)
    case.np("np.percentile", f(2, 5), const([10, 62.5]), axis=1, interpolation=interpolation)
    case.np("np.percentile", const([1, 2, 3, 4]), 50, interpolation=interpolation)
    case.np("np.quantile", const([1, 2]), 0.5, interpolation=interpolation)
for q in (0, 100, 12.5):
    case.np("np.percentile", f(3, 4), q, axis=0)
case.np("np.percentile", f(2, 3, 4), 30, axis=(0, 2), keepdims=True)
case.np("np.percentile", f(2, 3, 4), const([0, 30, 100]), axis=(0, -1), keepdims=True)
case.np("np.percentile", f(2, 3, 4), const([0, 30, 100]))
for dtype in ("float64", "int32", "int64", "uint8"):
    array = f(10, dtype=dtype) if dtype == "float64" else ints(10, dtype=dtype)
    case.np("np.percentile", array, 30)
case.np("np.percentile", f(10, dtype="float16"), 30)
case.np("np.percentile", f(10), const([30, 50], "float64"))
case.np("np.percentile", f(10), const([30, 50], "int32"))
case.np("np.percentile", const([1, float("nan"), 2]), 30)
case.np("np.quantile", f(10), 0.3)
case.np("np.quantile", f(2, 5), const([0.3, 0.5]), axis=1, keepdims=True)
case.np("np.quantile", f(10), 1)
for n in (0, 1, 2, 5, 7):
    case.np("np.diff", f(2, 5), n=n)
case.np("np.diff", f(3, 4, 2), axis=0)
case.np("np.diff", f(3, 4, 2), n=2, axis=-2)
case.np("np.diff", f(0))
case.np("np.diff", f(5, dtype="float64"))
case.np("np.diff", f(5, dtype="float16"))
for dtype in ("int32", "uint8"):
    case.np("np.diff", ints(5, dtype=dtype))
    case.np("np.ediff1d", ints(5, dtype=dtype))
for shape in ((5,), (2, 3), (), (0,), (1,)):
    case.np("np.ediff1d", f(*shape))
case.np("np.ediff1d", f(5), to_end=f(2))
case.np("np.ediff1d", f(5), to_begin=f(2))
case.np("np.ediff1d", f(5), to_begin=f(2), to_end=f(1))
case.np("np.ediff1d", f(5), to_begin=1.5)
case.np("np.ediff1d", f(5), to_begin=1.5, to_end=2)
case.np("np.ediff1d", f(5), to_begin=1.5, to_end=f(2, 2))
case.np("np.ediff1d", ints(5, dtype="int32"), to_begin=1.5, to_end=-2)
for p, x in (((3,), (4,)), ((3,), (2, 2)), ((3,), ()), ((0,), (4,)), ((3,), (0,)), ((1,), (3,))):
    case.np("np.polyval", f(*p), f(*x))
case.np("np.polyval", f(3, dtype="float64"), f(4, dtype="float64"))
case.np("np.polyval", f(3, dtype="float16"), f(4, dtype="float16"))
case.np("np.polyval", ints(3, dtype="int32"), ints(4, dtype="int32"))
for window in ("hanning", "hamming", "blackman"):
    for size in (0, 1, 2, 5, 12, -1):
        case.np("np." + window, size)
    case.np("np." + window, 6, dtype="float64")
    case.np("np." + window, 6, dtype="float16")
