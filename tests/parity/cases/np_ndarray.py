"""Operators and members of mx.np arrays, and what NumPy's own functions make of them."""

import copy
import math
import pickle

import numpy

from ..spec import family, outcome
from .np_elementwise import np_mode

_, program = family(__name__)
in_np_mode = np_mode(program)

# ---- functions that are NumPy's ----


@in_np_mode
def functions_that_are_numpys(mx, np):
    x, y, i = np.array([1.0, -2.0, 3.0]), np.array([[1.0, 2.0], [3.0, 0.0]]), np.array([0, 1], dtype="int64")
    flags = np.array([True, False, True], dtype="bool")
    results = [
        np.isclose(x, x),
        np.argwhere(y),
        np.nanmax(y, axis=0),
        np.nancumsum(x),
        np.cov(y),
        np.corrcoef(x, x + x * x),
    ]
    results += [np.digitize(x, np.array([0.0, 1.0])), *np.divmod(x, 2), np.heaviside(x, 0.5), np.histogram2d(x, x)[0]]
    results += [np.in1d(y, x), np.interp(x, np.array([-1.0, 0.0, 1.0]), x), np.intersect1d(i, i), *np.ix_(i, i)]
    results += [
        np.msort(y),
        *np.modf(x / 2),
        *np.frexp(x),
        np.partition(x, 1),
        np.searchsorted(np.array([1.0, 2.0]), x),
    ]
    results += [np.select([x < 0, x > 0], [x, -x]), *np.tril_indices_from(y), np.unwrap(x), np.vander(x), np.poly(x)]
    results += [np.compress(flags, x), np.extract(x > 0, x), np.flatnonzero(x), np.float_power(x, 2), np.i0(x)]
    results += [np.take_along_axis(x, i, 0), np.trim_zeros(np.array([0.0, 1.0, 0.0])), np.union1d(x, i), np.signbit(x)]
    results += [np.choose(i, [x[:2], x[1:]]), np.lexsort((x, x)), np.packbits(np.array([1, 0], dtype="uint8"))]
    results += [
        np.apply_along_axis(lambda row: row.sum(), 0, y),
        np.rollaxis(y, 1),
        np.roots(np.array([1.0, -3.0, 2.0])),
    ]
    return results + [type(each).__name__ for each in results]


@in_np_mode
def python_numbers_of_functions_that_are_numpys(mx, np):
    x = np.array([1.0, -2.0, 3.0])
    values = [np.allclose(x, x), np.array_equal(x, x + 1), np.ndim(x), np.size(x), np.nanargmax(x), np.count_nonzero(x)]
    return [int(value) for value in values] + [
        float(np.ptp(x)),
        float(np.trapz(x)),
        bool(np.alltrue(x)),
        float(np.nanmedian(x)),
        str(np.promote_types("float32", "int32")),
        str(np.min_scalar_type(10)),
        str(np.result_type(numpy.float32, numpy.int64)),
        outcome(lambda: np.roots(np.array([1.0, 0.0, 1.0]))),
        outcome(lambda: np.npv(0.1, [1, 2])),
    ]


# ---- NumPy's functions on mx.np arrays ----


@in_np_mode
def numpys_functions(mx, np):
    x, out = np.array([1.0, -2.0, 3.0]), np.zeros(3)
    results = [numpy.sin(x), numpy.add(x, x), numpy.multiply(x, 2), numpy.maximum(x, 0), numpy.clip(x, 0, 1)]
    results += [numpy.float32(2) + x, numpy.float64(2) * x, numpy.abs(x), numpy.where(x > 0, x, x), numpy.around(x)]
    results += [numpy.add(x, x, out=out) is out, out, numpy.floor_divide(x, 2), numpy.logaddexp(x, x), numpy.cumprod(x)]
    results += [type(each).__name__ for each in results]
    results += [outcome(lambda: numpy.add.reduce(x)), outcome(lambda: numpy.ones(3) + x), float(numpy.median(x))]
    results += [outcome(lambda: numpy.concatenate([x, numpy.ones(3)])), outcome(lambda: numpy.add(numpy.ones(3), x))]
    return results


@in_np_mode
def numpys_functions_are_recorded(mx, np):
    x = np.array([0.5, 1.0])
    x.attach_grad()
    with mx.autograd.record():
        y = numpy.multiply(numpy.sin(x), x)
    y.backward()
    return [y, x.grad]


