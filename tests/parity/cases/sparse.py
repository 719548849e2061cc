"""Sparse arrays: what ops give, how it is stored, and where gradients and updates go."""

import numpy as np

from parity.spec import const, f, family, outcome

case, _program = family(__name__)


def program(function):
    """A program whose many small results are recorded as one text (of what they are) and one row of numbers."""

    def packed(mx):
        texts, numbers = [], [np.zeros(0)]
        for i, result in enumerate(function(mx)):
            if not hasattr(result, "asnumpy") and not isinstance(result, np.ndarray):
                texts.append("%d %s" % (i, result))
                continue
            value = result.asnumpy() if hasattr(result, "asnumpy") else result
            texts.append("%d %s%s" % (i, value.dtype, value.shape))
            numbers.append(value.astype("float64").reshape(-1))
        return {"text": ", ".join(texts), "numbers": np.concatenate(numbers)}

    packed.__name__ = function.__name__
    _program(packed)
    return function


case("_contrib_SparseEmbedding", const([0, 2, 0]), f(3, 4), input_dim=3, output_dim=4, _grad=False)


def csr(mx, which=0, dtype="float32"):
    values = [[[0, 0.5, 0], [-0.7, 0, 0.2]], [[0.1, 0.5, 0], [0, 0, 0.2]]][which]
    return mx.nd.sparse.csr_matrix(np.array(values, dtype=dtype))


def rsp(mx, which=0, dtype="float32"):
    values = [[[0, 0, 0], [0.7, 0.8, -0.1]], [[0.5, 0.2, 0], [0.7, 0.8, -0.1]]][which]
    return mx.nd.sparse.row_sparse_array(np.array(values, dtype=dtype))


def dense(mx):
    return mx.nd.array([[1, 2, 3], [4, 5, 6]])


def parts(x, pattern=True):
    """Storage, dense value and, if it is stored sparsely, where. MXNet leaves room behind
    the data of a csr sum, and its columns in no order."""
    result = [x.stype, x.asnumpy()]
    if pattern and x.stype == "csr":
        starts = x.indptr.asnumpy()
        data, columns = x.data.asnumpy()[: starts[-1]], x.indices.asnumpy()[: starts[-1]]
        order = np.lexsort((columns, np.repeat(np.arange(len(starts) - 1), np.diff(starts))))
        result += [data[order], columns[order], starts]
    if pattern and x.stype == "row_sparse":
        result += [x.data.asnumpy(), x.indices.asnumpy()]
    return result


def both(mx, *calls):
    """The parts of each call on a csr and on a row_sparse array."""
    return [p for call in calls for make in (csr, rsp) for p in parts(call(make(mx)))]


UNARY = """
abs arcsin arcsinh arctan arctanh cbrt ceil degrees expm1 fix floor log1p negative radians relu rint round sign sin sinh
sqrt square tan tanh trunc arccos cos cosh exp sigmoid zeros_like stop_gradient make_loss
"""


@program
def unary(mx):
    return both(mx, *[getattr(mx.nd.sparse, name) for name in UNARY.split()])


@program
def unary_methods_and_operators(mx):
    return both(
        mx, lambda x: -x, abs, lambda x: x.sin(), lambda x: x.relu(), lambda x: x.zeros_like(), lambda x: x.exp()
    )


@program
def copies(mx):
    return both(
        mx,
        lambda x: x.copy(),
        lambda x: x.copyto(mx.cpu(1)),
        lambda x: x.detach(),
        lambda x: x.astype("float64"),
        lambda x: x.astype("int32"),
        lambda x: x.copyto(dense(mx)),
        lambda x: x.tostype("default"),
        lambda x: x.tostype(x.stype),
        lambda x: mx.nd.array(x),
        lambda x: mx.nd.sparse.array(x, dtype="float64"),
        mx.nd.identity,
        lambda x: x.T,
        lambda x: x[:],
    )


@program
def clipping(mx):
    return both(mx, lambda x: mx.nd.sparse.clip(x, -0.5, 0.3), lambda x: x.clip(0, 0.3))


