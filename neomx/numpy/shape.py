"""Reshaping, reordering, joining, splitting, repeating and padding of arrays."""

from __future__ import annotations

import math
from typing import Any

import numpy as onp

from ..base import numeric_types
from ..symbol import Symbol
from .call import call, joined
from .multiarray import ndarray

__all__ = [
    "append",
    "array_split",
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "broadcast_arrays",
    "broadcast_to",
    "column_stack",
    "concatenate",
    "delete",
    "dsplit",
    "dstack",
    "expand_dims",
    "flip",
    "fliplr",
    "flipud",
    "hsplit",
    "hstack",
    "insert",
    "moveaxis",
    "pad",
    "ravel",
    "repeat",
    "reshape",
    "resize",
    "roll",
    "rot90",
    "row_stack",
    "shape",
    "split",
    "squeeze",
    "stack",
    "swapaxes",
    "tile",
    "transpose",
    "unravel_index",
    "vsplit",
    "vstack",
]


def shape(a: Any) -> tuple[int, ...]:
    """Return the size of each dimension."""
    return a.shape if isinstance(a, ndarray) else onp.shape(a)


# ---- reshaping ----


def reshape(a: Any, newshape: Any, order: str = "C", out: Any = None) -> Any:
    """Return a copy with another shape. One dimension may be -1, which is inferred."""
    if order == "C":  # not written to files
        return call("_np_reshape", (a,), out, newshape=newshape)
    return call("_np_reshape", (a,), out, newshape=newshape, order=order)


def unless(**given: tuple[Any, Any]) -> dict[str, Any]:
    """Return the attributes that differ from their defaults. Files only contain these."""
    return {name: value for name, (value, default) in given.items() if value != default}


def ravel(x: Any, order: str = "C") -> Any:
    """Return a flattened copy."""
    if order != "C":
        raise NotImplementedError(f"ravel only supports order='C', received {order!r}")
    if isinstance(x, numeric_types):
        return onp.ravel(x)
    return call("_npx_reshape", (x,), newshape=-1)


def expand_dims(a: Any, axis: int) -> Any:
    """Return a copy with a new axis of size 1."""
    return call("_npi_expand_dims", (a,), axis=axis)


def squeeze(a: Any, axis: Any = None, out: Any = None) -> Any:
    """Return a copy without the axes of size 1, or without the axes `axis`."""
    return call("_np_squeeze", (a,), out) if axis is None else call("_np_squeeze", (a,), out, axis=axis)


def broadcast_to(array: Any, shape: Any) -> Any:
    """Return a copy broadcast to `shape`."""
    if isinstance(array, numeric_types):
        return call("_npi_full", shape=shape, value=array, dtype="float32")
    return call("_npi_broadcast_to", (array,), shape=shape)


def broadcast_arrays(*args: Any) -> list[Any]:
    """Return copies of the arrays, broadcast to a common shape."""
    shape = onp.broadcast_shapes(*(array.shape for array in args))
    return [broadcast_to(array, shape) for array in args]


def atleast_1d(*arys: Any) -> Any:
    """Return the arrays with at least one dimension: a single array, or a list."""
    return _one_or_list(call("_np_atleast_1d", arys), len(arys))


def atleast_2d(*arys: Any) -> Any:
    """Return the arrays with at least two dimensions: a single array, or a list."""
    return _one_or_list(call("_np_atleast_2d", arys), len(arys))


def atleast_3d(*arys: Any) -> Any:
    """Return the arrays with at least three dimensions: a single array, or a list."""
    return _one_or_list(call("_np_atleast_3d", arys), len(arys))


def _one_or_list(result: Any, count: int) -> Any:
    return list(result) if count > 1 else result


# ---- reordering ----


def transpose(a: Any, axes: Any = None) -> Any:
    """Return a copy with the axes in the order `axes`, or reversed."""
    return call("_np_transpose", (a,)) if axes is None else call("_np_transpose", (a,), axes=axes)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Return a copy with two axes swapped."""
    return call("_npi_swapaxes", (a,), dim1=axis1, dim2=axis2)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Return a copy with axes moved to new positions. The other axes keep their order."""
    return call("_np_moveaxis", (a,), source=source, destination=destination)


def flip(m: Any, axis: Any = None, out: Any = None) -> Any:
    """Reverse the order of elements along `axis`, or along all axes."""
    if isinstance(m, numeric_types):
        return onp.flip(m, axis)
    return call("_npi_flip", (m,), out, axis=axis)


def fliplr(m: Any) -> Any:
    """Reverse the order of elements along the second axis."""
    return flip(m, 1)


def flipud(m: Any) -> Any:
    """Reverse the order of elements along the first axis."""
    return flip(m, 0)


