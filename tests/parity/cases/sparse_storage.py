"""How results and gradients of ops on sparse arrays are stored, and which arrays can be made."""

import numpy as np

from parity.spec import family, outcome

case, program = family(__name__)

A = np.array([[0, 1, 0], [0, 0, 0], [2, 0, 3]], dtype="float32")
B = np.array([[0, 4, 0], [0, 0, 0], [0, 0, 0]], dtype="float32")
D = np.array([[1, 2, 4], [3, 4, 5], [8, 7, 8]], dtype="float32")
STORAGES = ("row_sparse", "csr", "default")


def stored(array):
    """An array's storage, indices and values; columns in order, as MXNet leaves some rows of a csr array unordered."""
    if array.stype == "default":
        return array.stype, array.shape, (array.asnumpy() + 0.0).round(4).tolist()
    if array.stype == "row_sparse":
        return array.stype, array.shape, array.indices.asnumpy().tolist(), array.data.asnumpy().round(4).tolist()
    starts, columns = array.indptr.asnumpy(), array.indices.asnumpy()
    rows = [columns[first:last].tolist() for first, last in zip(starts, starts[1:])]
    return array.stype, array.shape, [sorted(row) for row in rows], (array.asnumpy() + 0.0).round(4).tolist()


def pairs(mx, name, left=A, right=B):
    op = getattr(mx.nd, name, None) or getattr(mx.nd._internal, name)
    arrays = [(mx.nd.array(left).tostype(a), mx.nd.array(right).tostype(b)) for a in STORAGES for b in STORAGES]
    return [outcome(lambda: stored(op(*pair))) for pair in arrays]  # noqa: B023


@program
def storage_of_sums_and_products(mx):
    names = ("elemwise_add", "elemwise_sub", "elemwise_mul", "broadcast_add", "broadcast_mul", "_hypot", "dot")
    return {name: pairs(mx, name) for name in names}


@program
def storage_of_quotients(mx):
    return {name: pairs(mx, name, right=D) for name in ("elemwise_div", "_scatter_elemwise_div")}


@program
def storage_of_functions(mx):
    names = """abs arcsin arcsinh arctan arctanh cbrt ceil cos degrees erf exp expm1 fix floor log1p negative radians
    relu rint round rsqrt sigmoid sign sin sinh softsign sqrt square tan tanh trunc identity BlockGrad make_loss
    zeros_like ones_like Flatten""".split()
    results = {}
    for stype in ("row_sparse", "csr"):
        array = mx.nd.array(A * 0.3).tostype(stype)
        results[stype] = [(name, getattr(mx.nd, name)(array).stype) for name in names]
    return results


@program
def storage_with_a_number(mx):
    names = """_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar _power_scalar _maximum_scalar
    _scatter_plus_scalar _scatter_minus_scalar _equal_scalar _greater_scalar _not_equal_scalar""".split()
    results = {}
    for stype in ("row_sparse", "csr"):
        array = mx.nd.array(A).tostype(stype)
        for number in (0, 2):
            found = [(name, getattr(mx.nd._internal, name)(array, scalar=number)) for name in names]
            results["%s %d" % (stype, number)] = [(name, stored(result)) for name, result in found]
    return results


@program
def storage_of_reductions(mx):
    results = {}
    for stype in ("row_sparse", "csr"):
        array = mx.nd.array(A).tostype(stype)
        for axis in (0, 1):
            for keepdims in (False, True):
                arguments = {"axis": axis, "keepdims": keepdims}
                found = [stored(op(array, **arguments)) for op in (mx.nd.sum, mx.nd.mean, mx.nd.norm)]
                if stype == "row_sparse":
                    found.append(stored(mx.nd._internal._square_sum(array, **arguments)))
                results["%s %d %s" % (stype, axis, keepdims)] = found
    return results


@program
def storage_of_other_ops(mx):
    nd, results = mx.nd, {}
    for stype in ("row_sparse", "csr"):
        a, b = nd.array(A).tostype(stype), nd.array(B).tostype(stype)
        results[stype] = [
            stored(nd.clip(a, -1, 1)),
            stored(nd.contrib.quadratic(a, a=1, b=2, c=0)),
            stored(nd.contrib.quadratic(a, a=1, b=2, c=3)),
            stored(nd.concat(a, b, dim=0)),
            stored(nd.add_n(a, b)),
            stored(nd.add_n(a, nd.array(D))),
            stored(nd.where(a, nd.array(D), nd.array(B))),
            stored(nd.FullyConnected(a, nd.ones((2, 3)), nd.ones(2), num_hidden=2)),
            stored(nd.FullyConnected(a, nd.ones((2, 3)), nd.ones((2, 1)).tostype("row_sparse"), num_hidden=2)),
            stored(nd.FullyConnected(a, nd.array(D), nd.ones((3, 1)).tostype("row_sparse"), num_hidden=3)),
            outcome(lambda: nd.BatchNorm(a, nd.ones(3), nd.ones(3), nd.ones(3), nd.ones(3))),  # noqa: B023
        ]
    weight, rows = nd.array(D).tostype("row_sparse"), nd.array([0, 2])
    for attributes in ({}, {"deterministic": True}, {"deterministic": False}):
        found = nd.contrib.SparseEmbedding(rows, weight, input_dim=3, output_dim=3, **attributes)
        results["rows %s" % attributes] = stored(found)
    return results


