"""What one server keeps of one store, and when pushes become updates: synchronous, asynchronous or boundedly stale.

Workers push gradients of slots (segments of keys) and commit them. Synchronously a slot's round ends when every worker
has committed: what they pushed was summed in the order of their ranks, so that the bits do not depend on who came
first, and the rule is applied once. Otherwise each commit is applied as it comes. Only tensors are known here; the
rule is given.
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
Pushed = Gradient | None  # what a worker pushed for a slot; None counts as zero
_AT_ONCE = 1 << 22  # bytes of weights that are updated before those who wait for them are told


class Rule(Protocol):
    """How gradients change weights."""

    def update(
        self, specs: list[KeySpec], gradients: list[Gradient], weights: list[torch.Tensor], settings: Settings | None
    ) -> None:
        """Change weights in place by gradients. Without settings, those that held before hold."""

    def states(self) -> bytes:
        """What it remembers of its weights."""

    def restore(self, states: bytes, specs: list[KeySpec], weights: list[torch.Tensor]) -> None:
        """Go on from what `states` gave, if it is of these weights."""


class Slot:
    """A segment of a key: its weight, and what was pushed for the round that is open."""

    def __init__(self, number: int, spec: KeySpec, segment: Segment, chunk: int, offset: int, weight: torch.Tensor):
        self.number, self.spec, self.segment, self.chunk, self.offset = number, spec, segment, chunk, offset
        self.weight = weight
        self.nbytes = weight.numel() * weight.element_size()
        self.round = 0  # rounds that were applied
        self.commits: dict[int, int] = defaultdict(int)  # by rank
        self.lock = threading.Lock()
        self._buffer: torch.Tensor | None = None
        self.reset()

    def reset(self) -> None:
        """Open a round."""
        self.parts: dict[int, Pushed] = {}
        self.committed: set[int] = set()
        self.sum: Pushed = None
        self.summed = 0
        self.taken = False  # whether a thread is applying it
        self.settings: Settings | None = None  # of the first worker that steps
        self.teller = sys.maxsize

    def take(self, rank: int, part: Pushed) -> None:
        """Keep what a worker pushed; where it takes the place of an earlier push, the sum begins anew."""
        with self.lock:
            if rank in self.parts:
                self.sum, self.summed = None, 0
            self.parts[rank] = part

    def advance(self) -> None:
        """Add what has come, in the order of ranks, as far as it goes without a gap."""
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
    """The sum of two sets of rows."""
    indices, places = torch.unique(torch.cat([one.indices, other.indices]), return_inverse=True)
    values = torch.zeros(len(indices), *one.values.shape[1:], dtype=one.values.dtype)
    return SparseRows(indices, values.index_add_(0, places, torch.cat([one.values, other.values])))


class Shard:
    """The slots of one store on one server. Each worker's calls come from a thread of its own.

    `staleness` 0 is synchronous, None asynchronous; with K above 0 a worker that is more than K commits of a slot ahead
    of the slowest living one waits before it reads.
    """

    def __init__(self, workers: int, staleness: int | None, timeout: float, whereabouts: Callable[[int], str] = str):
        self.workers, self.staleness, self.timeout = workers, staleness, timeout
        self.rule: Rule | None = None
        self.directory: dict[
            tuple[Key, int], KeySpec
        ] = {}  # by key and generation: who is slow still means the old one
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
        self._waits: dict[int, tuple[Callable[[], object], Callable[[], str]]] = {}  # what each worker waits for

    @property
    def synchronous(self) -> bool:
        """Whether pushes are applied in rounds."""
        return self.staleness == 0

    # ---- workers come and go ----

    def join(self, rank: int) -> object:
        """A worker is here, perhaps late: it starts where the slowest is. Returns what tells this stay from others."""
        with self._changed:
            if rank in self.living:
                raise Refused(f"worker {rank} is connected already")
            if not self.synchronous:
                for slot in self.slots.values():
                    slot.commits[rank] = min((slot.commits[other] for other in self.living), default=slot.commits[rank])
            self._stays[rank] = stay = object()
            self._revive(rank)
            return stay

    def hear(self, rank: int) -> None:
        """A worker said something; one that was taken for gone, having been silent, is not."""
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
        """A worker is no more: what it did not commit is forgotten, and who needs it is told.

        With `stay`, only if it has not come back since.
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
        """Worker 0 declares keys, of which this server keeps these slots."""
        with self._changed:
            self.directory.update({spec.name: spec for spec in specs})
            for slot in slots:
                self.slots[slot.number] = self.of_key[slot.spec.name] = slot
            self._changed.notify_all()

    def agree(self, specs: list[KeySpec], rank: int) -> None:
        """Wait until worker 0 has declared these keys, and see that it did so in the same way."""

        with self._changed:
            self._until(
                rank,
                lambda: not self._unknown(specs),
                lambda: f"worker 0 has not inited {_listed([spec.key for spec in self._unknown(specs)])}",
                lambda: {0},
            )
            for spec in specs:
                known = self.directory[spec.name]
                if known != spec:
                    raise MXNetError(
                        f"key {spec.key!r}: worker 0 inited it as {_described(known)}, "
                        f"worker {rank} as {_described(spec)}. All workers must init the same keys, with the same "
                        "shapes, in the same order"
                    )

    def _unknown(self, specs: list[KeySpec]) -> list[KeySpec]:
        return [spec for spec in specs if spec.name not in self.directory]

    def new(self, specs: list[KeySpec]) -> list[KeySpec]:
        """Those of the specs that were not declared before."""
        with self._changed:
            return self._unknown(specs)

    # ---- pushing ----

    def push(self, rank: int, slots: Sequence[Slot], parts: Sequence[Pushed]) -> None:
        """Take a worker's gradients; they count once it commits, and until then later ones take their place."""
        with self._changed:
            if any(rank in slot.committed for slot in slots):
                raise Refused(f"worker {rank} pushed a slot twice without waiting for the first push")
            for slot, part in zip(slots, parts, strict=True):
                slot.take(rank, part)
        if self.synchronous:
            for slot in slots:
                slot.advance()

    def commit(self, rank: int, slots: Sequence[Slot], settings: Settings | None) -> None:
        """A worker's step is complete for these slots: what it did not push of them counts as zero."""
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
        except Exception as error:  # whatever an optimizer raises is for the workers: the server lives on
            self._broken = (
                f"the update of keys {_listed([slot.spec.key for slot, _ in there])} failed on the server: {error!r}"
            )

    # ---- pulling ----

    def ready(self, rank: int, slots: Sequence[Slot]) -> Iterator[list[Slot]]:
        """The slots, as soon as this worker may read them: its own pushes are in, and it is not too far ahead."""
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
        """The workers without whom a synchronous round cannot end."""
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
        """Wait, within the limit of time, unless who is needed is gone. Called with `_changed` held."""
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
                raise PeerError(f"after {self.timeout:.0f} s {late()}")
            self._changed.wait(min(left, 1.0))
        if self._broken:
            raise MXNetError(self._broken)

    def _check_circle(self) -> None:
        """Have all workers raise if each of them waits for another: what one would do next comes after its wait."""
        waits = self._waits
        if self.synchronous and len(waits) == self.workers and not any(ready() for ready, _ in waits.values()):
            doing = "; ".join(f"worker {rank} waits because {late()}" for rank, (_, late) in sorted(waits.items()))
            self._broken = self._broken or (
                f"the workers wait for each other: {doing}. All workers must make the same calls in the same order"
            )
            self._changed.notify_all()

    # ---- the rule ----

    def required_rule(self) -> Rule:
        """The rule by which pushes update; an error if there is none."""
        if self.rule is None:
            raise MXNetError("the servers have no optimizer. Call set_optimizer first")
        return self.rule

    def states(self) -> bytes:
        """The states of the rule, between two updates."""
        with self._applying:
            return self.required_rule().states()

    # ---- what worker 0 does once for all ----

    def once(self, what: str, generation: int, rank: int, do: Callable[[], None] | None) -> None:
        """The worker that brings it does it; the others wait until it is done for the generation-th time."""
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
    """Without a rule, what was pushed takes the place of what was stored."""
    if isinstance(gradient, SparseRows):
        weight.zero_().index_copy_(0, *gradient)
    else:
        weight.copy_(gradient)


def _groups(slots: list[Slot]) -> Iterator[list[Slot]]:
    """Neighbours with the same settings, some megabytes at once."""
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
