"""Matrix products and the linear algebra of `nd.linalg`.

The matrices of `_linalg_` ops are the last two dimensions. Leading dimensions are batch dimensions and must be equal
for all inputs. Only the triangle of a triangular input is read and receives a gradient.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from ..base import MXNetError, modes
from .shape import never_0d
from .shapes import Shapes, is_known
from .table import op

Tensor = torch.Tensor
StorageType = Literal["csr", "default", "row_sparse"]

# ---- dot and batch_dot ----


@op("dot", same_dtype=True)
def dot(
    lhs: Tensor,
    rhs: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: StorageType | None = None,
) -> Tensor:
    """Sum over the last dimension of lhs and the first of rhs. Transposing swaps the first and last dimensions."""
    check_floats(lhs)
    if lhs.dim() == 2 and rhs.dim() == 2:
        return torch.mm(lhs.t() if transpose_a else lhs, rhs.t() if transpose_b else rhs)
    if lhs.dim() == 1 and rhs.dim() == 1:
        if transpose_a or transpose_b:
            raise MXNetError("expected no transpose_a or transpose_b for two vectors")
        return torch.dot(lhs, rhs).reshape(1)
    left = 0 if transpose_a else -1
    right = -1 if transpose_b else 0
    if lhs.shape[left] != rhs.shape[right]:
        raise MXNetError(
            f"expected equal sizes of dimension {left} of lhs and {right} of rhs, "
            f"got {lhs.shape[left]} and {rhs.shape[right]}"
        )
    return torch.tensordot(lhs, rhs, dims=([left], [right]))


@op("batch_dot", "_npx_batch_dot", same_dtype=True)
def batch_dot(
    lhs: Tensor,
    rhs: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    forward_stype: StorageType | None = None,
) -> Tensor:
    """Matrix products of two batches of matrices."""
    check_floats(lhs)
    if lhs.dim() < 3:
        raise MXNetError(f"expected arrays with at least 3 dimensions, got {lhs.dim()}")
    _check_batches(lhs, rhs)
    return torch.matmul(lhs.mT if transpose_a else lhs, rhs.mT if transpose_b else rhs)


def check_floats(data: Tensor) -> None:
    """Raise unless `data` has a floating-point dtype."""
    if not data.is_floating_point():
        raise MXNetError("expected arrays of floats. Use astype('float32')")


def _check_batches(a: Tensor, b: Tensor) -> None:
    if a.dim() < 2 or a.shape[:-2] != b.shape[:-2]:
        raise MXNetError(
            "expected matrices with the same batch shape, "
            f"got {tuple(a.shape[:-2])} with {a.dim()} and {tuple(b.shape[:-2])} with {b.dim()} dimensions"
        )


def check_square(a: Tensor) -> None:
    """Raise unless `a` is a batch of square floating-point matrices."""
    check_floats(a)
    if a.dim() < 2 or a.shape[-1] != a.shape[-2]:
        raise MXNetError(f"expected square matrices, got shape {tuple(a.shape)}")


# ---- general matrix products ----


def _rows_at(a: Tensor, axis: int) -> Tensor:
    """Move dimension `axis`, which holds the rows of the matrices, next to the columns."""
    if not -a.dim() <= axis < a.dim() or axis in (-1, a.dim() - 1):
        raise MXNetError(f"expected axis to be one of {a.dim()} dimensions, but not the last, got {axis}")
    return a if axis in (-2, a.dim() - 2) else a.movedim(axis, -2)


def _product_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Infer that C has the shape of the product A B."""
    a, b, c = shapes
    if a is None or b is None or attrs["axis"] not in (-2, len(a) - 2):
        return shapes
    product = (*a[:-2], a[-1 if attrs["transpose_a"] else -2], b[-2 if attrs["transpose_b"] else -1])
    return [a, b, product] if is_known(product) else ([a, b, c or product], [product])


@op("_linalg_gemm", "linalg_gemm", same_dtype=True, infer=_product_shapes)
def gemm(
    A: Tensor,
    B: Tensor,
    C: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    beta: float = 1.0,
    axis: int = -2,
) -> Tensor:
    """alpha * A B + beta * C. The rows of the matrices are on dimension `axis`, the columns on the last."""
    a, b, c = (_rows_at(x, axis) for x in (A, B, C))
    check_floats(a)
    _check_batches(a, b)
    a, b = a.mT if transpose_a else a, b.mT if transpose_b else b
    if c.shape != (*a.shape[:-1], b.shape[-1]):
        raise MXNetError(f"expected C to have the product's shape, {(*a.shape[:-1], b.shape[-1])} with rows at -2")
    if c.dim() == 2:
        result = torch.addmm(c, a, b, beta=beta, alpha=alpha)
    else:
        flat = (x.reshape(-1, *x.shape[-2:]) for x in (c, a, b))
        result = torch.baddbmm(*flat, beta=beta, alpha=alpha).reshape(c.shape)
    return result if c is C else result.movedim(-2, axis)