def gradients(mx, function, *arrays):
    for array in arrays:
        array.attach_grad()
    with mx.autograd.record():
        result = function(*arrays)
    result.backward()
    return [stored(result)] + [stored(array.grad) for array in arrays]


@program
def storage_of_gradients(mx):
    nd, results = mx.nd, {}
    names = ("square", "abs", "sin", "relu", "sqrt", "negative", "exp", "sign", "tanh")
    for stype in ("row_sparse", "csr"):
        for name in names:
            results["%s %s" % (name, stype)] = gradients(mx, getattr(nd, name), nd.array(A + B).tostype(stype))
        array = nd.array(A).tostype(stype)
        results["number " + stype] = gradients(mx, lambda x: x * 2, array) + gradients(mx, lambda x: x + 2, array)
        results["sum " + stype] = gradients(mx, lambda x: nd.sum(x, axis=1), array)
        results["quadratic " + stype] = gradients(mx, lambda x: nd.contrib.quadratic(x, a=1, b=2), array)
        for other in STORAGES:
            for name in ("elemwise_add", "elemwise_sub", "elemwise_mul"):
                second = nd.array(D).tostype(other)
                results["%s %s %s" % (name, stype, other)] = gradients(mx, getattr(nd, name), array, second)
    array = nd.array(A).tostype("row_sparse")
    results["squares"] = gradients(mx, lambda x: nd._internal._square_sum(x, axis=1), array)
    results["squares kept"] = gradients(mx, lambda x: nd._internal._square_sum(x, axis=1, keepdims=True), array)
    return results


@program
def arrays_from_parts(mx):
    sparse = mx.nd.sparse

    def made(function, *args, **kwargs):
        return outcome(lambda: (stored(function(*args, **kwargs)), str(np.dtype(function(*args, **kwargs).dtype))))

    csr, rows = sparse.csr_matrix, sparse.row_sparse_array
    return [
        made(csr, ([1, 2, 3], [0, 2, 1], [0, 1, 3])),
        made(csr, (np.array([1, 2], dtype="float64"), [0, 1], [0, 1, 2])),
        made(csr, (np.array([1, 2], dtype="int32"), [0, 1], [0, 1, 2]), dtype="float32"),
        made(csr, (3, 2)),
        made(csr, (3, 2), shape=(3, 2)),
        made(csr, (3, 2), shape=(2, 2)),
        made(csr, [[0, 1], [2, 0]]),
        made(csr, np.array([[0, 1], [2, 0]])),
        made(csr, mx.nd.array(A)),
        made(csr, mx.nd.array(A).tostype("row_sparse")),
        made(csr, [1, 2]),
        made(csr, 5),
        made(csr, ([1],)),
        made(csr, ([1], [1], [1], [1])),
        made(rows, ([[1, 2], [3, 4]], [1, 4])),
        made(rows, ([1, 2], [1, 4])),
        made(rows, ([[1, 2], [3, 4]], [1, 4]), shape=(6, 2)),
        made(rows, (np.array([[1, 2]], dtype="int32"), [1])),
        made(rows, ([[1, 2]], [1]), dtype="int32"),
        made(rows, ([[1, 2], [3, 4]], [1]), shape=(3, 2)),
        made(rows, (3, 2)),
        made(rows, [1, 0, 2]),
        made(rows, mx.nd.array(A).tostype("csr")),
        made(rows, mx.nd.array(A).tostype("row_sparse"), dtype="float64"),
    ]


