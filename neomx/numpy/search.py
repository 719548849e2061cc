"""Sorting, searching and set operations."""

from __future__ import annotations

from typing import Any

from ..symbol import Symbol
from .call import call, call_converted
from .multiarray import ndarray
from .shape import ravel

__all__ = ["argmax", "argmin", "argsort", "bincount", "nonzero", "sort", "take", "unique"]


def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """Return a copy sorted in ascending order along `axis`, or flattened and sorted."""
    _no_fields(order)
    return call("_npi_sort", (a,), axis=axis, is_ascend=True)


def argsort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """Return the int64 indices that sort an array along `axis`, or the flattened array."""
    _no_fields(order)
    return call("_npi_argsort", (a,), axis=axis, is_ascend=True, dtype="int64")


def _no_fields(order: Any) -> None:
    if order is not None:
        raise NotImplementedError("arrays do not have fields. Omit order")


def argmax(a: Any, axis: int | None = None, out: Any = None) -> Any:
    """Return the int64 index of the maximum along `axis`, or in the flattened array."""
    if type(a) is ndarray and type(axis) is int:
        return call_converted("_npi_argmax", (a,), out, {"axis": axis})
    return call("_npi_argmax", (a,), out, axis=axis, keepdims=False)


def argmin(a: Any, axis: int | None = None, out: Any = None) -> Any:
    """Return the int64 index of the minimum along `axis`, or in the flattened array."""
    if type(a) is ndarray and type(axis) is int:
        return call_converted("_npi_argmin", (a,), out, {"axis": axis})
    return call("_npi_argmin", (a,), out, axis=axis, keepdims=False)


def nonzero(a: Any) -> tuple[Any, ...]:
    """Return the indices of the nonzero elements, as one int64 array per dimension."""
    rows = call("_npx_nonzero", (a,))
    return tuple(rows[:, axis] for axis in range(max(a.ndim, 1)))


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """Return the sorted unique elements, or the unique slices along `axis`.

    On request, also return in a tuple: the first index of each unique element, the indices that reconstruct the array
    from the unique elements, and the counts.
    """
    result = call(
        "_npi_unique",
        (ar,),
        return_index=return_index,
        return_inverse=return_inverse,
        return_counts=return_counts,
        axis=axis,
    )
    if not (return_index or return_inverse or return_counts):
        return result
    return list(result) if isinstance(result, Symbol) else tuple(result)


def take(a: Any, indices: Any, axis: int | None = None, mode: str = "raise", out: Any = None) -> Any:
    """Return the slices at `indices` along `axis`, or elements of the flattened array.

    `mode` defines how indices out of range are handled: 'raise', 'clip' or 'wrap'.
    """
    if mode not in ("raise", "clip", "wrap"):
        raise NotImplementedError(f"mode must be 'raise', 'clip' or 'wrap', received {mode!r}")
    if axis is None:
        a, axis = ravel(a), 0
    return call("_npi_take", (a, indices), out, axis=axis, mode=mode)


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """Return the number of occurrences of each integer from 0, or the sums of their weights."""
    if not isinstance(x, (ndarray, Symbol)):
        raise TypeError(f"x must be an mx.np array, received {type(x).__name__}")
    if minlength < 0:
        raise ValueError(f"minlength cannot be negative, received {minlength}")
    if weights is None:
        return call("_npi_bincount", (x,), minlength=minlength, has_weights=False)
    return call("_npi_bincount", (x, weights), minlength=minlength, has_weights=True)