@program
def scalars(mx):
    calls = []
    for name in [
        "plus",
        "minus",
        "rminus",
        "mul",
        "div",
        "rdiv",
        "power",
        "rpower",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "greater",
        "greater_equal",
        "lesser",
        "lesser_equal",
        "hypot",
        "mod",
    ]:
        for value in (-1.0, 0.0, 2.0):
            if name != "mod" or value > 0:
                calls.append(lambda x, n=name, v=value: getattr(mx.nd._internal, "_%s_scalar" % n)(x, scalar=v))
    return both(mx, *calls)


@program
def scalar_operators(mx):
    return both(
        mx,
        lambda x: x + 1,
        lambda x: 1 + x,
        lambda x: x * 2,
        lambda x: 2 * x,
        lambda x: x / 2,
        lambda x: 2 / x,
        lambda x: x - 1,
        lambda x: 1 - x,
        lambda x: x**2,
        lambda x: x > 0,
        lambda x: x == 0,
        lambda x: x != 0,
    )


def pairs(mx):
    return [
        (csr(mx), csr(mx, 1)),
        (rsp(mx), rsp(mx, 1)),
        (csr(mx), dense(mx)),
        (dense(mx), csr(mx)),
        (rsp(mx), dense(mx)),
        (dense(mx), rsp(mx)),
        (csr(mx), rsp(mx)),
        (rsp(mx), csr(mx)),
    ]


@program
def two_arrays(mx):
    results = []
    for name in [
        "elemwise_add",
        "elemwise_sub",
        "elemwise_mul",
        "elemwise_div",
        "broadcast_add",
        "broadcast_sub",
        "broadcast_mul",
        "add",
        "subtract",
        "multiply",
        "divide",
    ]:
        for a, b in pairs(mx):
            results += parts(getattr(mx.nd.sparse, name)(a, b))
    return results


@program
def operators_on_two_arrays(mx):
    results = []
    for call in (lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a == b):
        for a, b in pairs(mx):
            results += parts(call(a, b))
    return results


@program
def broadcasting(mx):
    row, column, one = mx.nd.array([[1, 2, 3]]), mx.nd.array([[1], [2]]), mx.nd.array([2])
    results = []
    for other in (row, column, one):
        for call in (lambda a, b: a * b, lambda a, b: a / b, lambda a, b: a + b, lambda a, b: a - b):
            results += parts(call(csr(mx), other)) + parts(call(rsp(mx), other)) + parts(call(other, csr(mx)))
    return results


@program
def cancelling(mx):
    return (
        parts(csr(mx) - csr(mx))
        + parts(mx.nd.sparse.elemwise_add(csr(mx), -csr(mx)))
        + parts(rsp(mx) - rsp(mx))
        + parts(csr(mx) * 0)
    )


@program
def in_place(mx):
    results = []
    for make in (csr, rsp):
        for start, change, other in (
            (make, "__iadd__", make(mx, 1)),
            (make, "__isub__", make(mx, 1)),
            (make, "__imul__", 2),
            (make, "__itruediv__", 2),
            (make, "__iadd__", 1),
            (dense, "__iadd__", make(mx)),
        ):
            results += parts(getattr(start(mx), change)(other))
    return results


@program
def add_n(mx):
    results = []
    for arrays in (
        [rsp(mx), rsp(mx, 1)],
        [rsp(mx), dense(mx), rsp(mx, 1)],
        [csr(mx), csr(mx, 1)],
        [csr(mx), dense(mx)],
    ):
        results += parts(mx.nd.sparse.add_n(*arrays))
    return results


@program
def concat(mx):
    sp = mx.nd.sparse
    return (
        parts(sp.concat(csr(mx), csr(mx, 1), dim=0))
        + parts(sp.concat(csr(mx), csr(mx, 1), dim=1))
        + parts(sp.concat(csr(mx), dense(mx), dim=0))
        + parts(sp.concat(rsp(mx), rsp(mx, 1), dim=0))
    )


@program
def reductions(mx):
    results = []
    for make in (csr, rsp):
        for name in ("sum", "mean", "norm"):
            for axis in (0, 1, (0, 1), None):
                for keepdims in (False, True):
                    results += parts(getattr(mx.nd.sparse, name)(make(mx), axis=axis, keepdims=keepdims))
        results += parts(make(mx).sum(axis=1)) + parts(make(mx).mean(axis=-1))
    return results


