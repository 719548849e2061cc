"""Selection of elements by index arrays or conditions: take, pick, gather, scatter, one-hot, where.

Indices may have any dtype, as in MXNet, where most are float32. Fractions are truncated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.compiler import is_exporting

from ..base import MXNetError, OutOfBoundsError
from .shape import never_0d
from .shapes import merged
from .table import Axis, DType, Shape, Shapes, by_data, op, typed

Tensor = torch.Tensor


def _bounded(index: Tensor, length: int, mode: str) -> Tensor:
    """Return indices in [0, length): 'clip' clips, 'wrap' wraps around and 'raise' raises for others."""
    index = index.detach()
    if mode == "raise":
        _check_bounds(index, 0, length)
    index = index.long()
    if mode == "clip":
        return index.clamp(0, length - 1)
    return index.remainder(length) if mode == "wrap" else index


def _check_bounds(index: Tensor, low: int, high: int, what: str = "") -> None:
    if index.numel() and not is_exporting():  # an exported program cannot check values
        least, most = (bound.item() for bound in torch.aminmax(index))
        if least < low or most > high - 1:
            raise OutOfBoundsError(
                f"index {least if least < low else most:g} is out of bounds{what}: expected {low} to {high - 1}"
            )


# ---- along one dimension ----


@op("take", "_npi_take", types=typed([0]))
def take(a: Tensor, indices: Tensor, *, axis: int = 0, mode: Literal["clip", "raise", "wrap"] = "clip") -> Tensor:
    """The slices of a at `indices` along `axis`, which the dimensions of indices replace."""
    index = _bounded(indices, a.size(axis), mode)
    axis %= a.dim()
    result = a.index_select(axis, index.reshape(-1))
    if index.dim() == 1:
        return result
    return result.reshape((*a.shape[:axis], *index.shape, *a.shape[axis + 1 :]))


@op("batch_take", types=typed([0], [None, torch.int32]))
def batch_take(a: Tensor, indices: Tensor) -> Tensor:
    """One element of each row, at the index for that row."""
    rows = a.reshape(-1, a.shape[-1])
    if len(rows) != indices.numel():
        raise MXNetError(f"expected one index for each of {len(rows)} rows, got {indices.numel()}")
    return rows.gather(1, _bounded(indices, a.shape[-1], "clip").reshape(-1, 1)).reshape(indices.shape)


@by_data
def _index_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    if attrs["axis"] is None:
        raise LookupError
    return [tuple(n for i, n in enumerate(data) if i != attrs["axis"] % len(data)) or (1,)]


def _pick_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer that an index with as many dimensions as the data has size 1 along the axis."""
    found = _index_shape(shapes, outputs, attrs)
    data, index = shapes
    if data is None or index is None or len(index) != len(data) or attrs["axis"] is None:
        return found
    axis = attrs["axis"] % len(data)
    return [data, (*data[:axis], 1, *data[axis + 1 :])]


@op("pick", "choose_element_0index", "_npx_pick", types=typed([0]), infer=_pick_shapes)
def pick(
    data: Tensor,
    index: Tensor,
    *,
    axis: int | None = -1,
    keepdims: bool = False,
    mode: Literal["clip", "wrap"] = "clip",
) -> Tensor:
    """One element along `axis` for each position in the other dimensions."""
    if axis is None:
        raise MXNetError("expected an axis, got None")
    length = data.size(axis)
    axis %= data.dim()
    kept = [*data.shape[:axis], 1, *data.shape[axis + 1 :]]
    if list(index.shape) not in (kept, [*data.shape[:axis], *data.shape[axis + 1 :]]):
        raise MXNetError(f"index must have shape {tuple(kept)}, or that without axis {axis}, got {tuple(index.shape)}")
    result = data.gather(axis, _bounded(index, length, mode).reshape(kept))
    return result if keepdims or data.dim() == 1 else result.squeeze(axis)


@op("fill_element_0index")
def fill_element_0index(lhs: Tensor, mhs: Tensor, rhs: Tensor) -> Tensor:
    """A copy of the matrix lhs with the element of each row at index rhs replaced by mhs."""
    if lhs.dim() != 2 or not mhs.shape == rhs.shape == lhs.shape[:1]:
        raise MXNetError("expected a matrix, with one value and one index for each row")
    index = rhs.detach().long()
    _check_bounds(index, 0, lhs.shape[1])
    return lhs.scatter(1, index.unsqueeze(1), mhs.to(lhs.dtype).unsqueeze(1))


@op("one_hot", "_npx_one_hot")
def one_hot(
    indices: Tensor, *, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: DType = torch.float32
) -> Tensor:
    """Append a dimension of size `depth` with on_value at the index and off_value elsewhere."""
    hot = indices.detach().long().unsqueeze(-1) == torch.arange(depth, device=indices.device)
    if (on_value, off_value) == (1, 0):
        return hot.to(dtype)
    values = torch.tensor([off_value, on_value], dtype=torch.float64, device=indices.device).to(dtype)
    return values[hot.long()]


@op("_onehot_encode")
def onehot_encode(lhs: Tensor, rhs: Tensor) -> Tensor:
    """The one-hot rows of the indices lhs, with the shape of rhs."""
    if rhs.dim() != 2 or lhs.shape != rhs.shape[:1]:
        raise MXNetError("expected a vector of indices and a matrix with one row for each")
    return one_hot(lhs, depth=rhs.shape[1], dtype=rhs.dtype)


