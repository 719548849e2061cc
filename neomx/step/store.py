"""A key-value store of one process: contexts push to it, and it sums, or updates too."""

from __future__ import annotations

from collections.abc import Iterable

from ..kvstore import KVStore, KVStoreBase
from ..kvstore.local import LocalStore
from ..ndarray import NDArray
from .strategy import StepStrategy
from .trained import Key


class InStore(StepStrategy):
    """Gradients go through a store. With `updates` the store runs the optimizer and has its states."""

    def __init__(self, store: KVStoreBase, updates: bool):
        super().__init__()
        self.store: KVStoreBase = store
        self._updates, self.splits = updates, not updates
        self._known: set[Key] = set()

    def save_states(self, fname: str, dump_optimizer: bool) -> bool:
        """Have the store write the states if it updates."""
        if self._updates:
            self.store.save_optimizer_states(fname, dump_optimizer=dump_optimizer)
        return self._updates

    def load_states(self, fname: str) -> bool:
        """Have the store read the states if it updates."""
        if self._updates:
            self.follow()
            self.store.load_optimizer_states(fname)
            if isinstance(self.store, KVStore):
                self.training.take_optimizer(self.store.optimizer)
        return self._updates


class Store(InStore):
    """Gradients are summed in a store. With `updates` its optimizer changes the weights, which are pulled from it."""

    def __init__(self, store: KVStoreBase, updates: bool):
        super().__init__(store, updates)
        self._is_outdated = False

    @property
    def workers(self) -> int:  # type: ignore[override]
        """Whose gradients are summed in a step, in a store of a program's own."""
        return self.store.num_workers if "dist" in self.store.type and "_sync" in self.store.type else 1

    @property
    def exchanges(self) -> bool:  # type: ignore[override]
        """Whether a program's own store reaches other workers."""
        return self.store.num_workers > 1

    def prepare(self) -> None:
        """Give the store the optimizer and the first values of new parameters."""
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

    def parameter_was_set(self) -> None:
        """The weights in the store are to be taken from the contexts before the next update."""
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
            return  # gradients do not count as used: MXNet asks once whether they are new, and never again
        self.find_stale(ignore_stale)  # before gradients are summed
        self.reduce()
        self.update_each(divisor, ignore_stale)

    def reduce(self) -> None:
        """Put the sums over contexts in place of gradients."""
        self.follow()
        contexts = range(len(self.trained.weights))
        stale = [(i, k) for k in contexts for i in range(len(self.trained)) if not self.trained.is_fresh(i, k)]
        self._exchange(range(len(self.trained)), self.trained.gradients)
        for i, k in stale:  # a sum is no backward
            self.trained.mark_used(i, k)

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update by sums."""
        self.follow()
        self.update_each(divisor, ignore_stale)

    def _exchange(self, places: Iterable[int], targets: list[list[NDArray]]) -> None:
        """Push the gradients of these parameters, and pull what the store makes of them."""
        trained, places = self.trained, list(places)
        keys = [trained.keys[i] for i in places]
        pushed = [[trained.array(i, k) for k in range(len(trained.gradients))] for i in places]
        outs = [[replicas[i] for replicas in targets] for i in places]
        if isinstance(self.store, KVStore):  # which takes all of them at once
            if keys:
                self.store.pushpull(keys, pushed, out=outs)
            return
        for number, (key, value, out) in enumerate(zip(keys, pushed, outs, strict=True)):
            self.store.pushpull(key, value, out=out, priority=-number)