# ---- operators ----


@in_np_mode
def operators(mx, np):
    x, y, i, b = (
        np.array([1.0, -2.0]),
        np.array([3.0, 2.0]),
        np.array([5, 6], dtype="int32"),
        np.array([1, 0], dtype="bool"),
    )
    results = [x + y, x - y, x * y, x / y, x % y, y**x, x + 1, 1 + x, x - 1, 1 - x, x * 2, 2 * x, x / 2, 2 / x, x % 2]
    results += [5 % y, y**2, 2**y, -x, abs(x), x == y, x != 1, x > y, x >= 1, x < y, x <= 1, i & 3, i | i, i ^ 1]
    results += [~i, ~b, b & b, b | True, b ^ b, x + i, i + 1.5, i / 2, i * 2.5, b + b, b * 2, i**2, i % 4]
    results += [round(x), round(y, 1), math.floor(x / 3), math.ceil(x / 3), math.trunc(x / 3)]
    return results


@in_np_mode
def operators_in_place(mx, np):
    results = []
    for operand in (2, 1.5, np.array([1.0, 2.0]), np.array([3, 4], dtype="int32"), np.array(2.0)):
        x = same = np.array([5.0, 7.0])
        x += operand
        results.append(x.copy())
        x -= operand
        x *= operand
        results.append(x.copy())
        x /= operand
        x %= operand
        results += [x.copy(), x is same]
    i = np.array([5, 6], dtype="int32")
    i &= 3
    i |= np.array([8, 8], dtype="int32")
    i ^= 1
    i += 1.5
    results.append(i)
    return results


@in_np_mode
def what_operators_refuse(mx, np):
    x, i = np.array([1.0, 2.0]), np.array([1, 2], dtype="int32")

    def added(left, right):
        left += right

    calls = [
        lambda: x + None,
        lambda: x + [1, 2],
        lambda: x + "a",
        lambda: x + numpy.ones(2),
        lambda: numpy.ones(2) + x,
        lambda: x + mx.nd.ones(2),
        lambda: mx.nd.ones(2) + x,
        lambda: x == None,  # noqa: E711
        lambda: x < [1, 2],
        lambda: x // 2,
        lambda: x + np.ones(3),
        lambda: x & 1,
        lambda: i << 1,
        lambda: +x,
        lambda: added(x, np.ones((3, 2))),
        lambda: added(x, None),
        lambda: added(i, x),
        lambda: added(np.ones(2, dtype="float16"), x),
        lambda: bool(x),
        lambda: float(x),
        lambda: int(np.ones((0,))),
        lambda: len(np.array(1.0)),
        lambda: [1, 2, 3][np.array(1, dtype="int32")],
        lambda: format(x, ".2f"),
        lambda: x.item(),
        lambda: x.item(5),
        lambda: x.astype("int32", order="F"),
        lambda: x.astype("int32", casting="safe"),
        lambda: x.copy(order="F"),
        lambda: x.copyto(1),
        lambda: x.copyto(mx.nd.ones(2)),
        lambda: x.asscalar(),
        lambda: x.exp(),
        lambda: x.expand_dims(0),
        lambda: x.tostype("row_sparse"),
        lambda: x.nothing,
        lambda: x.reshape(),
        lambda: x.reshape(2, 1, order="F"),
        lambda: x.clip(),
    ]
    return [outcome(call) for call in calls]


# ---- members ----


@in_np_mode
def python_values(mx, np):
    values = [bool(np.array([0.5])), bool(np.array(0.0)), float(np.array([2.5])), int(np.array([[2.7]]))]
    values += [np.array([2.0]).item(), np.ones((2, 2)).item(1, 1), np.array([1.0, 2.0]).item(1), len(np.zeros((0, 3)))]
    values += [
        np.array([[1, 2]], dtype="int32").tolist(),
        np.array(2.0).tolist(),
        np.zeros((2, 3)).size,
        np.ones(3).ndim,
    ]
    x = np.zeros((2, 3))
    values += [
        x.shape,
        str(x.dtype),
        x.dtype == numpy.float32,
        type(x.dtype) is numpy.dtype("float32").__class__,
        x.ctx,
    ]
    values += [hasattr(x, name) for name in ("exp", "asscalar", "itemsize", "sum", "__index__", "tolist", "strides")]
    return [str(value) for value in values]


