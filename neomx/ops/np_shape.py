"""Ops of `mx.np` that reshape, reorder, join, split and pad arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F

from ..base import MXNetError
from .shape import NP_CODES, copied_in_order, in_order, infer_reshape, reshaped, spread
from .slicing import split_v2
from .table import Axis, Pairs, Shape, Shapes, op

Tensor = torch.Tensor

# ---- reshaping ----


def _reshaped_copy(a: Tensor, *, newshape: tuple[int, ...], order: str = "C") -> Tensor:
    if order == "C" and newshape and a.is_contiguous():
        try:
            return torch.view_copy(a, newshape)
        except RuntimeError:
            pass  # `np_reshape` raises an error that says more
    return np_reshape(a, newshape=newshape, order=order).clone(memory_format=torch.contiguous_format)


@op("_np_reshape", may_alias=True, fresh=_reshaped_copy)
def np_reshape(a: Tensor, *, newshape: Shape, order: str = "C") -> Tensor:
    """The same elements in another shape. One dimension may be -1, to infer its size."""
    if order == "C" and newshape:
        try:
            return a.reshape(*newshape)
        except RuntimeError:
            pass  # infer_reshape below raises an error with more context
    return _in_order(a, infer_reshape(tuple(a.shape), newshape, False, {-1: "infer"}), order)


@op("_npx_reshape", "_npi_reshape", may_alias=True)
def npx_reshape(a: Tensor, *, newshape: Shape, reverse: bool = False, order: str = "C") -> Tensor:
    """The same elements in another shape, which may contain special codes.

    -1 infers a size; -2 keeps a dimension; -3 drops a dimension of size 1; -4 keeps all remaining dimensions; -5 merges
    two dimensions; -6 splits a dimension into the two that follow. `reverse` matches shape and codes from the right.
    """
    if order == "C":
        return reshaped(a, newshape, reverse, NP_CODES)
    return _in_order(a, infer_reshape(tuple(a.shape), newshape, reverse, NP_CODES), order)


def _in_order(a: Tensor, shape: tuple[int, ...], order: str) -> Tensor:
    if order in ("C", "A"):
        return a.reshape(shape)
    if order != "F":
        raise MXNetError(f"expected order 'C', 'F' or 'A', got {order!r}")
    columns = a.permute(tuple(range(a.dim()))[::-1]).reshape(shape[::-1])
    return columns.permute(tuple(range(len(shape)))[::-1])


def _squeezed_copy(a: Tensor, *, axis: tuple[int, ...] | None = None) -> Tensor:
    if axis is None:
        return torch.squeeze_copy(a)
    return np_squeeze(a, axis=axis).clone(memory_format=torch.contiguous_format)


@op("_np_squeeze", may_alias=True, fresh=_squeezed_copy)
def np_squeeze(a: Tensor, *, axis: Axis = None) -> Tensor:
    """The array without dimensions of size 1, or without those in `axis`."""
    if axis is None:
        return a.squeeze()
    if not a.dim() and axis in ((0,), (-1,)):  # as NumPy does for an array without dimensions
        return a
    for each in axis:
        if a.size(each) != 1:
            raise MXNetError(f"axis {each} has size {a.size(each)}; only axes of size 1 can be removed")
    return a.squeeze(tuple({each % a.dim() for each in axis})) if axis else a


@op("_npi_broadcast_to", may_alias=True)
def np_broadcast_to(array: Tensor, *, shape: Shape = ()) -> Tensor:
    """Broadcast dimensions of size 1, and missing leading dimensions, to `shape`."""
    if min(shape, default=0) < 0:
        raise MXNetError(f"expected a shape with nonnegative sizes, got {shape}")
    return spread(array.expand, shape)


def _at_least(ndim: int) -> Callable[[Tensor], Tensor]:
    return {1: torch.atleast_1d, 2: torch.atleast_2d, 3: torch.atleast_3d}[ndim]


def _enter_atleast(ndim: int) -> None:
    @op(f"_np_atleast_{ndim}d", may_alias=True, outputs=lambda a: a["num_args"])
    def atleast(*arys: Tensor, num_args: int = 0) -> Tensor | list[Tensor]:
        if not arys:
            raise MXNetError("expected at least one array")
        results = [_at_least(ndim)(array) for array in arys]
        return results if len(results) > 1 else results[0]

    atleast.__doc__ = f"Arrays with at least {ndim} dimension(s). New dimensions have size 1."


for _ndim in (1, 2, 3):
    _enter_atleast(_ndim)


# ---- reordering ----


def _transposed_copy(a: Tensor, *, axes: tuple[int, ...] | None = None) -> Tensor:
    return copied_in_order(a, axes)


@op("_np_transpose", may_alias=True, fresh=_transposed_copy)
def np_transpose(a: Tensor, *, axes: Axis = None) -> Tensor:
    """Permute the dimensions to the order `axes`, or reverse them."""
    return in_order(a, axes)


@op("_np_moveaxis", may_alias=True)
def np_moveaxis(a: Tensor, *, source: Shape, destination: Shape) -> Tensor:
    """Move dimensions to new positions. The other dimensions keep their order."""
    return a.movedim(source, destination)


@op("_np_roll")
def np_roll(data: Tensor, *, shift: Axis = None, axis: Axis = None) -> Tensor:
    """Shift elements along `axis`, or in the flattened array. Elements shifted past the end reappear at the start."""
    if shift is None:
        raise MXNetError("missing argument shift")
    if axis is None:
        if len(shift) != 1:
            raise MXNetError(f"expected an int for shift without axis, got {shift}")
        return data.roll(shift[0])
    if len(shift) != len(axis) and len(shift) != 1:
        raise MXNetError(f"expected one shift for each axis, got {shift} and {axis}")
    return data.roll(shift * len(axis) if len(shift) == 1 else shift, axis)


@op("_npi_flip")
def np_flip(data: Tensor, *, axis: Axis) -> Tensor:
    """Reverse the order of the elements along each dimension in `axis`, or along all dimensions."""
    if axis is None:
        return data.flip(tuple(range(data.dim())))
    places = [each % max(data.dim(), 1) if -data.dim() <= each < data.dim() else each for each in axis]
    return data.flip([each for each in dict.fromkeys(places) if places.count(each) % 2])


@op("_npi_rot90")
def np_rot90(data: Tensor, *, k: int = 1, axes: Axis = None) -> Tensor:
    """Rotate the plane of two `axes` by 90 degrees, k times, from the first axis towards the second."""
    return torch.rot90(data, k, axes or (0, 1))


@op("_np_copy")
def np_copy(a: Tensor) -> Tensor:
    """A copy."""
    return a.clone()


# ---- joining ----


def _joined(name: str, join: Callable[[tuple[Tensor, ...]], Tensor], doc: str) -> None:
    @op(f"_npi_{name}", same_dtype=True)
    def joined(*data: Tensor, num_args: int = 0) -> Tensor:
        return join(_some(data))

    joined.__doc__ = doc


def _some(data: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    if not data:
        raise MXNetError("expected at least one array")
    return data


_joined("vstack", torch.vstack, "Join arrays along the first dimension. Vectors are rows.")
_joined("hstack", torch.hstack, "Join arrays along the second dimension, or vectors along the first.")
_joined("dstack", torch.dstack, "Join arrays along the third dimension.")
_joined("column_stack", torch.column_stack, "Join arrays along the second dimension. Vectors are columns.")


def _beside(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer that all inputs have the same shape, except along the axis on which they are joined."""
    known, axis = next((shape for shape in shapes if shape), None), attrs["axis"]
    if known is None or axis is None or not -len(known) <= axis < len(known):
        return shapes
    like = [0 if i == axis % len(known) else n for i, n in enumerate(known)]
    return [shape or tuple(like) for shape in shapes]


