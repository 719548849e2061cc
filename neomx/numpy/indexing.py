"""Indexing of `mx.np` arrays and symbols, `x[key]`, with NumPy's rules. MXNet defines which results share memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as onp
import torch

from ..base import InvalidValueError, modes
from ..ndarray.history import READ
from ..ndarray.indexing import Index
from ..ndarray.invoke import in_graph
from ..ndarray.ndarray import NDArray
from ..ndarray.tracing import check_key
from ..ops.slicing import forward_slice

Tensor = torch.Tensor
_EVERYTHING = slice(None)


class NpIndex(Index):
    """A key normalized for one shape, like `Index`, with boolean masks and scalar results.

    Index arrays have at least one dimension, because torch treats tensors without dimensions as numbers. A number next
    to index arrays becomes an array of length 1. True and False add a new axis of size 1, indexed by an array with one
    position or none.
    """

    __slots__ = ()

    def __init__(self, key: Any, shape: tuple[int, ...], device: torch.device):
        items = [_sorted_out(item, device) for item in (key if isinstance(key, tuple) else (key,))]
        items = _without_ellipsis(items, len(shape))
        has_arrays = any(isinstance(item, Tensor) for item in items)
        basic: list[Any] = []
        self.flips = []
        advanced: list[Any] = []
        axis = 0  # of the array
        for item in items:
            if item is None:
                basic.append(None)
                advanced.append(_EVERYTHING)
            elif isinstance(item, slice):
                item, reverse = forward_slice(item, shape[axis])
                if reverse:
                    self.flips.append(len(basic) if has_arrays else len(advanced))
                basic.append(item)
                advanced.append(_EVERYTHING)
                axis += 1
            elif isinstance(item, int):
                position = _position(item, shape[axis], axis)
                if has_arrays:
                    basic.append(_EVERYTHING)
                    advanced.append(torch.tensor([position], device=device))
                else:
                    basic.append(position)
                axis += 1
            elif not item.dim():  # True or False
                basic.append(None)
                advanced.append(torch.zeros(int(item), dtype=torch.int64, device=device))
            else:
                basic.extend([_EVERYTHING] * _width(item))
                advanced.append(_checked(item, shape, axis))
                axis += _width(item)
        self.basic, self.advanced = tuple(basic), tuple(advanced) if has_arrays else None

    def read(self, data: Tensor) -> Tensor:
        """Return the selected elements: a view for basic keys, otherwise a copy."""
        result = data[self.basic]
        if self.flips:
            result = result.flip(self.flips)
        return result if self.advanced is None else result[self.advanced]


def _sorted_out(item: Any, device: torch.device) -> Any:
    """Normalize an item of a key: an int, a slice, None, Ellipsis, or a tensor of indices, a mask, or True or False."""
    if item is None or item is Ellipsis or isinstance(item, slice):
        return item
    if isinstance(item, (bool, onp.bool_)):
        return torch.tensor(bool(item))
    if isinstance(item, (int, onp.integer)):
        return int(item)
    if isinstance(item, NDArray):
        data = item.to_torch().detach().to(device)
    elif isinstance(item, (list, tuple, range, onp.ndarray)):
        data = torch.as_tensor(onp.asarray(item), device=device)
    else:
        raise ValueError(
            f"an index must be an int, a slice, None, Ellipsis, a list or an array, received {type(item).__name__}"
        )
    if data.dtype is torch.bool:
        return data
    return data.long() if data.dim() else int(data)


def _width(item: Any) -> int:
    """Return the number of array axes that an item of a key indexes."""
    if item is None or item is Ellipsis:
        return 0
    return item.dim() if isinstance(item, Tensor) and item.dtype is torch.bool else 1


def _without_ellipsis(items: list[Any], ndim: int) -> list[Any]:
    """Replace the Ellipsis, or the missing trailing indices, by full slices."""
    used = sum(map(_width, items))
    if used > ndim:
        raise IndexError(f"too many indices: {used} for an array of {ndim} dimensions")
    places = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(places) > 1:
        raise IndexError("an index can have only one Ellipsis ('...')")
    at = places[0] if places else len(items)
    return [*items[:at], *[_EVERYTHING] * (ndim - used), *items[at + 1 :]]


def _position(index: int, length: int, axis: int) -> int:
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of bounds for axis {axis} with size {length}")
    return index


def _checked(item: Tensor, shape: Sequence[int], axis: int) -> Tensor:
    """Return an index array or a mask after checking it. CPU kernels check indices themselves."""
    if item.dtype is torch.bool:
        for i, length in enumerate(item.shape):
            if length != shape[axis + i]:
                raise IndexError(
                    f"boolean index did not match indexed array along axis {axis + i}; size is {shape[axis + i]} "
                    f"but the size of the boolean index is {length}"
                )
    elif item.numel() and (item.device.type != "cpu" or not shape[axis]):
        for bound in torch.aminmax(item):
            _position(int(bound), shape[axis], axis)
    return item


def _is_plain(key: Any) -> bool:
    """Whether torch treats a key as numpy does, including errors: ints and slices without a step."""
    for item in key if type(key) is tuple else (key,):
        if type(item) is not int and (type(item) is not slice or item.step is not None):
            return False
    return True


def _is_index(tensor: Tensor) -> bool:
    """Whether torch treats a tensor as numpy does, and checks it: indices or a mask on the CPU."""
    return tensor.dtype in (torch.int64, torch.bool) and tensor.dim() > 0 and tensor.is_cpu


class Indexed(NDArray):
    """Access to the elements of an `mx.np` array by index."""

    __slots__ = ()

    def __getitem__(self, key: Any) -> Any:
        if type(key) is slice and key == _EVERYTHING and self._data.dim() or type(key) is tuple and not key:
            return self
        if modes.tracing is not None:
            check_key(key)
        if _is_plain(key):
            if not modes.recording and not modes.plain and self._data.is_contiguous():  # fast path for the common case
                data = self._data
                piece = (data.data if data.requires_grad else data)[key]
                return self._kind(piece if piece.is_contiguous() else piece.contiguous(), self._ctx)
            result = self._view(lambda data: data[key], READ, key)
        elif isinstance(key, Indexed) and _is_index(key._data):
            result = self._view(lambda data: data[key._data], READ, key._data)
        else:
            index = self._index(key)
            result = self._view(index.read, READ, index)
        if not result._data.is_contiguous() and in_graph(result._data) is None:
            result._data = result._data.contiguous()  # MXNet only shares contiguous memory
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        if modes.tracing is not None:
            check_key(key)
        index = None if _is_plain(key) else self._index(key)
        target = self._writable_data(value)
        value = _assignable(value, target)
        try:
            if index is None:
                target[key] = value
            else:
                index.write(target, value)
        except RuntimeError as error:
            raise InvalidValueError(
                f"x[{key!r:.80}] = value: cannot assign a value of shape {tuple(onp.shape(value))} to that part of an "
                f"array of shape {self.shape}: {error}"
            ) from error

    def _index(self, key: Any) -> NpIndex:
        return NpIndex(key, self.shape, self._data.device)


def _assignable(value: Any, target: Tensor) -> Any:
    """Return a value as a number or a tensor with the dtype of `target`, in separate memory."""
    if isinstance(value, (bool, int, float)):
        if target.is_floating_point():
            return value
        # Truncate to an integer, which wraps around in a narrow dtype.
        return bool(value) if target.dtype is torch.bool else torch.tensor(int(value)).to(target.device, target.dtype)
    if isinstance(value, NDArray):
        if not isinstance(value, Indexed):
            raise TypeError("cannot assign an mx.nd array to an mx.np array. Use x.as_np_ndarray()")
        tensor = value.to_torch().detach()
        if tensor.untyped_storage().data_ptr() == target.untyped_storage().data_ptr():
            tensor = tensor.clone()
    else:
        tensor = _tensor_of(value)
    return tensor.to(target.device, target.dtype)


def _tensor_of(value: Any) -> Tensor:
    array = onp.asarray(value)
    try:
        if array.dtype.kind == "O":
            array = array.astype(onp.float64)  # None becomes NaN
        if array.dtype.kind in "biuf":
            return torch.as_tensor(array)
    except (TypeError, ValueError):
        pass
    raise TypeError(
        f"expected a number or an array of numbers to assign, received {type(value).__name__} {value!r:.80}"
    )