@op("_contrib_index_copy", types=typed([0]))
def index_copy(old_tensor: Tensor, index_vector: Tensor, new_tensor: Tensor) -> Tensor:
    """A copy of old_tensor with the rows at index_vector replaced by those of new_tensor."""
    if len(index_vector) != len(new_tensor):
        raise MXNetError(f"expected one index for each of {len(new_tensor)} new rows, got {len(index_vector)}")
    index = index_vector.detach().long()
    _check_bounds(index, 0, len(old_tensor))
    return old_tensor.index_copy(0, index, new_tensor)


# ---- along several dimensions ----


def _positions(indices: Tensor, shape: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the rows of `indices`, one for each leading dimension of `shape`, as an index for torch."""
    if not 1 <= indices.shape[0] <= len(shape):
        raise MXNetError(f"indices must have 1 to {len(shape)} rows, one for each dimension, got {indices.shape[0]}")
    rows = indices.detach().unbind(0)
    for axis, (row, length) in enumerate(zip(rows, shape, strict=False)):
        _check_bounds(row, -length, length, f" for axis {axis} with size {length}")
    return tuple(row.long() for row in rows)


@op("gather_nd", "_npi_gather_nd", "_npx_gather_nd", types=typed([0]))
def gather_nd(data: Tensor, indices: Tensor) -> Tensor:
    """The elements or slices of data at the positions in the columns of `indices`."""
    return data[_positions(indices, data.shape)]


@op("scatter_nd", types=typed([0]))
def scatter_nd(data: Tensor, indices: Tensor, *, shape: Shape) -> Tensor:
    """Zeros with the elements or slices of data at the positions in the columns of `indices`."""
    return _scattered(data.new_zeros(shape), data, indices)


@op("_scatter_set_nd", "_npi_scatter_set_nd", same_dtype=False)
def scatter_set_nd(lhs: Tensor, rhs: Tensor, indices: Tensor, *, shape: Shape) -> Tensor:
    """A copy of lhs with the elements or slices of rhs at the positions in the columns of `indices`."""
    return _scattered(lhs, rhs, indices)


def _scattered(target: Tensor, values: Tensor, indices: Tensor) -> Tensor:
    positions = _positions(indices, target.shape)
    expected = (*indices.shape[1:], *target.shape[len(positions) :])
    if tuple(values.shape) != expected:
        raise MXNetError(f"expected values of shape {expected}, got {tuple(values.shape)}")
    return target.index_put(positions, values)


@op("_contrib_index_array", types=typed([torch.int64]))
def index_array(data: Tensor, *, axes: Axis = None) -> Tensor:
    """The index of each element, or its coordinates along `axes`."""
    axes = tuple(range(data.dim())) if axes is None else axes
    grids = []
    for axis in axes:
        line = torch.arange(data.size(axis), device=data.device)
        axis %= data.dim()
        grids.append(line.reshape(-1, *[1] * (data.dim() - axis - 1)).expand(data.shape))
    return torch.stack(grids, -1)


@op("_ravel_multi_index", "ravel_multi_index")
def ravel_multi_index(data: Tensor, *, shape: Shape = ()) -> Tensor:
    """Convert the indices in the columns of data to indices into the flattened array of that shape."""
    if data.dim() != 2 or data.shape[0] != len(shape):
        raise MXNetError(f"data must be a matrix with a row for each of {len(shape)} dimensions")
    strides = torch.tensor(_strides(shape), device=data.device).unsqueeze(1)
    return (data.detach().long() * strides).sum(0).to(data.dtype)


@op("_unravel_index", "unravel_index")
def unravel_index(data: Tensor, *, shape: Shape = ()) -> Tensor:
    """Convert indices into a flattened array to indices into an array of that shape, one row per dimension."""
    if not shape:
        raise MXNetError("expected the shape of the array that data indexes")
    rows, rest = [], data.detach().long()
    for stride in _strides(shape):
        rows.append(torch.div(rest, stride, rounding_mode="trunc"))
        rest = rest - rows[-1] * stride
    return torch.stack(rows).to(data.dtype)


def _strides(shape: Sequence[int]) -> list[int]:
    """Return the stride of each dimension. The first size is not used and may be -1."""
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


# ---- by condition ----


def _choice_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer that x, y and the output have the same shape."""
    condition, *choices = shapes
    known = (*choices, *outputs)
    one = merged(*known)
    return [condition, one, one]


@op("where", types=typed([1], [None, 2, 1]), infer=_choice_shapes)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Elements of x where condition is nonzero, else of y. A condition with one dimension selects whole rows."""
    if x.shape != y.shape or x.dtype is not y.dtype:
        raise MXNetError("x and y must have the same shape and dtype")
    if condition.shape != x.shape:
        if condition.shape != x.shape[:1]:
            raise MXNetError(f"condition must have the shape of x, {tuple(x.shape)}, or one element for each row")
        condition = condition.reshape(-1, *[1] * (x.dim() - 1))
    return torch.where(condition.detach() != 0, x, y)


@op("_contrib_boolean_mask", "_npi_boolean_mask", types=typed([0]))
def boolean_mask(data: Tensor, index: Tensor, *, axis: int = 0) -> Tensor:
    """The slices of data along `axis` where index is nonzero."""
    if index.shape != (data.size(axis),):
        raise MXNetError(f"index must have shape ({data.size(axis)},), got {tuple(index.shape)}")
    return data.index_select(axis, index.detach().nonzero().squeeze(1))


@op("_contrib_getnnz")
def getnnz(data: Tensor, *, axis: int | None = None) -> Tensor:
    """The number of nonzero elements, in total or along `axis`."""
    count = torch.count_nonzero(data, dim=axis)
    return never_0d(count)