@in_np_mode
def text(mx, np):
    results = []
    for dtype in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"):
        for values in (1, [1, 0], [[1, 2], [3, 4]]):
            x = np.array(values, dtype=dtype)
            results += [repr(x), str(x)]
    results += [repr(np.zeros((0, 2))), repr(np.zeros((0,), dtype="int64")), repr(np.zeros(2000)), "%s" % np.ones(2)]
    results += [format(np.array(2.5), ".3f"), f"{np.ones(2)}", f"{np.array(1.5)}"]
    np.set_printoptions(precision=2)
    results.append(repr(np.array([1.23456])))
    np.set_printoptions(precision=8)
    results.append(outcome(lambda: np.set_printoptions(foo=1)))
    return results


@in_np_mode
def copies(mx, np):
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    made = [
        pickle.loads(pickle.dumps(x)),
        copy.copy(x),
        copy.deepcopy(x),
        x.copy(),
        x.copyto(mx.cpu()),
        x.astype("float32"),
    ]
    view, alias = x.reshape_view(4), x.detach()
    same = [x.astype("float32", copy=False) is x, x.as_np_ndarray() is x, x.as_in_ctx(mx.cpu()) is x]
    x += 1
    kinds = [type(each).__name__ for each in made]
    made += [
        view,
        alias,
        x.reshape_view((1, -1)),
        x.reshape_view(0, -1),
        x.astype(int),
        x.astype(None),
        x.astype("bool"),
    ]
    legacy = x.as_nd_ndarray()
    legacy += 1
    return made + same + kinds + [x, legacy, type(legacy).__name__, legacy.as_np_ndarray()]


@in_np_mode
def methods_without_reductions(mx, np):
    x = np.array([1.25, -2.5, 3.75])
    y = np.zeros((3, 2))
    results = [x.clip(0, 1), x.clip(0), x.clip(max=1), x.round(), x.round(1), x.clip(0, 1, out=x) is x, x]
    results += [y.slice_assign(np.ones((1, 2)), (0, 0), (1, 2), (1, 1)), y.copy()]
    return results + [y.slice_assign_scalar(5.0, (1, 0), (3, 1), (1, 1)), y]


@in_np_mode
def symbols(mx, np):
    a, b = mx.sym.var("a").as_np_ndarray(), mx.sym.var("b").as_np_ndarray()
    made = [a + b, a + 2, 2 - a, a / 2, 2 / a, a % 2, 2 % a, a**2, 2**a, -a, a == b, a != 2, a > 2, a <= b, a * 1.5]
    made += [mx.sym.np.sin(a), mx.sym.np.add(a, 2), mx.sym.np.maximum(a, b), mx.sym.np.where(a, b, 1), a.round(1)]
    made += [
        mx.sym.np.clip(a, 0, 1),
        a.clip(1, 2),
        a.astype("float64"),
        mx.sym.np.around(a, 1),
        mx.sym.np.where(a, 1, 2),
    ]
    results = []
    for dtype in ("float32", "int32"):
        values = {"a": np.array([1, 2, 3], dtype=dtype), "b": np.array([3, 2, 1], dtype=dtype)}
        for symbol in made:
            inputs = {name: values[name] for name in symbol.list_arguments()}
            _, (out_type,), _ = symbol.infer_type(**{name: dtype for name in inputs})
            bound = symbol.bind(mx.cpu(), inputs)
            results += [bound.forward()[0].as_np_ndarray(), str(numpy.dtype(out_type)), symbol.name]
    return results


@in_np_mode
def backward_of_comparisons_and_indices(mx, np):
    heads = [
        lambda x: ((x > 0) * 1.0).sum(),
        lambda x: (x == x).astype("float32"),
        lambda x: x > 0,
        lambda x: np.isnan(x),
        lambda x: np.argmax(x),
        lambda x: np.argsort(x),
        lambda x: np.where(x > x, -1, 2),
        lambda x: (x > 0).sum(),
        lambda x: [x * 2, x > 0],
        lambda x: x * (x > 0),
        lambda x: x.astype("int32"),
    ]
    gradients = []
    for head in heads:
        x = np.array([1.0, -2.0])
        x.attach_grad()
        with mx.autograd.record():
            y = head(x)
        mx.autograd.backward(y)
        gradients.append(x.grad)
    return gradients


