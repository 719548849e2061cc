"""The store of workers without servers: all-reduce computes sums, and all workers hold bitwise equal arrays."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

import torch

from ..comm.compress import Compressor
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from .calls import Key
from .local import LocalStore, summed
from .shared import SharedStore

if TYPE_CHECKING:
    from ..comm.group import Group

Arrays = dict[Key, NDArray]


class CollectiveStore(SharedStore, LocalStore):
    """Sum the pushed arrays of a key over contexts, then over workers. All workers must push the same keys together.

    An updater or optimizer runs on every worker. The sums are bitwise equal, so the weights are too.
    """

    mixes_keys = True

    def __init__(self, name: str):
        super().__init__(name)
        self.begins_alike = self.has_others  # a single worker has nothing to exchange
        self._group: Group | None = self.group if self.begins_alike else None

    def barrier(self) -> None:
        """Wait until all workers reach the barrier, joining the steps of those that still train."""
        if self._group is not None:
            self.rounds.barrier()

    def _may_compress(self) -> bool:
        return True

    def _first(self, values: Arrays) -> Arrays:
        """The values of worker 0."""
        if self._group is None:
            return values
        dense = _dense(values)
        self._group.broadcast_all_([array._data for array in dense.values()], 0, _told("init", values, list(dense)))
        rows = {name: array for name, array in values.items() if isinstance(array, RowSparseNDArray)}
        return dense | {
            name: _rows_of_first(self._group, array, _told("init", values, [name])) for name, array in rows.items()
        }

    def _totals(self, pushed: dict[Key, list[NDArray]]) -> Arrays:
        """The sums over contexts and workers."""
        own = {name: summed(arrays) for name, arrays in pushed.items()}
        dense = _dense(own)
        if self._compressor is not None:
            totals = self._compressed(dense, self._compressor)
        else:
            totals = self._reduced(dense)
        return {
            name: self._summed_rows(name, array) if isinstance(array, RowSparseNDArray) else totals[name]
            for name, array in own.items()
        }

    def _reduced(self, arrays: Arrays) -> Arrays:
        """Sum dense arrays, with one all-reduce per dtype."""
        if self._group is None:
            return arrays
        totals: Arrays = {}
        for same in _by_dtype(arrays):
            flat = torch.cat([arrays[name]._data.detach().reshape(-1) for name in same])
            self._group.all_reduce_(flat, what=_told("push", arrays, same))
            parts = flat.split_with_sizes([arrays[name].size for name in same])
            totals |= {name: _like(arrays[name], part) for name, part in zip(same, parts, strict=True)}
        return totals

    def _compressed(self, arrays: Arrays, compressor: Compressor) -> Arrays:
        """Sum dense arrays: gather the encoded bytes of all workers, decode and add them."""
        if not arrays:
            return {}
        tensors = [array._data.detach().reshape(-1) for array in arrays.values()]
        sums = [torch.empty_like(tensor) for tensor in tensors]
        what = f"{_told('push', arrays, list(arrays))} by {compressor.params}"
        compressor.sum_(list(arrays), tensors, sums, self.group, what)
        return {name: _like(array, total) for (name, array), total in zip(arrays.items(), sums, strict=True)}

    def _summed_rows(self, name: Key, array: RowSparseNDArray) -> RowSparseNDArray:
        """Sum a row-sparse array: gather the rows of all workers, and add rows of the same index in rank order."""
        if self._group is None:
            return array
        what = _told("push", {name: array}, [name])
        parts = [self._group.all_gather(part.detach().contiguous(), what=what) for part in array._parts]
        values, ids = map(torch.cat, parts)
        rows, places = torch.unique(ids, return_inverse=True)
        total = values.new_zeros((len(rows), *values.shape[1:])).index_add_(0, places, values)
        return _row_sparse(array, total, rows)


def _rows_of_first(group: Group, array: RowSparseNDArray, what: str) -> RowSparseNDArray:
    """The rows of worker 0."""
    parts = [part if group.rank == 0 else part[:0] for part in array._parts]
    values, ids = (group.all_gather(part, what=what)[0] for part in parts)
    return _row_sparse(array, values, ids)


def _dense(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if not isinstance(array, RowSparseNDArray)}


def _by_dtype(arrays: Arrays) -> list[list[Key]]:
    """The names of the arrays, grouped by dtype."""

    def dtype(name: Key) -> str:
        return str(arrays[name]._data.dtype)

    return [list(same) for _, same in groupby(sorted(arrays, key=dtype), dtype)]


def _like(array: NDArray, flat: torch.Tensor) -> NDArray:
    return NDArray(flat.view(array.shape), array.context)


def _row_sparse(array: NDArray, values: torch.Tensor, ids: torch.Tensor) -> RowSparseNDArray:
    return RowSparseNDArray((values, ids), array.shape, array.context)


def _told(what: str, arrays: Arrays, names: Sequence[Key]) -> str:
    """A short description of the exchange for errors; the number is a checksum of all names and shapes."""
    words = [f"{name!r} {arrays[name].shape}" for name in names]
    number = zlib.crc32(" ".join(words).encode())
    more = f" and {len(words) - 3} more" if len(words) > 3 else ""
    return f"kvstore {what} {number:08x}: {', '.join(words[:3])}{more}"