@op("_npi_concatenate", same_dtype=True, infer=_beside)
def np_concatenate(*data: Tensor, num_args: int = 0, axis: int | None = 0) -> Tensor:
    """Join arrays along an existing dimension, or flatten and join them if `axis` is None."""
    if len(data) == 2 and axis is not None and data[0].dim() == data[1].dim():  # fast path for the common case
        return torch.cat(data, axis)
    if not data:
        raise MXNetError("expected at least one array")
    if axis is None:
        return torch.cat([array.reshape(-1) for array in data])
    ndim = data[0].dim()
    for array in data:
        if array.dim() != ndim:  # torch ignores empty arrays with one dimension
            raise MXNetError("expected arrays with equal numbers of dimensions")
    return torch.cat(data, axis)


@op("_npi_stack", same_dtype=True, infer=lambda shapes, *_: [s or next(filter(None, shapes), None) for s in shapes])
def np_stack(*data: Tensor, axis: int = 0, num_args: int = 0) -> Tensor:
    """Join arrays of the same shape along a new dimension."""
    return torch.stack(_some(data), axis)


# ---- splitting ----


def _count(attrs: dict[str, Any]) -> int:
    return attrs["sections"] or len(attrs["indices"])


@op("_npi_hsplit", may_alias=True, outputs=_count)
def np_hsplit(
    data: Tensor, *, indices: Shape, axis: int = 1, squeeze_axis: bool = False, sections: int = 0
) -> Tensor | list[Tensor]:
    """Split an array along the second dimension, or a vector along its only one."""
    return split_v2(data, indices=indices, axis=min(1, data.dim() - 1), squeeze_axis=squeeze_axis, sections=sections)  # type: ignore[no-any-return]


