"""Making arrays, and arithmetic by name."""

import numpy as np

from parity.spec import const, f, family, outcome

case, program = family(__name__)

for dtype in ["float32", "float16", "float64", "int32", "int64", "int8", "uint8", "bool"]:
    case("_zeros", shape=(2, 3), dtype=dtype, _grad=False)
    case("_ones", shape=(2, 3), dtype=dtype, _grad=False)
    case("_full", shape=(2, 3), value=2.7, dtype=dtype, _grad=False)
case("_zeros", shape=3, _grad=False)
case("_ones", shape=3, _grad=False)
case("_full", shape=3, value=-1.5, _grad=False)
for options in (
    {"N": 3},
    {"N": 2, "M": 3},
    {"N": 3, "k": 1},
    {"N": 3, "M": 4, "k": -1},
    {"N": 2, "k": 5},
    {"N": 2, "k": -2},
    {"N": 2, "dtype": "int32"},
):
    case("_eye", _grad=False, **options)
for options in (
    {"start": 5},
    {"start": 1, "stop": 5},
    {"start": 1, "stop": 6, "step": 2},
    {"start": 5, "stop": 1, "step": -2},
    {"start": 0, "stop": 1, "step": 0.1},
    {"start": 0, "stop": 2.1, "step": 0.7},
    {"start": 2, "stop": 4, "repeat": 3},
    {"start": 0, "stop": 10, "step": 2.5, "dtype": "int32"},
    {"start": 0.5, "stop": 3, "dtype": "int64"},
    {"start": 0, "stop": 3, "repeat": 2, "dtype": "uint8"},
    {"start": 0, "stop": 3, "dtype": "float16"},
    {"start": 0, "stop": 1, "step": 1 / 3.0, "dtype": "float64"},
):
    case("_arange", _grad=False, **options)
for options in (
    {"num": 5},
    {"num": 5, "endpoint": False},
    {"num": 1},
    {"num": 4, "dtype": "int32"},
    {"num": 4, "dtype": "float64"},
):
    case("_linspace", start=0, stop=10, _grad=False, **options)
for dtype in ("float32", "float16", "int8"):
    case("zeros_like", f(2, 3, dtype=dtype), _grad=False)
    case("ones_like", f(2, 3, dtype=dtype), _grad=False)
for options in (
    {},
    {"start": 5},
    {"step": 0.5},
    {"axis": 0},
    {"axis": -1},
    {"repeat": 2},
    {"axis": 1, "repeat": 2},
    {"axis": 0, "start": 2, "step": -1},
):
    case("_contrib_arange_like", f(2, 3), _grad=False, **options)
for dtype in ("int32", "float64"):
    case("_contrib_arange_like", f(3, dtype=dtype), _grad=False)
case("shape_array", f(2, 3, 4), _grad=False)
case("size_array", f(2, 3, 4), _grad=False)
data = [0, 1, 1, 2, 3, 4, 5, 5, -1, 6]
case("_histogram", const(data), const([0, 2, 4, 5]), _grad=False)
case("_histogram", const(data), bin_cnt=5, range=(0, 5), _grad=False)
case("_histogram", const(data), bin_cnt=3, range=(0, 5), _grad=False)
case("_histogram", const(data, dtype="int32"), const([0, 2, 4, 5], dtype="int32"), _grad=False)
case("_histogram", const(data, dtype="int32"), bin_cnt=5, range=(0, 5), _grad=False)
case("_histogram", const([data[:5], data[5:]], dtype="float64"), bin_cnt=2, range=(0, 4), _grad=False)


@program
def functions_that_create(mx):
    nd = mx.nd
    out = nd.array([5, 6])
    value = nd.array([1, 2])
    nd._internal._set_value(7, out=value)
    results = [
        nd.zeros((2, 3)),
        nd.zeros(3),
        nd.zeros([2, 1]),
        nd.zeros(np.int64(2)),
        nd.zeros(2, None, np.float16),
        nd.zeros(2, dtype=float),
        nd.zeros(2, dtype=int),
        nd.zeros(shape=(2,)),
        nd.ones((2, 3)),
        nd.ones(3, dtype="int8"),
        nd.full((2, 2), 3.5),
        nd.full(2, 3.7, dtype="int32"),
        nd.full(2, 3, mx.cpu(0), "float64"),
        nd.full(2, 3, dtype=None),
        nd.full(2, nd.array([7.0])),
        nd.full(2, np.array([1.0, 2.0])),
        nd.full(2, True),
        nd.full(2, np.float32(1.5)),
        nd.arange(5),
        nd.arange(1, 5),
        nd.arange(1, 5, 2),
        nd.arange(5, 1, -2),
        nd.arange(2.5),
        nd.arange(2, 4, repeat=2),
        nd.arange(5, dtype="int32"),
        nd.arange(0, 3, dtype=None),
        nd.arange(0, 3.0000001),
        nd.arange(np.int64(0), np.int64(3)),
        nd.linspace(0, 1, 5),
        nd.linspace(0, 1, 5, endpoint=False),
        nd.linspace(5, 1, 3),
        nd.linspace(0, 10, 4, dtype=None),
        nd.linspace(1, 1, 3),
        nd.linspace(0, 10, 4, dtype="int32"),
        nd.linspace(0, 10, 0),
        nd.linspace(0, 1, 1),
        nd.eye(3),
        nd.eye(2, 3),
        nd.eye(3, 3, -1),
        nd.eye(3, k=1),
        nd.eye(2, dtype="int64"),
        nd.empty((2, 3)).shape,
        nd.empty(2, dtype="int8").dtype.__name__,
        nd.zeros(2, mx.cpu(1)).context,
        nd.ones(2, ctx=mx.cpu(1)).context,
        nd.full(2, 7, out=out) is out,
        out,
        value,
    ]
    return results


