"""Array creation ops of `mx.np`, triangles and diagonals."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..base import MXNetError
from .creation import diagonal_ones, linspace, number, progression
from .table import FILLED_IN, Ctx, DType, Shape, Shapes, Types, op, typed

Tensor = torch.Tensor
_FLOAT = torch.float32


def _like_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    return types, [attrs["dtype"] or types[0]]


@op("_npi_full_like", infer="same", types=_like_types)
def np_full_like(a: Tensor, *, fill_value: float, ctx: Ctx = FILLED_IN, dtype: DType | None = None) -> Tensor:
    """An array with the shape of `a`, filled with `fill_value`."""
    if a.dtype is _FLOAT and dtype is None and a.is_contiguous():  # fast path for the common case
        return torch.ones_like(a) if fill_value == 1 else torch.full_like(a, fill_value)
    value = number(fill_value, dtype or a.dtype)
    return torch.full_like(a, value, dtype=dtype, memory_format=torch.contiguous_format)


@op("_npi_arange")
def np_arange(
    *,
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    ctx: Ctx = FILLED_IN,
    dtype: DType = _FLOAT,
) -> Tensor:
    """Values from `start` up to, but not including, `stop`. Without `stop`, the values run from 0 to `start`."""
    if stop is None:
        start, stop = 0.0, start
    if step == 0:
        raise MXNetError("expected a nonzero step")
    count = max(math.ceil((stop - start) / step), 0)
    return progression(count * repeat, start, step, repeat, dtype, ctx.device)


@op("_npi_logspace")
def np_logspace(
    *,
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    base: float = 10.0,
    ctx: Ctx = FILLED_IN,
    dtype: DType = _FLOAT,
) -> Tensor:
    """Powers of `base` whose exponents are evenly spaced from `start` to `stop`."""
    exponents = linspace(start=start, stop=stop, num=num, endpoint=endpoint, dtype=torch.float64, ctx=ctx)
    return torch.pow(base, exponents).to(dtype)


@op("_npi_eye")
def np_eye(*, N: int, M: int | None = None, k: int = 0, ctx: Ctx = FILLED_IN, dtype: DType = _FLOAT) -> Tensor:
    """An N x M matrix (N x N without M) of zeros with ones on the k-th diagonal."""
    return diagonal_ones(N, N if M is None else M, k, dtype, ctx.device)


@op("_npi_identity")
def np_identity(*, shape: Shape = (), ctx: Ctx = FILLED_IN, dtype: DType = _FLOAT) -> Tensor:
    """The identity matrix."""
    rows, columns = shape
    return diagonal_ones(rows, columns, 0, dtype, ctx.device)


@op("_npi_indices")
def np_indices(*, dimensions: Shape, dtype: DType = torch.int32, ctx: Ctx = FILLED_IN) -> Tensor:
    """The indices along each dimension of a grid with the shape `dimensions`, stacked."""
    if not dimensions:
        return torch.empty(0, dtype=dtype, device=ctx.device)
    lines = [torch.arange(length, dtype=dtype, device=ctx.device) for length in dimensions]
    return torch.stack(torch.meshgrid(*lines, indexing="ij"))


def _window(name: str, numbers: Any) -> None:
    @op(f"_npi_{name}")
    def window(*, M: int | None = None, ctx: Ctx = FILLED_IN, dtype: DType = _FLOAT) -> Tensor:
        if M is None:
            raise MXNetError("missing argument M")
        count = max(M, 0)
        if count < 2:
            return torch.ones(count, dtype=dtype, device=ctx.device)
        angles = torch.arange(count, dtype=torch.float64, device=ctx.device) * (2 * math.pi / (count - 1))
        return numbers(angles).to(dtype)  # type: ignore[no-any-return]

    window.__doc__ = f"The {name.capitalize()} window of M points."


_window("hanning", lambda angles: 0.5 - 0.5 * angles.cos())
_window("hamming", lambda angles: 0.54 - 0.46 * angles.cos())
_window("blackman", lambda angles: 0.42 - 0.5 * angles.cos() + 0.08 * (2 * angles).cos())


# ---- triangles and diagonals ----


@op("_npi_tril", may_alias=True)
def np_tril(data: Tensor, *, k: int = 0) -> Tensor:
    """Zero the elements above the k-th diagonal. A vector is repeated as the rows of a square matrix."""
    if not data.dim():
        raise MXNetError("expected an array with at least 1 dimension")
    return torch.tril(data.expand(len(data), -1) if data.dim() == 1 else data, k)


@op("_np_diag", may_alias=True)
def np_diag(data: Tensor, *, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix, or the matrix whose k-th diagonal is the given vector."""
    if data.dim() == 1:
        return torch.diag_embed(data, k)
    if data.dim() != 2:
        raise MXNetError(f"expected an array of 1 or 2 dimensions, got {data.dim()}")
    return _diagonal(data, k, 0, 1)


@op("_np_diagflat")
def np_diagflat(data: Tensor, *, k: int = 0) -> Tensor:
    """The matrix whose k-th diagonal is the flattened array."""
    return torch.diag_embed(data.reshape(-1), k)


@op("_np_diagonal", may_alias=True)
def np_diagonal(data: Tensor, *, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The diagonal with respect to `axis1` and `axis2`, as the last dimension of the result."""
    if data.dim() < 2:
        raise MXNetError(f"expected an array with at least 2 dimensions, got {data.dim()}")
    return _diagonal(data, offset, axis1, axis2)


def _diagonal(data: Tensor, k: int, axis1: int, axis2: int) -> Tensor:
    bound = max(data.size(axis1), data.size(axis2))  # beyond it torch raises, but numpy returns an empty array
    return data.diagonal(min(max(k, -bound), bound), axis1, axis2)


def _square(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    known = max((n for shape in shapes if shape for n in shape), default=0)
    return [shape and tuple(n or known for n in shape) for shape in shapes]


@op("_npi_diag_indices_from", types=typed([torch.int64]), infer=_square)
def np_diag_indices_from(data: Tensor) -> Tensor:
    """The indices of the main diagonal of an array whose dimensions are all equal, one row per dimension."""
    if data.dim() < 2 or len(set(data.shape)) > 1:
        raise MXNetError(f"expected at least 2 dimensions of equal size, got shape {tuple(data.shape)}")
    return torch.arange(data.shape[0], device=data.device).expand(data.dim(), -1).contiguous()
