"""Ops that reshape, reorder, broadcast, repeat and pad arrays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F

from ..base import InvalidValueError, MXNetError
from .shapes import UNKNOWN, is_known, merged
from .table import Axis, Shape, Shapes, op, typed

Tensor = torch.Tensor


def spread(function: Callable[..., Tensor], numbers: tuple[int, ...]) -> Tensor:
    """Call a torch function with separate sizes or axes, which torch parses faster than a tuple."""
    return function(*numbers) if numbers else function(())


def never_0d(result: Tensor) -> Tensor:
    """Return `result`, with shape (1,) if it is 0-d: arrays of MXNet have at least one dimension."""
    return result if result.dim() else result.reshape(1)


# The meaning of the codes in a new shape. Other values are sizes.
CODES = {0: "keep", -1: "infer", -2: "rest", -3: "join", -4: "split"}
NP_CODES = {-1: "infer", -2: "keep", -3: "drop", -4: "rest", -5: "join", -6: "split"}


def infer_reshape(
    shape: tuple[int, ...], codes: tuple[int, ...], reverse: bool = False, meaning: dict[int, str] = CODES
) -> tuple[int, ...]:
    """Return the shape that reshape codes produce.

    With the codes of `mx.nd`, n > 0 is a size; 0 keeps a dimension; -1 infers a size; -2 keeps all remaining
    dimensions; -3 merges two dimensions; -4 splits a dimension into the two that follow. Those of `mx.npx` can also
    drop a dimension of size 1. `reverse` matches shape and codes from the right.
    """
    if reverse:
        shape, codes = shape[::-1], codes[::-1]
    result: list[int] = []
    source = 0  # the input dimension that the next code refers to
    unknown = -1  # the index of -1 in the result
    i = 0
    while i < len(codes):
        code = codes[i]
        action = meaning.get(code)
        i += 1
        if action is None and code >= 0:
            result.append(code)
            source += 1
        elif action == "keep":
            result.append(_dimension(shape, source, codes))
            source += 1
        elif action == "infer":
            if unknown >= 0:
                raise MXNetError(f"shape {codes} has more than one -1")
            unknown = len(result)
            result.append(1)
            source += 1
        elif action == "drop":
            if _dimension(shape, source, codes) != 1:
                raise MXNetError(f"shape {codes}: {code} can only drop a dimension of size 1, not {shape[source]}")
            source += 1
        elif action == "rest":
            result.extend(shape[source:])
            source = len(shape)
        elif action == "join":
            result.append(_dimension(shape, source, codes) * _dimension(shape, source + 1, codes))
            source += 2
        elif action == "split":
            if i + 2 > len(codes):
                raise MXNetError(f"shape {codes}: {code} must be followed by two sizes")
            result.extend(_split_in_two(_dimension(shape, source, codes), code, *codes[i : i + 2]))
            source += 1
            i += 2
        else:
            raise MXNetError(f"shape {codes}: {code} is not a reshape code ({', '.join(map(str, meaning))})")
    total, known = math.prod(shape), math.prod(result)
    if unknown >= 0:
        if known == 0 or total % known:
            raise InvalidValueError(f"cannot reshape {shape} to {codes}: {total} elements are not divisible by {known}")
        result[unknown] = total // known
    elif known != total:
        raise InvalidValueError(f"cannot reshape {shape} ({total} elements) to {codes} ({known} elements)")
    return tuple(result[::-1] if reverse else result)


def reshaped(data: Tensor, codes: tuple[int, ...], reverse: bool = False, meaning: dict[int, str] = CODES) -> Tensor:
    """Return `data` in the shape that reshape codes produce, as a view if possible."""
    if codes == (-1,) or (codes and min(codes) > 0 and math.prod(codes) == data.numel()):  # fast path for common codes
        return data.reshape(*codes)
    return spread(data.reshape, infer_reshape(tuple(data.shape), codes, reverse, meaning))


def _dimension(shape: tuple[int, ...], axis: int, codes: tuple[int, ...]) -> int:
    if axis >= len(shape):
        raise MXNetError(f"shape {codes} refers to dimension {axis} of an array with shape {shape}")
    return shape[axis]


def _split_in_two(length: int, code: int, first: int, second: int) -> tuple[int, int]:
    if first == second == -1 or min(first or -2, second or -2) < -1:
        raise MXNetError(f"{code} must be followed by two sizes, one of which may be -1, got {first} and {second}")
    if first == -1:
        first = length // second
    if second == -1:
        second = length // first
    if first * second != length:
        raise MXNetError(f"{code} cannot split a dimension of {length} into {first} and {second}")
    return first, second


# ---- reshaping ----


def _partly_reshaped(shape: tuple[int, ...], codes: tuple[int, ...], reverse: bool) -> tuple[int, ...]:
    """Return the known part of the shape that reshape codes make of a partly unknown shape; see `infer_reshape`."""
    if reverse:
        shape, codes = shape[::-1], codes[::-1]
    result: list[int] = []
    kept: list[int] = []  # the input sizes that the result keeps
    remains = -1  # the index of -1 in the result
    rest, left = iter(shape), iter(codes)
    for code in left:
        parts = [*rest] if code == -2 else [next(rest, UNKNOWN) for _ in range(2 if code == -3 else 1)]
        if code == -4:
            result += (next(left, UNKNOWN), next(left, UNKNOWN))
        elif code in (0, -2):
            result += parts
            kept += parts
        elif code == -3:
            result.append(math.prod(parts) if is_known(tuple(parts)) else UNKNOWN)
            kept += parts
        else:
            remains = len(result) if code == -1 else remains
            result.append(code)
    if remains >= 0 and -4 not in codes and kept.count(UNKNOWN) == shape.count(UNKNOWN):
        given = math.prod(n for n in (*kept, *codes) if n > 0)
        result[remains] = math.prod(n for n in shape if n > 0) // given
    return tuple(result[::-1] if reverse else result)


def _reshaped_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Infer the single unknown size of an array from the number of elements."""
    (shape,), codes = shapes, attrs["shape"]
    if shape is None or is_known(shape):
        return shapes
    result = merged(outputs[0], _partly_reshaped(shape, codes, attrs["reverse"]) if codes else None)
    if shape.count(UNKNOWN) != 1 or not is_known(result):
        return (shapes, [result]) if codes else shapes
    others = math.prod(n for n in shape if n != UNKNOWN)
    if others == 0 or math.prod(result) % others:
        return shapes
    return [tuple(math.prod(result) // others if n == UNKNOWN else n for n in shape)]


@op("Reshape", "reshape", may_alias=True, infer=_reshaped_shapes)
def reshape(
    data: Tensor,
    *,
    shape: Shape = (),
    reverse: bool = False,
    target_shape: Shape = (),
    keep_highest: bool = False,
) -> Tensor:
    """The same elements in another shape, which may contain special codes: 0, -1, -2, -3 and -4.

    `target_shape` is the legacy form: 0 infers a size, and `keep_highest` keeps the first dimension.
    """
    if shape:
        return reshaped(data, shape, reverse)
    if not target_shape:
        if data.numel() != 1:
            raise MXNetError(f"expected a nonempty shape: () has one element, but data has shape {tuple(data.shape)}")
        return data.reshape(())
    if keep_highest:
        target_shape = (data.shape[0], *target_shape[1:])
    if min(target_shape) < 0:
        raise MXNetError(f"target_shape: expected positive sizes, or 0 to infer a size, got {target_shape}")
    return reshaped(data, tuple(n or -1 for n in target_shape))


@op("reshape_like", "_npx_reshape_like", may_alias=True, types=typed([0]))
def reshape_like(
    lhs: Tensor,
    rhs: Tensor,
    *,
    lhs_begin: int | None = None,
    lhs_end: int | None = None,
    rhs_begin: int | None = None,
    rhs_end: int | None = None,
) -> Tensor:
    """The elements of lhs in the shape of rhs, or with some dimensions replaced by dimensions of rhs."""
    begin, end = _dimensions("lhs", lhs, lhs_begin, lhs_end)
    other = slice(*_dimensions("rhs", rhs, rhs_begin, rhs_end))
    return lhs.reshape((*lhs.shape[:begin], *rhs.shape[other], *lhs.shape[end:]))


def _dimensions(name: str, data: Tensor, begin: int | None, end: int | None) -> tuple[int, int]:
    ndim = data.dim()
    first = 0 if begin is None else begin + ndim if begin < 0 else begin
    last = ndim if end is None else end + ndim if end < 0 else end
    if not 0 <= first < last <= ndim:
        raise MXNetError(f"{name}_begin={begin}, {name}_end={end} is not a valid range of {ndim} dimensions")
    return first, last


@op("Flatten", "flatten", "_npx_batch_flatten", may_alias=True)
def flatten(data: Tensor) -> Tensor:
    """Flatten all dimensions but the first into one."""
    return data.flatten(1) if data.dim() > 1 else data.reshape(-1, 1)


def _shape_within(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer the input shape from the output shape without the new dimension."""
    if outputs[0] is None:
        return shapes
    axis = attrs["axis"] % len(outputs[0])
    return [outputs[0][:axis] + outputs[0][axis + 1 :]]


def _expanded_copy(data: Tensor, *, axis: int) -> Tensor:
    return torch.unsqueeze_copy(data, axis)


@op("expand_dims", "_npi_expand_dims", may_alias=True, infer=_shape_within, fresh=_expanded_copy)
def expand_dims(data: Tensor, *, axis: int) -> Tensor:
    """Insert a new dimension of size 1 at `axis`."""
    return data.unsqueeze(axis)


def _squeezed_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Leave the output shape unknown if an unknown size may be 1."""
    return shapes if is_known(shapes[0]) or attrs["axis"] is not None else (shapes, outputs)


@op("squeeze", may_alias=True, infer=_squeezed_shapes)
def squeeze(data: Tensor, *, axis: Axis = None) -> Tensor:
    """The array without dimensions of size 1, or without those in `axis`."""
    if axis is None:
        result = data.squeeze()
    else:
        for each in axis:
            if data.size(each) != 1:
                raise MXNetError(f"axis {each} has size {data.size(each)}; only axes of size 1 can be removed")
        result = data.squeeze(axis)
    return never_0d(result)


# ---- reordering ----


def _shape_before(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer the input shape from the dimensions of the output."""
    result = outputs[0]
    axes = attrs["axes"] or range(len(result or ()))[::-1]
    if result is None or sorted(axis % len(result) for axis in axes) != list(range(len(result))):
        return shapes
    before = dict(zip((axis % len(result) for axis in axes), result, strict=True))
    return [tuple(before[axis] for axis in range(len(result)))]


def in_order(data: Tensor, axes: tuple[int, ...] | None) -> Tensor:
    """Return a view with the dimensions in the order `axes`, or reversed."""
    if axes is not None:
        return data.permute(*axes) if axes else data.permute(())
    return data.t() if data.dim() <= 2 else data.permute(*range(data.dim() - 1, -1, -1))


def copied_in_order(data: Tensor, axes: tuple[int, ...] | None) -> Tensor:
    """A copy with the dimensions in the order `axes`, or reversed."""
    if axes is not None:
        return torch.permute_copy(data, axes)
    return torch.t_copy(data) if data.dim() <= 2 else torch.permute_copy(data, tuple(range(data.dim())[::-1]))


def _transposed_copy(data: Tensor, *, axes: tuple[int, ...] = ()) -> Tensor:
    return copied_in_order(data, axes or None)


@op("transpose", may_alias=True, infer=_shape_before, fresh=_transposed_copy)
def transpose(data: Tensor, *, axes: Shape = ()) -> Tensor:
    """Permute the dimensions to the order `axes`, or reverse them."""
    return in_order(data, axes or None)


@op("SwapAxis", "swapaxes", "_npi_swapaxes", may_alias=True)
def swap_axis(data: Tensor, *, dim1: int = 0, dim2: int = 0) -> Tensor:
    """Exchange two dimensions."""
    return data.transpose(dim1, dim2)


@op("reverse", "flip", may_alias=True, infer="same")
def reverse(data: Tensor, *, axis: Shape) -> Tensor:
    """Reverse the order of the elements along each dimension in `axis`."""
    return data.flip(axis) if axis else data


@op("depth_to_space", may_alias=True)
def depth_to_space(data: Tensor, *, block_size: int) -> Tensor:
    """Rearrange channels into blocks of pixels: (n, b*b*c, h, w) to (n, c, h*b, w*b)."""
    n, c, h, w = _image(data, block_size)
    if c % block_size**2:
        raise MXNetError(f"the number of channels ({c}) must be divisible by block_size * block_size ({block_size**2})")
    c //= block_size**2
    blocks = data.reshape(n, block_size, block_size, c, h, w).permute(0, 3, 4, 1, 5, 2)
    return blocks.reshape(n, c, h * block_size, w * block_size)


@op("space_to_depth", may_alias=True)
def space_to_depth(data: Tensor, *, block_size: int) -> Tensor:
    """Rearrange blocks of pixels into channels: (n, c, h*b, w*b) to (n, b*b*c, h, w)."""
    n, c, h, w = _image(data, block_size)
    if h % block_size or w % block_size:
        raise MXNetError(f"height and width ({h}, {w}) must be divisible by block_size ({block_size})")
    h, w = h // block_size, w // block_size
    blocks = data.reshape(n, c, h, block_size, w, block_size).permute(0, 3, 5, 1, 2, 4)
    return blocks.reshape(n, c * block_size**2, h, w)


def _image(data: Tensor, block_size: int) -> torch.Size:
    if data.dim() != 4 or block_size < 1:
        raise MXNetError("expected an array with 4 dimensions and a positive block_size")
    return data.shape


# ---- repetition and broadcasting ----


@op("tile", "_npi_tile")
def tile(data: Tensor, *, reps: Shape) -> Tensor:
    """Repeat the whole array `reps` times along each dimension."""
    return torch.tile(data, reps)


@op("repeat", "_np_repeat")
def repeat(data: Tensor, *, repeats: int, axis: int | None = None) -> Tensor:
    """Repeat each element along `axis`, or in the flattened array."""
    return torch.repeat_interleave(data, repeats, dim=axis)


@op("broadcast_axis", "broadcast_axes", may_alias=True)
def broadcast_axis(data: Tensor, *, axis: Shape = (), size: Shape = ()) -> Tensor:
    """Broadcast dimensions of size 1 to `size`."""
    if len(axis) != len(size):
        raise MXNetError(f"axis and size must have the same length, got {axis} and {size}")
    return _stretch(data, axis, size)


@op("broadcast_to", may_alias=True)
def broadcast_to(data: Tensor, *, shape: Shape = ()) -> Tensor:
    """Broadcast dimensions of size 1 to `shape`, in which 0 keeps a dimension."""
    if 0 in shape and len(shape) == data.dim():
        shape = tuple(wanted or length for wanted, length in zip(shape, data.shape, strict=True))
    if len(shape) < data.dim() or min(shape, default=0) < 0:
        raise MXNetError(f"an array of shape {tuple(data.shape)} cannot be broadcast to {shape}")
    return data.expand(shape)


def _stretched_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Infer that a size of 1 becomes that of the other array, and that others are equal."""
    a, b = shapes
    if attrs["lhs_axes"] is not None or a is None or b is None or len(a) != len(b) or is_known(a) and is_known(b):
        return shapes
    return shapes, [tuple(n if m in (1, UNKNOWN) else m for m, n in zip(a, b, strict=True))]


@op("broadcast_like", may_alias=True, types=typed([0]), infer=_stretched_shapes)
def broadcast_like(lhs: Tensor, rhs: Tensor, *, lhs_axes: Axis = None, rhs_axes: Axis = None) -> Tensor:
    """Broadcast dimensions of size 1 to those of rhs: all, or those in `lhs_axes` to those in `rhs_axes`."""
    if lhs_axes is None or rhs_axes is None:
        if lhs.dim() != rhs.dim():
            raise MXNetError("expected arrays with equal numbers of dimensions, or both lhs_axes and rhs_axes")
        return lhs.expand(rhs.shape)
    if not lhs_axes or len(lhs_axes) != len(rhs_axes):
        raise MXNetError(f"lhs_axes and rhs_axes must be nonempty and equally long, got {lhs_axes} and {rhs_axes}")
    return _stretch(lhs, lhs_axes, tuple(rhs.size(axis) for axis in rhs_axes))


def _stretch(data: Tensor, axes: tuple[int, ...], sizes: tuple[int, ...]) -> Tensor:
    shape = list(data.shape)
    for axis, size in zip(axes, sizes, strict=True):
        if data.size(axis) != 1:
            raise MXNetError(f"axis {axis} has size {data.size(axis)}; only axes of size 1 can be broadcast")
        shape[axis] = size
    return data.expand(shape)


# ---- diagonals, padding, patches ----


def _diagonal_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Leave the output shape unknown if a size is: a diagonal has the size of the shorter side."""
    return shapes if is_known(shapes[0]) else (shapes, outputs)


@op("diag", may_alias=True, infer=_diagonal_shapes)
def diag(data: Tensor, *, k: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    """The k-th diagonal with respect to two axes, or the matrix whose k-th diagonal is the given vector."""
    if data.dim() == 1:
        return torch.diag_embed(data, k)
    if not -data.size(axis1) <= k <= data.size(axis2):
        raise MXNetError(f"diagonal {k} is out of range for {data.size(axis1)} x {data.size(axis2)} elements")
    return data.diagonal(k, axis1, axis2)


_PAD_MODES = {"constant": "constant", "edge": "replicate", "reflect": "reflect"}


@op("Pad", "pad", may_alias=True)
def pad(
    data: Tensor,
    *,
    mode: Literal["constant", "edge", "reflect"],
    pad_width: Shape,
    constant_value: float = 0.0,
) -> Tensor:
    """Pad all dimensions but the first two. `pad_width` has the widths before and after each dimension."""
    if len(pad_width) != 2 * data.dim():
        raise MXNetError(f"pad_width must have two integers for each of {data.dim()} dimensions, got {pad_width}")
    if any(pad_width[:4]):
        raise MXNetError(f"pad_width must start with four zeros: batch and channels cannot be padded, got {pad_width}")
    # torch starts with the last dimension
    widths = [width for axis in range(data.dim() - 1, 1, -1) for width in pad_width[2 * axis : 2 * axis + 2]]
    return F.pad(data, widths, _PAD_MODES[mode], constant_value if mode == "constant" else None)


@op("im2col")
def im2col(data: Tensor, *, kernel: Shape, stride: Shape = (), dilate: Shape = (), pad: Shape = ()) -> Tensor:
    """The patches that a convolution reads, each as a column: (n, c, h, w) to (n, c * kernel elements, patches)."""
    return F.unfold(data, *_window(kernel, stride, dilate, pad))


@op("col2im")
def col2im(
    data: Tensor, *, output_size: Shape, kernel: Shape, stride: Shape = (), dilate: Shape = (), pad: Shape = ()
) -> Tensor:
    """The image whose patches are the columns of data. Overlapping patches are added."""
    return F.fold(data, _pair("output_size", output_size), *_window(kernel, stride, dilate, pad))


def _window(kernel: Shape, stride: Shape, dilate: Shape, pad: Shape) -> tuple[tuple[int, ...], ...]:
    """Return a window as the arguments of torch's fold and unfold."""
    return (
        _pair("kernel", kernel),
        _pair("dilate", dilate or (1, 1)),
        _pair("pad", pad or (0, 0)),
        _pair("stride", stride or (1, 1)),
    )


def _pair(name: str, value: Shape) -> Shape:
    if len(value) != 2:
        raise MXNetError(f"{name} must be (height, width), got {value}")
    return value
