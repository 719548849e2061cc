"""Slicing, cropping, splitting, concatenating and stacking of arrays."""

from __future__ import annotations

from typing import Any

import torch

from ..base import MXNetError, modes
from .shapes import UNKNOWN, is_known, merged
from .table import Shape, Shapes, op, typed

Tensor = torch.Tensor


def forward_slice(key: slice, length: int) -> tuple[slice, bool]:
    """Return the slice with a positive step that selects the same elements, and whether to reverse them.

    torch does not support negative steps.
    """
    start, stop, step = key.indices(length)
    if step > 0:
        return slice(start, stop, step), False
    count = len(range(start, stop, step))
    if not count:
        return slice(0, 0), False
    return slice(start + (count - 1) * step, start + 1, -step), count > 1


# ---- slices ----


def _sliced_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Leave the size of a slice of an unknown size unknown: it depends on how many elements are within the bounds."""
    data = shapes[0]
    if data is None or is_known(data):
        return shapes
    bounds = {name: attrs[name] for name in ("begin", "end", "step")}
    part = slice_(torch.empty([max(n, 1) for n in data], device="meta"), **bounds).shape
    return shapes, [tuple(UNKNOWN if n == UNKNOWN else m for m, n in zip(part, data, strict=True))]


@op("slice", "crop", "_npi_slice", "_npx_slice", may_alias=True, infer=_sliced_shapes)
def slice_(data: Tensor, *, begin: Shape, end: Shape, step: Shape = ()) -> Tensor:
    """data[begin:end:step] for the leading dimensions. None means the default, as in Python's slices."""
    keys, flips = _slices(data, begin, end, step)
    result = data[keys]
    return result.flip(flips) if flips else result