@program
def storage(mx):
    results = []
    for value in (dense(mx), mx.nd.array([[0, 0], [1, 0], [0, 0]]), mx.nd.array([[float("nan"), 0], [0, -0.0]])):
        for stype in ("default", "csr", "row_sparse"):
            results += parts(value.tostype(stype)) + parts(mx.nd.cast_storage(value, stype=stype))
    results += parts(mx.nd.array([1, 0]).tostype("row_sparse")) + parts(
        mx.nd.array(np.eye(3)[:, None]).tostype("row_sparse")
    )
    results += parts((csr(mx) * 0).tostype("csr")) + parts((csr(mx) * 0).tostype("default").tostype("csr"))
    return results


@program
def storage_errors(mx):
    return [
        outcome(lambda: csr(mx).tostype("row_sparse")),
        outcome(lambda: rsp(mx).tostype("csr")),
        outcome(lambda: mx.nd.cast_storage(csr(mx), "row_sparse")),
        outcome(lambda: mx.nd.cast_storage(dense(mx), "no")),
        outcome(lambda: mx.nd.array([1, 0]).tostype("csr")),
        outcome(lambda: csr(mx).copyto(rsp(mx))),
        outcome(lambda: mx.nd.sparse.csr_matrix(np.zeros(3))),
        outcome(lambda: mx.nd.sparse.csr_matrix((1, 2, 3, 4))),
        outcome(lambda: mx.nd.sparse.csr_matrix(dense(mx), shape=(5, 5))),
        outcome(lambda: mx.nd.sparse.csr_matrix(rsp(mx))),
        outcome(lambda: mx.nd.sparse.row_sparse_array(csr(mx))),
        outcome(lambda: mx.nd.sparse.zeros("no", (2, 3))),
        outcome(lambda: mx.nd.sparse.array(np.zeros((2, 2)))),
        outcome(lambda: csr(mx)[::2]),
        outcome(lambda: csr(mx)[0, 1]),
        outcome(lambda: csr(mx)[[0]]),
        outcome(lambda: csr(mx).reshape((3, 2))),
        outcome(lambda: bool(csr(mx))),
        outcome(lambda: csr(mx).__setitem__(slice(0, 1), 1.0)),
        outcome(lambda: rsp(mx).__setitem__(slice(0, 1), 1.0)),
        outcome(lambda: csr(mx).__setitem__(slice(None), 1.0)),
        outcome(lambda: mx.nd.sparse.retain(csr(mx), mx.nd.array([0]))),
    ]


@program
def constructors(mx):
    sp = mx.nd.sparse
    data, columns, starts = np.array([1, 2, 3], dtype="float64"), [0, 2, 1], [0, 2, 3]
    rows = np.array([[1, 2], [3, 4.0]])
    made = [
        sp.csr_matrix((data, columns, starts)),
        sp.csr_matrix((data, columns, starts), shape=(2, 4)),
        sp.csr_matrix(([1, 2, 3], columns, starts), shape=(2, 4)),
        sp.csr_matrix(([1, 2, 3], columns, starts), shape=(2, 4), dtype="int32"),
        sp.csr_matrix((mx.nd.array(data), mx.nd.array(columns), mx.nd.array(starts)), shape=(2, 4)),
        sp.csr_matrix((2, 4)),
        sp.csr_matrix([[0, 1], [2, 0]]),
        sp.csr_matrix(np.array([[0, 1], [2, 0]])),
        sp.csr_matrix(np.array([[0, 1], [2, 0]]), dtype="float16"),
        sp.csr_matrix(dense(mx)),
        sp.csr_matrix(csr(mx)),
        sp.csr_matrix(csr(mx), dtype="float64"),
        sp.row_sparse_array((rows, [0, 2])),
        sp.row_sparse_array((rows, [0, 2]), shape=(5, 2)),
        sp.row_sparse_array((5, 2)),
        sp.row_sparse_array((5, 2, 3)),
        sp.row_sparse_array(rows),
        sp.row_sparse_array([[0, 0], [1, 2]]),
        sp.row_sparse_array(rsp(mx)),
        sp.row_sparse_array(dense(mx), dtype="float64"),
        sp.row_sparse_array(([[1, 2]], [1]), shape=(3, 2)),
        sp.zeros("csr", (2, 3)),
        sp.zeros("row_sparse", (2, 3), dtype="int64"),
        sp.zeros("default", (2, 3)),
        sp.empty("csr", (2, 3)),
        sp.empty("row_sparse", (2, 3)),
        mx.nd.zeros((2, 3), stype="csr"),
    ]
    return [p for x in made for p in parts(x)]


