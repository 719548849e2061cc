"""The part of a store on one server, and when pushes are applied: synchronous, asynchronous or with bounded staleness.

Workers push gradients of slots (segments of keys) and commit them. In synchronous mode a slot's round ends when every
worker has committed: the gradients are summed in rank order, so that the result does not depend on the order of
arrival, and the rule is applied once. Otherwise each commit is applied as it arrives. This module works on tensors; the
rule is passed in.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch

from ...base import MXNetError
from ..store import PeerError
from ..wire import Refused
from .messages import Key, KeySpec, Segment, Settings, SparseRows

Gradient = torch.Tensor | SparseRows
Pushed = Gradient | None  # gradient of a slot pushed by a worker; None counts as zero
_AT_ONCE = 1 << 22  # bytes of weights to update before waiting workers are notified


class Rule(Protocol):
    """Updates weights from gradients, such as an optimizer."""

    def update(
        self, specs: list[KeySpec], gradients: list[Gradient], weights: list[torch.Tensor], settings: Settings | None
    ) -> None:
        """Update weights in place. If `settings` is None, the previous ones apply."""

    def states(self) -> bytes:
        """Return its state."""

    def restore(self, states: bytes, specs: list[KeySpec], weights: list[torch.Tensor]) -> None:
        """Restore a state returned by `states`, if it belongs to these weights."""


class Slot:
    """A segment of a key: its weight, and the gradients pushed in the current round."""

    def __init__(self, number: int, spec: KeySpec, segment: Segment, chunk: int, offset: int, weight: torch.Tensor):
        self.number, self.spec, self.segment, self.chunk, self.offset = number, spec, segment, chunk, offset
        self.weight = weight
        self.nbytes = weight.numel() * weight.element_size()
        self.round = 0  # number of rounds applied
        self.commits: dict[int, int] = defaultdict(int)  # by rank
        self.lock = threading.Lock()
        self._buffer: torch.Tensor | None = None
        self.reset()

    def reset(self) -> None:
        """Start a new round."""
        self.parts: dict[int, Pushed] = {}
        self.committed: set[int] = set()
        self.sum: Pushed = None
        self.summed = 0
        self.taken = False  # whether a thread is applying the round
        self.settings: Settings | None = None  # of the active worker with the lowest rank
        self.teller = sys.maxsize

    def take(self, rank: int, part: Pushed) -> None:
        """Store a pushed gradient. If it replaces an earlier push, the sum starts again."""
        with self.lock:
            if rank in self.parts:
                self.sum, self.summed = None, 0
            self.parts[rank] = part

    def advance(self) -> None:
        """Sum the gradients received so far, in rank order up to the first missing one."""
        with self.lock:
            while self.summed in self.parts:
                self.sum = self._add(self.sum, self.parts[self.summed])
                self.summed += 1

    def _add(self, one: Pushed, other: Pushed) -> Pushed:
        if one is None or other is None:
            return other if one is None else one
        if isinstance(one, SparseRows) and isinstance(other, SparseRows):
            return merged(one, other)
        if self._buffer is None:
            self._buffer = torch.empty_like(self.weight)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            return torch.add(one, other, out=self._buffer)
        if isinstance(one, SparseRows):
            one, other = other, one
        assert isinstance(one, torch.Tensor) and isinstance(other, SparseRows)
        if one is not self._buffer:
            self._buffer.copy_(one)
        return self._buffer.index_add_(0, other.indices, other.values)


def merged(one: SparseRows, other: SparseRows) -> SparseRows:
    """Return the sum of two sets of rows."""
    indices, places = torch.unique(torch.cat([one.indices, other.indices]), return_inverse=True)
    values = torch.zeros(len(indices), *one.values.shape[1:], dtype=one.values.dtype)
    return SparseRows(indices, values.index_add_(0, places, torch.cat([one.values, other.values])))


class Shard:
    """The slots of one store on one server. Each worker's calls come from a separate thread.

    `staleness` 0 is synchronous, None asynchronous. With K > 0, a worker that is more than K commits of a slot ahead of
    the slowest connected worker waits before it reads.
    """

    def __init__(self, workers: int, staleness: int | None, timeout: float, whereabouts: Callable[[int], str] = str):
        self.workers, self.staleness, self.timeout = workers, staleness, timeout
        self.rule: Rule | None = None
        self.directory: dict[
            tuple[Key, int], KeySpec
        ] = {}  # by key and generation: slow workers may still use an old one
        self.of_key: dict[tuple[Key, int], Slot] = {}
        self.slots: dict[int, Slot] = {}
        self.generations: dict[str, int] = defaultdict(int)
        self.failures: dict[tuple[str, int], str] = {}
        self.living: set[int] = set()
        self.lost: dict[int, str] = {}
        self._stays: dict[int, object] = {}
        self.heard: dict[int, float] = {}
        self._whereabouts = whereabouts
        self._changed = threading.Condition()
        self._applying = threading.Lock()
        self._broken = ""
        self._waits: dict[int, tuple[Callable[[], object], Callable[[], str]]] = {}  # by waiting worker

    @property
    def synchronous(self) -> bool:
        """Whether pushes are applied in rounds."""
        return self.staleness == 0

    # ---- workers join and leave ----

    def join(self, rank: int) -> object:
        """Add a worker, possibly late: it starts at the count of the slowest. Return a token for this connection."""
        with self._changed:
            if rank in self.living:
                raise Refused(f"worker {rank} is already connected")
            if not self.synchronous:
                for slot in self.slots.values():
                    slot.commits[rank] = min((slot.commits[other] for other in self.living), default=slot.commits[rank])
            self._stays[rank] = stay = object()
            self._revive(rank)
            return stay

    def hear(self, rank: int) -> None:
        """Note a message from a worker. If it was considered gone because of silence, it is restored."""
        self.heard[rank] = time.monotonic()
        if rank not in self.living:
            with self._changed:
                self._revive(rank)

    def _revive(self, rank: int) -> None:
        self.living.add(rank)
        self.lost.pop(rank, None)
        self.heard[rank] = time.monotonic()
        self._changed.notify_all()

    def gone(self, rank: int, why: str, stay: object = None) -> None:
        """Handle the loss of a worker: discard what it did not commit, and notify workers that wait for it.

        If `stay` is given, do nothing if the worker has reconnected since.
        """
        with self._changed:
            if stay is not None and self._stays.get(rank) is not stay:
                return
            self.living.discard(rank)
            self.lost.setdefault(rank, why)
            if not self.synchronous:
                for slot in self.slots.values():
                    slot.parts.pop(rank, None)
            self._changed.notify_all()

    # ---- keys ----

    def create(self, slots: list[Slot], specs: list[KeySpec]) -> None:
        """Add keys declared by worker 0, with the slots on this server."""
        with self._changed:
            self.directory.update({spec.name: spec for spec in specs})
            for slot in slots:
                self.slots[slot.number] = self.of_key[slot.spec.name] = slot
            self._changed.notify_all()

    def agree(self, specs: list[KeySpec], rank: int) -> None:
        """Wait until worker 0 has declared these keys, and check that its declarations are the same."""
        with self._changed:
            self._until(
                rank,
                lambda: not self._unknown(specs),
                lambda: f"worker 0 has not initialized {_listed([spec.key for spec in self._unknown(specs)])}",
                lambda: {0},
            )
            for spec in specs:
                known = self.directory[spec.name]
                if known != spec:
                    raise MXNetError(
                        f"key {spec.key!r}: worker 0 initialized it as {_described(known)}, "
                        f"worker {rank} as {_described(spec)}. All workers must initialize the same keys, with the "
                        "same shapes, in the same order"
                    )

    def _unknown(self, specs: list[KeySpec]) -> list[KeySpec]:
        return [spec for spec in specs if spec.name not in self.directory]

    def new(self, specs: list[KeySpec]) -> list[KeySpec]:
        """Return the specs that were not declared before."""
        with self._changed:
            return self._unknown(specs)

    # ---- pushing ----

    def push(self, rank: int, slots: Sequence[Slot], parts: Sequence[Pushed]) -> None:
        """Store gradients of a worker. They take effect when it commits; until then a later push replaces them."""
        with self._changed:
            if any(rank in slot.committed for slot in slots):
                raise Refused(f"worker {rank} pushed a slot twice without waiting for the first push")
            for slot, part in zip(slots, parts, strict=True):
                slot.take(rank, part)
        if self.synchronous:
            for slot in slots:
                slot.advance()

    def commit(self, rank: int, slots: Sequence[Slot], settings: Settings | None) -> None:
        """Complete a worker's step for these slots. Gradients that it did not push count as zero."""
        if self.synchronous:
            self._commit_to_round(rank, slots, settings)
        else:
            self._commit_at_once(rank, slots, settings)

    def _commit_to_round(self, rank: int, slots: Sequence[Slot], settings: Settings | None) -> None:
        complete = []
        with self._changed:
            if any(rank in slot.committed for slot in slots):
                raise Refused(f"worker {rank} committed a slot twice in one round")
            for slot in slots:
                slot.parts.setdefault(rank, None)
                slot.committed.add(rank)
                slot.commits[rank] += 1
                if settings is not None and rank <= slot.teller:
                    slot.settings, slot.teller = settings, rank
        for slot in slots:
            slot.advance()
        with self._changed:
            for slot in slots:
                if len(slot.committed) == slot.summed == self.workers and not slot.taken:
                    slot.taken = True
                    complete.append(slot)
        self._apply(complete)

    def _apply(self, slots: list[Slot]) -> None:
        with self._applying:
            for group in _groups(slots):
                self._update(group, [slot.sum for slot in group], group[0].settings)
                with self._changed:
                    for slot in group:
                        slot.round += 1
                        slot.reset()
                    self._changed.notify_all()

    def _commit_at_once(self, rank: int, slots: Sequence[Slot], settings: Settings | None) -> None:
        with self._applying:
            self._update(slots, [slot.parts.get(rank) for slot in slots], settings)
        with self._changed:
            for slot in slots:
                slot.parts.pop(rank, None)
                slot.commits[rank] += 1
                slot.round += 1
            self._changed.notify_all()

    def _update(self, slots: Sequence[Slot], gradients: list[Pushed], settings: Settings | None) -> None:
        there = [(slot, gradient) for slot, gradient in zip(slots, gradients, strict=True) if gradient is not None]
        try:
            if self.rule is None:
                for slot, gradient in there:
                    _store(slot.weight, gradient)
            elif there:
                specs, weights = [slot.spec for slot, _ in there], [slot.weight for slot, _ in there]
                self.rule.update(specs, [gradient for _, gradient in there], weights, settings)
        except Exception as error:  # errors of an optimizer are raised in the workers; the server continues
            self._broken = (
                f"the update of keys {_listed([slot.spec.key for slot, _ in there])} failed on the server: {error!r}"
            )

    # ---- pulling ----

    def ready(self, rank: int, slots: Sequence[Slot]) -> Iterator[list[Slot]]:
        """Yield slots as soon as this worker may read them: its own pushes are applied, and it is not too far ahead."""
        waiting = dict.fromkeys(slots)

        def readable() -> list[Slot]:
            return [slot for slot in waiting if self._readable(slot, rank)]

        def first() -> Slot:
            return next(iter(waiting))

        while waiting:
            with self._changed:
                self._until(rank, readable, lambda: self._late(first(), rank), lambda: self._needed(first()))
                now = readable()
            for slot in now:
                del waiting[slot]
            yield now

    def _readable(self, slot: Slot, rank: int) -> bool:
        if self.staleness is None:
            return True
        if self.synchronous:
            return slot.round >= slot.commits[rank]
        slowest = min((slot.commits[other] for other in self.living), default=0)
        return slot.commits[rank] - slowest <= self.staleness

    def _needed(self, slot: Slot) -> set[int]:
        """Return the workers that have not committed the current synchronous round."""
        return set(range(self.workers)) - slot.committed if self.synchronous else set()

    def _late(self, slot: Slot, rank: int) -> str:
        if self.synchronous:
            late = self._needed(slot)
            waits = f"round {slot.round + 1} of key {slot.spec.key!r} waits for the push of"
        else:
            late = {other for other in self.living if slot.commits[rank] - slot.commits[other] > (self.staleness or 0)}
            waits = f"key {slot.spec.key!r}: worker {rank} is more than {self.staleness} steps ahead of"
        return f"{waits} {', '.join(self._described(other) for other in sorted(late))}"

    def _described(self, rank: int) -> str:
        if rank in self.lost:
            return f"worker {rank}"
        if rank not in self.heard:
            return f"worker {rank}, which never connected ({self._whereabouts(rank)})"
        return f"worker {rank}, last heard {time.monotonic() - self.heard[rank]:.1f} s ago ({self._whereabouts(rank)})"

    def _until(
        self, rank: int, ready: Callable[[], object], late: Callable[[], str], needs: Callable[[], set[int]]
    ) -> None:
        """Wait with the timeout, and raise if a needed worker is gone. Call it with `_changed` held."""
        self._waits[rank] = ready, late
        try:
            self._await(ready, late, needs)
        finally:
            del self._waits[rank]

    def _await(self, ready: Callable[[], object], late: Callable[[], str], needs: Callable[[], set[int]]) -> None:
        deadline = time.monotonic() + self.timeout
        while not ready():
            self._check_circle()
            if self._broken:
                raise MXNetError(self._broken)
            needed = needs()
            for rank, why in self.lost.items():
                if rank in needed:
                    raise PeerError(f"worker {rank} is gone: {why}; {late()}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise PeerError(f"timed out after {self.timeout:.0f} s: {late()}")
            self._changed.wait(min(left, 1.0))
        if self._broken:
            raise MXNetError(self._broken)

    def _check_circle(self) -> None:
        """Detect a deadlock, in which every worker waits for another one, and make all workers raise."""
        waits = self._waits
        if self.synchronous and len(waits) == self.workers and not any(ready() for ready, _ in waits.values()):
            doing = "; ".join(f"worker {rank} waits because {late()}" for rank, (_, late) in sorted(waits.items()))
            self._broken = self._broken or (
                f"the workers wait for each other: {doing}. All workers must make the same calls in the same order"
            )
            self._changed.notify_all()

    # ---- the rule ----

    def required_rule(self) -> Rule:
        """Return the rule, or raise if there is none."""
        if self.rule is None:
            raise MXNetError("the servers have no optimizer. Call set_optimizer first")
        return self.rule

    def states(self) -> bytes:
        """Return the states of the rule, between two updates."""
        with self._applying:
            return self.required_rule().states()

    # ---- actions of worker 0 ----

    def once(self, what: str, generation: int, rank: int, do: Callable[[], None] | None) -> None:
        """Run an action of worker 0 once; other workers wait until it was run for the generation-th time."""
        if do is None:
            with self._changed:
                self._until(
                    rank,
                    lambda: self.generations[what] >= generation,
                    lambda: f"worker 0 has not called {what}",
                    needs=lambda: {0},
                )
        elif self.generations[what] < generation:
            failure = self._attempt(do)
            with self._changed:
                self.generations[what] = generation
                self.failures[what, generation] = failure
                self._changed.notify_all()
        if self.failures.get((what, generation)):
            raise MXNetError(self.failures[what, generation])

    def _attempt(self, do: Callable[[], None]) -> str:
        try:
            with self._applying:
                do()
        except MXNetError as error:
            return str(error)
        return ""


def _store(weight: torch.Tensor, gradient: torch.Tensor | SparseRows) -> None:
    """Without a rule, store the pushed value."""
    if isinstance(gradient, SparseRows):
        weight.zero_().index_copy_(0, *gradient)
    else:
        weight.copy_(gradient)


def _groups(slots: list[Slot]) -> Iterator[list[Slot]]:
    """Group adjacent slots with the same settings, a few megabytes at a time."""
    group: list[Slot] = []
    size = 0
    for slot in slots:
        if group and (size >= _AT_ONCE or slot.settings is not group[0].settings):
            yield group
            group, size = [], 0
        group.append(slot)
        size += slot.nbytes
    if group:
        yield group


def _listed(keys: list[Key]) -> str:
    return ", ".join(map(repr, keys[:4])) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")


def _described(spec: KeySpec) -> str:
    places = ", ".join(f"server {segment.server} [{segment.start}:{segment.stop}]" for segment in spec.segments)
    return f"{spec.shape} {str(spec.dtype).removeprefix('torch.')} on {places}"
