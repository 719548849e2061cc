"""Elements chosen by index: take, pick, gather, scatter, one-hot, where; sorting and topk."""

import numpy as np

from parity.spec import const, f, family, ints, outcome

case, program = family(__name__)

# ---- along one dimension ----

_outside = const([-4, -1, 0, 2, 3, 7])
for _mode in ("clip", "wrap"):
    case("take", f(3, 4), _outside, mode=_mode)
    case("take", f(3, 4), _outside, mode=_mode, axis=1)
    case("pick", f(3, 4), const([0, 5, -1]), mode=_mode)
    case("pick", f(3, 4), const([0, 5, -1, -5]), mode=_mode, axis=0, keepdims=True)
case("take", f(3, 4), const([0, 2]), mode="raise")
case("take", f(3, 4, 2), const([[0, 1], [3, 3]]), axis=-2)
case("take", f(3), const([[0, 1], [2, 2]], "int32"))
case("take", f(3, 4), const([0.7, 1.9, -0.5]))
case("take", ints(3, 4, dtype="int32"), const([0, 1], "int64"), _grad=False)
case("take", f(3, 4, dtype="float64"), const([0, 1], "uint8"))
case("batch_take", f(3, 4), const([0, 5, -1], "int32"), _grad=False)
case("pick", f(3, 4), const([[0], [1], [2]]))
case("pick", f(3, 4), const([[0], [1], [2]]), keepdims=True)
case("pick", f(2, 3, 4), ints(2, 4, hi=3), axis=1)
case("pick", f(4), const([1]))
case("pick", f(3, 4), const([1.9, -0.5, 2.2]))
case("pick", ints(3, 4, dtype="int32"), const([1, 2, 3], "int64"), _grad=False)
case("choose_element_0index", f(3, 4), const([1, 2, 3]))
case("fill_element_0index", f(3, 4), f(3), const([0, 1, 3]), _grad=False)
case("one_hot", const([0, 2, -1, 5, 1.7]), depth=3, _grad=False)
for _dtype in ("float16", "float64", "uint8", "int32", "int64"):
    case("one_hot", const([[0, 2], [1, 5]]), depth=3, on_value=8.6, off_value=1.2, dtype=_dtype, _grad=False)
case("one_hot", const([0, 2], "int64"), depth=4, on_value=0.3, off_value=-0.1, _grad=False)
case("_onehot_encode", const([0, 2, 7]), f(3, 3), _grad=False)
case("_contrib_index_copy", f(4, 2), const([2, 0]), f(2, 2))
case("_contrib_index_copy", f(4, 2, 2), const([3], "int64"), f(1, 2, 2))

# ---- along many dimensions ----

case("gather_nd", f(3, 4), const([[0, 1, 0], [1, 2, 1]]))
# its gradient goes to foreign memory in MXNet
case("gather_nd", f(3, 4), const([[0, -1], [1, -2]]), _grad=False)
case("gather_nd", f(3, 4), const([[0, 1, 1]]))
case("gather_nd", f(3, 4, 2), const([[[0, 1], [1, 2]], [[3, 3], [0, 0]]], "int32"))
case("gather_nd", ints(3, 4, dtype="int32"), const([[0], [1]], "int64"), _grad=False)
case("scatter_nd", f(3), const([[0, 1, 1], [1, 0, 2]]), shape=(2, 3))
case("scatter_nd", f(2, 3), const([[1, 0]]), shape=(4, 3))
case("scatter_nd", f(2, 2, 3), const([[[1, 0], [2, 3]]], "int32"), shape=(4, 3))
case("scatter_nd", ints(3, dtype="int64"), const([[0, 1, 1], [1, 0, 2]], "int64"), shape=(2, 3), _grad=False)
case("_contrib_index_array", f(2, 3), _grad=False)
case("_contrib_index_array", f(2, 3, 2), axes=(2, 0), _grad=False)
case("_contrib_index_array", f(2, 3), axes=(-1,), _grad=False)
case("_ravel_multi_index", const([[0, 1, 2], [1, 2, 3]]), shape=(3, 4), _grad=False)
case("_ravel_multi_index", const([[0, 1, 7], [1, 2, 3]], "int64"), shape=(-1, 4), _grad=False)
case("_ravel_multi_index", const([[0, 1], [1, 2], [1, 0]], "int32"), shape=(3, 4, 2), _grad=False)
case("_unravel_index", const([0, 5, 11]), shape=(3, 4), _grad=False)
case("_unravel_index", const([0, 5, 11], "int64"), shape=(3, 2, 2), _grad=False)
case("_unravel_index", const([0, 5, 19], "int32"), shape=(-1, 4), _grad=False)
# For indices of more than one dimension MXNet's unravel_index leaves most of them out.

# ---- by condition ----

case("where", const([[1, 0], [0, -2]]), f(2, 2), f(2, 2))
case("where", const([1, 0]), f(2, 3), f(2, 3))
case("where", const([1, 0], "int32"), f(2, 3, 2, dtype="float64"), f(2, 3, 2, dtype="float64"))
case("where", const([0.5, 0, float("nan")]), f(3), f(3))
case("where", const([1, 0], "uint8"), ints(2, dtype="int64"), ints(2, dtype="int64"), _grad=False)
case("_contrib_boolean_mask", f(3, 4), const([1, 0, 2]))
case("_contrib_boolean_mask", f(3), const([0, 1, 1], "int32"))

