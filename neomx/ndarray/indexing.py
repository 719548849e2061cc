"""Indexing of tensors, `x[key]`, with MXNet's rules.

They are numpy's rules, except that negative steps return a copy, booleans are numbers, and no result has zero
dimensions unless mx.util.np_shape is on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ..base import modes
from ..ops.shape import never_0d
from ..ops.slicing import forward_slice

_Basic = (int, np.integer, slice, type(None), type(Ellipsis))


class Index:
    """A key normalized for one shape.

    basic     slices (with positive steps), ints, None: applied first, returns a view
    flips     axes of that view to reverse, for slices with negative steps
    advanced  index arrays for the flipped view, or None
    """

    __slots__ = ("basic", "flips", "advanced")

    def __init__(self, key: Any, shape: tuple[int, ...], device: torch.device):
        if type(key) is slice and shape:  # fast path for the common case
            key, reverse = forward_slice(key, shape[0])
            self.basic, self.flips, self.advanced = (key,), [0] if reverse else [], None
            return
        items = _expand(key if isinstance(key, tuple) else (key,), len(shape))
        has_arrays = any(not isinstance(item, _Basic) for item in items)
        basic: list[Any] = []
        flips: list[int] = []
        advanced: list[Any] = []
        axis = 0  # of the array
        for item in items:
            if item is None:
                basic.append(None)
                advanced.append(slice(None))
                continue
            size = shape[axis]
            axis += 1
            if isinstance(item, slice):
                item, reverse = forward_slice(item, size)
                if reverse:
                    flips.append(len(advanced))
                basic.append(item)
                advanced.append(slice(None))
            elif isinstance(item, (int, np.integer)):
                position = _checked(int(item), size, axis - 1)
                if has_arrays:  # a number next to index arrays is treated as one
                    basic.append(slice(None))
                    advanced.append(torch.tensor([position], device=device))
                else:
                    basic.append(position)
            else:
                basic.append(slice(None))
                advanced.append(_index_tensor(item, size, axis - 1, device))
        self.basic, self.flips = tuple(basic), flips
        self.advanced = tuple(advanced) if has_arrays else None
        shapes = [tuple(item.shape) for item in advanced if isinstance(item, torch.Tensor)] if has_arrays else ()
        if len(shapes) > 1:
            try:
                np.broadcast_shapes(*shapes)
            except ValueError:
                raise ValueError(f"index arrays of shapes {', '.join(map(str, shapes))} do not broadcast") from None

    def read(self, data: torch.Tensor) -> torch.Tensor:
        """Return the selected elements: a view for basic keys, otherwise a copy."""
        result = data[self.basic]
        if self.flips:
            result = result.flip(self.flips)
        if self.advanced is not None:
            result = result[self.advanced]
        return result if modes.np_shape else never_0d(result)

    def write(self, data: torch.Tensor, value: Any) -> None:
        """Set the selected elements to `value`, a number or a tensor that is broadcast."""
        target = data[self.basic]
        if not self.flips:
            if self.advanced is not None:
                target[self.advanced] = value
            elif isinstance(value, torch.Tensor):
                target[...] = value
            else:
                target.fill_(value)
            return
        flipped = target.flip(self.flips)
        flipped[self.advanced if self.advanced is not None else ...] = value
        target.copy_(flipped.flip(self.flips))


def _expand(key: tuple[Any, ...], ndim: int) -> list[Any]:
    """Replace the Ellipsis, or the missing trailing indices, by full slices."""
    used = sum(item is not None and item is not Ellipsis for item in key)
    if used > ndim:
        raise IndexError(f"too many indices: {used} for an array of {ndim} dimensions")
    ellipses = sum(item is Ellipsis for item in key)
    if ellipses > 1:
        raise IndexError("an index can have only one Ellipsis ('...')")
    full = [slice(None)] * (ndim - used)
    if not ellipses:
        return [*key, *full]
    at = next(i for i, item in enumerate(key) if item is Ellipsis)
    return [*key[:at], *full, *key[at + 1 :]]


def _checked(position: int, size: int, axis: int) -> int:
    if not -size <= position < size:
        raise IndexError(f"index {position} is out of bounds for axis {axis} with size {size}")
    return position % size


def _index_tensor(item: Any, size: int, axis: int, device: torch.device) -> torch.Tensor:
    data = getattr(item, "_data", item)
    if not isinstance(data, torch.Tensor):
        if not isinstance(data, (list, tuple, range, np.ndarray)):
            raise ValueError(
                f"an index must be an int, a slice, None, Ellipsis, a list or an array, received {type(item).__name__}"
            )
        array = np.asarray(data)
        if array.dtype.kind not in "biuf" and array.size:
            raise ValueError(f"an index array must contain numbers, received {item!r:.80}")
        array = array.astype(np.int64)
        if array.size:
            _checked(int(array.min()), size, axis)
            _checked(int(array.max()), size, axis)
        index = torch.as_tensor(np.where(array < 0, array + size, array), device=device)
        return never_0d(index)
    index = data.detach().to(device, torch.int64)
    if index.numel():
        for bound in torch.aminmax(index):
            _checked(int(bound), size, axis)
    index = torch.where(index < 0, index + size, index)
    return never_0d(index)
