"""The store of workers without servers: sums go by all-reduce, and every worker keeps all arrays, with equal bits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import torch

from ..base import MXNetError
from ..comm.session import session
from ..comm.store import PeerError
from ..context import Context
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from .local import Key, KVStore

Arrays = dict[Key, NDArray]


class CollectiveStore(KVStore):
    """A key's pushed arrays are summed over contexts, then over workers. All workers must push the same keys together.

    An updater or optimizer runs on every worker; since the sums have equal bits, so have the weights.
    """

    def __init__(self, name: str):
        super().__init__(name)
        self._session = session()
        self._group: Any = self._session.group if self._session.world.size > 1 else None

    @property
    def rank(self) -> int:
        """This worker's number."""
        return self._session.world.rank

    @property
    def num_workers(self) -> int:
        """How many workers push."""
        return self._session.world.size

    def barrier(self) -> None:
        """Wait until all workers are here."""
        if self._group is not None:
            self._group.barrier()

    def get_num_dead_node(self, node_id: int, timeout: float = 60) -> int:
        """How many processes of the job are gone, among servers if `node_id` has the bit 2, workers if 4."""
        wanted = [kind for kind, bit in (("server", 2), ("worker", 4)) if node_id & bit]
        gone = self._session.store.gone if self._session.store is not None else {}
        return sum(name.split()[0] in wanted for name in gone)

    def _compresses(self) -> bool:
        return True

    def _first(self, values: Arrays) -> Arrays:
        """Worker 0's values."""
        own = super()._first(values)
        if self._group is None:
            return own
        self._agree("init", own)
        with _Named("init", own):
            for same in _by_dtype(_dense(own)):
                _spread(self._group, [own[name]._data for name in same])
            for name, array in own.items():
                if isinstance(array, RowSparseNDArray):
                    own[name] = self._rows_of_first(array)
        return own

    def _rows_of_first(self, array: RowSparseNDArray) -> RowSparseNDArray:
        values, ids = (part if self.rank == 0 else part[:0] for part in array._parts)
        return _row_sparse(array, self._group.all_gather(values)[0], self._group.all_gather(ids)[0])

    def _totals(self, pushed: dict[Key, list[NDArray]]) -> Arrays:
        """The sums over contexts and workers."""
        compressor, self._compressor = self._compressor, None  # between contexts nothing is compressed
        try:
            own = super()._totals(pushed)
        finally:
            self._compressor = compressor
        if self._group is None and compressor is None:
            return own
        self._agree("push", own)
        with _Named("push", own):
            dense = _dense(own)
            summed = self._compressed(dense) if compressor is not None else self._reduced(dense)
            rows = {name: self._rows(own[name]) for name in own if name not in dense}
        return {name: summed[name] if name in summed else rows[name] for name in own}

    def _reduced(self, arrays: Arrays) -> Arrays:
        """Dense arrays, all of one dtype in one all-reduce."""
        summed: Arrays = {}
        for same in _by_dtype(arrays):
            flat = torch.cat([arrays[name]._data.detach().reshape(-1) for name in same])
            self._group.all_reduce_(flat)
            parts = flat.split([arrays[name].size for name in same])
            summed |= {name: _like(arrays[name], part) for name, part in zip(same, parts, strict=True)}
        return summed

    def _compressed(self, arrays: Arrays) -> Arrays:
        """Dense arrays: each worker's few bytes go to all, who decode and sum them."""
        assert self._compressor is not None
        if not arrays:
            return {}
        sent = [self._compressor.encode(name, array._data.detach()) for name, array in arrays.items()]
        own = torch.cat([data.view(torch.uint8) for data in sent])
        sizes = [data.nbytes for data in sent]
        everyone = [own] if self._group is None else self._group.all_gather(own)
        by_worker = [each.split(sizes) for each in everyone]
        summed = {}
        for at, (name, array) in enumerate(arrays.items()):
            parts = [worker[at].view(sent[at].dtype) for worker in by_worker]
            summed[name] = _like(array, self._decoded_sum(parts, array._data))
        return summed

    def _decoded_sum(self, parts: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
        assert self._compressor is not None
        total, each = torch.zeros_like(like, requires_grad=False), torch.empty_like(like, requires_grad=False)
        for part in parts:
            total += self._compressor.decode(part, like.numel(), each)
        return total

    def _rows(self, array: Any) -> RowSparseNDArray:
        """A row-sparse array: all workers' rows, those of one number summed in the order of the workers."""
        if self._group is None:
            return array
        values, ids = (torch.cat(self._group.all_gather(part.detach().contiguous())) for part in array._parts)
        rows, places = torch.unique(ids, return_inverse=True)
        total = values.new_zeros((len(rows), *values.shape[1:])).index_add_(0, places, values)
        return _row_sparse(array, total, rows)

    def _agree(self, what: str, arrays: Arrays) -> None:
        """Raise, on every worker, if one calls with other keys, shapes, types or settings than the rest."""
        if self._group is None:
            return
        said = f"{what} of {_described(arrays)}" + (f" by {self._compressor.params}" if self._compressor else "")
        digest = hashlib.blake2b(said.encode(), digest_size=8).digest()
        heard = self._group.all_gather_small(torch.frombuffer(bytearray(digest), dtype=torch.int64))
        if not bool((heard == heard[0]).all()):
            calls = self._group.all_gather(torch.frombuffer(bytearray(said.encode()), dtype=torch.uint8))
            raise MXNetError(_disagreement([bytes(call.tolist()).decode() for call in calls]))


class _Named:
    """Says in the error of a failed exchange which keys it was about."""

    def __init__(self, what: str, arrays: Arrays):
        self.what, self.arrays = what, arrays

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, PeerError):
            raise PeerError(f"{self.what} of {_shortly(list(self.arrays))}: {error}") from error


def _dense(arrays: Arrays) -> Arrays:
    return {name: array for name, array in arrays.items() if not isinstance(array, RowSparseNDArray)}


def _by_dtype(arrays: Arrays) -> list[list[Key]]:
    """Names of arrays of one dtype, together."""

    def dtype(name: Key) -> str:
        return str(arrays[name]._data.dtype)

    return [list(same) for _, same in groupby(sorted(arrays, key=dtype), dtype)]


def _spread(group: Any, tensors: Sequence[torch.Tensor]) -> None:
    """Write worker 0's tensors, of one dtype, over all workers' in one go."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    group.broadcast_(flat, 0)
    for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors]), strict=True):
        tensor.copy_(part.view(tensor.shape))


def _like(array: NDArray, flat: torch.Tensor) -> NDArray:
    return NDArray(flat.view(array.shape), array.context)


def _row_sparse(array: NDArray, values: torch.Tensor, ids: torch.Tensor) -> RowSparseNDArray:
    context: Context = array.context
    return RowSparseNDArray((values, ids), array.shape, context)


def _described(arrays: Arrays) -> str:
    return ", ".join(f"{name!r} {array.stype} {array.dtype.__name__} {array.shape}" for name, array in arrays.items())


def _shortly(names: list[Key]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"key{'s' * (len(names) > 1)} {', '.join(map(repr, names[:3]))}{more}"


def _disagreement(calls: list[str]) -> str:
    """Who called with what, each call told once."""
    told = {call: [rank for rank, other in enumerate(calls) if other == call] for call in calls}
    lines = [f"worker{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}: {call:.300}" for call, ranks in told.items()]
    return "workers must call the store with the same keys, shapes and types, in the same order. They called:\n" + (
        "\n".join(lines)
    )
