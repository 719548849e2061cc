"""Sorting, searching, and sets of elements."""

from __future__ import annotations

from typing import Any

from ..symbol import Symbol
from .call import call
from .multiarray import ndarray
from .shape import ravel

__all__ = ["argmax", "argmin", "argsort", "bincount", "nonzero", "sort", "take", "unique"]


def sort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """A copy with the elements in ascending order, along `axis` or all in one row."""
    _no_fields(order)
    return call("_npi_sort", (a,), axis=axis, is_ascend=True)


def argsort(a: Any, axis: int | None = -1, kind: Any = None, order: Any = None) -> Any:
    """The positions of the elements in ascending order, along `axis` or of the flattened array, as int64."""
    _no_fields(order)
    return call("_npi_argsort", (a,), axis=axis, is_ascend=True, dtype="int64")


def _no_fields(order: Any) -> None:
    if order is not None:
        raise NotImplementedError("arrays have no fields: leave out order")


def argmax(a: Any, axis: int | None = None, out: Any = None) -> Any:
    """The position of the largest element, along `axis` or in the flattened array, as int64."""
    return call("_npi_argmax", (a,), out, axis=axis, keepdims=False)


def argmin(a: Any, axis: int | None = None, out: Any = None) -> Any:
    """The position of the smallest element, along `axis` or in the flattened array, as int64."""
    return call("_npi_argmin", (a,), out, axis=axis, keepdims=False)


def nonzero(a: Any) -> tuple[Any, ...]:
    """The positions of the elements that are not 0: an int64 array for each dimension."""
    rows = call("_npx_nonzero", (a,))
    return tuple(rows[:, axis] for axis in range(max(a.ndim, 1)))


def unique(
    ar: Any,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
) -> Any:
    """The distinct elements in order, or the distinct slices along `axis`.

    Where asked for also, in a tuple: the position at which each first occurs, for each element its place among the
    distinct ones, and how often each occurs.
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
    """The slices at `indices` along `axis`, or elements of the flattened array.

    What to do with an index out of range says `mode`: 'raise', 'clip' or 'wrap'.
    """
    if mode not in ("raise", "clip", "wrap"):
        raise NotImplementedError(f"mode must be 'raise', 'clip' or 'wrap', received {mode!r}")
    if axis is None:
        a, axis = ravel(a), 0
    return call("_npi_take", (a, indices), out, axis=axis, mode=mode)


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    """How often each number from 0 on occurs, or the sum of the weights where it does."""
    if not isinstance(x, (ndarray, Symbol)):
        raise TypeError(f"x must be an mx.np array, received {type(x).__name__}")
    if minlength < 0:
        raise ValueError(f"minlength cannot be negative, received {minlength}")
    if weights is None:
        return call("_npi_bincount", (x,), minlength=minlength, has_weights=False)
    return call("_npi_bincount", (x, weights), minlength=minlength, has_weights=True)