# ---- order ----

_ties = const([[3, 1, 3, 2, 1], [0, 0, 0, 0, 0]])
for _typ in ("indices", "value", "mask"):
    for _ascend in (False, True):
        for _k in (0, 1, 3):
            case("topk", _ties, k=_k, ret_typ=_typ, is_ascend=_ascend, _grad=_typ == "value")
for _axis in (None, 0, -1):
    case("topk", f(3, 4), axis=_axis, k=2, ret_typ="both", dtype="int32")
    case("topk", f(3, 4), axis=_axis, k=2, ret_typ="mask", _grad=False)
    case("topk", f(3, 4), axis=_axis, k=1, ret_typ="value", is_ascend=True)
    case("topk", f(3, 4), axis=_axis, _grad=False)
    for _ascend in (False, True):
        case("sort", f(3, 4), axis=_axis, is_ascend=_ascend)
        case("argsort", f(3, 4), axis=_axis, is_ascend=_ascend, _grad=False)
case("topk", f(2, 200), k=7, ret_typ="both", dtype="int64")
case("topk", f(200, 2), k=3, axis=0, ret_typ="value", is_ascend=True)
case("topk", f(3, 4), k=-1, _grad=False)
for _dtype in ("int32", "int64", "uint8", "float64"):
    case("topk", ints(2, 5, dtype=_dtype), k=2, ret_typ="both", dtype=_dtype, _grad=False)
    case("topk", ints(2, 5, dtype=_dtype), k=2, ret_typ="mask", _grad=False)
    case("sort", ints(2, 5, dtype=_dtype), _grad=False)
    case("argsort", ints(2, 5, dtype=_dtype), dtype=_dtype, _grad=False)
case("topk", ints(2, 5, dtype="float16"), k=2, ret_typ="both", dtype="float16", _grad=False)
case("sort", _ties, axis=-1)
case("argsort", _ties, is_ascend=False, _grad=False)


@program
def scatter_set(mx):
    x = mx.nd.array(np.ones((2, 3)))
    given = mx.nd.array([1, 2, 3]), mx.nd.array([[0, 1, 1], [1, 0, 2]])
    y = mx.nd._internal._scatter_set_nd(lhs=x, rhs=given[0], indices=given[1], shape=(2, 3), out=x)
    return [x, y]


@program
def onehot_encode_writes(mx):
    out = mx.nd.array(np.ones((2, 3)))
    returned = mx.nd.onehot_encode(mx.nd.array([0, 2]), out)
    return [out, returned]


@program
def methods(mx):
    x = mx.nd.array([[3, 1, 2], [0, 5, 4]])
    index = mx.nd.array([1, 0])
    return [
        x.take(index),
        x.take(index, axis=1, mode="wrap"),
        x.pick(index),
        x.pick(index, axis=-1, keepdims=True),
        x.topk(),
        x.topk(axis=0, k=2, ret_typ="value"),
        x.sort(is_ascend=False),
        x.argsort(),
        x.argsort(axis=0, dtype="int32"),
        index.one_hot(depth=3),
    ]


@program
def indexing_refusals(mx):
    nd = mx.nd
    x = nd.array(np.arange(12).reshape((3, 4)))
    calls = [
        lambda: nd.take(x, nd.array([0, 3]), mode="raise"),
        lambda: nd.take(x, nd.array([-1]), mode="raise"),
        lambda: nd.take(x, nd.array([0]), axis=2),
        lambda: nd.take(x, nd.array([0]), mode="other"),
        lambda: nd.pick(x, nd.array([0, 1])),
        lambda: nd.pick(x, nd.array([1])),
        lambda: nd.pick(x, nd.array([0, 1, 2]), axis=None),
        lambda: nd.pick(x, nd.array([0, 1, 2]), axis=2),
        lambda: nd.batch_take(x, nd.array([0, 1], dtype="int32")),
        lambda: nd.gather_nd(x, nd.array([[0], [1], [0]])),
        lambda: nd.scatter_nd(nd.array([[1, 2], [3, 4]]), nd.array([[1, 0]]), shape=(2, 3)),
        lambda: nd.where(nd.array([1, 0]), x, x),
        lambda: nd.where(nd.array([[1], [0], [1]]), x, x),
        lambda: nd.where(x, x, nd.array([1])),
        lambda: nd.contrib.boolean_mask(x, nd.array([0, 1])),
        lambda: nd.contrib.boolean_mask(x, x),
        lambda: nd.contrib.index_copy(x, nd.array([0]), x),
        lambda: nd.ravel_multi_index(nd.array([[0], [1]]), shape=(3, 4, 5)),
        lambda: nd.unravel_index(nd.array([0])),
        lambda: nd.topk(x, k=5),
        lambda: nd.topk(x, axis=2),
        lambda: nd.topk(x, ret_typ="other"),
        lambda: nd.sort(x, axis=2),
        lambda: nd.argsort(x, axis=-3),
    ]
    return [str(outcome(lambda call=call: call().asnumpy().shape)) for call in calls]
