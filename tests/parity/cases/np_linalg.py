"""Linear algebra of mx.np."""

from ..spec import const, f, family

case, program = family(__name__)

DEFINITE = const([[4, 1], [1, 3]])
for ord in (None, 1, 2, 3, 0, 0.5, -1, -2, "inf", "-inf", "fro"):
    case.np("np.linalg.norm", f(3), ord=ord)
    case.np("np.linalg.norm", f(2, 3, 4), ord=ord, axis=1)
    case.np("np.linalg.norm", f(2, 3), ord=ord, axis=-1, keepdims=True)
for ord in (None, "fro", "nuc"):
    case.np("np.linalg.norm", f(2, 3), ord=ord)
for ord in (None, "fro", "nuc", 1, -1):
    case.np("np.linalg.norm", f(2, 3), ord=ord, axis=(0, 1), keepdims=True)
for ord in (None, "fro", "nuc"):
    case.np("np.linalg.norm", f(2, 3, 4), ord=ord, axis=(0, 2))
    case.np("np.linalg.norm", f(2, 3, 4), ord=ord)
for ord in (1, -1, 2, -2, float("inf"), -float("inf")):  # MXNet's gradients square those of the result
    case.np("np.linalg.norm", f(2, 3), ord=ord, _grad=False)
for ord in (1, 2):
    case.np("np.linalg.norm", f(2, 3, 4), ord=ord, _grad=False)
    case.np("np.linalg.norm", f(2, 3, 4), ord=ord, axis=(1, 2), _grad=False)
for ord in ("inf", "-inf"):
    case.np("np.linalg.norm", f(2, 3), ord=ord)
case.np("np.linalg.norm", f())
case.np("np.linalg.norm", f(0))
case.np("np.linalg.norm", f(0, 3), axis=1)
case.np("np.linalg.norm", f(2, 3), keepdims=True)
case.np("np.linalg.norm", f(3, dtype="float64"))
case.np("np.linalg.norm", f(3, dtype="float16"))
for shape in ((2, 3), (3, 3), (2, 2, 3), (0, 3)):
    case.np("np.linalg.svd", f(*shape), _factor=64)  # gradients divide by differences of singular values
case.np("np.linalg.svd", f(2, 3, dtype="float64"), _factor=64)
for matrix in (DEFINITE, const([[4, 2], [1, 3]]), const([[[4, 1], [1, 3]], [[2, 0], [0, 1]]], "float64"), f(0, 0)):
    case.np("np.linalg.cholesky", matrix)
for matrix in (DEFINITE, f(2, 3, 3), f(3, 3, dtype="float64"), f(0, 0), f(0, 2, 2)):
    case.np("np.linalg.inv", matrix, _factor=64)  # of matrices that are nearly singular
for matrix in (DEFINITE, f(3, 3), f(2, 3, 3), f(0, 2, 2), f(3, 3, dtype="float64")):
    case.np("np.linalg.det", matrix)
    case.np("np.linalg.slogdet", matrix, _factor=64)
case.np("np.linalg.slogdet", const([[1, 2], [2, 4]]))
case.np("np.linalg.det", const([[1, 2], [2, 4]]))
for a, b in (((3, 3), (3, 2)), ((2, 3, 3), (2, 3, 2))):
    case.np("np.linalg.solve", f(*a), f(*b), _factor=64)
for a, b in (((0, 0), (0, 2)), ((0, 2, 2), (0, 2, 1))):
    case.np("np.linalg.solve", f(*a), f(*b), _grad=False)
