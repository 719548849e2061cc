"""The store of one process: a key's pushed arrays, one for each context, are summed; `pull` copies to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import ndarray as nd
from .. import optimizer
from ..base import MXNetError
from ..comm import compress
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..optimizer import Optimizer, Updater
from .base import KVStoreBase

Key = int | str
Keys = Key | Sequence[Key]


class KVStore(KVStoreBase):
    """Arrays by key. With an updater, what is pushed updates the stored array; without, it replaces it."""

    exchanges_by: str | None = None  # how a Trainer's gradients meet those of other workers: "workers" or "servers"
    begins_alike = False  # whether a Trainer first gives all workers the weights of the first

    def __init__(self, name: str):
        self._type = name
        self._stored: dict[Key, NDArray] = {}
        self._updater: Callable[[Any, Any, Any], Any] | None = None
        self._compressor: compress.Compressor | None = None

    @property
    def type(self) -> str:
        """The name it was created by."""
        return self._type

    @property
    def rank(self) -> int:
        """This worker's number."""
        return 0

    @property
    def num_workers(self) -> int:
        """How many workers push."""
        return 1

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Whether the store can do that: 'optimizer'."""
        if capability.lower() != KVStoreBase.OPTIMIZER:
            raise ValueError(f"a kvstore may be capable of 'optimizer', received {capability!r}")
        return True

    def init(self, key: Keys, value: Any) -> None:
        """Set the first value of keys."""
        pairs = _pairs(key, value)
        kinds = {type(name): name for name in (*self._stored, *(name for name, _ in pairs))}
        if len(kinds) > 1:
            raise MXNetError(f"keys must be all ints or all strings, received both: {list(kinds.values())}")
        for name, _ in pairs:
            if name in self._stored:
                raise MXNetError(f"duplicate init of key {name}: init or broadcast was called with it before")
        self._stored.update(self._first({name: arrays[0].detach() for name, arrays in pairs}))

    def _first(self, values: dict[Key, NDArray]) -> dict[Key, NDArray]:
        """Arrays of the store's own with the values that keys begin with."""
        return {name: value.copy() for name, value in values.items()}

    def _get(self, name: Key) -> NDArray:
        try:
            return self._stored[name]
        except KeyError:
            raise MXNetError(f"key {name} has not been inited. Call init or broadcast with it first") from None

    def push(self, key: Keys, value: Any, priority: int = 0) -> None:
        """Hand in arrays; those of one key are summed, then stored, or given to the updater."""
        pushed = {name: arrays for name, arrays, _ in self._fitting(key, value, "pushed was")}
        totals = self._totals(pushed)
        if self._updater is None:
            for name, total in totals.items():
                self._stored[name] = total.copy() if any(total is array for array in pushed[name]) else total
        elif isinstance(self._updater, optimizer.Updater):
            self._updater(list(totals), list(totals.values()), [self._stored[name] for name in totals])
        else:
            for name, total in totals.items():
                self._updater(name, total, self._stored[name])

    def _totals(self, pushed: dict[Key, list[NDArray]]) -> dict[Key, NDArray]:
        """The sum of each key's arrays; of a single one, itself."""
        if self._compressor is None:
            return {name: _sum(arrays) for name, arrays in pushed.items()}
        return {
            name: _sum([_through(self._compressor, name, at, array) for at, array in enumerate(arrays)])
            for name, arrays in pushed.items()
        }

    def pull(self, key: Keys, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy stored arrays into `out`."""
        if out is None:
            raise AssertionError("pull: out= must be the arrays to copy into")
        for _, arrays, stored in self._fitting(key, out, "out= has"):
            for array in arrays:
                stored.copyto(array)

    def _fitting(self, key: Keys, value: Any, what: str) -> list[tuple[int | str, list[NDArray], NDArray]]:
        """(key, arrays, stored array) of a call, every one of whose arrays has its stored array's shape."""
        found = [(name, arrays, self._get(name)) for name, arrays in _pairs(key, value)]
        for name, arrays, stored in found:
            for array in arrays:
                if array.shape != stored.shape:
                    raise MXNetError(f"key {name}: the stored array has shape {stored.shape}, {what} {array.shape}")
        return found

    def pushpull(self, key: Keys, value: Any, out: Any = None, priority: int = 0) -> None:
        """`push`, then `pull` into `out`, or back into `value`."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Keys, value: Any, out: Any, priority: int = 0) -> None:
        """`init`, then `pull`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def row_sparse_pull(self, key: Keys, out: Any = None, priority: int = 0, row_ids: Any = None) -> None:
        """Copy the rows `row_ids` of stored arrays into row-sparse `out`."""
        if out is None or row_ids is None:
            raise AssertionError("row_sparse_pull: out= and row_ids= must be given")
        ids = [row_ids] if isinstance(row_ids, NDArray) else list(row_ids)
        for name, arrays in _pairs(key, out):
            stored = self._get(name).tostype("row_sparse")
            for at, array in enumerate(arrays):
                rows = torch.unique(ids[at if len(ids) > 1 else 0]._data.detach())
                nd.sparse.retain(stored, NDArray(rows, stored.context)).copyto(array)  # type: ignore[attr-defined]

    def set_optimizer(self, new: optimizer.Optimizer) -> None:
        """Have `push` update by this optimizer."""
        if not isinstance(new, optimizer.Optimizer):
            raise TypeError(
                f"set_optimizer expects an Optimizer, as mx.optimizer.create makes it, received {new!r:.80}"
            )
        self._set_updater(optimizer.get_updater(new))

    def _set_updater(self, updater: Callable[[Any, NDArray, NDArray], Any]) -> None:
        self._updater = updater

    set_updater = _set_updater

    def set_gradient_compression(self, compression_params: dict[str, Any]) -> None:
        """Send gradients in few bits: `{'type': '2bit', 'threshold': 0.5}`, '1bit' or 'fp16'.

        What the bits do not say is kept and added to the next gradient. A store of one process compresses what goes
        between its contexts, and only 'device' does.
        """
        if not self._may_compress():
            raise MXNetError(f"gradient compression is for 'device' and stores between workers, not {self._type!r}")
        self._compressor = compress.make(compression_params, self._compressor)

    def _may_compress(self) -> bool:
        return "device" in self._type

    @property
    def optimizer(self) -> Optimizer:
        """What `set_optimizer` was given, or a file had in its place."""
        return self._with_states("tell").optimizer

    @property
    def compressor(self) -> compress.Compressor | None:
        """How gradients travel, if not as they are."""
        return self._compressor

    @property
    def compresses(self) -> bool:
        """Whether gradients are sent in few bits."""
        return self._compressor is not None

    def assign(self, key: Keys, value: Any) -> None:
        """Put other values in the place of those that keys have."""
        for name, arrays, _ in self._fitting(key, value, "given was"):
            self._stored[name] = arrays[0].detach().copy()

    def barrier(self) -> None:
        """Wait until all workers are here."""

    def _barrier(self) -> None:
        self.barrier()

    def get_num_dead_node(self, node_id: int, timeout: float = 60) -> int:
        """How many processes of the job are gone, among servers if `node_id` has the bit 2, workers if 4."""
        return 0

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        updater = self._with_states("save")
        with replacing(fname) as file:
            file.write(updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file."""
        self._updater = self._with_states("load").restored(fname, self._stored)

    def _with_states(self, what: str) -> Updater:
        if not isinstance(self._updater, Updater):
            raise AssertionError(f"cannot {what} optimizer states: no optimizer was given. Call set_optimizer first")
        return self._updater


def _pairs(key: Keys, value: Any) -> list[tuple[Key, list[NDArray]]]:
    """(key, arrays) pairs of a call with one key or many, each with one array or a list, one for each context."""
    if isinstance(key, (int, str)):
        return [(key, _arrays(value))]
    if not isinstance(key, (list, tuple)) or not all(isinstance(each, (int, str)) for each in key):
        raise AssertionError(f"a kvstore's keys are ints or strings, or lists of them; received {key!r:.80}")
    keys: list[Key] = list(key)
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    if len(values) != len(keys):
        if len(keys) and len(values) % len(keys) == 0 and all(isinstance(v, NDArray) for v in values):
            share = len(values) // len(keys)
            return [(k, values[i * share : (i + 1) * share]) for i, k in enumerate(keys)]
        raise AssertionError(f"received {len(keys)} keys and {len(values)} values")
    if len(set(keys)) < len(keys) and all(isinstance(v, NDArray) for v in values):  # a key again for each context
        grouped: dict[Key, list[NDArray]] = {}
        for k, v in zip(keys, values, strict=True):
            grouped.setdefault(k, []).append(v)
        return list(grouped.items())
    return [(k, _arrays(v)) for k, v in zip(keys, values, strict=True)]


def _arrays(value: Any) -> list[NDArray]:
    listed = value if isinstance(value, (list, tuple)) else [value]
    for each in listed:
        if not isinstance(each, NDArray):
            raise AssertionError(f"a kvstore holds NDArrays, received {type(each).__name__} {each!r:.80}")
    if not listed:
        raise MXNetError("received an empty list of arrays for a key")
    return list(listed)


def _sum(arrays: list[NDArray]) -> NDArray:
    """The sum of the arrays, on the context of the first."""
    if len(arrays) == 1:
        return arrays[0]
    first = arrays[0].context
    return nd.add_n(*[array.as_in_context(first) for array in arrays])


def _through(compressor: compress.Compressor, name: Key, at: int, array: NDArray) -> NDArray:
    """What is left of a context's gradient after it was compressed for the way."""
    if array.stype != "default":
        return array
    tensor = array._data.detach()
    sent = compressor.encode((name, at), tensor)
    return NDArray(compressor.decode(sent, torch.empty_like(tensor)), array.context)
