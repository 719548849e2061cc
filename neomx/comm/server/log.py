"""The operations on a shard, numbered in their order, and those that its other holders may not have yet.

A holder appends an operation before it applies it. If another holder follows it, the log sends the operation there and
keeps it until that one, and all after it, have applied it. Gradients are not sent if both are on one host: they stay in
shared memory, of a worker or in the buffers of slots, and do not change until all holders have applied them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from . import messages as m
from .messages import Settings, SparseRows
from .slot import Pushed, Slot

_WITH_GRADIENTS = (m.UPDATE, m.OFFER)


@dataclass(slots=True)
class Operation:
    """A change of a shard: an update, or something else with its payload."""

    kind: int
    meta: dict[str, Any]
    buffers: Sequence[Any] = ()
    slots: Sequence[Slot] = ()
    gradients: Sequence[Pushed] = ()
    settings: Settings | None = None
    number: int = 0


class Outlet(Protocol):
    """Sends frames to the next holder, in order. `send` does not wait."""

    def send(self, kind: int, meta: Any, *buffers: Any) -> Any:
        """Send a frame."""

    @property
    def is_near(self) -> bool:
        """Whether both processes are on one host."""


class Store(Protocol):
    """What a feed needs of a store on this server."""

    number: int

    def memory(self, chunk: int, rank: int | None) -> tuple[str, torch.Tensor] | None:
        """Return the name and the memory of a worker's gradients, or with None, of the buffers of slots."""

    def shared_state(self) -> bytes:
        """Return the state of the rule that belongs to no slot, or nothing without a rule."""


@dataclass
class Feed:
    """What the next holder has of a store. Without an outlet, operations wait until that holder connects."""

    store: Store
    outlet: Outlet | None = None
    unsent: set[int] = field(default_factory=set)  # slots that it has not been filled with yet
    told: Settings = field(default_factory=dict)  # settings that it has
    announced: set[str] = field(default_factory=set)  # names of memory that it was told of
    mapped: set[str] = field(default_factory=set)  # names of memory that it can read
    offered: set[int] = field(default_factory=set)  # slots of which it has offers

    def covers(self, slot: Slot) -> bool:
        """Whether the next holder has this slot."""
        return slot.number not in self.unsent

    def send(self, operation: Operation) -> None:
        """Send an operation if the next holder is connected."""
        if self.outlet is None:
            return
        meta = {"space": self.store.number, "n": operation.number, **operation.meta}
        buffers = list(operation.buffers)
        if operation.kind in _WITH_GRADIENTS:
            self._add_update(operation, meta, buffers)
        slots = {slot.number for slot in operation.slots}
        self.offered = self.offered | slots if operation.kind == m.OFFER else self.offered - slots
        self.outlet.send(operation.kind, meta, *buffers)

    def _add_update(self, operation: Operation, meta: dict[str, Any], buffers: list[Any]) -> None:
        assert self.outlet is not None
        if operation.settings is None:
            meta["f"] = 1
        else:
            changed = m.news(self.told, operation.settings)
            if changed:
                meta["s"] = changed
        if self.unsent:  # the next holder has not seen all updates that led to this state
            state = self.store.shared_state()
            meta["b"] = len(state)
            buffers.append(state)
        meta["k"], meta["g"] = [slot.number for slot in operation.slots], []
        for slot, gradient in zip(operation.slots, operation.gradients, strict=True):
            meta["g"].append(self._described(slot, gradient, operation.meta.get("r"), buffers))

    def _described(self, slot: Slot, gradient: Pushed, rank: int | None, buffers: list[Any]) -> None | int | str:
        """Return None for no gradient, the number of rows, where an array is in memory, or 'sent'."""
        if gradient is None:
            return None
        if slot.number in self.offered:
            return "offer"
        if isinstance(gradient, SparseRows):
            buffers += gradient
            return len(gradient.indices)
        if rank is not None and self.can_read(slot, gradient, rank):
            return "worker"
        if self.can_read(slot, gradient, None):
            return "buffer"
        buffers.append(gradient)
        return "sent"

    def can_read(self, slot: Slot, gradient: Pushed, rank: int | None) -> bool:
        """Whether the next holder can read a gradient in the memory of a worker, or with None, in a buffer."""
        if self.outlet is None or not self.outlet.is_near or not isinstance(gradient, torch.Tensor):
            return False
        found = self.store.memory(slot.chunk, rank)
        if found is None or found[1].data_ptr() + slot.offset != gradient.data_ptr():
            return False
        name, memory = found
        if name not in self.announced:
            told = {"space": self.store.number, "chunk": slot.chunk, "nbytes": memory.nbytes, "name": name}
            self.outlet.send(m.MEMORY, told if rank is None else {**told, "rank": rank})
            self.announced.add(name)
        return name in self.mapped


class Log:
    """Operations by number. Changed by one thread at a time; `held` may be read by all."""

    def __init__(self) -> None:
        self.number = 0  # of the last operation
        self.feed: Feed | None = None  # None if no other holder follows
        self._pending: deque[Operation] = deque()
        self._guard = threading.Lock()

    @property
    def held(self) -> int:
        """The number up to which all following holders have applied all operations."""
        with self._guard:
            return self._pending[0].number - 1 if self._pending else self.number

    def ordered(self, slots: Sequence[Slot]) -> Sequence[Slot]:
        """Return slots that the next holder has before others, because their order in an update may matter."""
        if self.feed is None or not self.feed.unsent:
            return slots
        return sorted(slots, key=lambda slot: not self.feed or not self.feed.covers(slot))

    def append(self, operation: Operation, number: int | None = None) -> int:
        """Number an operation, or take the number that an earlier holder gave it, and pass it on."""
        feed = self.feed
        with self._guard:
            operation.number = self.number = self.number + 1 if number is None else number
            has_all = operation.kind not in _WITH_GRADIENTS
            is_passed_on = feed is not None and (has_all or self._restrict(operation, feed))
            if is_passed_on:
                self._pending.append(operation)
        if is_passed_on:
            assert feed is not None
            feed.send(operation)
        return operation.number

    @staticmethod
    def _restrict(operation: Operation, feed: Feed) -> bool:
        """Leave only the slots that the next holder has. Return whether there are any."""
        if feed.unsent:
            at = [i for i, slot in enumerate(operation.slots) if feed.covers(slot)]
            operation.slots = [operation.slots[i] for i in at]
            operation.gradients = [operation.gradients[i] for i in at]
        return bool(operation.slots)

    def acknowledge(self, number: int) -> None:
        """Note that all following holders have applied the operations up to this number."""
        with self._guard:
            while self._pending and self._pending[0].number <= number:
                self._pending.popleft()

    def attach(self, feed: Feed | None) -> None:
        """Send operations through another feed from now on. With None no holder follows, and nothing is awaited."""
        with self._guard:
            self.feed = feed
            if feed is None:
                self._pending.clear()

    def covers(self, number: int) -> bool:
        """Whether a holder that has the operations up to this number can be given the others."""
        return self.held <= number <= self.number

    def resume(self, feed: Feed, number: int) -> None:
        """Send the operations after this number through a new feed. Call it while none is appended."""
        with self._guard:
            self.feed = feed
            missing = [operation for operation in self._pending if operation.number > number]
        for operation in missing:
            feed.send(operation)
