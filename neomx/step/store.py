"""A key-value store within one process: contexts push to it; the store sums and optionally updates."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from ..kvstore import KVStore, KVStoreBase
from ..kvstore.local import LocalStore
from ..ndarray import NDArray
from ..optimizer.states import dumps, loads, pack, unpack
from .strategy import StepStrategy
from .trained import Key


class InStore(StepStrategy):
    """Exchange gradients through a store. With `updates`, the store runs the optimizer and holds its states."""

    def __init__(self, store: KVStoreBase, updates: bool):
        super().__init__()
        self.store: KVStoreBase = store
        self._updates, self.splits = updates, not updates
        self.keeps_states = updates
        self._known: set[Key] = set()

    def save_states(self, fname: str, dump_optimizer: bool) -> bool:
        """Let the store write the states if it updates."""
        if self._updates:
            self.store.save_optimizer_states(fname, dump_optimizer=dump_optimizer)
        return self._updates

    def packed_states(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the optimizer and its states, from the store if it updates."""
        if not self._updates:
            return super().packed_states()
        self.follow()
        if isinstance(self.store, LocalStore):
            return self.store.packed_states()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "states")
            self.store.save_optimizer_states(str(path), dump_optimizer=True)
            states, optimizer = loads(path.read_bytes())
        return pack(states, (optimizer or self.training.optimizer).without_function())

    def take_packed_states(self, content: Any, arrays: Mapping[str, NDArray]) -> None:
        """Continue with the optimizer and its states, in the store if it updates."""
        if not self._updates:
            super().take_packed_states(content, arrays)
            return
        if isinstance(self.store, LocalStore):
            self.follow()
            self.store.take_packed_states(content, arrays)
            return
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "states")
            path.write_bytes(dumps(*unpack(content, arrays)))
            self.load_states(str(path))

    def load_states(self, fname: str) -> bool:
        """Let the store read the states if it updates."""
        if self._updates:
            self.follow()
            self.store.load_optimizer_states(fname)
            if isinstance(self.store, KVStore):
                self.training.take_optimizer(self.store.optimizer)
        return self._updates


class Store(InStore):
    """Sum gradients in a store. With `updates`, the store runs the optimizer and the new weights are pulled from it."""

    def __init__(self, store: KVStoreBase, updates: bool):
        super().__init__(store, updates)
        self._is_outdated = False

    @property
    def workers(self) -> int:  # type: ignore[override]
        """The number of workers that a user-defined store sums over."""
        return self.store.num_workers if "dist" in self.store.type and "_sync" in self.store.type else 1

    @property
    def exchanges(self) -> bool:  # type: ignore[override]
        """Whether a user-defined store communicates with other workers."""
        return self.store.num_workers > 1

    def prepare(self) -> None:
        """Pass the optimizer and the initial values of new parameters to the store."""
        if not self._known and self._updates:
            self.store.set_optimizer(self.training.optimizer)
        new = [i for i, key in enumerate(self.trained.keys) if key not in self._known]
        for i in new:
            key, replicas = self.trained.keys[i], [weights[i] for weights in self.trained.weights]
            if isinstance(self.store, KVStore):
                self.store.init(key, replicas[0])
            else:
                self.store.broadcast(key, replicas[0], out=replicas)
            self._known.add(key)

    def weights_were_restored(self) -> None:
        """Note the same after a checkpoint was restored."""
        self.parameter_was_set()

    def parameter_was_set(self) -> None:
        """Note that the store must copy the weights from the contexts before the next update."""
        self._is_outdated = self._updates

    def _bring_up_to_date(self) -> None:
        if self._is_outdated and isinstance(self.store, LocalStore):
            self.store.assign(self.trained.keys, self.trained.weights[0])
        self._is_outdated = False

    def step(self, divisor: float, ignore_stale: bool = False) -> None:
        """Sum, and update here or in the store."""
        self.follow()
        if self._updates:
            self.training.rescale(divisor)
            self._bring_up_to_date()
            stale = self.find_stale(ignore_stale)[0]
            self._exchange([i for i in range(len(self.trained)) if i not in stale], self.trained.weights)
            return  # gradients stay fresh: MXNet checks for stale gradients only once
        self.find_stale(ignore_stale)  # before gradients are summed
        self.reduce()
        self.update_each(divisor, ignore_stale)

    def reduce(self) -> None:
        """Replace gradients with their sums over contexts."""
        self.follow()
        contexts = range(len(self.trained.weights))
        stale = [(i, k) for k in contexts for i in range(len(self.trained)) if not self.trained.is_fresh(i, k)]
        self._exchange(range(len(self.trained)), self.trained.gradients)
        for i, k in stale:  # writing a sum does not make a gradient fresh
            self.trained.mark_used(i, k)

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update with the sums."""
        self.follow()
        self.update_each(divisor, ignore_stale)

    def _exchange(self, places: Iterable[int], targets: list[list[NDArray]]) -> None:
        """Push the gradients of these parameters, and pull the results."""
        trained, places = self.trained, list(places)
        keys = [trained.keys[i] for i in places]
        pushed = [[trained.array(i, k) for k in range(len(trained.gradients))] for i in places]
        outs = [[replicas[i] for replicas in targets] for i in places]
        if isinstance(self.store, KVStore):  # accepts all of them in one call
            if keys:
                self.store.pushpull(keys, pushed, out=outs)
            return
        for number, (key, value, out) in enumerate(zip(keys, pushed, outs, strict=True)):
            self.store.pushpull(key, value, out=out, priority=-number)
