"""Array creation: zeros, ones, ranges, and arrays with the shape of another."""

from __future__ import annotations

import math

import torch

from ..base import MXNetError
from ..dtype import TORCH_OF_FLAG
from .table import FILLED_IN, Ctx, DType, Floats, Shape, op, typed

Tensor = torch.Tensor

_FLOAT = torch.float32


@op("_zeros")
@op("_npi_zeros")
def zeros(*, shape: Shape = (), ctx: Ctx = FILLED_IN, dtype: DType = _FLOAT) -> Tensor:
    """An array of zeros."""
    if not shape:
        return torch.zeros((), dtype=dtype, device=ctx.device)
    return torch.zeros(*shape, dtype=dtype, device=ctx.device)  # separate sizes are faster than a tuple of sizes


@op("_zeros_without_dtype")
def zeros_without_dtype(*, shape: Shape | None = None, ctx: Ctx = FILLED_IN, dtype: int = -1) -> Tensor:
    """An array of zeros, with the dtype given by MXNet's type code. -1 means float32."""
    return zeros(shape=_known(shape), ctx=ctx, dtype=TORCH_OF_FLAG.get(dtype, _FLOAT))


@op("_ones")
@op("_npi_ones")
def ones(*, shape: Shape = (), ctx: Ctx = FILLED_IN, dtype: DType = _FLOAT) -> Tensor:
    """An array of ones."""
    if not shape:
        return torch.ones((), dtype=dtype, device=ctx.device)
    return torch.ones(*shape, dtype=dtype, device=ctx.device)


@op("_full", "_npi_full")
def full(*, shape: Shape | None = None, ctx: Ctx = FILLED_IN, dtype: DType = _FLOAT, value: float) -> Tensor:
    """An array filled with `value`."""
    return torch.full(_known(shape), number(value, dtype), dtype=dtype, device=ctx.device)


def number(value: float, dtype: torch.dtype) -> float:
    """Return a scalar as an element of `dtype`. Integer dtypes truncate it and wrap around."""
    if dtype.is_floating_point or dtype is torch.bool:
        return value
    limits = torch.iinfo(dtype)
    return (c_integer(value, dtype) - limits.min) % (limits.max - limits.min + 1) + limits.min


def c_integer(value: float, dtype: torch.dtype) -> int:
    """Truncate a scalar as C does on x86: NaN and numbers out of range become the lowest int32, or int64."""
    lowest = -(2**63) if dtype is torch.int64 else -(2**31)
    return int(value) if lowest <= value < -lowest else lowest  # the comparison is false for NaN


