"""Linear algebra of `mx.np.linalg`. Matrices are the last two dimensions; leading dimensions are batch dimensions."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch

from ..base import MXNetError
from .linalg import check_floats, check_square, potrf
from .np_reduce import np_axes
from .reduce import extreme
from .table import Axis, Shape, Types, op, typed

Tensor = torch.Tensor


# ---- norms ----

ALL, GENERAL, MATRIX, FROBENIUS, NUCLEAR = -2, -1, 0, 1, 2  # the values of MXNet's attribute `flag`


@op("_npi_norm", outputs=4, visible=1)
def np_norm(
    data: Tensor, *, ord: float = 2.0, axis: Axis = None, keepdims: bool = False, flag: int = GENERAL
) -> Tensor:
    """Vector norm along one axis, or matrix norm over two. `flag` selects norms that `ord` cannot express."""
    axes, matrices = _norm_axes(data, axis, flag)
    if not matrices:
        if flag == NUCLEAR:
            raise MXNetError("the nuclear norm expects a matrix")
        return _vector_norm(data, 2.0 if flag == FROBENIUS else ord, axes, keepdims)
    if flag == FROBENIUS:
        return _vector_norm(data, 2.0, axes, keepdims)
    if flag == NUCLEAR or abs(ord) == 2:
        values = torch.linalg.svdvals(data.movedim(axes, (-2, -1)))
        norm = values.sum(-1) if flag == NUCLEAR else _outermost(values, ord > 0)
    elif abs(ord) in (1, math.inf):
        rows, columns = axes if abs(ord) == 1 else axes[::-1]
        sums = data.abs().sum(rows, keepdim=True, dtype=data.dtype)
        norm = extreme(sums, (columns,), True, ord > 0).squeeze(axes)
    else:
        raise MXNetError(f"expected ord of a matrix norm to be 1, 2, inf, their negatives, 'fro' or 'nuc', got {ord:g}")
    return norm.reshape([1 if i in axes else n for i, n in enumerate(data.shape)]) if keepdims else norm


def _norm_axes(data: Tensor, axis: tuple[int, ...] | None, flag: int) -> tuple[tuple[int, ...], bool]:
    """Return the axes of a norm, and whether they form matrices. The default is the last two axes, or all for ALL."""
    rank = data.dim()
    if axis is None and (flag == ALL or rank < 2):
        return tuple(range(rank)), False
    if axis is None:
        return (rank - 2, rank - 1), True
    if not 1 <= len(axis) <= 2:
        raise MXNetError(f"expected 1 or 2 axes, got {axis}")
    axes = tuple(i % rank for i in np_axes(data, axis))
    return axes, len(axes) == 2


def _vector_norm(data: Tensor, ord: float, axes: tuple[int, ...], keepdims: bool) -> Tensor:
    if abs(ord) == math.inf:
        return extreme(data.abs(), axes, keepdims, ord > 0) if axes else data.abs()
    wide = data if data.is_floating_point() else data.double()
    return (torch.linalg.vector_norm(wide, ord, axes, keepdims) if axes else wide.abs()).to(data.dtype)


def _outermost(values: Tensor, largest: bool) -> Tensor:
    """Return the largest or smallest of descending singular values, or 0 if there are none."""
    if not values.shape[-1]:
        return values.sum(-1)
    return values[..., 0] if largest else values[..., -1]


# ---- factorizations ----


def _signs(vectors: Tensor, dim: int) -> Tensor:
    """Return the signs that make each vector's largest element positive: MXNet's choice where the sign is arbitrary."""
    if not vectors.numel():
        return vectors.detach().sum(dim, keepdim=True)
    largest = vectors.detach().abs().argmax(dim, keepdim=True)
    return torch.where(vectors.detach().gather(dim, largest) < 0, -1, 1).to(vectors.dtype)


@op("_npi_svd", outputs=3)
def np_svd(A: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The reduced SVD A = U diag(L) V, with L descending. The largest element of each row of V is positive."""
    check_floats(A)
    u, values, v = torch.linalg.svd(A, full_matrices=False)
    signs = _signs(v, -1)
    return u * signs.mT, values, v * signs


@op("_npi_cholesky")
def np_cholesky(A: Tensor) -> Tensor:
    """The lower triangular L with L L' = A, for symmetric, positive definite matrices."""
    return potrf(A)


# ---- eigenvalues, without gradients as in MXNet ----


def _solved_dtype(*dtypes: torch.dtype | None) -> torch.dtype | None:
    """Return the dtype of a solution: the widest float dtype, or float64 if an input has an integer dtype."""
    if None in dtypes:
        return None
    floats = [each for each in dtypes if each.is_floating_point]  # type: ignore[union-attr]
    return torch.float64 if len(floats) < len(dtypes) or torch.float64 in floats else floats[0]


