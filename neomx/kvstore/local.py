"""The store of one process: a key's pushed arrays, one for each context, are summed; `pull` copies to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import ndarray as nd
from .. import optimizer
from ..base import MXNetError
from ..formats.atomic import replacing
from ..ndarray import NDArray

Key = int | str
Keys = Key | Sequence[Key]


class KVStore:
    """Arrays by key. With an updater, what is pushed updates the stored array; without, it replaces it."""

    OPTIMIZER = "optimizer"
    exchanges_by: str | None = None  # how a Trainer's gradients meet those of other workers: "workers" or "servers"
    begins_alike = False  # whether a Trainer first gives all workers the weights of the first

    def __init__(self, name: str):
        self._type = name
        self._stored: dict[int | str, NDArray] = {}
        self._updater: Callable[[Any, NDArray, NDArray], Any] | None = None

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
        return capability.lower() == KVStore.OPTIMIZER

    def init(self, key: Keys, value: Any) -> None:
        """Set the first value of keys."""
        pairs = _pairs(key, value)
        kinds = {type(name): name for name in (*self._stored, *(name for name, _ in pairs))}
        if len(kinds) > 1:
            raise MXNetError(f"keys must be all ints or all strings, received both: {list(kinds.values())}")
        for name, _ in pairs:
            if name in self._stored:
                raise MXNetError(f"duplicate init of key {name}: init or broadcast was called with it before")
        for name, arrays in pairs:
            self._stored[name] = arrays[0].detach().copy()

    def _get(self, name: int | str) -> NDArray:
        try:
            return self._stored[name]
        except KeyError:
            raise MXNetError(f"key {name} has not been inited. Call init or broadcast with it first") from None

    def push(self, key: Keys, value: Any, priority: int = 0) -> None:
        """Hand in arrays; those of one key are summed, then stored, or given to the updater."""
        for name, arrays, stored in self._fitting(key, value, "pushed was"):
            total = _sum(arrays)
            if self._updater is not None:
                self._updater(name, total, stored)
            else:
                self._stored[name] = total.copy() if total is arrays[0] else total

    def pull(self, key: Keys, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy stored arrays into `out`."""
        if out is None:
            raise MXNetError("pull: out= must be the arrays to copy into")
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
            raise MXNetError("row_sparse_pull: out= and row_ids= must be given")
        ids = [row_ids] if isinstance(row_ids, NDArray) else list(row_ids)
        for name, arrays in _pairs(key, out):
            stored = self._get(name).tostype("row_sparse")
            for at, array in enumerate(arrays):
                rows = ids[at if len(ids) > 1 else 0].reshape(-1)
                nd.sparse.retain(stored, rows).copyto(array)  # type: ignore[attr-defined]

    def barrier(self) -> None:
        """Wait for all workers."""

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
        """Only gradients that travel between processes are compressed."""
        raise MXNetError(f"gradient compression is for stores between processes, this one is {self._type!r}")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        updater = self._with_states("save")
        with replacing(fname) as file:
            file.write(updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file."""
        self._updater = self._with_states("load").restored(fname, self._stored)

    def _with_states(self, what: str) -> optimizer.Updater:
        if not isinstance(self._updater, optimizer.Updater):
            raise MXNetError(f"cannot {what} optimizer states: no optimizer was given. Call set_optimizer first")
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
        raise MXNetError(f"received {len(keys)} keys and {len(values)} values")
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
            raise TypeError(f"a kvstore holds NDArrays, received {type(each).__name__} {each!r:.80}")
    if not listed:
        raise MXNetError("received an empty list of arrays for a key")
    return list(listed)


def _sum(arrays: list[NDArray]) -> NDArray:
    """The sum of the arrays, on the context of the first."""
    if len(arrays) == 1:
        return arrays[0]
    first = arrays[0].context
    return nd.add_n(*[array.as_in_context(first) for array in arrays])
