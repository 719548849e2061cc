"""dot, batch_dot and nd.linalg."""

import numpy as np

from parity.spec import const, f, family, outcome

case, program = family(__name__)

# ---- dot and batch_dot ----

for a, b, ta, tb in [
    ((3, 4), (4, 2), False, False),
    ((4, 3), (4, 2), True, False),
    ((3, 4), (2, 4), False, True),
    ((4, 3), (2, 4), True, True),
    ((5,), (5,), False, False),
    ((1,), (1,), False, False),
    ((2, 3), (3,), False, False),
    ((2, 3), (3,), False, True),
    ((3, 2), (3,), True, False),
    ((3,), (3, 2), False, False),
    ((3,), (2, 3), False, True),
    ((3,), (3, 2), True, False),
    ((2, 3, 4), (4, 2), False, False),
    ((4, 2, 3), (4, 2), True, False),
    ((2, 3, 4), (2, 3, 4), False, True),
    ((4, 2, 3), (3, 2, 4), True, True),
    ((2, 3, 4), (4, 2, 3), False, False),
    ((2, 3, 4), (4,), False, False),
    ((4,), (4, 2, 3), False, False),
    ((1, 1), (1, 4), False, False),
]:
    case("dot", f(*a), f(*b), transpose_a=ta, transpose_b=tb)
case("dot", f(3, 4, dtype="float64"), f(4, 2, dtype="float64"))
case("dot", f(4, dtype="float64"), f(4, dtype="float64"))
case("dot", f(3, 4), f(4, 2), forward_stype="default")

for ta in (False, True):
    for tb in (False, True):
        a = (2, 4, 3) if ta else (2, 3, 4)
        b = (2, 2, 4) if tb else (2, 4, 2)
        case("batch_dot", f(*a), f(*b), transpose_a=ta, transpose_b=tb)
        case("_linalg_gemm2", f(*a), f(*b), transpose_a=ta, transpose_b=tb, alpha=0.5)
        case("_linalg_gemm", f(*a), f(*b), f(2, 3, 2), transpose_a=ta, transpose_b=tb, alpha=0.5, beta=-2.0)
case("batch_dot", f(2, 2, 3, 4), f(2, 2, 4, 2))
case("batch_dot", f(1, 3, 4, dtype="float64"), f(1, 4, 2, dtype="float64"))

# ---- products ----

case("_linalg_gemm", f(3, 4), f(4, 2), f(3, 2))
case("_linalg_gemm", f(3, 4, dtype="float64"), f(4, 2, dtype="float64"), f(3, 2, dtype="float64"), alpha=3.0)
case("_linalg_gemm", f(2, 2, 3, 4), f(2, 2, 4, 2), f(2, 2, 3, 2), alpha=2.0, beta=0.0)
case("_linalg_gemm", f(3, 2, 4), f(4, 2, 5), f(3, 2, 5), axis=0, alpha=2.0)
case("_linalg_gemm", f(2, 4, 2, 3), f(2, 5, 2, 4), f(2, 3, 2, 5), axis=1, transpose_a=True, transpose_b=True)
case("_linalg_gemm2", f(3, 4), f(4, 2))
case("_linalg_gemm2", f(3, 4, dtype="float64"), f(4, 2, dtype="float64"), alpha=-1.0)
case("_linalg_gemm2", f(3, 2, 4), f(4, 2, 5), axis=0)
case("_linalg_gemm2", f(3, 2, 4), f(5, 2, 4), axis=-3, transpose_b=True)
case("_linalg_gemm2", f(2, 3, 2, 4), f(2, 4, 2, 3), axis=1, alpha=2.0)
case("_linalg_gemm2", f(2, 3, 4), f(2, 4, 3), axis=1)
for transpose in (False, True):
    case("_linalg_syrk", f(2, 3), transpose=transpose)
    case("_linalg_syrk", f(2, 3, 2, dtype="float64"), transpose=transpose, alpha=0.5)

# ---- triangular: the other triangle holds numbers that must not matter, and its gradient is 0 ----

diagonal_heavy = [[1.5, 0.3, -0.2], [0.4, -1.2, 0.6], [-0.5, 0.1, 2.0]]
batch_heavy = [diagonal_heavy, [[2.0, 0.1, 0.9], [-0.3, 1.1, 0.2], [0.7, -0.4, 1.3]]]
for op in ("_linalg_trmm", "_linalg_trsm"):
    for transpose in (False, True):
        for lower in (True, False):
            case(op, const(diagonal_heavy), f(3, 2), transpose=transpose, lower=lower)
            case(op, const(diagonal_heavy), f(2, 3), transpose=transpose, lower=lower, rightside=True, alpha=-2.0)
    case(op, const(batch_heavy), f(2, 3, 4), alpha=0.5)
    case(op, const(batch_heavy, "float64"), f(2, 2, 3, dtype="float64"), rightside=True)

# ---- symmetric, positive definite ----

positive = (np.array(batch_heavy) @ np.array(batch_heavy).transpose(0, 2, 1)).round(3).tolist()
factor = [[1.5, 0, 0], [0.4, 1.2, 0], [-0.5, 0.1, 2.0]]
for dtype in ("float32", "float64"):
    case("_linalg_potrf", const(positive[0], dtype))
    case("_linalg_potri", const(factor, dtype))
    case("_linalg_sumlogdiag", const(positive[0], dtype))
