"""Edges of linear algebra and of ops that index: matrices that are singular or do not fit, indices beyond the data,
numbers beyond their dtype."""

import numpy as np

from parity.spec import const, f, family, outcome

case, program = family(__name__)


def results(*calls):
    """What calls give, as a flat list of arrays, or the kinds of errors they raise."""
    found = []
    for call in calls:
        result = outcome(lambda call=call: [each.asnumpy() for each in as_list(call())])
        found += [result] if isinstance(result, str) else result
    return found


def as_list(value):
    return value if isinstance(value, (list, tuple)) else [value]


# ---- linear algebra ----

REGULAR = [[1.5, 0.3, -0.2], [0.4, -1.2, 0.6], [-0.5, 0.1, 2.0]]
SINGULAR = [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]]
INDEFINITE = [[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
MATRICES = {
    "singular": SINGULAR,
    "indefinite": INDEFINITE,
    "zero": np.zeros((2, 2)),
    "number": [[2.0]],
    "batch": [SINGULAR, REGULAR],
    "batches": [[REGULAR, REGULAR]],
    "wide": np.ones((2, 3)),
    "tall": np.ones((3, 2)),
    "vector": [1.0, 2.0],
    "nan": [[np.nan, 1.0], [1.0, 2.0]],
}


def algebra(mx, op, *values, **how):
    return getattr(mx.nd.linalg, op)(*[mx.nd.array(value, dtype="float64") for value in values], **how)


def of_odd_matrices(mx, op):
    """`op` of all matrices. The rows of Q for which a matrix of too low a rank leaves a choice are anybody's."""
    chosen = [m for name, m in MATRICES.items() if op != "gelqf" or name not in ("singular", "batch", "wide", "nan")]
    return results(*[lambda matrix=matrix: algebra(mx, op, matrix) for matrix in chosen])


def enter(name, run):
    run.__name__ = name
    program(run)


for _op in ("inverse", "det", "slogdet", "potrf", "potri", "syevd", "gelqf", "sumlogdiag"):
    enter(_op + "_of_odd_matrices", lambda mx, op=_op: of_odd_matrices(mx, op))


def triangular(mx, op):
    shapes = [(3, 3), (2, 3), (3, 2), (2, 3, 3)]
    pairs = [(REGULAR, np.ones(shape)) for shape in shapes]
    pairs += [([REGULAR, REGULAR], np.ones((2, 3, 3))), (SINGULAR, np.ones((3, 3))), (np.ones((2, 3)), np.ones((3, 3)))]
    hows = [{}, dict(transpose=True), dict(rightside=True)]
    hows.append(dict(transpose=True, rightside=True, lower=False, alpha=2.0))
    return results(*[lambda pair=pair, how=how: algebra(mx, op, *pair, **how) for pair in pairs for how in hows])


def diagonals(mx, op):
    values = [np.arange(1.0, 1 + np.prod(s)).reshape(s) for s in ((3, 3), (2, 3, 3), (2, 3), (3,), (6,), (1, 1), (4,))]
    return results(*[lambda v=v, k=k: algebra(mx, op, v, offset=k) for v in values for k in (-3, -2, 0, 2, 3)])


for _op in ("trsm", "trmm"):
    enter(_op + "_of_odd_matrices", lambda mx, op=_op: triangular(mx, op))
for _op in ("extractdiag", "extracttrian", "makediag", "maketrian"):
    enter(_op + "_at_offsets", lambda mx, op=_op: diagonals(mx, op))


@program
def products_of_matrices_that_do_not_fit(mx):
    calls = []
    for op, shapes in (("gemm2", [(2, 3), (3, 2)]), ("gemm", [(2, 3), (3, 2), (2, 2)]), ("syrk", [(2, 3)])):
        for given in (
            shapes,
            [(2, *shape) for shape in shapes],
            [shape[::-1] for shape in shapes],
            [shape[:1] for shape in shapes],
            [(i + 2, *shape) for i, shape in enumerate(shapes)],
        ):
            calls.append(lambda op=op, given=given: algebra(mx, op, *map(np.ones, given)))
    return results(*calls)


@program
def matrices_of_other_dtypes(mx):
    positive = [mx.nd.array([[2.0, 1.0], [1.0, 2.0]], dtype=dtype) for dtype in ("float16", "int32")]
    ops = [getattr(mx.nd.linalg, op) for op in ("potrf", "inverse", "det", "syevd")]
    return results(*[lambda op=op, x=x: op(x) for op in ops for x in positive])


case("_linalg_det", const([SINGULAR, REGULAR], "float64"))
case("_linalg_slogdet", const([SINGULAR, REGULAR], "float64"))
case("_linalg_trsm", const([[REGULAR, REGULAR]]), f(1, 2, 3, 2), transpose=True)

case("clip", const([0.2, 0.5, 0.7, 1.0, 1.5]), a_min=1.0, a_max=0.5)

# ---- indices ----

for _dtype in ("float16", "float32", "float64", "int32", "int64"):
    for _axis in (0, 1, -1):
        for _mode, _indices in (
            ("clip", [[-7, -1], [1, 9]]),
            ("wrap", [[-7, -1], [1, 9]]),
            ("raise", [[0, 1], [1, 0]]),
        ):
            case("take", f(3, 2, 2), const(_indices, _dtype), axis=_axis, mode=_mode, _grad=(0,))


@program
def take_beyond_the_data(mx):
    x = mx.nd.arange(6).reshape((3, 2))
    lists = [[0.5, 1.9], [-0.5], [2.5], [3], [-1], [-3], [-4], [100], [1e9], [-1e9]]
    calls = [lambda i=i, m=m: mx.nd.take(x, mx.nd.array(i), mode=m) for m in ("clip", "wrap", "raise") for i in lists]
    calls += [lambda axis=axis: mx.nd.take(x, mx.nd.array([0]), axis=axis) for axis in (2, -3)]
    return results(*calls, lambda: x.take(mx.nd.array([7, -2])), lambda: x.take(mx.nd.array([7, -2]), mode="wrap"))


@program
def other_indices_beyond_the_data(mx):
    x, beyond = mx.nd.arange(6).reshape((3, 2)), mx.nd.array([0, 5, -3])
    return results(
        lambda: mx.nd.batch_take(x, beyond.astype("int32")),
        lambda: mx.nd.pick(x, beyond),
        lambda: mx.nd.pick(x, beyond, mode="wrap"),
        lambda: mx.nd.one_hot(mx.nd.array([0, 5, -1, 2.7]), 3),
        lambda: mx.nd.Embedding(mx.nd.array([0, 9, -1]), x, input_dim=3, output_dim=2),
    )


def refuses(call):
    """Whether a call raises an IndexError, which any other error is not."""
    try:
        call().asnumpy()
    except IndexError:
        return True
    return False


@program
def gather_nd_on_both_sides_of_its_bounds(mx):
    x = mx.nd.arange(6).reshape((3, 2))
    inside = [[[0], [1]], [[-1], [-1]], [[-3], [-2]], [[1]], [[0.9], [0.9]], [[0, 1, 2]]]
    beyond = [[[3], [0]], [[0], [2]], [[-4], [0]], [[0], [-3]], [[100], [100]], [[0], [1.9]]]
    return [
        *results(*[lambda i=i: mx.nd.gather_nd(x, mx.nd.array(i)) for i in inside]),
        *results(lambda: mx.nd.gather_nd(mx.nd.arange(6), mx.nd.array([[0], [0]]))),
        *[refuses(lambda i=i: mx.nd.gather_nd(x, mx.nd.array(i))) for i in beyond],
    ]


@program
def scatter_nd_of_other_sizes(mx):
    return results(
        lambda: mx.nd.scatter_nd(mx.nd.array([5.0, 6.0]), mx.nd.array([[0, 2], [1, 0]]), shape=(3, 2)),
        lambda: mx.nd.scatter_nd(mx.nd.array([6.0, 6.0]), mx.nd.array([[1, 1], [1, 1]]), shape=(3, 2)),
        lambda: mx.nd.scatter_nd(mx.nd.ones((2, 2)), mx.nd.array([[0, 2]]), shape=(3, 2)),
        lambda: mx.nd.scatter_nd(mx.nd.ones((2, 3)), mx.nd.array([[0, 2]]), shape=(3, 2)),
        lambda: mx.nd.scatter_nd(mx.nd.ones((3,)), mx.nd.array([[0, 2], [0, 1]]), shape=(3, 2)),
    )


@program
def blocks_that_do_not_fit(mx):
    shapes = [((1, 4, 2, 2), size) for size in (-1, 0, 1, 2, 4)]
    shapes += [((1, 3, 2, 2), 2), ((1, 4, 3, 2), 2), ((4, 2, 2), 2), ((1, 9, 3, 3), 3)]
    ops = (mx.nd.depth_to_space, mx.nd.space_to_depth)
    return results(
        *[
            lambda op=op, shape=shape, size=size: op(mx.nd.arange(np.prod(shape)).reshape(shape), block_size=size)
            for op in ops
            for shape, size in shapes
        ]
    )


# ---- numbers beyond their dtype, and those that are none ----


@program
def integers_wrap_around(mx):
    nd = mx.nd
    functions = [lambda x, k=k: x + k for k in (200, 0.7, 300, 1e10)]
    functions += [lambda x, k=k: nd.full((2,), k, dtype=x.dtype) for k in (300, -1)]
    functions += [lambda x: x - 101, lambda x: x * 3, lambda x: 3 - x, lambda x: x / 2, lambda x: x * -1, lambda x: -x]
    functions += [lambda x: x + x, lambda x: x * x, lambda x: x**2, lambda x: x % 7, lambda x: x == 256]
    functions += [lambda x: x > 250, lambda x: x < 300, lambda x: nd.clip(x, 3, 300), lambda x: nd.maximum(x, 300)]
    functions += [
        nd.sum,
        nd.mean,
        nd.max,
        nd.sqrt,
        nd.exp,
        nd.cumsum,
        lambda x: nd.abs(x - 5),
        lambda x: nd.sign(x - 5),
    ]
    functions += [lambda x: nd.array([300, -1, 2.7], dtype=x.dtype), lambda x: nd.array([300.0, 2.7]).astype(x.dtype)]
    functions += [lambda x: nd.arange(254, 258, dtype=x.dtype), lambda x: nd.argmax(x, axis=0), lambda x: nd.dot(x, x)]
    arrays = [nd.array([0, 1, 100, 127], dtype=dtype) for dtype in ("uint8", "int8", "int32", "int64")]
    return results(*[lambda g=g, x=x: g(x) for x in arrays for g in functions])


@program
def numbers_written_into_integers(mx):
    found = []
    for dtype in ("uint8", "int8", "int32", "bool"):
        for value in (300, -1, 2.7, -2.7, True):
            x = mx.nd.zeros(4, dtype=dtype)
            x[0] = value
            x[1:3] = value
            y = mx.nd.zeros(2, dtype=dtype)
            y[:] = value
            found += [x, y]
    return found


@program
def comparisons_with_nan(mx):
    nd = mx.nd
    a, b = nd.array([np.nan, 1.0, np.nan]), nd.array([np.nan, np.nan, 1.0])
    return results(
        *[
            lambda g=g: g(a, b)
            for g in (nd.equal, nd.not_equal, nd.greater, nd.greater_equal, nd.lesser, nd.lesser_equal)
        ],
        *[lambda g=g: g(a, b) for g in (nd.maximum, nd.minimum, nd.broadcast_logical_and, nd.modulo)],
        *[lambda g=g: g(a, 0) for g in (nd.maximum, nd.minimum, nd.equal, nd.not_equal, nd.greater)],
        *[lambda g=g: g(a) for g in (nd.relu, nd.sign, nd.max, nd.min, nd.logical_not, nd.floor, nd.round, nd.nansum)],
        *[lambda g=g: g(a) for g in (nd.nanprod, nd.norm, nd.contrib.isnan, nd.contrib.isfinite, nd.LeakyReLU)],
        *[lambda g=g: g(a, axis=0) for g in (nd.argmax, nd.argmin)],
        lambda: nd.clip(a, 0, 2),
        lambda: nd.where(a, a, b),
        lambda: nd.contrib.isinf(a / 0),
    )
