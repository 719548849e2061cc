"""`mx.np.linalg`: linear algebra. Matrices are the last two dimensions."""

from __future__ import annotations

from typing import Any

from ..ndarray.ndarray import NDArray
from ..ops.np_linalg import ALL, FROBENIUS, GENERAL, MATRIX, NUCLEAR
from ..symbol import Symbol
from .call import call
from .fallback_linalg import cond, lstsq, matrix_power, matrix_rank, multi_dot, qr

__all__ = [
    "cholesky",
    "cond",
    "det",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "inv",
    "lstsq",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "svd",
    "tensorinv",
    "tensorsolve",
]


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """Norm of vectors (one axis) or matrices (two axes). Without `axis` and `ord`, the 2-norm of all elements.

    With only `ord`, an array of more than two dimensions is a batch of matrices. `"inf"` and `"-inf"` without an axis
    apply to all elements.
    """
    axis = (axis,) if isinstance(axis, int) else axis
    if ord is None:
        return _norm(x, 2, axis, keepdims, ALL if axis is None else FROBENIUS)
    if ord in ("fro", "nuc"):
        return _norm(x, 2, axis, keepdims, FROBENIUS if ord == "fro" else NUCLEAR)
    if ord in ("inf", "-inf"):
        return _norm(x, float(ord), axis, keepdims, ALL if axis is None else GENERAL)
    matrices = axis is not None and len(axis) == 2 and not isinstance(ord, str) and abs(ord) == 2
    return _norm(x, ord, axis, keepdims, MATRIX if matrices else GENERAL)


def _norm(x: Any, ord: Any, axis: Any, keepdims: bool, flag: int) -> Any:
    return call("_npi_norm", (x,), ord=ord, axis=axis, keepdims=keepdims, flag=flag)


def svd(a: Any) -> Any:
    """Singular value decomposition. Return U, L and V with A = U diag(L) V and descending L."""
    return _tuple(call("_npi_svd", (a,)))


def cholesky(a: Any) -> Any:
    """Return the lower triangular L with L L' = A, for symmetric positive definite matrices."""
    return call("_npi_cholesky", (a,))


def inv(a: Any) -> Any:
    """The inverse of square matrices."""
    return call("_npi_inv", (a,))


def det(a: Any) -> Any:
    """The determinant of square matrices."""
    return call("_npi_det", (a,))


def slogdet(a: Any) -> Any:
    """The sign of the determinant and the logarithm of its absolute value."""
    return call("_npi_slogdet", (a,))


def solve(a: Any, b: Any) -> Any:
    """Solve a x = b for x."""
    return call("_npi_solve", (a, b))


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """Solve tensordot(a, x, x.ndim) = b for x, after moving the axes `axes` of a to its end."""
    return call("_npi_tensorsolve", (a, b), a_axes=axes or ())


def tensorinv(a: Any, ind: int = 2) -> Any:
    """Return the inverse of a as a map from its last dimensions to the first `ind`."""
    return call("_npi_tensorinv", (a,), ind=ind)


def eig(a: Any) -> Any:
    """The eigenvalues, which must be real, and the eigenvectors as columns. As in MXNet, they have no gradient."""
    return _tuple(call("_npi_eig", (a,)))


def eigvals(a: Any) -> Any:
    """The eigenvalues, which must be real. As in MXNet, they have no gradient."""
    return call("_npi_eigvals", (a,))


def eigh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues and eigenvectors of symmetric matrices. As in MXNet, they have no gradient."""
    return _tuple(call("_npi_eigh", (a,), UPLO=UPLO))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """The eigenvalues of symmetric matrices. As in MXNet, they have no gradient."""
    return call("_npi_eigvalsh", (a,), UPLO=UPLO)


def pinv(a: Any, rcond: Any = 1e-15, hermitian: bool = False) -> Any:
    """The pseudoinverse. As in MXNet, it has no gradient."""
    if isinstance(rcond, (NDArray, Symbol)):
        return call("_npi_pinv", (a, rcond), hermitian=hermitian)
    return call("_npi_pinv_scalar_rcond", (a,), rcond=rcond, hermitian=hermitian)


def _tuple(results: Any) -> Any:
    return results if isinstance(results, Symbol) else tuple(results)