case("_linalg_potrf", const(positive))  # the gradient divides by pivots in single precision
case("_linalg_potri", const(np.tril(positive).tolist()))
case("_linalg_sumlogdiag", const(positive))
case("_linalg_potrf", const([[4.0]]))
case("_linalg_syevd", const(positive[0], "float64"))
case("_linalg_syevd", const(positive[0]), _factor=4)  # its gradient divides by differences of eigenvalues
case("_linalg_syevd", const(positive, "float64"))
case(
    "_linalg_syevd",
    const([[2.0, -1.0, 0.5, 0.1], [-1.0, 1.0, 0.3, 0.2], [0.5, 0.3, -3.0, 0.7], [0.1, 0.2, 0.7, 0.4]], "float64"),
)

# ---- general matrices ----

for dtype in ("float32", "float64"):
    case("_linalg_gelqf", f(2, 3, dtype=dtype))
    case("_linalg_gelqf", f(3, 3, dtype=dtype))
    case("_linalg_inverse", const(diagonal_heavy, dtype))
    case("_linalg_det", const(diagonal_heavy, dtype))
    case("_linalg_slogdet", const(diagonal_heavy, dtype))
case("_linalg_gelqf", f(2, 2, 3, dtype="float64"))
for op in ("_linalg_inverse", "_linalg_det", "_linalg_slogdet"):
    case(op, const(batch_heavy))
    case(op, const([batch_heavy, batch_heavy[::-1]]))
case("_linalg_det", const([[1.0, 2.0], [2.0, 4.0]]))  # singular: the gradient is 0
case("_linalg_slogdet", const([[1.0, 2.0], [2.0, 4.0]]))

# ---- diagonals and triangles ----

for offset in (-2, -1, 0, 1, 2):
    case("_linalg_extractdiag", f(3, 3), offset=offset)
    case("_linalg_makediag", f(2), offset=offset)
    for lower in (True, False):
        case("_linalg_extracttrian", f(4, 4), offset=offset, lower=lower)
        case("_linalg_maketrian", f(6), offset=offset, lower=lower)
case("_linalg_extractdiag", f(2, 3, 3, dtype="float64"))
case("_linalg_makediag", f(2, 3, dtype="float64"), offset=1)
case("_linalg_extracttrian", f(2, 3, 3, dtype="float64"))
case("_linalg_maketrian", f(2, 2, 3, dtype="float64"), lower=False)


@program
def gaussian_log_likelihood(mx):
    """What nd.linalg is for: the likelihood under a full covariance, and its gradient."""
    root = mx.nd.array(diagonal_heavy)
    x = mx.nd.array([[0.3, -0.2, 0.5], [1.0, 0.1, -0.4]])
    root.attach_grad()
    x.attach_grad()
    with mx.autograd.record():
        covariance = mx.nd.linalg.syrk(root)
        L = mx.nd.linalg.potrf(covariance)
        z = mx.nd.linalg.trsm(L, x, transpose=True, rightside=True)
        z = z.reshape((-1,))
        value = -0.5 * mx.nd.dot(z, z) - 2 * mx.nd.linalg.sumlogdiag(L)
    value.backward()
    return [value, root.grad, x.grad, mx.nd.linalg_gemm2(L, L, transpose_b=True)]


@program
def what_dot_refuses(mx):
    def one(shape, dtype="float32"):
        return mx.nd.array(np.ones(shape), dtype=dtype)

    calls = [
        lambda: mx.nd.dot(one((2, 3)), one((4, 5))),
        lambda: mx.nd.dot(one((3,)), one((3,)), transpose_a=True),
        lambda: mx.nd.dot(one((3,)), one((4,))),
        lambda: mx.nd.dot(one((2, 3, 4)), one((3, 4))),
        lambda: mx.nd.dot(one((2, 3)), one((3, 2), dtype="float64")),
        lambda: mx.nd.dot(one((2, 3), dtype="int32"), one((3, 2), dtype="int32")),
        lambda: mx.nd.batch_dot(one((2, 3, 4)), one((1, 4, 5))),
        lambda: mx.nd.batch_dot(one((3, 4)), one((4, 5))),
        lambda: mx.nd.linalg.gemm2(one((2, 3, 3)), one((3, 3))),
        lambda: mx.nd.linalg.gemm2(one((3, 3)), one((3, 3)), axis=-1),
        lambda: mx.nd.linalg.gemm(one((2, 2)), one((2, 2)), one((1, 2))),
        lambda: mx.nd.linalg.potrf(-one((2, 2))),
        lambda: mx.nd.linalg.potrf(one((2, 3))),
        lambda: mx.nd.linalg.inverse(one((2, 2))),
        lambda: mx.nd.linalg.trsm(one((3, 3)), one((4, 3))),
        lambda: mx.nd.linalg.trmm(one((3, 3)), one((2, 3, 4))),
        lambda: mx.nd.linalg.gelqf(one((3, 2))),
        lambda: mx.nd.linalg.extractdiag(one((3, 3)), offset=3),
        lambda: mx.nd.linalg.extracttrian(one((3, 4))),
        lambda: mx.nd.linalg.maketrian(one((5,))),
    ]
    return [outcome(lambda call=call: call().asnumpy().shape) for call in calls]