def _part_shape(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    if not is_known(shapes[0]):
        return shapes
    part = slice_(torch.empty(shapes[0], device="meta"), begin=attrs["begin"], end=attrs["end"], step=attrs["step"])
    return [shapes[0], tuple(part.shape)]


@op("_slice_assign", "_crop_assign", "_npi_slice_assign", same_dtype=True, infer=_part_shape)
def slice_assign(lhs: Tensor, rhs: Tensor, *, begin: Shape, end: Shape, step: Shape = ()) -> Tensor:
    """A copy of lhs with the slice begin:end:step replaced by rhs."""
    keys, flips = _slices(lhs, begin, end, step)
    result = lhs.clone()
    part = result[keys]
    if part.shape != rhs.shape:
        raise MXNetError(f"rhs must have the shape of the slice, {tuple(part.shape)}, got {tuple(rhs.shape)}")
    part.copy_(rhs.flip(flips) if flips else rhs)
    return result


@op("_slice_assign_scalar", "_crop_assign_scalar", "_npi_slice_assign_scalar")
def slice_assign_scalar(data: Tensor, *, scalar: float = 0.0, begin: Shape, end: Shape, step: Shape = ()) -> Tensor:
    """A copy of data with the slice begin:end:step set to a scalar."""
    keys, _ = _slices(data, begin, end, step)
    result = data.clone()
    result[keys] = scalar
    return result


def _slices(data: Tensor, begin: Shape, end: Shape, step: Shape) -> tuple[tuple[slice, ...], list[int]]:
    """Return the slices with positive steps, and the axes to reverse afterwards."""
    step = step or (None,) * len(begin)  # type: ignore[assignment]
    if not len(begin) == len(end) == len(step) <= data.dim():
        raise MXNetError(
            f"begin, end and step must have the same length, at most {data.dim()}, got {begin}, {end} and {step or ()}"
        )
    pairs = [forward_slice(slice(*s), n) for s, n in zip(zip(begin, end, step, strict=True), data.shape, strict=False)]
    return tuple(key for key, _ in pairs), [axis for axis, (_, reverse) in enumerate(pairs) if reverse]


@op("slice_axis", may_alias=True)
def slice_axis(data: Tensor, *, axis: int, begin: int, end: int | None) -> Tensor:
    """data[begin:end] along one dimension."""
    length = data.size(axis)
    first = begin + length if begin < 0 else begin
    last = length if end is None else end + length if end < 0 else end
    if not 0 <= first < last <= length:
        raise MXNetError(f"{begin}:{end} is not a valid slice of axis {axis} with size {length}")
    return data.narrow(axis, first, last - first)


def _like_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    data, like = shapes
    if data is None or like is None or is_known(data) and is_known(like):
        return shapes
    axes = {axis % len(data) for axis in attrs["axes"] or range(len(data))}
    return shapes, [tuple(like[i] if i in axes else n for i, n in enumerate(data))]


@op("slice_like", may_alias=True, types=typed([0]), infer=_like_shapes)
def slice_like(data: Tensor, shape_like: Tensor, *, axes: Shape = ()) -> Tensor:
    """The leading part of data with the sizes of shape_like, along all dimensions or along `axes`."""
    if not axes:
        if data.dim() != shape_like.dim():
            raise MXNetError("expected arrays with equal numbers of dimensions, or axes")
        axes = tuple(range(data.dim()))
    result = data
    for axis in axes:
        # a negative axis counts from the end of data in both arrays
        length = shape_like.shape[axis if axis >= 0 else axis + data.dim()]
        if length > data.size(axis):
            raise MXNetError(f"axis {axis} has size {data.size(axis)}, which is less than {length} in shape_like")
        result = result.narrow(axis, 0, length)
    return result


@op("Crop", may_alias=True)
def crop(
    *data: Tensor, num_args: int = 0, offset: Shape = (0, 0), h_w: Shape = (0, 0), center_crop: bool = False
) -> Tensor:
    """A window of an image with the size of a second image or `h_w`, at `offset` or in the center."""
    if len(data) not in (1, 2) or any(image.dim() != 4 for image in data):
        raise MXNetError("expected one or two arrays with 4 dimensions (batch, channel, height, width)")
    image = data[0]
    size = tuple(data[1].shape[2:]) if len(data) == 2 else h_w
    room = [length - wanted for length, wanted in zip(image.shape[2:], size, strict=True)]
    if min(room) < 0 or min(size) < 1:
        raise MXNetError(f"a window of {size} must fit into {tuple(image.shape[2:])}")
    top, left = (room[0] // 2, room[1] // 2) if center_crop else offset
    if not (0 <= top <= room[0] and 0 <= left <= room[1]):
        raise MXNetError(f"offset {offset} is out of range for a window of {size} in {tuple(image.shape[2:])}")
    return image[:, :, top : top + size[0], left : left + size[1]]


# ---- splitting and joining ----


def _split_outputs(attrs: dict[str, Any]) -> tuple[str, ...]:
    if attrs["num_outputs"] < 1:
        raise MXNetError(f"num_outputs must be at least 1, received {attrs['num_outputs']}")
    return tuple(f"output{i}" for i in range(attrs["num_outputs"]))


def _whole_shape(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer the shape of the whole from its parts: along `axis`, their sizes must be known or equal."""
    data, equal = shapes[0], "num_outputs" in attrs
    if data is None or not -len(data) <= attrs["axis"] < len(data):
        return shapes
    axis = attrs["axis"] % len(data)
    parts = [(*s[:axis], 1, *s[axis:]) if s is not None and attrs["squeeze_axis"] else s for s in outputs]
    others = [(*s[:axis], UNKNOWN, *s[axis + 1 :]) for s in parts if s is not None and len(s) == len(data)]
    one = merged(data, *others)
    lengths = [UNKNOWN if s is None or len(s) <= axis else s[axis] for s in parts]
    lengths = [max(lengths)] * len(lengths) if equal else lengths
    if one is None or UNKNOWN in lengths:
        return [one]
    return [(*one[:axis], sum(lengths), *one[axis + 1 :])]


@op("SliceChannel", "split", may_alias=True, outputs=_split_outputs, infer=_whole_shape)
def split(data: Tensor, *, num_outputs: int, axis: int = 1, squeeze_axis: bool = False) -> Tensor | list[Tensor]:
    """Split into equal parts along `axis`. With `squeeze_axis`, the parts have size 1 and that dimension is removed."""
    length = data.size(axis)
    if num_outputs < 1 or length % num_outputs:
        raise MXNetError(f"axis {axis} with size {length} is not divisible into {num_outputs} parts")
    return _parts(data, [length // num_outputs] * num_outputs, axis, squeeze_axis)


@op("_split_v2", "_npi_split", may_alias=True, outputs=lambda a: a["sections"] or len(a["indices"]), infer=_whole_shape)
def split_v2(
    data: Tensor, *, indices: Shape, axis: int = 1, squeeze_axis: bool = False, sections: int = 0
) -> Tensor | list[Tensor]:
    """Split along `axis` at `indices` (the first is 0), or into `sections` parts, of which the first may be longer."""
    length = data.size(axis)
    if sections > 0:
        short, longer = divmod(length, sections)
        return _parts(data, [short + (i < longer) for i in range(sections)], axis, squeeze_axis)
    if not length:
        indices = (0,) * len(indices)  # nothing to split: MXNet accepts any indices
    ends = (*indices[1:], length)
    sizes = [end - start for start, end in zip(indices, ends, strict=True)]
    if not indices or indices[0] != 0 or min(sizes) < 0:
        raise MXNetError(f"indices must start with 0 and be ascending up to at most {length}, got {indices}")
    return _parts(data, sizes, axis, squeeze_axis)


def _parts(data: Tensor, sizes: list[int], axis: int, squeeze_axis: bool) -> Tensor | list[Tensor]:
    """Return the parts, or the only part."""
    parts = data.split(sizes, axis)
    if squeeze_axis:
        if any(size != 1 for size in sizes):
            raise MXNetError(f"squeeze_axis=True requires parts of size 1, got {sizes}")
        parts = data.unbind(axis) if data.dim() > 1 or modes.np_shape else parts
    return list(parts) if len(parts) > 1 else parts[0]


def _joined_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Infer that the inputs and the output have the same shape except along the joined axis.

    The output shape is computed without running the op, which would import much of torch.
    """
    rank, dim = next((len(shape) for shape in (*shapes, *outputs) if shape is not None), 0), attrs["dim"]
    if not -rank <= dim < rank:
        return shapes
    dim %= rank
    one = merged(*((*s[:dim], UNKNOWN, *s[dim + 1 :]) for s in (*shapes, *outputs) if s is not None))
    assert one is not None
    parts = [(*one[:dim], UNKNOWN if shape is None else shape[dim], *one[dim + 1 :]) for shape in shapes]
    lengths = [part[dim] for part in parts]
    whole = UNKNOWN if UNKNOWN in lengths else sum(lengths)
    return parts, [(*one[:dim], whole, *one[dim + 1 :])]


def _equal_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Infer that all inputs have the same shape, and that the output has one more dimension."""
    one = merged(*shapes)
    if one is None or not -len(one) - 1 <= attrs["axis"] <= len(one):
        return shapes
    axis = attrs["axis"] % (len(one) + 1)
    return [one] * len(shapes), [(*one[:axis], len(shapes), *one[axis:])]


def _packed_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes | tuple[Shapes, Shapes]:
    """Divide the remaining size equally among parts of unknown size: those of an RNN's two directions are equal."""
    whole = outputs[0]
    unknown = sum(not is_known(shape) for shape in shapes)
    if unknown and is_known(whole):
        left = whole[0] - sum(shape[0] for shape in shapes if is_known(shape))
        shapes = [shape if is_known(shape) else (left // unknown,) for shape in shapes]
    return _joined_shapes(shapes, outputs, attrs)


@op("_rnn_param_concat", "_npi_rnn_param_concat", same_dtype=True, infer=_packed_shapes)
@op("Concat", "concat", same_dtype=True, infer=_joined_shapes)
def concat(*data: Tensor, num_args: int = 0, dim: int = 1) -> Tensor:
    """Join arrays along an existing dimension."""
    if not data:
        raise MXNetError("expected at least one array")
    return torch.cat(data, dim)


@op("stack", same_dtype=True, infer=_equal_shapes)
def stack(*data: Tensor, axis: int = 0, num_args: int = 0) -> Tensor:
    """Join arrays of the same shape along a new dimension."""
    if not data:
        raise MXNetError("expected at least one array")
    return torch.stack(data, axis)