def _known(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    if shape is None:
        raise MXNetError("missing argument shape")
    return shape


@op("_eye")
def eye(*, N: int, M: int = 0, k: int = 0, ctx: Ctx = FILLED_IN, dtype: DType = _FLOAT) -> Tensor:
    """An N x M matrix (N x N if M is 0) of zeros with ones on the k-th diagonal."""
    return diagonal_ones(N, M if M > 0 else N, k, dtype, ctx.device)


def diagonal_ones(rows: int, columns: int, k: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a matrix of zeros with ones on the k-th diagonal."""
    if rows < 0 or columns < 0:
        raise MXNetError(f"expected nonnegative sizes, got {rows} rows and {columns} columns")
    result = torch.zeros(rows, columns, dtype=dtype, device=device)
    if -rows < k < columns:
        result.diagonal(k).fill_(1)
    return result


def progression(count: int, start: float, step: float, repeat: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return `count` elements of start, start + step, ..., each `repeat` times. Integer dtypes truncate both."""
    if repeat < 1:
        raise MXNetError(f"expected repeat to be positive, got {repeat}")
    indices = torch.arange(count, device=device)
    if repeat > 1:
        indices = indices.div(repeat, rounding_mode="floor")
    if not dtype.is_floating_point:
        return (indices * math.trunc(step) + math.trunc(start)).to(dtype)
    return (indices.to(torch.float64) * step + start).to(dtype)


@op("_arange")
def arange(
    *,
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    ctx: Ctx = FILLED_IN,
    dtype: DType = _FLOAT,
) -> Tensor:
    """Values from `start` up to, but not including, `stop`, each `repeat` times. Without `stop`, from 0 to `start`."""
    if stop is None:
        if infer_range:
            raise MXNetError("expected stop: infer_range is only supported in a graph, where the size is known")
        start, stop = 0.0, start
    if step == 0:
        raise MXNetError("expected a nonzero step")
    count = math.ceil((stop - start) / step)
    if count < 1:
        raise MXNetError(f"expected a nonempty range, got start={start}, stop={stop}, step={step}")
    return progression(count * repeat, start, step, repeat, dtype, ctx.device)


@op("_linspace", "_npi_linspace")
def linspace(
    *,
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    infer_range: bool = False,
    ctx: Ctx = FILLED_IN,
    dtype: DType = _FLOAT,
    num: int,
    endpoint: bool = True,
) -> Tensor:
    """`num` evenly spaced values from `start` to `stop`, which is included if `endpoint`."""
    if stop is None:
        raise MXNetError("missing argument stop")
    if num < 0:
        raise MXNetError(f"expected a nonnegative num, got {num}")
    gaps = num - 1 if endpoint else num
    numbers = torch.arange(num, dtype=torch.float64, device=ctx.device) * ((stop - start) / gaps if gaps else 0) + start
    if endpoint and num > 1:
        numbers[-1] = stop
    return numbers.to(dtype)


@op("zeros_like", infer="same")
def zeros_like(data: Tensor) -> Tensor:
    """Zeros with the shape and dtype of an array."""
    return torch.zeros_like(data)


@op("ones_like", infer="same")
def ones_like(data: Tensor) -> Tensor:
    """Ones with the shape and dtype of an array."""
    return torch.ones_like(data)


@op("_contrib_arange_like", "_npx_arange_like")
def arange_like(
    data: Tensor,
    *,
    start: float = 0.0,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Ctx = FILLED_IN,
    axis: int | None = None,
) -> Tensor:
    """start, start + step, ... with the shape of an array, or with its size along an axis."""
    if axis is None:
        return progression(data.numel(), start, step, repeat, data.dtype, data.device).reshape(data.shape)
    if not -data.dim() <= axis < data.dim():
        raise MXNetError(f"axis {axis} is out of range for an array with {data.dim()} dimension(s)")
    return progression(data.shape[axis], start, step, repeat, data.dtype, data.device)


@op("shape_array", "_npx_shape_array", types=typed([torch.int64]))
def shape_array(data: Tensor) -> Tensor:
    """The shape as an int64 array."""
    return torch.tensor(data.shape, dtype=torch.int64, device=data.device)


@op("size_array", types=typed([torch.int64]))
def size_array(data: Tensor) -> Tensor:
    """The number of elements as an int64 array."""
    return torch.tensor([data.numel()], dtype=torch.int64, device=data.device)


@op(
    "_histogram",
    "_npi_histogram",
    may_alias=True,
    takes={"bins": lambda a: a["bin_cnt"] is None},
    outputs=2,
    types=typed([torch.int64, 0]),
)
def histogram(
    data: Tensor, bins: Tensor | None = None, *, bin_cnt: int | None = None, range: Floats | None = None
) -> tuple[Tensor, Tensor]:
    """The number of elements in each bin, and the edges of the bins: `bins`, or `bin_cnt` equal parts of `range`.

    Each bin includes its lower edge. The last bin also includes its upper edge.
    """
    if bins is not None and bin_cnt is None and range is None:
        edges = bins
        if bins.dtype is not data.dtype:
            raise MXNetError("expected bins with the dtype of data. Use astype")
    elif bins is None and bin_cnt is not None and range is not None:
        low, high = range
        if low > high or bin_cnt < 1:
            raise MXNetError("expected bin_cnt to be positive and range to be (low, high)")
        if low == high:
            low, high = low - 0.5, high + 0.5
        edges = torch.linspace(low, high, bin_cnt + 1, dtype=torch.float64, device=data.device)
        if data.is_floating_point():
            edges = edges.to(data.dtype)
    else:
        raise MXNetError("expected either bins, or bin_cnt and range")
    values = data.reshape(-1)
    inside = values[(values >= edges[0]) & (values <= edges[-1])].to(edges.dtype)
    parts = edges.numel() - 1
    place = torch.searchsorted(edges, inside, right=True).sub_(1).clamp_(max=parts - 1)
    return torch.bincount(place, minlength=parts), edges.to(data.dtype)