@program
def facts(mx):
    results = []
    for make in (csr, rsp):
        x = make(mx)
        results += [
            repr(x),
            x.shape,
            len(x),
            x.ndim,
            x.stype,
            x.context,
            np.dtype(x.dtype).name,
            x.data,
            x.indices,
            x.grad,
            isinstance(x, mx.nd.NDArray),
            isinstance(x, mx.nd.sparse.BaseSparseNDArray),
        ]
        x.data[:] = 9
        results += [x]
        x.check_format()
        results += [np.dtype(x.indices.dtype).name, x.as_in_context(mx.cpu(1)).context]
    return results + [csr(mx).indptr, mx.nd.sparse.RowSparseNDArray.__name__]


@program
def rows_of_csr(mx):
    results = []
    for key in (0, -1, slice(0, 1), slice(1, None), slice(-1, None), slice(None), slice(0, 5)):
        results += parts(csr(mx)[key])
    return results


@program
def slices_of_csr(mx):
    sp = mx.nd.sparse
    results = []
    for begin, end in (((1,), (2,)), ((0, 1), (2, 3)), ((None, 1), (None, None)), ((0, 0), (1, 2))):
        results += parts(sp.slice(csr(mx), begin=begin, end=end))
    return results + parts(sp.slice(rsp(mx), begin=(0, 1), end=(2, 3))) + parts(csr(mx).slice(begin=(0,), end=(1,)))


@program
def assignment(mx):
    results = []
    for make in (csr, rsp):
        for value in (dense(mx), np.ones((2, 3)), make(mx, 1)):
            x = make(mx)
            x[:] = value
            results += parts(x) + parts(dense(mx).copyto(make(mx)))
    x = rsp(mx)
    x[:] = 2
    return results + parts(x)


@program
def retain(mx):
    sp = mx.nd.sparse
    return (
        parts(sp.retain(rsp(mx, 1), mx.nd.array([0])))
        + parts(sp.retain(rsp(mx), mx.nd.array([0, 1])))
        + parts(sp.retain(rsp(mx, 1), mx.nd.array([1], dtype="int64")))
    )


@program
def check_format(mx):
    sp = mx.nd.sparse
    data = np.array([1, 2, 3.0])
    return [
        outcome(lambda: sp.csr_matrix((data, [2, 0, 1], [0, 2, 3]), shape=(2, 4)).check_format()),
        outcome(lambda: sp.csr_matrix((data, [0, 2, 1], [0, 2, 3]), shape=(2, 4)).check_format()),
        outcome(lambda: sp.csr_matrix((data, [0, 2, 9], [0, 2, 3]), shape=(2, 4)).check_format()),
        outcome(lambda: sp.row_sparse_array((data[:2, None], [2, 0]), shape=(5, 1)).check_format()),
        outcome(lambda: sp.row_sparse_array((data[:2, None], [2, 9]), shape=(5, 1)).check_format()),
        outcome(lambda: sp.row_sparse_array((data[:2, None], [-1, 2]), shape=(5, 1)).check_format()),
    ]


def weight(mx, stype="default"):
    return mx.nd.array(np.arange(12).reshape(3, 4) + 1.0).tostype(stype)


