"""Check the arguments of a store's methods, before the store or any array changes."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..base import MXNetError
from ..ndarray import NDArray
from ..ndarray.sparse import BaseSparseNDArray

Key = int | str
Keys = Key | Sequence[Key]
Arrays = NDArray | Sequence[NDArray]  # of one key: one array, or one for each context
Values = Arrays | Sequence[Arrays]
Pairs = list[tuple[Key, list[NDArray]]]


def pairs_of(key: Keys, value: Values) -> Pairs:
    """(key, its arrays) for each key of a call, in the given order. A key may occur more than once."""
    if isinstance(key, (int, str)):
        return [(_checked_key(key), _listed(key, value))]
    if not isinstance(key, (list, tuple)):
        raise _bad_key(key)
    keys = [_checked_key(each) for each in key]
    if not isinstance(value, (list, tuple)) or len(value) != len(keys):
        received = f"{len(value)} values" if isinstance(value, (list, tuple)) else f"a {type(value).__name__}"
        raise AssertionError(f"a list of keys needs a list with a value for each: {len(keys)} keys, {received}")
    return [(name, _listed(name, each)) for name, each in zip(keys, value, strict=True)]


def grouped(pairs: Pairs) -> dict[Key, list[NDArray]]:
    """All arrays of each key."""
    found: dict[Key, list[NDArray]] = {}
    for name, arrays in pairs:
        found.setdefault(name, []).extend(arrays)
    return found


def first_values(key: Keys, value: Values) -> dict[Key, NDArray]:
    """The initial array of each key of a call."""
    found: dict[Key, NDArray] = {}
    for name, arrays in pairs_of(key, value):
        if name in found:
            raise duplicate(name)
        if len(arrays) > 1:
            raise MXNetError(f"key {name}: expected one initial array, received {len(arrays)}. Pass one of them")
        found[name] = arrays[0]
    return found


def rows_wanted(key: Keys, out: Values, row_ids: Values) -> list[tuple[Key, NDArray, torch.Tensor]]:
    """(key, row-sparse array, its unique row indices in ascending order) for each array of a `row_sparse_pull`."""
    pairs = pairs_of(key, out)
    ids = pairs_of(key, row_ids)
    found = []
    for (name, arrays), (_, numbers) in zip(pairs, ids, strict=True):
        if len(numbers) not in (1, len(arrays)):
            raise AssertionError(f"key {name}: row_ids= has {len(numbers)} arrays, out= has {len(arrays)}")
        each = numbers if len(numbers) > 1 else numbers * len(arrays)
        found += [(name, array, torch.unique(n._data.detach().long())) for array, n in zip(arrays, each, strict=True)]
    for name, array, _ in found:
        if array.stype != "row_sparse":
            raise MXNetError(
                f"key {name}: row_sparse_pull expects row_sparse arrays in out=, received a {array.stype} array"
            )
    return found


def check_shapes(name: Key, arrays: Sequence[NDArray], shape: tuple[int, ...], what: str) -> None:
    """Raise unless all arrays have the shape of the stored one."""
    for array in arrays:
        if array.shape != shape:
            raise MXNetError(f"key {name}: the stored array has shape {shape}, {what} {array.shape}")


def check_dtypes(name: Key, arrays: Sequence[NDArray], dtype: torch.dtype) -> None:
    """Raise unless all arrays have the same `dtype`."""
    for array in arrays:
        if (found := dtype_of(array)) != dtype:
            raise MXNetError(f"key {name}: expected {_name(dtype)}, received {_name(found)}. Convert it with astype")


def check_rows(name: Key, rows: torch.Tensor, shape: tuple[int, ...]) -> None:
    """Raise if row indices, which are in ascending order, are out of range."""
    if len(rows) and not (int(rows[0]) >= 0 and int(rows[-1]) < shape[0]):
        raise MXNetError(f"key {name} has {shape[0]} rows, row_ids= asks for rows {int(rows[0])} to {int(rows[-1])}")


def dtype_of(array: NDArray) -> torch.dtype:
    """The dtype of an array, dense or sparse."""
    return array._values.dtype if isinstance(array, BaseSparseNDArray) else array._data.dtype


def duplicate(name: Key) -> MXNetError:
    """The error for a key that is initialized twice."""
    return MXNetError(f"duplicate init of key {name}: it was already passed to init or broadcast")


def _checked_key(key: Key) -> Key:
    if not isinstance(key, (int, str)):
        raise _bad_key(key)
    return int(key) if isinstance(key, bool) else key  # as in MXNet


def _bad_key(key: object) -> AssertionError:
    return AssertionError(f"kvstore keys must be ints, strings, or lists of them; received {key!r:.80}")


def _listed(name: Key, value: object) -> list[NDArray]:
    arrays: list[NDArray] = []
    for array in value if isinstance(value, (list, tuple)) else [value]:
        if not isinstance(array, NDArray):
            raise AssertionError(f"key {name}: expected NDArrays, received {type(array).__name__} {array!r:.80}")
        arrays.append(array)
    if not arrays:
        raise MXNetError(f"key {name}: received an empty list of arrays")
    return arrays


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