def rot90(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    """Rotate the plane of two `axes` by 90 degrees, k times, from the first axis towards the second."""
    return call("_npi_rot90", (m,), k=k, axes=axes)


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Shift elements along `axis`, or in the flattened array. Elements shifted beyond the end reappear at the start."""
    return call("_np_roll", (a,), shift=shift, **unless(axis=(axis, None)))


# ---- repeating and padding ----


def repeat(a: Any, repeats: int, axis: int | None = None) -> Any:
    """Repeat each element along `axis`, or in the flattened array."""
    return call("_np_repeat", (a,), repeats=repeats, **unless(axis=(axis, None)))


def tile(A: Any, reps: Any) -> Any:
    """Repeat the whole array `reps` times along each axis."""
    if isinstance(A, numeric_types):
        return onp.tile(A, reps)
    return call("_npi_tile", (A,), reps=reps)


_PAD_ARGUMENTS = {
    "constant": ("constant_values",),
    "edge": (),
    "maximum": ("stat_length",),
    "minimum": ("stat_length",),
    "reflect": ("reflect_type",),
    "symmetric": ("reflect_type",),
}


def pad(x: Any, pad_width: Any = None, mode: str = "constant", **kwargs: Any) -> Any:
    """Pad each axis. `pad_width` has a (before, after) pair for each axis, or one pair for all.

    Modes are 'constant' (with `constant_values`, a number), 'edge', 'reflect', 'symmetric', 'maximum' and 'minimum'.
    """
    if pad_width is None:
        raise TypeError("pad_width must be an int, a pair of ints or a tuple of pairs, received None")
    if mode not in _PAD_ARGUMENTS:
        raise ValueError(f"mode {mode!r} is not supported. Expected one of {', '.join(map(repr, _PAD_ARGUMENTS))}")
    if unknown := kwargs.keys() - set(_PAD_ARGUMENTS[mode]):
        raise ValueError(f"mode {mode!r} does not accept the argument {', '.join(unknown)}")
    if kwargs.get("stat_length") is not None or kwargs.get("reflect_type", "even") != "even":
        raise ValueError(f"stat_length and reflect_type other than 'even' are not supported, received {kwargs}")
    if mode != "constant":
        return call("_npi_pad", (x,), pad_width=pad_width, mode=mode)
    value = kwargs.get("constant_values", 0)
    if not isinstance(value, numeric_types):
        raise TypeError(f"constant_values must be a number, received {type(value).__name__}")
    return call("_npi_pad", (x,), pad_width=pad_width, mode=mode, constant_value=value)


def resize(a: Any, new_shape: Any) -> Any:
    """Return a copy with another shape and size. Elements are repeated in order, or dropped at the end."""
    if isinstance(a, Symbol):
        raise NotImplementedError("resize requires the size of its array, so it does not support symbols")
    lengths = (new_shape,) if isinstance(new_shape, (int, onp.integer)) else tuple(new_shape)
    if min(lengths, default=0) < 0:
        raise ValueError(f"new_shape must not contain negative sizes, received {new_shape}")
    size, wanted = a.size, math.prod(lengths)
    if not size or not wanted:
        return call("_npi_zeros", ctx=a.ctx, shape=lengths, dtype=a.dtype)
    return reshape(tile(ravel(a), -(-wanted // size))[:wanted], lengths)


# ---- joining ----


def concatenate(seq: Any, axis: int | None = 0, out: Any = None) -> Any:
    """Join arrays along an existing axis, or flatten and join them."""
    return joined("_npi_concatenate", seq, axis, out)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    """Append values to an array."""
    return concatenate((arr, values), axis)


def stack(arrays: Any, axis: int = 0, out: Any = None) -> Any:
    """Join arrays of the same shape along a new axis."""
    return joined("_npi_stack", arrays, axis, out)


def vstack(arrays: Any, out: Any = None) -> Any:
    """Join arrays along the first axis. One-dimensional arrays are rows."""
    return call("_npi_vstack", tuple(arrays), out)


def row_stack(arrays: Any) -> Any:
    """Alias of `vstack`."""
    return vstack(arrays)


def hstack(arrays: Any) -> Any:
    """Join arrays along the second axis, or one-dimensional arrays end to end."""
    return call("_npi_hstack", tuple(arrays))


def dstack(arrays: Any) -> Any:
    """Join arrays along the third axis."""
    return call("_npi_dstack", tuple(arrays))


def column_stack(tup: Any) -> Any:
    """Join arrays along the second axis. One-dimensional arrays are columns."""
    return call("_npi_column_stack", tuple(tup))


# ---- splitting ----


def _parts(op: str, ary: Any, indices_or_sections: Any, axis: int) -> list[Any]:
    """Split at indices, or into a number of sections, of which the first may be larger."""
    sections, indices = 0, []
    if isinstance(indices_or_sections, (int, onp.integer)) and not isinstance(indices_or_sections, bool):
        sections = int(indices_or_sections)
        if sections < 1:
            raise ValueError(f"the number of sections must be positive, received {sections}")
    elif isinstance(indices_or_sections, (tuple, list, set, onp.ndarray)):
        indices = [0, *indices_or_sections]
    else:
        raise ValueError(
            f"indices_or_sections must be an int, or a tuple or list of ints, received {indices_or_sections!r:.80}"
        )
    result = call(op, (ary,), indices=indices, axis=axis, squeeze_axis=False, sections=sections)
    return list(result) if (sections or len(indices)) > 1 else [result]


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split along `axis` at indices, or into a number of sections, of which the first may be larger."""
    return _parts("_npi_split", ary, indices_or_sections, axis)


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    """Split along `axis` at indices, or into a number of equal sections."""
    equal = isinstance(indices_or_sections, int) and indices_or_sections > 0 and not isinstance(ary, Symbol)
    if equal and ary.shape[axis] % indices_or_sections:
        raise ValueError(
            f"axis {axis} with size {ary.shape[axis]} cannot be split into {indices_or_sections} equal parts. "
            "Use array_split"
        )
    return array_split(ary, indices_or_sections, axis)


def hsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split along the second axis, or along the first axis of a one-dimensional array."""
    _has_dimensions("hsplit", ary, 1)
    return _parts("_npi_hsplit", ary, indices_or_sections, 1)


def vsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split along the first axis."""
    _has_dimensions("vsplit", ary, 2)
    return split(ary, indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> list[Any]:
    """Split along the third axis."""
    _has_dimensions("dsplit", ary, 3)
    return _parts("_npi_dsplit", ary, indices_or_sections, 2)


def _has_dimensions(name: str, ary: Any, least: int) -> None:
    if not isinstance(ary, Symbol) and ary.ndim < least:
        raise ValueError(f"{name} requires an array with at least {least} dimensions, received {ary.ndim}")


# ---- insertion and deletion ----


def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    """Return a copy with values inserted before an index, or before each index of a slice or an index array."""
    inputs: list[Any] = [arr]
    attrs: dict[str, Any] = {"axis": axis}
    if isinstance(values, numeric_types):
        attrs["val"] = values
    else:
        inputs.append(_as_array(values))
    op, position = _position(obj)
    if op == "tensor":
        inputs = [arr, *(inputs[1:] or [None]), position["obj"]]
        return call("_npi_insert_tensor", inputs, **attrs)
    return call(f"_npi_insert_{op}", inputs, **attrs, **position)


def delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    """Return a copy without the elements at an index, a slice or an index array."""
    if not isinstance(arr, (ndarray, Symbol)):
        raise TypeError(f"arr must be an mx.np array, received {type(arr).__name__}")
    op, position = _position(obj)
    if op == "tensor":
        return call("_npi_delete", (arr, position["obj"]), axis=axis)
    return call("_npi_delete", (arr,), axis=axis, **position)


def _position(obj: Any) -> tuple[str, dict[str, Any]]:
    """Return the suffix of the op for this kind of index, and its attributes."""
    if isinstance(obj, slice):
        return "slice", {"start": obj.start, "stop": obj.stop, "step": 1 if obj.step is None else obj.step}
    if isinstance(obj, (int, onp.integer)) and not isinstance(obj, bool):
        return "scalar", {"int_ind": int(obj)}
    return "tensor", {"obj": _as_array(obj, "int64")}


def _as_array(value: Any, dtype: str | None = None) -> Any:
    if isinstance(value, (ndarray, Symbol)):
        return value
    from .creation import array

    data = onp.asarray(value)
    return array(data, dtype="bool" if data.dtype == bool else dtype)


# ---- indices and memory ----


def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    """Convert indices of a flattened array to indices of an array of that shape, as one array per dimension."""
    if order != "C":
        raise NotImplementedError(f"unravel_index only supports order='C', received {order!r}")
    if isinstance(indices, numeric_types):
        return onp.unravel_index(int(indices), shape)
    rows = call("_unravel_index", (indices,), shape=shape)
    if isinstance(rows, Symbol):
        return rows
    positions = indices.asnumpy()
    if (
        positions.dtype.kind not in "iu"
        or positions.size
        and not 0 <= positions.min() <= positions.max() < math.prod(shape)
    ):
        raise ValueError(f"indices must be integers from 0 to {math.prod(shape) - 1} for shape {shape}")
    return tuple(rows)
