"""The part of a store on one server, and when pushes are applied: synchronous, asynchronous or with bounded staleness.

Workers push gradients of slots (segments of keys) and commit them. In synchronous mode a slot's round ends when every
worker has committed: the gradients are summed in rank order, so that the result does not depend on the order of
arrival, and the rule is applied once. Otherwise each commit is applied as it arrives. This module works on tensors; the
rule is passed in.

If several servers hold the shard, workers talk to one of them, the leader. It numbers all changes, and its log passes
them on. The others apply them in the same order. A worker may read what it has changed once all holders have it.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from ...base import MXNetError
from ..store import PeerError
from ..wire import Closed, Refused
from . import messages as m
from .log import Log, Operation
from .messages import Key, KeySpec, Settings
from .slot import Gradient, Pushed, Slot, groups, store


class Rule(Protocol):
    """Updates weights from gradients, such as an optimizer."""

    seed: int | None  # of the random numbers of the next update, the same on all holders of a shard

    def update(
        self, specs: list[KeySpec], gradients: list[Gradient], weights: list[torch.Tensor], settings: Settings | None
    ) -> None:
        """Update weights in place. If `settings` is None, the previous ones apply."""

    def states(self) -> bytes:
        """Return its state."""

    def restore(self, states: bytes, specs: list[KeySpec], weights: list[torch.Tensor]) -> None:
        """Restore a state returned by `states`, if it belongs to these weights."""

    def part(self, keys: Sequence[Key] | None) -> bytes:
        """Return the state of some keys with what all keys share, or with None, all but the states of keys."""

    def join(self, part: bytes) -> None:
        """Replace what a result of `part` contains."""


class Shard:
    """The slots of one store on one server. Each worker's calls come from a separate thread.

    `staleness` 0 is synchronous, None asynchronous. With K > 0, a worker that is more than K commits of a slot ahead of
    the slowest connected worker waits before it reads.
    """

    def __init__(self, workers: int, staleness: int | None, timeout: float, whereabouts: Callable[[int], str] = str):
        self.members: Sequence[int] = range(workers)  # the workers, in the order in which gradients are summed
        self.staleness, self.timeout = staleness, timeout
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
        self.log = Log()
        self.broken = ""
        self.joined: set[int] = set()  # ranks that were ever connected
        self.has_ended = False
        self._leads = True  # whether it serves workers
        self._returning: set[int] = set()  # ranks whose connection broke, and that may connect again
        self._dismissed: set[int] = set()  # ranks whose connection is about to be replaced
        self._changed = threading.Condition()
        self.applying = threading.Lock()  # held while an operation is appended and applied
        self._waits: dict[int, tuple[Callable[[], object], Callable[[], str]]] = {}  # by waiting worker

    @property
    def synchronous(self) -> bool:
        """Whether pushes are applied in rounds."""
        return self.staleness == 0

    @property
    def first(self) -> int:
        """The worker whose values and optimizer are used."""
        return self.members[0] if self.members else 0

    # ---- workers join and leave ----

    def join(self, rank: int, again: bool = False) -> object:
        """Add a worker, possibly late: it starts at the count of the slowest. Return a token for this connection.

        With `again`, the same process has lost its connection, possibly to another holder, and keeps its counts.
        """
        with self.applying, self._changed:
            if rank in self.living:
                raise Refused(f"worker {rank} is already connected")
            if not self.synchronous and not again:
                self._begin(rank)
            self.joined.add(rank)
            self._returning.discard(rank)
            self._dismissed.discard(rank)
            self._stays[rank] = stay = object()
            self._revive(rank)
            return stay

    def _begin(self, rank: int) -> None:
        """Start the counts of a new worker at those of the slowest."""
        slots = list(self.slots.values())
        for slot in slots:
            slot.commits[rank] = min((slot.commits[other] for other in self.living), default=slot.commits[rank])
        counts = [[slot.number, slot.commits[rank]] for slot in slots]
        self.log.append(Operation(m.JOINED, {"rank": rank, "counts": counts}))

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

    def gone(self, rank: int, why: str, stay: object = None, returns: bool = False) -> None:
        """Handle the loss of a worker: discard what it did not commit, and notify workers that wait for it.

        If `stay` is given, do nothing if the worker has reconnected since. If it `returns`, others wait for it.
        """
        with self._changed:
            if stay is not None and self._stays.get(rank) is not stay:
                return
            self.living.discard(rank)
            self._returning.discard(rank)
            if returns:
                self._returning.add(rank)
            else:
                self.lost.setdefault(rank, why)
            if not self.synchronous:
                for slot in self.slots.values():
                    slot.parts.pop(rank, None)
            self._changed.notify_all()

    def dismiss(self, rank: int) -> None:
        """Make a wait of this worker raise Closed: it has connected again."""
        with self._changed:
            self._dismissed.add(rank)
            self._changed.notify_all()

    def leave(self, rank: int, why: str, stay: object = None, number: int | None = None) -> None:
        """Note for all holders that a worker will not return. With `stay`, do nothing if it has reconnected since."""
        with self.applying:
            if stay is not None and self._stays.get(rank) is not stay:
                return
            self.log.append(Operation(m.LEFT, {"rank": rank, "why": why}), number)
            self.joined.discard(rank)
            self.gone(rank, why)

    # ---- keys ----

    def create(
        self, slots: list[Slot], specs: list[KeySpec], values: Sequence[Any] = (), number: int | None = None
    ) -> None:
        """Add keys declared by worker 0, with the slots on this server and their initial values."""
        with self.applying:
            self.log.append(Operation(m.KEYS, {"keys": [spec.told() for spec in specs]}, values), number)
            self.add(slots, specs)

    def add(self, slots: list[Slot], specs: list[KeySpec]) -> None:
        """Add keys without an operation."""
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
                lambda: f"worker {self.first} has not initialized {_listed([e.key for e in self._unknown(specs)])}",
                lambda: {self.first},
            )
            for spec in specs:
                known = self.directory[spec.name]
                if known != spec:
                    raise MXNetError(
                        f"key {spec.key!r}: worker {self.first} initialized it as {_described(known)}, "
                        f"worker {rank} as {_described(spec)}. All workers must initialize the same keys, with the "
                        "same shapes, in the same order"
                    )
            self._settle(rank)

    def _unknown(self, specs: list[KeySpec]) -> list[KeySpec]:
        return [spec for spec in specs if spec.name not in self.directory]

    def new(self, specs: list[KeySpec]) -> list[KeySpec]:
        """Return the specs that were not declared before."""
        with self._changed:
            return self._unknown(specs)

    # ---- pushing ----

    def _check_stay(self, rank: int, stay: object) -> None:
        """Raise if a worker's connection is outdated. Call it with `_changed` held."""
        if stay is not None and self._stays.get(rank) is not stay:
            raise Closed(f"this connection of worker {rank} is outdated")

    def push(self, rank: int, slots: Sequence[Slot], parts: Sequence[Pushed], stay: object = None) -> None:
        """Store gradients of a worker. They take effect when it commits; until then a later push replaces them.

        With `stay`, raises Closed if the worker has another connection now, or none.
        """
        with self._changed:
            self._check_stay(rank, stay)
            if any(rank in slot.committed for slot in slots):
                raise Refused(f"worker {rank} pushed a slot twice without waiting for the first push")
            for slot, part in zip(slots, parts, strict=True):
                slot.take(rank, part)
        if self.synchronous:
            for slot in slots:
                slot.advance(self.members)

    def commit(
        self, rank: int, slots: Sequence[Slot], settings: Settings | None, step: int = 0, stay: object = None
    ) -> None:
        """Complete a worker's step for these slots. Gradients that it did not push count as zero.

        `step` is the number of the step in an elastic job.
        """
        if self.synchronous:
            self._commit_to_round(rank, slots, settings, step, stay)
        else:
            self._commit_at_once(rank, slots, settings)

    def _commit_to_round(
        self, rank: int, slots: Sequence[Slot], settings: Settings | None, step: int, stay: object
    ) -> None:
        complete = []
        with self._changed:
            self._check_stay(rank, stay)
            if any(rank in slot.committed for slot in slots):
                raise Refused(f"worker {rank} committed a slot twice in one round")
            for slot in slots:
                slot.parts.setdefault(rank, None)
                slot.committed.add(rank)
                slot.commits[rank] += 1
                slot.step = step
                if settings is not None and rank <= slot.teller:
                    slot.settings, slot.teller = settings, rank
        for slot in slots:
            slot.advance(self.members)
        with self._changed:
            for slot in slots:
                if len(slot.committed) == slot.summed == len(self.members) and not slot.taken:
                    slot.taken = True
                    complete.append(slot)
        self._complete(complete)

    def _complete(self, slots: list[Slot]) -> None:
        """Handle rounds in which all workers have committed: apply them."""
        for group in groups(self.log.ordered(slots)):
            with self.updating(group):
                if taken := [slot for slot in group if slot.taken]:  # not dropped meanwhile
                    self._change(taken, [slot.sum for slot in taken], taken[0].settings)

    def _commit_at_once(self, rank: int, slots: Sequence[Slot], settings: Settings | None) -> None:
        with self.updating(slots):
            slots = self.log.ordered(slots)
            self._change(slots, [slot.parts.get(rank) for slot in slots], settings, rank)

    def _change(
        self, slots: Sequence[Slot], gradients: Sequence[Pushed], settings: Settings | None, rank: int | None = None
    ) -> None:
        """Apply the gradients of a round, or those that one worker has committed."""
        update = Operation(m.UPDATE, {}, (), slots, gradients, settings)
        if rank is not None:
            update.meta["r"] = rank
        if self.log.feed is not None:
            update.meta["z"] = random.getrandbits(48)
        self.apply(update)

    def apply(self, update: Operation, number: int | None = None) -> None:
        """Append an update to the log and apply it. Call it within `updating`."""
        slots, rank, settings = update.slots, update.meta.get("r"), update.settings
        if (feed := self.log.feed) is not None:
            at = self.log.number + 1 if number is None else number
            update.gradients = [
                gradient if rank is not None and feed.can_read(slot, gradient, rank) else slot.lasting(gradient, at)
                for slot, gradient in zip(slots, update.gradients, strict=True)
            ]
        gradients = update.gradients
        number = self.log.append(update, number)
        if self.rule is not None:
            self.rule.seed = update.meta.get("z")
        self._update(slots, gradients, settings)
        with self._changed:
            for slot in slots:
                slot.round += 1
                slot.operation = number
                slot.offers.pop(rank, None)
                if rank is None:
                    slot.reset()
                else:
                    slot.parts.pop(rank, None)
                    slot.commits[rank] += 1
                    slot.operations[rank] = number
            self._changed.notify_all()

    @contextmanager
    def updating(self, slots: Sequence[Slot], follows: bool = False) -> Iterator[None]:
        """Hold `applying` when other holders no longer read the buffers of slots."""
        while True:
            with self._changed:
                while not self._are_free(slots):
                    if not self._leads and not follows:
                        raise Closed("this server does not lead the shard any more")
                    if self.has_ended:
                        raise Closed("this server does not hold the shard any more")
                    self._changed.wait(1.0)
            with self.applying:
                if self._are_free(slots):  # no other worker has used them meanwhile
                    yield
                    return

    def _are_free(self, slots: Sequence[Slot]) -> bool:
        held = self.log.held
        return self.log.feed is None or all(slot.buffered <= held for slot in slots)

    def _update(self, slots: Sequence[Slot], gradients: Sequence[Pushed], settings: Settings | None) -> None:
        there = [(slot, gradient) for slot, gradient in zip(slots, gradients, strict=True) if gradient is not None]
        try:
            if self.rule is None:
                for slot, gradient in there:
                    store(slot.weight, gradient)
            elif there:
                specs, weights = [slot.spec for slot, _ in there], [slot.weight for slot, _ in there]
                self.rule.update(specs, [gradient for _, gradient in there], weights, settings)
        except Exception as error:  # errors of an optimizer are raised in the workers; the server continues
            self.broken = (
                f"the update of keys {_listed([slot.spec.key for slot, _ in there])} failed on the server: {error!r}"
            )

    # ---- pulling ----

    def ready(self, rank: int, slots: Sequence[Slot]) -> Iterator[list[Slot]]:
        """Yield slots as soon as this worker may read them: its own pushes are applied, and it is not too far ahead."""
        return self._as_soon_as(self._readable, rank, slots)

    def _as_soon_as(self, holds: Callable[[Slot, int], bool], rank: int, slots: Sequence[Slot]) -> Iterator[list[Slot]]:
        waiting = dict.fromkeys(slots)

        def readable() -> list[Slot]:
            return [slot for slot in waiting if holds(slot, rank)]

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
        held = self.log.held
        if self.synchronous:
            return slot.round >= slot.commits[rank] and slot.operation <= held
        if slot.operations[rank] > held:
            return False
        if self.staleness is None:
            return True
        slowest = min((slot.commits[other] for other in self.living | self._returning), default=0)
        return slot.commits[rank] - slowest <= self.staleness

    def _needed(self, slot: Slot) -> set[int]:
        """Return the workers that have not committed the current synchronous round."""
        return set(self.members) - slot.committed if self.synchronous else set()

    def _late(self, slot: Slot, rank: int) -> str:
        if max(slot.operation, slot.operations[rank]) > self.log.held:
            return f"key {slot.spec.key!r} waits for another server, which must apply its last update too"
        if self.synchronous:
            late = self._needed(slot)
            waits = f"round {slot.round + 1} of key {slot.spec.key!r} waits for the push of"
        else:
            mine, bound = slot.commits[rank], self.staleness or 0
            late = {other for other in self.living | self._returning if mine - slot.commits[other] > bound}
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
            self._await(rank, ready, late, needs)
        finally:
            del self._waits[rank]

    def _await(
        self, rank: int, ready: Callable[[], object], late: Callable[[], str], needs: Callable[[], set[int]]
    ) -> None:
        deadline = time.monotonic() + self.timeout
        while not ready():
            if not self._leads:
                raise Closed("this server does not lead the shard any more")
            if rank in self._dismissed:
                raise Closed(f"worker {rank} has connected again")
            self._check_circle()
            if self.broken:
                raise MXNetError(self.broken)
            needed = needs()
            for other, why in self.lost.items():
                if other in needed:
                    raise PeerError(f"worker {other} is gone: {why}; {late()}")
            left = deadline - time.monotonic()
            if left <= 0:
                raise PeerError(f"timed out after {self.timeout:.0f} s: {late()}")
            self._changed.wait(min(left, 1.0))
        if self.broken:
            raise MXNetError(self.broken)

    def _check_circle(self) -> None:
        """Detect a deadlock, in which every worker waits for another one, and make all workers raise."""
        waits = self._waits
        if self.log.held < self.log.number:
            return  # some wait for other servers
        all_wait = self.synchronous and waits.keys() >= set(self.members)
        if all_wait and not any(waits[rank][0]() for rank in self.members):
            doing = "; ".join(f"worker {rank} waits because {waits[rank][1]()}" for rank in self.members)
            self.broken = self.broken or (
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
        with self.applying:
            return self.required_rule().states()

    # ---- actions of worker 0 ----

    def once(self, what: str, generation: int, rank: int, do: Callable[[], None] | None, data: bytes = b"") -> None:
        """Run an action of worker 0 once; other workers wait until it was run for the generation-th time.

        Other holders of the shard run it with `data`.
        """
        if do is None:
            with self._changed:
                self._until(
                    rank,
                    lambda: self.generations[what] >= generation,
                    lambda: f"worker {self.first} has not called {what}",
                    needs=lambda: {self.first},
                )
        elif self.generations[what] < generation:
            self.act(what, generation, do, data)
        with self._changed:
            self._settle(rank)
        if self.failures.get((what, generation)):
            raise MXNetError(self.failures[what, generation])

    def act(self, what: str, generation: int, do: Callable[[], None], data: bytes, number: int | None = None) -> None:
        """Append an action to the log and run it."""
        failure = ""
        with self.applying:
            self.log.append(Operation(m.ONCE, {"what": what, "generation": generation}, (data,)), number)
            try:
                do()
            except MXNetError as error:
                failure = str(error)
            with self._changed:
                self.generations[what] = generation
                self.failures[what, generation] = failure
                self._changed.notify_all()

    # ---- other holders of the shard ----

    def _settle(self, rank: int) -> None:
        """Wait until all holders have the operations so far. Call it with `_changed` held."""
        number = self.log.number
        self._until(
            rank,
            lambda: self.log.held >= number,
            lambda: "another server has not applied the last operation yet",
            needs=set,
        )

    def acknowledge(self, number: int) -> None:
        """Note that all following holders have applied the operations up to this number."""
        with self._changed:
            self.log.acknowledge(number)
            self._changed.notify_all()

    def release(self) -> None:
        """Wait for no other holder any more."""
        with self._changed:
            self.log.attach(None)
            self._changed.notify_all()

    def follow_join(self, rank: int, counts: Mapping[int, int], number: int) -> None:
        """Apply the arrival of a worker at the leader."""
        with self.applying, self._changed:
            told = [[slot, count] for slot, count in counts.items()]
            self.log.append(Operation(m.JOINED, {"rank": rank, "counts": told}), number)
            self.joined.add(rank)
            self.lost.pop(rank, None)
            for slot, count in counts.items():
                self.slots[slot].commits[rank] = count

    def follow(self) -> None:
        """Stop serving workers: all that wait raise Closed."""
        with self._changed:
            self._leads = False
            self._changed.notify_all()

    def end(self) -> None:
        """Stop serving workers and following another holder."""
        self.has_ended = True
        self.follow()

    def lead(self) -> None:
        """Serve workers from now on. They repeat what this holder has not received from the previous leader."""
        with self.applying, self._changed:
            for slot in self.slots.values():
                slot.reset()
                if self.synchronous:
                    slot.commits = defaultdict(int, dict.fromkeys(self.members, slot.round + bool(slot.offers)))
            self._returning = self.joined - self.lost.keys()
            self._leads = True
            self._changed.notify_all()


def _listed(keys: list[Key]) -> str:
    return ", ".join(map(repr, keys[:4])) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")


def _described(spec: KeySpec) -> str:
    places = ", ".join(f"server {segment.server} [{segment.start}:{segment.stop}]" for segment in spec.segments)
    return f"{spec.shape} {str(spec.dtype).removeprefix('torch.')} on {places}"
