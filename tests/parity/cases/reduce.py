"""Reductions along axes."""

from parity.spec import const, f, family, ints, outcome

case, program = family(__name__)

NAN, INF = float("nan"), float("inf")

for name in ["sum", "mean", "prod", "max", "min", "nansum", "nanprod"]:
    case(name, f(2, 3, 4))
    for axis in (0, -1, (0, 2), (2, 0), (0, -1), (), (0, 1, 2)):
        case(name, f(2, 3, 4), axis=axis)
    case(name, f(2, 3, 4), axis=1, keepdims=True)
    case(name, f(2, 3, 4), axis=(0, -1), keepdims=True)
    case(name, f(2, 3, 4), keepdims=True)
    case(name, f(2, 3, 4), axis=1, exclude=True)
    case(name, f(2, 3, 4), axis=-1, exclude=True, keepdims=True)
    case(name, f(2, 3, 4), axis=(0, 1, 2), exclude=True)
    case(name, f(2, 3, 4), exclude=True)
    case(name, f(2, 3, 4), axis="(0,1)")
    case(name, f(5), axis=0)
    case(name, f(1))
    case(name, f(2, 3, dtype="float64"), axis=1)
    case(name, f(2, 3, dtype="float16"), axis=1)
    for dtype in ("int32", "int64", "int8"):
        case(name, ints(3, 4, lo=-4, hi=5, dtype=dtype), axis=1, _grad=False)
        case(name, ints(3, 4, lo=-4, hi=5, dtype=dtype), _grad=False)
    case(name, const([[200, 100], [3, 7]], dtype="uint8"), axis=1, _grad=False)

for name in ["max", "min"]:  # every one of equal extremes takes the whole gradient
    case(name, const([[1, 1, 0], [2, 2, 2], [0, 3, 3]]), axis=1)
    case(name, const([[1, 1, 0], [2, 2, 2], [0, 3, 3]]))
    case(name, const([[1, 1], [2, 1]]), axis=(0, 1), keepdims=True)
    case(name, const([[1, NAN, 3], [INF, 1, 2], [-INF, 1, 2]]), axis=1)
case("nansum", const([[1, NAN, 3], [NAN, NAN, NAN], [0, 2, NAN]]), axis=1)
case("nanprod", const([[1, NAN, 3], [NAN, NAN, NAN], [4, 2, NAN]]), axis=1)
case("sum", const([[1, NAN], [INF, 1]]), axis=1)
case("mean", const([-1, -2, -4], dtype="int32"), _grad=False)
case("sum", const([2**31 - 1, 1], dtype="int32"), _grad=False)
case("prod", const([[0, 2], [3, 0]]), axis=1, _grad=False)  # MXNet's gradient at a zero is nan

for ord in (1, 2):
    case("norm", f(2, 3, 4), ord=ord)
    for axis in (1, -1, (0, 1), (1, 2), (0, 1, 2), ()):
        case("norm", f(2, 3, 4), ord=ord, axis=axis)
    case("norm", f(2, 3, 4), ord=ord, axis=-1, keepdims=True)
    case("norm", f(2, 3, 4), ord=ord, keepdims=True)
    case("norm", f(3, dtype="float64"), ord=ord, axis=0)
    case("norm", f(2, 3, dtype="float16"), ord=ord, axis=1)
case("norm", f(2, 3))
case("norm", const([0, -1]), ord=1)
case("norm", f(2, 3), axis=1, out_dtype="float32")
case("norm", const([[3, -4], [1, 2]], dtype="int32"), ord=1, axis=1, _grad=False)

for name in ["argmax", "argmin"]:
    case(name, f(2, 3, 4), _grad=False)
    for axis in (0, 1, -1):
        case(name, f(2, 3, 4), axis=axis, _grad=False)
        case(name, f(2, 3, 4), axis=axis, keepdims=True, _grad=False)
    case(name, f(2, 3, 4), keepdims=True, _grad=False)
    case(name, f(4), axis=0, _grad=False)
    for dtype in ("int32", "int64", "uint8", "int8", "float16", "float64"):
        case(name, ints(3, 4, dtype=dtype), axis=1, _grad=False)
    case(name, const([[1, 1, 0, 0], [2, 2, 2, 2], [0, 3, 3, 0]]), axis=1, _grad=False)
    case(name, const([[1, NAN, 3], [NAN, 1, 2], [NAN, NAN, NAN], [INF, NAN, -INF]]), axis=1, _grad=False)
case("argmax_channel", f(3, 4), _grad=False)
case("argmax_channel", f(2, 3, 4), _grad=False)
case("argmax_channel", const([[1, 4, 4], [2, 2, 0]], dtype="int32"), _grad=False)

for axes in (0, (0, 2), (0, 1, 2), (-1,)):
    case("moments", f(2, 3, 4), axes=axes)
    case("moments", f(2, 3, 4), axes=axes, keepdims=True)
case("moments", f(5, dtype="float64"), axes=0)
case("moments", const([1, 2, 4], dtype="int32"), axes=0, _grad=False)
case("multi_sum_sq", f(3), f(2, 2), num_arrays=2, _grad=False)
case("multi_sum_sq", f(3, dtype="float16"), num_arrays=1, _grad=False)
case("multi_sum_sq", f(3, dtype="float64"), num_arrays=1, _grad=False)
case("cumsum", f(2, 3))
for axis in (0, 1):
    case("cumsum", f(2, 3), axis=axis)
case("cumsum", const([1.5, 2.5]), dtype="int32", _grad=False)
case("cumsum", const([100, 100], dtype="int8"), _grad=False)
case("cumsum", const([200, 200], dtype="uint8"), _grad=False)
case("cumsum", const([True, True], dtype="bool"), _grad=False)


@program
def reductions_as_methods(mx):
    x = mx.nd.array([[1, 5, 2], [4, 3, 6]])
    return [
        x.sum(),
        x.sum(1),
        x.sum(axis=0, keepdims=True),
        x.mean(axis=(0, 1)),
        x.max(),
        x.min(0),
        x.prod(axis=1),
        x.norm(),
        x.argmax(axis=1),
        x.argmin(0),
        x.argmax_channel(),
        mx.nd.sum_axis(x, axis=1),
        mx.nd.max_axis(x, 0),
        mx.nd.min_axis(x, 0, True),
        x.sum().asscalar(),
        x.sum().sum().shape,
    ]


@program
def reductions_that_refuse(mx):
    x = mx.nd.ones((2, 3))
    names = ["sum", "mean", "prod", "max", "min", "nansum", "nanprod", "norm", "argmax", "argmin"]
    calls = [lambda name=name, axis=axis: getattr(mx.nd, name)(x, axis=axis) for name in names for axis in (2, -3, "a")]
    calls += [
        lambda: mx.nd.sum(x, axis=(0, 0)),
        lambda: mx.nd.sum(x, axis=5, exclude=True),
        lambda: mx.nd.norm(x, ord=3),
        lambda: mx.nd.argmax(x, axis=(0, 1)),
        lambda: mx.nd.argmax_channel(mx.nd.ones((3,))),
        lambda: mx.nd.moments(x),
        lambda: mx.nd.multi_sum_sq(x),
        lambda: mx.nd.multi_sum_sq(x.astype("int32"), num_arrays=1),
        lambda: mx.nd.cumsum(x, axis=2),
    ]
    return [outcome(lambda call=call: repr(call())) for call in calls]  # repr: MXNet may raise late