def _solved_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [_solved_dtype(*types)] * 2


def _one_solved_type(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [_solved_dtype(*types)]


def _square(a: Tensor) -> Tensor:
    wide = a.detach().to(_solved_dtype(a.dtype))
    check_square(wide)
    return wide


def _real(values: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    if values.is_complex():
        if not values.is_meta and bool((values.imag.abs() > 1e-15).any()):
            raise MXNetError("the matrix has complex eigenvalues, but arrays can only hold real values")
        return values.real.contiguous(), vectors.real.contiguous()
    return values, vectors


@op("_npi_eig", outputs=2, types=_solved_types)
def np_eig(A: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues and, as columns, the eigenvectors of matrices whose eigenvalues are real."""
    return _real(*torch.linalg.eig(_square(A)))


@op("_npi_eigvals", types=_one_solved_type)
def np_eigvals(A: Tensor) -> Tensor:
    """The eigenvalues of matrices whose eigenvalues are real."""
    return np_eig(A)[0]


@op("_npi_eigh", outputs=2, types=_solved_types)
def np_eigh(A: Tensor, *, UPLO: Literal["L", "U"] = "L") -> tuple[Tensor, Tensor]:
    """The ascending eigenvalues and the eigenvectors, as columns, of symmetric matrices. Only one triangle is read."""
    values, vectors = torch.linalg.eigh(_square(A), UPLO)
    return values, vectors * _signs(vectors, -2)


@op("_npi_eigvalsh", types=_one_solved_type)
def np_eigvalsh(A: Tensor, *, UPLO: Literal["L", "U"] = "L") -> Tensor:
    """The ascending eigenvalues of symmetric matrices. Only one triangle is read."""
    return torch.linalg.eigvalsh(_square(A), UPLO)


# ---- linear equations and inverses ----


@op("_npi_solve", types=_one_solved_type)
def np_solve(A: Tensor, B: Tensor) -> Tensor:
    """Solve A X = B for X. B is a batch of vectors if it has one dimension fewer than A."""
    dtype = _solved_dtype(A.dtype, B.dtype)
    a, b = A.to(dtype), B.to(dtype)
    check_square(a)
    if b.dim() != a.dim() - 1:
        return torch.linalg.solve(a, b)
    return torch.linalg.solve(a, b.unsqueeze(-1)).squeeze(-1)


@op("_npi_tensorsolve", types=_one_solved_type)
def np_tensorsolve(a: Tensor, b: Tensor, *, a_axes: Shape = ()) -> Tensor:
    """Solve tensordot(a, x, x.ndim) = b for x, after moving the dimensions `a_axes` of a to its end."""
    for axis in a_axes:
        a = a.movedim(axis, -1)
    shape = a.shape[b.dim() :]
    if a.numel() != math.prod(shape) ** 2 or b.numel() != math.prod(shape):
        raise MXNetError("expected a to be square: b and the result must have equal numbers of elements")
    return np_solve(a.reshape(b.numel(), b.numel()), b.reshape(-1)).reshape(shape)


@op("_npi_tensorinv", types=_one_solved_type)
def np_tensorinv(a: Tensor, *, ind: int = 2) -> Tensor:
    """The inverse of a as a linear map from its last dimensions to its first `ind` dimensions."""
    rows, columns = a.shape[: max(ind, 0)], a.shape[max(ind, 0) :]
    if ind < 1 or math.prod(rows) != math.prod(columns):
        raise MXNetError("expected a positive ind, and as many elements in the first ind dimensions as in the rest")
    wide = a.to(_solved_dtype(a.dtype))
    return torch.linalg.inv(wide.reshape(math.prod(rows), -1)).reshape((*columns, *rows))


@op("_npi_pinv", types=typed([0], [None, 0]))
def np_pinv(A: Tensor, rcond: Tensor, *, hermitian: bool = False) -> Tensor:
    """The pseudoinverse. Singular values up to `rcond` times the largest are treated as 0. It has no gradient."""
    check_floats(A)
    return torch.linalg.pinv(A.detach(), rtol=rcond.detach().to(A.dtype), hermitian=hermitian)


@op("_npi_pinv_scalar_rcond")
def np_pinv_scalar_rcond(A: Tensor, *, rcond: float = 1e-15, hermitian: bool = False) -> Tensor:
    """The pseudoinverse. Singular values up to `rcond` times the largest are treated as 0. It has no gradient."""
    check_floats(A)
    return torch.linalg.pinv(A.detach(), rtol=rcond, hermitian=hermitian)