@program
def dot(mx):
    sp, w = mx.nd.sparse, weight(mx)
    calls = [
        (csr(mx), w, {}),
        (csr(mx), dense(mx), dict(transpose_a=True)),
        (csr(mx), w.T, dict(transpose_b=True)),
        (dense(mx), csr(mx), dict(transpose_a=True)),
        (csr(mx), rsp(mx), dict(transpose_b=True)),
        (csr(mx), rsp(mx), dict(transpose_a=True)),
        (csr(mx), w.tostype("row_sparse"), {}),
        (rsp(mx), w, {}),
        (dense(mx), w.tostype("row_sparse"), {}),
        (csr(mx), w.tostype("csr"), {}),
        (csr(mx), csr(mx, 1), dict(transpose_a=True)),
        (rsp(mx), dense(mx), dict(transpose_a=True)),
        (dense(mx), w.tostype("csr"), {}),
        (dense(mx), csr(mx), dict(transpose_b=True)),
    ]
    results = []
    for a, b, how in calls:
        results += parts(sp.dot(a, b, **how)) + parts(mx.nd.dot(a, b, **how))
    for stype in ("default", "csr", "row_sparse"):
        results += parts(sp.dot(csr(mx), w, forward_stype=stype))
        results += parts(sp.dot(csr(mx), dense(mx), transpose_a=True, forward_stype=stype))
    return results + parts(sp.dot(csr(mx, dtype="float64"), w.astype("float64")))


@program
def dot_errors(mx):
    return [
        outcome(lambda: mx.nd.sparse.dot(csr(mx), mx.nd.array([1, 2, 3])).asnumpy()),
        outcome(lambda: mx.nd.sparse.dot(csr(mx), dense(mx))),
        outcome(lambda: mx.nd.sparse.elemwise_add(csr(mx), mx.nd.sparse.zeros("csr", (3, 3)))),
        outcome(lambda: mx.nd.sparse.elemwise_add(csr(mx), csr(mx, 1, "float64"))),
    ]


def gradient(mx, x, call, stype=None):
    x.attach_grad(stype=stype)
    before = [x.grad.stype]
    with mx.autograd.record():
        y = call(x)
    y.backward()
    return before + parts(y, pattern=False) + parts(x.grad)


@program
def gradients_of_dot(mx):
    sp = mx.nd.sparse
    left = sp.csr_matrix(np.array([[0, 0.5, 0], [-0.7, 0, 0]], dtype="float32"))
    results = []
    for stype in (None, "row_sparse"):
        results += gradient(mx, weight(mx), lambda x: sp.dot(left, x), stype)
        results += gradient(mx, dense(mx), lambda x: sp.dot(left, x, transpose_a=True), stype)
    results += gradient(mx, weight(mx, "row_sparse"), lambda x: sp.dot(left, x))
    results += gradient(mx, weight(mx, "row_sparse"), lambda x: sp.dot(left, x), "default")
    results += gradient(mx, dense(mx), lambda x: sp.dot(x, weight(mx, "csr")))
    return results + gradient(mx, csr(mx), lambda x: sp.dot(x, weight(mx)))


@program
def gradients_of_elementwise(mx):
    sp = mx.nd.sparse
    results = []
    for make in (csr, rsp):
        for call in (
            sp.square,
            sp.relu,
            lambda x: x * 2,
            lambda x: x + (csr if x.stype == "csr" else rsp)(mx, 1),
            sp.sum,
            sp.exp,
            sp.abs,
            lambda x: x.tostype("default") * 3,
        ):
            results += gradient(mx, make(mx), call)
    for stype in ("row_sparse", "csr", "default"):
        results += gradient(mx, dense(mx), lambda x: x * 2, stype)
    results += gradient(mx, dense(mx), lambda x: sp.elemwise_mul(x, csr(mx)), "csr")
    results += gradient(mx, dense(mx), lambda x: x + rsp(mx)) + gradient(
        mx, dense(mx), lambda x: sp.cast_storage(x, "row_sparse")
    )
    results += gradient(mx, rsp(mx, 1), lambda x: sp.retain(x, mx.nd.array([1])))
    return results + gradient(mx, csr(mx), lambda x: x[0:1])