@in_np_mode
def booleans_as_numbers(mx, np):
    results = []
    for value in (True, False):
        x = np.array([1.0, 2.0])
        x -= value
        y = np.array([1.0, 2.0])
        y += value
        z = np.array([1.0, 2.0])
        z *= value
        results += [x, y, z]
    return results + [-(np.array([1.0, 0.0]) > 0)]


@in_np_mode
def integers_through_extensions(mx, np):
    whole = np.array([-40, -6, -5, 0, 3, 5, 6, 17, 18, 40], dtype="int32")
    lengths, ones = np.array([1, 2]), np.ones((3, 2), dtype="uint8")
    results = [mx.npx.sequence_mask(ones, lengths, True, value=value) for value in (-1, 300, 1.7, -1.5)]
    for dtype in ("int32", "int64", "int8"):
        results += [mx.npx.erf(whole.astype(dtype)), mx.npx.sigmoid(whole.astype(dtype))]
    return results


@in_np_mode
def numbers_beside_booleans(mx, np):
    """A number that meets booleans in a comparison, a bit operation or a choice is True unless it is 0."""
    flags, other = np.array([True, False], dtype="bool"), np.array([False, True], dtype="bool")
    results = []
    for number in (0.5, -0.5, 1.5, 0.0, 1, 2, -1, True, False):
        results += [flags > number, flags >= number, flags < number, flags <= number, flags == number, flags != number]
        results += [flags & number, flags | number, flags ^ number]
        results += [np.where(other, flags, number), np.where(other, number, flags)]
    symbol = mx.sym.var("flags").as_np_ndarray()
    for result in (symbol > 0.5, symbol >= 0.5, symbol == 0.5, symbol != -0.5, symbol > 1, symbol == 2):
        results += result.bind(mx.cpu(), {"flags": flags}).forward()
    return results


@in_np_mode
def types_of_counts(mx, np):
    x = np.array([[1.0, 0.0], [0.0, 0.0]])
    counts = [np.count_nonzero(x), np.count_nonzero(x, axis=0), np.count_nonzero(x, axis=(0, 1)), np.count_nonzero(5)]
    counts.append(np.count_nonzero(x, keepdims=True))
    return counts[:4] + [counts[4].asnumpy()] + [type(count).__name__ for count in counts]


def kinds(*calls):
    """Of the error of each call: whether it is a TypeError and whether it is a ValueError."""
    found = []
    for call in calls:
        try:
            call()
        except Exception as error:
            found += [isinstance(error, TypeError), isinstance(error, ValueError)]
    return found


@in_np_mode
def errors_of_dtypes(mx, np):
    i, legacy = np.array([1, 2], dtype="int32"), mx.nd.ones(2)
    return kinds(
        lambda: np.isnan(np.ones(2), out=np.zeros(2)),
        lambda: np.ones(2, dtype="foo"),
        lambda: np.full(2, 1, dtype="foo"),
        lambda: np.array([1], dtype="foo"),
        lambda: np.array(i, dtype="foo"),
        lambda: np.arange(3, dtype="foo"),
        lambda: np.linspace(0, 1, 3, dtype="foo"),
        lambda: np.zeros_like(i, dtype="foo"),
        lambda: np.zeros(2, dtype=5),
        lambda: i.astype("foo"),
        lambda: i.astype(5),
        lambda: np.sum(i, dtype="foo"),
        lambda: np.mean(i, dtype="foo"),
        lambda: np.cumsum(i, dtype="foo"),
        lambda: mx.npx.one_hot(i, 3, dtype="foo"),
        lambda: mx.npx.softmax(np.ones(2), dtype="foo"),
        lambda: mx.nd.zeros(2, dtype="foo"),
        lambda: mx.nd.array([1], dtype="foo"),
        lambda: mx.nd.cast(legacy, dtype="foo"),
        lambda: legacy.astype("foo"),
    )


@in_np_mode
def errors_of_constraints(mx, np):
    flags = np.array([True, False], dtype="bool")
    return kinds(
        lambda: mx.npx.constraint_check(flags, "all must hold").asnumpy(),
        lambda: mx.npx.constraint_check(flags[1], "it must hold").asnumpy(),
        lambda: mx.npx.constraint_check(np.ones(2), "of floats").asnumpy(),
    )
