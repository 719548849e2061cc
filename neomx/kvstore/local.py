"""The store of a single process: it sums the pushed arrays of a key, one per context; `pull` copies to all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .. import ndarray as nd
from .. import optimizer as opt
from ..base import MXNetError
from ..comm import compress
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from .calls import Key, Keys, Pairs, Values
from .store import KVStore, Update


class LocalStore(KVStore):
    """A store that keeps its arrays in this process and runs the updater or optimizer here."""

    mixes_keys = False  # whether a store may have both int and string keys; MXNet raises

    def __init__(self, name: str):
        super().__init__(name)
        self._stored: dict[Key, NDArray] = {}

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        return 0

    @property
    def num_workers(self) -> int:
        """The number of workers."""
        return 1

    def _shape(self, name: Key) -> tuple[int, ...] | None:
        return self._stored[name].shape if name in self._stored else None

    def _new(self, key: Keys, value: Values) -> dict[Key, NDArray]:
        values = super()._new(key, value)
        kinds = {type(name): name for name in (*self._stored, *values)}
        if len(kinds) > 1 and not self.mixes_keys:
            raise MXNetError(
                f"the keys of a {self._type!r} kvstore must be all ints or all strings, received both: "
                + ", ".join(repr(name) for name in kinds.values())
            )
        return values

    def _create(self, values: dict[Key, NDArray]) -> None:
        self._stored.update(self._first({name: value.detach().copy() for name, value in values.items()}))

    def _first(self, values: dict[Key, NDArray]) -> dict[Key, NDArray]:
        """The initial values of keys, given the values of this process."""
        return values

    def _push(self, pushed: dict[Key, list[NDArray]]) -> None:
        totals = self._totals(pushed)
        if self._updater is None:
            for name, total in totals.items():
                self._stored[name] = total.copy() if any(total is array for array in pushed[name]) else total
        elif isinstance(self._updater, opt.Updater):
            self._updater(list(totals), list(totals.values()), [self._stored[name] for name in totals])
        else:
            for name, total in totals.items():
                self._updater(name, total, self._stored[name])

    def _totals(self, pushed: dict[Key, list[NDArray]]) -> dict[Key, NDArray]:
        """The sum of the arrays of each key. A single array is returned without a copy."""
        if self._compressor is None:
            return {name: summed(arrays) for name, arrays in pushed.items()}
        return {
            name: summed([_through(self._compressor, name, at, array) for at, array in enumerate(arrays)])
            for name, arrays in pushed.items()
        }

    def _pull(self, targets: Pairs) -> None:
        for name, arrays in targets:
            for array in arrays:
                self._stored[name].copyto(array)

    def _rows(self, name: Key, rows: torch.Tensor) -> RowSparseNDArray:
        stored = self._stored[name]
        data = stored._at_rows(rows) if isinstance(stored, RowSparseNDArray) else stored._data.detach()[rows]
        return RowSparseNDArray((data, rows), stored.shape, stored.context)

    def assign(self, key: Keys, value: Values) -> None:
        """Overwrite the values of keys."""
        for name, arrays in self._targets(key, value):
            self._stored[name] = arrays[0].detach().copy()

    # ---- the optimizer ----

    def _take_optimizer(self, optimizer: opt.Optimizer) -> None:
        self._updater = opt.get_updater(optimizer)

    def _set_updater(self, updater: Update) -> None:
        """Make `push` call a function of (key, sum of pushed arrays, stored array)."""
        self._updater = updater

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file."""
        updater = self._with_states("save")
        with replacing(fname) as file:
            file.write(updater.get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file."""
        self._updater = self._with_states("load").restored(fname, self._stored)

    def packed_states(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the optimizer and its states as JSON values and named arrays, for a checkpoint."""
        return self._with_states("save").packed()

    def take_packed_states(self, content: Any, arrays: Mapping[str, NDArray]) -> None:
        """Continue with the result of `packed_states`. The program's optimizer and its schedule remain in use."""
        updater = self._with_states("load")
        updater.optimizer.become((loaded := updater.unpacked(content, arrays, self._stored)).optimizer)
        loaded.optimizer = updater.optimizer
        self._updater = loaded

    def _may_compress(self) -> bool:
        return "device" in self._type

    # ---- the job ----

    def barrier(self) -> None:
        """Return immediately: there is one worker."""

    def get_num_dead_node(self, node_id: int, timeout: float = 60) -> int:
        """Return 0: there is one process."""
        return 0


def summed(arrays: list[NDArray]) -> NDArray:
    """The sum of the arrays, on the context of the first. A single array is returned without a copy."""
    if len(arrays) == 1:
        return arrays[0]
    first = arrays[0].context
    total: NDArray = nd.add_n(*[array.as_nd_ndarray().as_in_context(first) for array in arrays])
    return total


def _through(compressor: compress.Compressor, name: Key, at: int, array: NDArray) -> NDArray:
    """The gradient of a context after compression and decompression."""
    if array.stype != "default":
        return array
    tensor = array._data.detach()
    sent = compressor.encode((name, at), tensor)
    return NDArray(compressor.decode(sent, torch.empty_like(tensor)), array.context)