@program
def creations_that_refuse(mx):
    nd = mx.nd
    calls = [
        lambda: nd.zeros(-2),
        lambda: nd.zeros(2.5),
        lambda: nd.zeros("a"),
        lambda: nd.zeros(2, dtype="uint16"),
        lambda: nd.arange(5, 1),
        lambda: nd.arange(0),
        lambda: nd.arange(1, 5, 0),
        lambda: nd.arange(0, 5, repeat=0),
        lambda: nd.linspace(0, 1, -3),
        lambda: nd.linspace(0, 1, 2.5),
        lambda: nd.eye(-1),
        lambda: nd.eye(2.5),
        lambda: nd._internal._full(shape=(2,)),
        lambda: nd._internal._full(value=2.0),
        lambda: nd._internal._set_value(7),
        lambda: nd.contrib.arange_like(nd.ones((2, 3)), axis=2),
        lambda: nd.histogram(nd.ones((3,)), 2, (5, 0)),
        lambda: nd.histogram(nd.ones((3,)), 0),
        lambda: nd.histogram(nd.ones((3,)), [0, 1]),
        lambda: nd.array([[1, 2], [3]]),
        lambda: nd.array("abc"),
        lambda: nd.array({1: 2}),
        lambda: nd.array([1j]),
        lambda: nd.from_numpy(np.arange(6.0).reshape(2, 3).T),
        lambda: nd.from_numpy(np.arange(3, dtype="int16")),
        lambda: nd.add(nd.ones((2,)), [1, 2]),
        lambda: nd.maximum(nd.ones((2,)), None),
    ]
    return [outcome(lambda call=call: repr(call())) for call in calls]  # repr: MXNet may raise late


@program
def array_from_anything(mx):
    nd = mx.nd
    sources = [
        [1, 2],
        np.array([1, 2]),
        np.array([1.0, 2]),
        np.array([1, 2], dtype="uint8"),
        np.array([True, False]),
        3,
        np.array(3.0),
        [[1, 2], [3, 4]],
        (1, 2),
        range(3),
        [],
        [True, False],
        ["1", "2"],
        [None, 1],
        np.float32(3),
        np.asfortranarray([[1, 2], [3, 4]]),
        np.arange(4)[::-1],
        np.array([1], dtype="uint16"),
        nd.array([1, 2], dtype="int32"),
    ]
    results = [nd.array(source) for source in sources]
    results += [
        nd.array([1.7, -2.7], dtype="int32"),
        nd.array([200, 300], dtype="int8"),
        nd.array([-1, 300], dtype="uint8"),
        nd.array([2**40], dtype="int64"),
        nd.array(nd.array([1, 2], dtype="int32"), dtype="float16"),
        nd.array([1], ctx=mx.cpu(2)).context,
    ]
    return results


@program
def numpy_shared_or_copied(mx):
    shared, copied = np.arange(4, dtype="float32"), np.arange(4, dtype="float32")
    a, b = mx.nd.from_numpy(shared), mx.nd.from_numpy(copied, zero_copy=False)
    again = mx.nd.from_numpy(shared)  # which by now is read only
    copied[0] = 9
    a[:] = 1
    return [
        a,
        b,
        again,
        shared,
        shared.flags["WRITEABLE"],
        copied.flags["WRITEABLE"],
        mx.nd.from_numpy(np.arange(6.0).reshape(2, 3).T, zero_copy=False),
        mx.nd.from_numpy(np.array([True])),
    ]


@program
def histograms(mx):
    x = mx.nd.array(data)
    results = []
    for arguments in (
        (x,),
        (x, 5),
        (x, 5, (0, 5)),
        (x, mx.nd.array([0, 2, 4, 5])),
        (x.astype("int32"), 3),
        (x.astype("float64"), 2),
        (mx.nd.array([2, 2, 2]), 2),
        (mx.nd.array([2, 2, 2]), 2, (2, 2)),
        (mx.nd.array([np.nan, 1, 2]), 2, (0, 2)),
    ):
        results += mx.nd.histogram(*arguments)
    return results


@program
def arithmetic_by_name(mx):
    nd = mx.nd
    a, b, column = nd.array([1, 2, 3]), nd.array([3, 2, 1]), nd.array([[1], [2]])
    results = []
    for name in [
        "add",
        "subtract",
        "multiply",
        "divide",
        "true_divide",
        "modulo",
        "power",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "lesser",
        "lesser_equal",
        "logical_and",
        "logical_or",
        "logical_xor",
    ]:
        function = getattr(nd, name)
        results += [function(a, b), function(a, 2), function(2, a), function(2, 3), function(2.5, 1.5)]
        results += [function(a, column), function(np.float32(2), a), function(a, True)]
        results.append(type(function(2, 3)).__name__)
    results += [nd.add(lhs=a, rhs=2), nd.power(base=a, exp=2)]
    return results


@program
def zipfian(mx):
    _, true_count, _ = mx.nd.contrib.rand_zipfian(mx.nd.array([3, 1, 0]), 5, 10)
    sampled, _, sampled_count = mx.nd.contrib.rand_zipfian(mx.nd.array([3], dtype="int64"), 7, 10)
    return [true_count, sampled.shape, sampled.dtype.__name__, sampled_count.shape, sampled_count.dtype.__name__]


@program
def histogram_answers(mx):
    x = mx.nd.array([1, 2, 2, 5])
    calls = [{"bins": 3}, {"bins": 3, "range": (0, 6)}, {"bins": mx.nd.array([0, 2, 6])}]
    return [type(mx.nd.histogram(x, **call)).__name__ for call in calls]