@op("_linalg_gemm2", "linalg_gemm2", same_dtype=True)
def gemm2(
    A: Tensor,
    B: Tensor,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    alpha: float = 1.0,
    axis: int = -2,
) -> Tensor:
    """alpha * A B. The rows of the matrices are on dimension `axis`, the columns on the last."""
    a, b = _rows_at(A, axis), _rows_at(B, axis)
    check_floats(a)
    _check_batches(a, b)
    result = _scale(torch.matmul(a.mT if transpose_a else a, b.mT if transpose_b else b), alpha)
    return result if a is A else result.movedim(-2, axis)


def _scale(product: Tensor, alpha: float) -> Tensor:
    return product if alpha == 1.0 else product * alpha


@op("_linalg_syrk", "linalg_syrk")
def syrk(A: Tensor, *, transpose: bool = False, alpha: float = 1.0) -> Tensor:
    """alpha * A A', or alpha * A' A with `transpose`."""
    check_floats(A)
    return _scale(torch.matmul(A.mT, A) if transpose else torch.matmul(A, A.mT), alpha)


# ---- triangular matrices ----


@op("_linalg_trmm", "linalg_trmm", same_dtype=True)
def trmm(
    A: Tensor, B: Tensor, *, transpose: bool = False, rightside: bool = False, lower: bool = True, alpha: float = 1.0
) -> Tensor:
    """alpha * A B, or alpha * B A with `rightside`, for a triangular A."""
    check_square(A)
    _check_batches(A, B)
    a = A.tril() if lower else A.triu()
    a = a.mT if transpose else a
    return _scale(torch.matmul(B, a) if rightside else torch.matmul(a, B), alpha)


@op("_linalg_trsm", "linalg_trsm", same_dtype=True)
def trsm(
    A: Tensor, B: Tensor, *, transpose: bool = False, rightside: bool = False, lower: bool = True, alpha: float = 1.0
) -> Tensor:
    """Solve A X = alpha * B or, with `rightside`, X A = alpha * B for X, for a triangular A."""
    check_square(A)
    _check_batches(A, B)
    a, upper = (A.mT, lower) if transpose else (A, not lower)
    return torch.linalg.solve_triangular(a, _scale(B, alpha), upper=upper, left=not rightside)


@op("_linalg_potrf", "linalg_potrf")
def potrf(A: Tensor) -> Tensor:
    """The Cholesky factor: the lower triangular L with L L' = A, for a symmetric positive definite A."""
    check_square(A)
    factor, failed = torch.linalg.cholesky_ex(A)
    if not A.is_meta and bool(failed.any()):
        unknown = A.isnan().flatten(-2).any(-1)
        if bool((failed.bool() & ~unknown).any()):
            raise MXNetError("expected symmetric positive definite matrices")
        factor = torch.where(unknown[..., None, None], torch.full_like(factor, math.nan).tril(), factor)
    return factor


@op("_linalg_potri", "linalg_potri")
def potri(A: Tensor) -> Tensor:
    """The inverse of A A' for a lower triangular Cholesky factor A."""
    check_square(A)
    return torch.cholesky_inverse(A.tril())


# ---- factorizations ----


@op("_linalg_gelqf", "linalg_gelqf", outputs=2)
def gelqf(A: Tensor) -> tuple[Tensor, Tensor]:
    """The factorization A = L Q, as Q with orthonormal rows and lower triangular L."""
    check_floats(A)
    if A.dim() < 2 or A.shape[-2] > A.shape[-1]:
        raise MXNetError(f"expected matrices with no more rows than columns, got shape {tuple(A.shape)}")
    q, r = torch.linalg.qr(A.mT)
    return q.mT, r.mT


@op("_linalg_syevd", outputs=2)
def syevd(A: Tensor) -> tuple[Tensor, Tensor]:
    """The eigendecomposition A = U' diag(L) U of a symmetric A: U with eigenvectors as rows, and ascending values L."""
    check_square(A)
    values, vectors = torch.linalg.eigh(A)
    # The sign of an eigenvector is arbitrary; MXNet makes the largest element positive.
    largest = vectors.detach().abs().argmax(dim=-2, keepdim=True)
    signs = vectors.detach().gather(-2, largest).sign()
    return (vectors * signs).mT, values