@op("_npi_dsplit", may_alias=True, outputs=_count)
def np_dsplit(
    data: Tensor, *, indices: Shape, axis: int = 1, squeeze_axis: bool = False, sections: int = 0
) -> Tensor | list[Tensor]:
    """Split an array along the third dimension."""
    return split_v2(data, indices=indices, axis=2, squeeze_axis=squeeze_axis, sections=sections)  # type: ignore[no-any-return]


# ---- padding ----


@op("_npi_pad")
def np_pad(
    data: Tensor,
    *,
    pad_width: Pairs,
    mode: Literal["constant", "edge", "maximum", "minimum", "reflect", "symmetric"] = "constant",
    constant_value: float = 0.0,
    reflect_type: str = "even",
) -> Tensor:
    """Pad each dimension. `pad_width` has a pair (before, after) for each dimension, or one pair for all."""
    widths = pad_width * data.dim() if len(pad_width) == 1 else pad_width
    if len(widths) != data.dim() or any(len(pair) != 2 or min(pair) < 0 for pair in widths):
        raise MXNetError(
            f"expected a pair of nonnegative widths for each of {data.dim()} dimensions in pad_width, got {pad_width}"
        )
    if mode == "constant":
        # torch starts with the last dimension
        return F.pad(data, [width for pair in reversed(widths) for width in pair], value=constant_value)
    for axis, (before, after) in enumerate(widths):
        if before or after:
            data = _bordered(data, axis, before, after, mode)
    return data


def _bordered(data: Tensor, axis: int, before: int, after: int, mode: str) -> Tensor:
    length = data.size(axis)
    if not length:
        raise MXNetError(f"cannot pad axis {axis} of size 0 in mode {mode!r}")
    if mode in ("maximum", "minimum"):
        border = data.amax(axis, keepdim=True) if mode == "maximum" else data.amin(axis, keepdim=True)
        parts = [border.expand(*data.shape[:axis], n, *data.shape[axis + 1 :]) for n in (before, after)]
        return torch.cat([parts[0], data, parts[1]], axis)
    places = torch.arange(-before, length + after, device=data.device)
    if mode == "edge" or length == 1:
        places = places.clamp(0, length - 1)
    elif mode == "reflect":
        places = (places % (2 * length - 2)).sub_(length - 1).abs_().neg_().add_(length - 1)
    else:
        places = places % (2 * length)
        places = torch.minimum(places, 2 * length - 1 - places)
    return data.index_select(axis, places)