@program
def gradients_of_embedding(mx):
    index = mx.nd.array([0, 2, 0])
    sizes = dict(input_dim=3, output_dim=4)
    return (
        gradient(mx, weight(mx), lambda x: mx.nd.Embedding(index, x, sparse_grad=True, **sizes), "row_sparse")
        + gradient(mx, weight(mx, "row_sparse"), lambda x: mx.nd.sparse.Embedding(index, x, sparse_grad=True, **sizes))
        + gradient(mx, weight(mx), lambda x: mx.nd.contrib.SparseEmbedding(index, x, **sizes), "row_sparse")
        + gradient(mx, weight(mx), lambda x: mx.nd.Embedding(index, x, **sizes))
    )


@program
def a_gradient_seen_before_and_after(mx):
    x = weight(mx)
    x.attach_grad(stype="row_sparse")
    seen = x.grad
    results = parts(seen)
    for row in (0, 2):
        with mx.autograd.record():
            y = mx.nd.contrib.SparseEmbedding(mx.nd.array([row, row]), x, input_dim=3, output_dim=4)
        y.backward()
        results += parts(seen)
    return results


UPDATES = {
    "sgd_update": 0,
    "sgd_mom_update": 1,
    "adam_update": 2,
    "ftrl_update": 2,
    "rmsprop_update": 1,
    "signsgd_update": 0,
}


def update(mx, name, states, stypes, **how):
    w = mx.nd.array([[1, 2, 3], [4, 5, 6.0]]).tostype(stypes[0])
    kept = [mx.nd.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]]).tostype(stypes[1]) for _ in range(states)]
    getattr(mx.nd.sparse if hasattr(mx.nd.sparse, name) else mx.nd, name)(w, rsp(mx), *kept, out=w, lr=0.1, **how)
    return [p for x in [w] + kept for p in parts(x, pattern=False)]


@program
def lazy_updates(mx):
    results = []
    for name, states in UPDATES.items():
        how = {"momentum": 0.9} if "mom" in name else {}
        for stypes in (("default", "default"), ("row_sparse", "row_sparse"), ("default", "row_sparse")):
            for lazy in (True, False) if name in ("sgd_update", "sgd_mom_update", "adam_update") else (None,):
                results += update(
                    mx, name, states, stypes, wd=0.01, **({} if lazy is None else dict(how, lazy_update=lazy))
                )
    return results


@program
def lazy_adagrad(mx):
    results = []
    for stypes in (("default", "default"), ("row_sparse", "row_sparse")):
        for how in ({}, {"epsilon": 0.5}, {"clip_gradient": 0.3}, {"rescale_grad": 2.0}):
            results += update(mx, "adagrad_update", 1, stypes, **how)
    return results


@program
def layers_take_sparse_data(mx):
    w = mx.nd.ones((4, 3))
    return [
        mx.nd.sparse.FullyConnected(csr(mx), w, mx.nd.ones((4,)), num_hidden=4),
        mx.nd.sparse.FullyConnected(dense(mx), w.tostype("row_sparse"), num_hidden=4, no_bias=True),
        mx.nd.sparse.LinearRegressionOutput(dense(mx), csr(mx)),
        mx.nd.sparse.where(csr(mx), dense(mx), dense(mx) * 2),
        mx.nd.take(rsp(mx), mx.nd.array([1])),
        mx.nd.stack(csr(mx), csr(mx, 1)),
        mx.nd.softmax(csr(mx)),
    ]


@program
def saved_and_loaded(mx):
    import os
    import pickle
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "x.params")
        mx.nd.save(path, {"c": csr(mx), "r": rsp(mx), "d": dense(mx)})
        loaded = mx.nd.load(path)
    return [p for key in "crd" for p in parts(loaded[key])] + parts(pickle.loads(pickle.dumps(csr(mx))))


@program
def counting_stored_elements(mx):
    x = csr(mx)
    return [mx.nd.contrib.getnnz(x), mx.nd.contrib.getnnz(x, axis=1)]


@program
def taking_rows_of_csr(mx):
    x = mx.nd.array([[1, 0], [0, 2], [3, 0]]).tostype("csr")
    taken = [mx.nd.take(x, mx.nd.array([0, 7, -1]), mode=mode) for mode in ("clip", "wrap")]
    taken += [x.take(mx.nd.array([1], dtype="int32")), mx.nd.take(x, mx.nd.array([0]), axis=1)]
    return [*taken, *(t.stype for t in taken)]