case.np("np.linalg.solve", f(3, 3), f(3), _grad=False, _factor=64)
case.np("np.linalg.solve", f(2, 3, 3), f(2, 3), _grad=False, _factor=64)
case.np("np.linalg.solve", const([[4, 1], [1, 3]], "int32"), const([1, 2], "int32"))
case.np("np.linalg.solve", const([[4, 1], [1, 3]], "float64"), const([1, 2]), _grad=False)
case.np("np.linalg.solve", DEFINITE, const([1, 2], "int32"), _grad=False)
case.np("np.linalg.tensorinv", f(6, 2, 3), ind=1, _factor=512)  # nearly singular
case.np("np.linalg.tensorinv", f(4, 6, 8, 3), ind=2, _factor=512)
case.np("np.linalg.tensorinv", f(2, 2, 2, 2), _grad=False, _factor=64)
case.np("np.linalg.tensorsolve", f(2, 3, 6), f(2, 3), _factor=512)
case.np("np.linalg.tensorsolve", f(2, 6, 3), f(2, 3), axes=(1,), _factor=512)
case.np("np.linalg.tensorsolve", f(6, 4, 2, 3, 4), f(6, 4), _factor=512)
case.np("np.linalg.tensorsolve", const([[4, 1], [1, 3]], "int64"), const([1, 2], "int64"))
for dtype in ("float32", "float64", "int32"):
    symmetric = const([[2, 1, 0], [1, 3, 1], [0, 1, 5]], dtype)
    case.np("np.linalg.eigvals", const([[2, 1], [0, 3]], dtype))
    case.np("np.linalg.eigh", symmetric)
    case.np("np.linalg.eigh", const([[2, 1, 0], [7, 3, 1], [5, 8, 5]], dtype), UPLO="U")
    case.np("np.linalg.eigvalsh", symmetric)
    case.np("np.linalg.eigvalsh", const([[2, 1], [5, 3]], dtype), UPLO="U")
case.np("np.linalg.eigh", f(2, 3, 3), _factor=8)
case.np("np.linalg.eigh", f(0, 0))
case.np("np.linalg.eigvalsh", f(2, 3, 3))
case.np("np.linalg.eig", f(0, 0))
for shape in ((2, 3), (3, 2), (2, 2, 3), (0, 3)):
    case.np("np.linalg.pinv", f(*shape), _factor=64)
case.np("np.linalg.pinv", const([[3, 0, 0], [0, 1, 0]]), rcond=0.5)
case.np("np.linalg.pinv", const([[3, 0, 0], [0, 1, 0]]), rcond=const(0.5))
case.np("np.linalg.pinv", const([[[3, 0], [0, 1]], [[3, 0], [0, 2]]], "float64"), rcond=const([0.5, 0.5], "float64"))


@program
def np_eigenvectors(mx):
    # A v = lambda v: the signs of vectors are LAPACK's.
    mx.npx.set_np()
    try:
        results = []
        for dtype in ("float32", "float64", "int32"):
            a = mx.np.array([[[2, 1], [0, 3]], [[1, 4], [1, 1]]], dtype=dtype)
            values, vectors = mx.np.linalg.eig(a)
            rest = mx.np.matmul(a.astype(values.dtype), vectors) - mx.np.einsum("bij,bj->bij", vectors, values)
            norms = (vectors * vectors).sum(axis=1)
            results += [mx.np.array(sorted(values[i].tolist())) for i in range(2)] + [abs(rest) < 1e-5, norms]
        return results
    finally:
        mx.npx.reset_np()


@program
def np_linalg_of_numpy(mx):
    mx.npx.set_np()
    try:
        linalg = mx.np.linalg
        a = mx.np.array([[4, 1], [1, 3], [2, 2]], dtype="float32")
        square = a[:2]
        q, r = linalg.qr(a)
        x, rest, rank, values = linalg.lstsq(a, mx.np.array([1, 2, 3], dtype="float32"), rcond=None)
        results = [mx.np.dot(q, r), linalg.cond(square), linalg.matrix_rank(a), linalg.matrix_power(square, 3)]
        results += [linalg.multi_dot([a, square, square]), x, rest, rank, values]
        return [result if hasattr(result, "asnumpy") else float(result) for result in results]
    finally:
        mx.npx.reset_np()