CSR_PARTS = {
    "good": ([1.0, 2], [0, 1], [0, 1, 2], (2, 2)),
    "unordered": ([1.0, 2], [1, 0], [0, 2, 2], (2, 2)),
    "twice": ([1.0, 2], [1, 1], [0, 2, 2], (2, 2)),
    "beyond": ([1.0, 2], [0, 5], [0, 1, 2], (2, 2)),
    "negative": ([1.0, 2], [0, -1], [0, 1, 2], (2, 2)),
    "late start": ([1.0, 2], [0, 1], [1, 1, 2], (2, 2)),
    "early end": ([1.0, 2], [0, 1], [0, 1, 1], (2, 2)),
    "late end": ([1.0, 2], [0, 1], [0, 1, 3], (2, 2)),
    "falling": ([1.0, 2], [0, 1], [0, 2, 1], (2, 2)),
    "few rows": ([1.0, 2], [0, 1], [0, 2], (2, 2)),
    "many rows": ([1.0, 2], [0, 1], [0, 1, 2, 2], (2, 2)),
    "many values": ([1.0, 2, 3], [0, 1], [0, 1, 2], (2, 2)),
    "three dimensions": ([1.0, 2], [0, 1], [0, 1, 2], (2, 2, 2)),
    "one dimension": ([1.0, 2], [0, 1], [0, 1, 2], (2,)),
    "values of two dimensions": ([[1.0], [2]], [0, 1], [0, 1, 2], (2, 2)),
    "empty": ([], [], [0, 0, 0], (2, 2)),
}
ROW_PARTS = {
    "good": ([[1.0, 2], [3, 4]], [0, 2], (3, 2)),
    "unordered": ([[1.0, 2], [3, 4]], [2, 0], (3, 2)),
    "twice": ([[1.0, 2], [3, 4]], [2, 2], (3, 2)),
    "beyond": ([[1.0, 2], [3, 4]], [0, 5], (3, 2)),
    "negative": ([[1.0, 2], [3, 4]], [-1, 2], (3, 2)),
    "few indices": ([[1.0, 2], [3, 4]], [2], (3, 2)),
    "many indices": ([[1.0, 2]], [1, 2], (3, 2)),
    "wide": ([[1.0, 2, 3]], [1], (3, 2)),
    "other dimensions": ([[1.0, 2, 3]], [1], (3,)),
    "empty": (np.zeros((0, 2)), [], (3, 2)),
    "too many": (np.ones((4, 2)), [0, 1, 2, 2], (3, 2)),
}


@program
def formats_are_checked_when_asked(mx):
    results = {}
    for make, all_parts in ((mx.nd.sparse.csr_matrix, CSR_PARTS), (mx.nd.sparse.row_sparse_array, ROW_PARTS)):
        for name, parts in all_parts.items():
            found = []
            for full in (False, True):
                array = outcome(lambda: make(parts[:-1], shape=parts[-1]))  # noqa: B023
                checked = array if isinstance(array, str) else outcome(lambda: array.check_format(full))  # noqa: B023
                found.append(str(checked))
            results["%s %s" % (make.__name__, name)] = found
    return results


def bound(mx, symbol):
    """How an executor of 3 x 3 arrays stores arguments, outputs and gradients, and their values."""
    executor = symbol.simple_bind(mx.cpu())
    for array in executor.arg_arrays:
        array[:] = mx.nd.array(A).tostype(array.stype)
    outputs = executor.forward(is_train=True)
    executor.backward([mx.nd.ones(output.shape) for output in outputs])
    arrays = outputs + executor.arg_arrays + executor.grad_arrays
    return [(array.stype, (array.asnumpy() + 0.0).round(4).tolist()) for array in arrays]


def variable(mx, name, stype):
    return mx.sym.var(name, shape=(3, 3), stype=stype)


@program
def storage_in_executors(mx):
    s, results = mx.sym, {}
    for stype in STORAGES:
        a = variable(mx, "a", stype)
        for name in ("square", "relu", "exp", "negative"):
            results["%s %s" % (name, stype)] = bound(mx, getattr(s, name)(a))
        results["numbers " + stype] = bound(mx, s.Group([a * 2, a + 2]))
        results["sum " + stype] = bound(mx, s.sum(a, axis=1))
        results["cast " + stype] = [
            outcome(lambda: bound(mx, s.cast_storage(a, stype=other)))  # noqa: B023
            for other in STORAGES
        ]
        results["used twice " + stype] = bound(mx, s.Group([a * 2, s.negative(a)]))
        results["normalised " + stype] = outcome(lambda: len(s.BatchNorm(a).simple_bind(mx.cpu()).outputs))  # noqa: B023
        for other in STORAGES:
            b = variable(mx, "b", other)
            for name in ("elemwise_add", "elemwise_sub", "elemwise_mul"):
                results["%s %s %s" % (name, stype, other)] = bound(mx, getattr(s, name)(a, b))
        results["add_n " + stype] = bound(mx, s.add_n(a, variable(mx, "b", stype)))
    results["squares"] = bound(mx, s._internal._square_sum(variable(mx, "a", "row_sparse"), axis=1))
    return results


@program
def storage_that_simple_bind_is_told(mx):
    net = mx.sym.dot(mx.sym.var("x"), mx.sym.var("w"))
    executor = net.simple_bind(
        mx.cpu(), grad_req={"w": "write"}, stype_dict={"x": "csr", "w": "row_sparse"}, x=(3, 3), w=(3, 2)
    )
    executor.arg_dict["x"][:] = mx.nd.array(A).tostype("csr")
    executor.arg_dict["w"][:] = mx.nd.array(D[:, :2]).tostype("row_sparse")
    output = executor.forward(is_train=True)[0]
    executor.backward(mx.nd.ones((3, 2)))
    arrays = [output] + executor.arg_arrays + [executor.grad_dict["w"]]
    return [(array.stype, array.asnumpy().tolist()) for array in arrays]
