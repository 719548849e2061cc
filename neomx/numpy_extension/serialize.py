"""`npx.save` and `npx.load`: save and load `mx.np` arrays in MXNet's `.params` format."""

from __future__ import annotations

from typing import Any

from ..ndarray import serialize
from ..numpy.multiarray import ndarray

__all__ = ["load", "save"]


def save(file: str, arr: Any) -> None:
    """Write an array, a list of arrays, or a dict from names to arrays. Scalars and empty arrays are allowed."""
    arrays = [arr] if isinstance(arr, ndarray) else arr
    listed = arrays.values() if isinstance(arrays, dict) else arrays
    if not isinstance(arrays, (dict, list, tuple)) or not all(isinstance(each, ndarray) for each in listed):
        raise ValueError(
            f"npx.save expects an mx.np array, a list of them or a dict from names to them, received {arr!r:.80}"
        )
    serialize.save(file, arrays if isinstance(arrays, dict) else list(arrays), np_shape=True)


def load(file: str) -> Any:
    """Load the arrays of a file: a dict if they have names, otherwise a list."""
    found = serialize.load(file)
    if isinstance(found, dict):
        return {name: array.as_np_ndarray() for name, array in found.items()}
    return [array.as_np_ndarray() for array in found]