# ---- inverse and determinant ----


@op("_linalg_inverse", "linalg_inverse", "_npi_inv")
def inverse(A: Tensor) -> Tensor:
    """The inverse of square matrices."""
    check_square(A)
    return torch.linalg.inv(A)


@op("_linalg_det", "linalg_det", "_npi_det", outputs=3, visible=1)
def det(A: Tensor) -> Tensor:
    """The determinant of square matrices."""
    check_square(A)
    return _for_mode(torch.linalg.det(A))


@op("_linalg_slogdet", "linalg_slogdet", "_npi_slogdet", outputs=4, visible=2)
def slogdet(A: Tensor) -> tuple[Tensor, Tensor]:
    """The sign of the determinant and the logarithm of its absolute value."""
    check_square(A)
    sign, logarithm = torch.linalg.slogdet(A)
    if logarithm.requires_grad:
        singular = sign == 0
        if singular.any():  # MXNet's gradient there is 0, not infinite
            one = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
            regular = torch.linalg.slogdet(torch.where(singular[..., None, None], one, A))
            logarithm = torch.where(singular, -math.inf, regular.logabsdet)
    return _for_mode(sign), _for_mode(logarithm)


def _for_mode(result: Tensor) -> Tensor:
    """Return `result` with at least one dimension, except in NumPy mode."""
    return result if modes.np_shape else never_0d(result)


@op("_linalg_sumlogdiag", "linalg_sumlogdiag")
def sumlogdiag(A: Tensor) -> Tensor:
    """The sum of the logarithms of the diagonal."""
    check_square(A)
    return never_0d(A.diagonal(dim1=-2, dim2=-1).log().sum(-1))


# ---- diagonals and triangles as vectors ----


@op("_linalg_extractdiag", "linalg_extractdiag", may_alias=True)
def extractdiag(A: Tensor, *, offset: int = 0) -> Tensor:
    """The main diagonal of square matrices, or the diagonal `offset` above it."""
    check_square(A)
    _check_offset(A, offset)
    return A.diagonal(offset, -2, -1)


@op("_linalg_makediag", "linalg_makediag")
def makediag(A: Tensor, *, offset: int = 0) -> Tensor:
    """Square matrices with the given diagonals, `offset` above the main one, and 0 elsewhere."""
    check_floats(A)
    return torch.diag_embed(A, offset)


def _triangle(size: int, offset: int, lower: bool, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return rows and columns of the elements of a triangle in MXNet's packed order.

    A lower triangle is packed by rows, an upper one by columns. The triangle starts at diagonal `offset` and extends
    away from the main diagonal. At offset 0, `lower` determines the direction.
    """
    first, second = torch.tril_indices(size, size, -abs(offset), device=device)
    return (first, second) if offset < 0 or (offset == 0 and lower) else (second, first)


@op("_linalg_extracttrian", "linalg_extracttrian")
def extracttrian(A: Tensor, *, offset: int = 0, lower: bool = True) -> Tensor:
    """The elements of a triangle of square matrices as vectors, in MXNet's packed order."""
    check_square(A)
    _check_offset(A, offset)
    rows, columns = _triangle(A.shape[-1], offset, lower, A.device)
    return A[..., rows, columns]


@op("_linalg_maketrian", "linalg_maketrian")
def maketrian(A: Tensor, *, offset: int = 0, lower: bool = True) -> Tensor:
    """Square matrices with the given vectors in a triangle, and 0 elsewhere. The inverse of extracttrian."""
    check_floats(A)
    length = A.shape[-1]
    side = (math.isqrt(8 * length + 1) - 1) // 2
    if side * (side + 1) // 2 != length:
        raise MXNetError(f"expected vectors of 1, 3, 6, 10, ... elements, which fill a triangle, got {length}")
    size = side + abs(offset)
    rows, columns = _triangle(size, offset, lower, A.device)
    result = A.new_zeros(*A.shape[:-1], size, size)
    result[..., rows, columns] = A
    return result


def _check_offset(a: Tensor, offset: int) -> None:
    if abs(offset) >= a.shape[-1]:
        raise MXNetError(f"expected an offset between {1 - a.shape[-1]} and {a.shape[-1] - 1}, got {offset}")
