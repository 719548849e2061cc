"""Which workers of an elastic job train together, and how they agree on it when workers are lost or join.

A *generation* is a list of members. Each has a number, and is a value in the job's store that is set once: workers
cannot disagree about it, and those that cannot reach the store do not train on their own.

When a member is lost, the others say in the store how far they are. When all that are alive have said so, the one with
the lowest number writes the next generation. It also decides about the step in which the loss occurred: if all of them
have received all sums of that step, it counts for all, otherwise for none. Members that wait to join are admitted if
all others are at a step.

A worker may *follow* the members before it is one of them: it receives the sums of their steps, and in the meantime the
state of the training. When it has all of it, it becomes a member in the next generation.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ..base import MXNetError
from .seats import Seats, complete, whole
from .store import CALLS, THE_STORE, PeerError, StoreClient
from .world import World, outside

if TYPE_CHECKING:  # the launcher needs no torch
    from .memory import Stock

_log = logging.getLogger("neomx")
NOW = "elastic/generation"  # the key of the current generation, for launchers
OVER = "elastic/over"  # set when the program has ended on all members
_PLACE = "elastic/place"
_TELL = 5.0  # seconds of waiting before it is reported
_ALL_GONE = 30.0  # seconds for which all members must be gone before a worker that waits to join them gives up
_LOOK = 0.05  # seconds between two looks for members that are gone


class Expelled(MXNetError):
    """The others go on without this worker, because it was not heard from."""


class Over(MXNetError):
    """The training has ended."""


class Unrecoverable(MXNetError):
    """The workers that are left do not have the whole state of the training."""


@dataclass(frozen=True)
class Status:
    """What a member says when it asks for the next generation."""

    steps: int = 0  # steps of the training that this member has committed; negative if it has no state yet
    holds: bool = False  # whether it has all sums of the step after them
    divisor: float = 0.0  # of that step, if it holds the sums
    began: int = -1  # the committed steps when its batch began, if a batch has several steps; otherwise negative
    calls: int = 0  # how often this member has completed a collective, or a wait for all members
    passes: int = 0  # passes over sharded data that this member has begun
    training: int | None = None  # the pass in which it is at a step
    epoch: int | None = None  # its epoch if it is at a step of the training, where others may join; otherwise None
    left: int = 0  # steps that are left in this epoch, about; those that it needs, if it follows
    intact: bool = False  # whether this member has noticed no loss, so that its groups can be used further


@dataclass(frozen=True)
class Generation:
    """The members that train together, in the order of their ranks."""

    number: int
    members: tuple[int, ...]
    nodes: tuple[int, ...]  # the node of each member
    steps: int = 0  # the steps of the training that count
    divisor: float = 0.0  # of the last of them
    calls: int = 0  # the collectives that count
    passes: int = 0  # passes over sharded data that some member had begun
    training: int | None = None  # the pass in which some member was at a step
    lacking: tuple[int, ...] = ()  # members that have not completed the last of them
    new: tuple[int, ...] = ()  # members that were not in the generation before: they have no state yet
    seats: Seats = field(default_factory=Seats)  # where they sit in the layout
    unrecoverable: str = ""  # why nobody can go on; then there are no members
    followers: tuple[int, ...] = ()  # workers that follow the members
    follower_nodes: tuple[int, ...] = ()  # the node of each
    continues: bool = False  # whether members and followers together are those of the generation before, and intact

    @property
    def places(self) -> dict[int, int]:
        """The node of each member, by its number."""
        return dict(zip(self.members, self.nodes, strict=True))

    @property
    def everyone(self) -> dict[int, int]:
        """The node of each member and of each worker that follows, by its number."""
        return {**self.places, **dict(zip(self.followers, self.follower_nodes, strict=True))}

    @property
    def sharers(self) -> tuple[int, ...]:
        """The members among whom samples are divided: all, unless those of a layout have the same samples."""
        return self.seats.sharers(self.members)

    def sharer(self, member: int) -> int:
        """Return the one of them that has the samples of a member."""
        replica = self.seats.replica_of(self.members, member)
        return replica[self.seats.heads[replica.index(member)]]

    def world(self, world: World) -> World:
        """Return the world as a member of this generation sees it."""
        rank = self.members.index(world.number)
        names = list(dict.fromkeys(self.nodes))
        mine = self.nodes[rank]
        return replace(
            world,
            rank=rank,
            size=len(self.members),
            local_rank=self.nodes[:rank].count(mine),
            local_size=self.nodes.count(mine),
            nodes=len(names),
        )

    @staticmethod
    def read(content: bytes) -> Generation:
        """Return the generation that was written to the store."""
        said = json.loads(content)
        found: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in said.items()}
        return Generation(**{**found, "seats": _seats(found["seats"])})


def _seats(said: Mapping[str, Any]) -> Seats:
    return Seats(**{**said, "heads": tuple(said["heads"])})


class Generations:
    """The generations of this worker's job. `current` is the one in which this worker trains."""

    def __init__(self, store: StoreClient, world: World) -> None:
        assert world.limits is not None
        self.store = self._store = store
        self._limits, self._me, self._node = world.limits, world.number, world.node
        self._timeout = world.timeout
        self._calls = 0
        self._called = False
        initial = range(world.limits.initial)
        self.current = Generation(0, tuple(initial), (-1,) * len(initial))
        self.admitted = not world.limits.joins
        self._aside = 0
        self._place = ""  # the key of this worker's request to join
        self.stock: Stock | None = None  # memory for the generation that admits this worker
        self._deserted: float | None = None  # since when all members are gone, while this worker waits for them
        self.seats = Seats()  # of the layout of the program
        self.seat = 0  # this worker's place in a replica
        if world.limits.joins:
            self.step_aside()

    # ---- noticing ----

    @property
    def number(self) -> int:
        """The number of the current generation."""
        return self.current.number

    def gone(self) -> list[int]:
        """The members of the current generation, and workers that follow them, that are gone."""
        gone = self._store.gone
        return [member for member in self.current.everyone if member != self._me and f"worker {member}" in gone]

    def is_called(self) -> bool:
        """Whether a member asks for the next generation, because it noticed a loss."""
        if self._store.calls != self._calls and (self.admitted or self.follows):
            self._calls = self._store.calls
            self._called = self._store.check([self._key(self.number + 1, "called")])
        return self._called

    def neighbors(self) -> int:
        """Return the number of workers on the host of this one that train."""
        if not self._store.check([NOW]):
            return 0
        return Generation.read(self._store.get(NOW)).nodes.count(self._node)

    @property
    def follows(self) -> bool:
        """Whether this worker follows the members of the current generation."""
        return self._me in self.current.followers

    def places(self, with_followers: bool) -> dict[int, int]:
        """Return the node of each worker in a group, by number. A worker that follows is alone in other groups."""
        if self.admitted or self.follows and with_followers:
            return self.current.everyone if with_followers else self.current.places
        return {self._me: self._node}

    def world(self, world: World) -> World:
        """Return the world as this worker sees it in the current generation."""
        return self.current.world(world) if self.admitted else outside(world)

    def waiting(self) -> list[int | None]:
        """Return the epoch in which each worker that waits wants to join; None for any."""
        return [said["epoch"] for said in self._joiners(None).values()]

    def can_admit(self, epoch: int | None) -> bool:
        """Whether workers wait that can be admitted in an epoch: with a layout, as many as a replica needs.

        Those that follow come first.
        """
        if self.current.followers:
            return False
        waiting = [(m, said["place"]) for m, said in self._joiners(None).items() if said["epoch"] in (None, epoch)]
        room = (self._limits.most - len(self.current.members)) // self.seats.places
        return bool(complete(waiting, self.seats.places, room))

    def has_asked(self, member: int) -> bool:
        """Whether a member has asked for the next generation, and takes no part in this one any more."""
        return self.is_called() and self._store.check([self._key(self.number + 1, "ready", member)])

    def call(self) -> None:
        """Make all members ask for the next generation, because this one has noticed a loss."""
        self._store.set(self._key(self.number + 1, "called"), b"")
        self._store.add(CALLS, 1)

    def step_aside(self) -> None:
        """Train with nobody until `join` succeeds."""
        self.current = Generation(-self._aside, (self._me,), (self._node,))
        self._aside += 1
        self.admitted = False

    # ---- the next generation ----

    def take_seats(self, seats: Seats) -> bool:
        """Sit in a layout from now on. Return whether the members of the current generation must change for it.

        A worker that was started later waits until a place is free, and takes it.
        """
        self.seats = seats
        is_initial = self._me < self._limits.initial
        self.seat = self._place_of(self._me, {}, seats) if is_initial else self._claim()
        if self.admitted and (seats.places == 1 or self.current.members == tuple(range(self._limits.initial))):
            self.current = replace(self.current, seats=seats)
        return self.admitted and self.current.seats.places != seats.places

    def _place_of(self, member: int, said: Mapping[str, Any], seats: Seats) -> int:
        """Return the place of a worker, which may not know the layout yet."""
        if member < self._limits.initial:
            return seats.place(member, self._limits.initial // seats.places)
        return int(said["place"])

    def _claim(self) -> int:
        """Take the place that the fewest workers have. Waits while all replicas that the job may have are complete."""
        store, most = self._store, self._limits.most // self.seats.places
        number = 1
        while True:
            self.place()  # raises if nobody trains
            holders = [0] * self.seats.places
            gone = store.gone
            for member in range(self._limits.initial):
                holders[self._place_of(member, {}, self.seats)] += f"worker {member}" not in gone
            while store.check([f"elastic/seat/{number}"]):
                number += 1
            for each in range(1, number):
                said = json.loads(store.get(f"elastic/seat/{each}"))
                holders[said["place"]] += f"worker {said['member']}" not in gone
            if min(holders) >= most:
                time.sleep(_LOOK)
                continue
            mine = json.dumps({"member": self._me, "place": holders.index(min(holders))})
            if store.compare_set(f"elastic/seat/{number}", b"", mine) == mine.encode():
                return holders.index(min(holders))

    def begin(self) -> Generation:
        """Return the first generation: the workers that the job started with, except those that are gone already.

        A worker that comes so late that the others went on without it trains with nobody until `join`.
        """
        try:
            return self.next(Status())
        except Expelled:
            self.step_aside()
            return self.current

    def next(self, status: Status) -> Generation:
        """Wait until the members agree on the next generation, and return it. Raises Expelled if it is without us."""
        number = self.number + 1
        store = self._store
        mine = {"node": self._node, "place": self.seat, "seats": asdict(self.seats)}
        store.set(self._key(number, "ready", self._me), json.dumps({**asdict(status), **mine}))
        since = told = time.monotonic()
        while not store.check([self._key(number)]):
            lacking, awaited = self._decide(number, time.monotonic() - since > self._timeout)
            if time.monotonic() - told > _TELL:
                told = time.monotonic()
                _log.warning("worker %d waits for %s before it can go on", self._me, lacking)
            if lacking:
                self._wait(awaited)
            if THE_STORE in store.gone:
                raise PeerError(f"the workers cannot agree on how to go on: {store.gone[THE_STORE]}")
        return self._take(number)

    def join(self, epoch: int | None, follows: int = 0) -> Generation | None:
        """Ask to be admitted, and wait for it. Return None if the training is in another epoch now.

        With an epoch, this worker is admitted only while the others are in that epoch. It follows them at first if so
        many steps as `follows` are left in the epoch; not if this is 0. Raises Over when the training has ended.
        """
        store = self._store
        self._place = place = self._place or f"elastic/joiner/{store.add('elastic/joiners', 1)}"
        mine = {"member": self._me, "node": self._node, "place": self.seat}
        store.set(place, json.dumps({**mine, "epoch": epoch, "follows": follows}))
        number = self._newest()
        store.add(CALLS, 1)
        while True:
            if store.check([OVER]):
                raise Over("the training has ended")
            if store.check([self._key(number + 1)]):
                number += 1
                found = self._read(number)
                if self._me in found.everyone or found.unrecoverable:
                    store.delete_key(place)
                    return self._take(number)
            elif epoch is not None and self._is_elsewhere(epoch) and not store.check([self._key(number + 1)]):
                store.delete_key(place)  # nobody decides about an epoch that has ended
                return None
            else:
                self._wait(self._key(number + 1), 0.2)
            if THE_STORE in store.gone:
                raise PeerError(f"cannot join the training: {store.gone[THE_STORE]}")
            self._check_that_somebody_trains()

    def tell_place(self, place: str) -> None:
        """Tell workers that wait to join where the training is: JSON with the numbers of the loader and the epoch."""
        before = self._store.get(_PLACE) if self._store.check([_PLACE]) else b""
        self._store.compare_set(_PLACE, before, place)

    def place(self) -> dict[str, int] | None:
        """Return where the training is, or None before its first step. Raises Over after its end."""
        if self._store.check([OVER]):
            raise Over("the training has ended")
        self._check_that_somebody_trains()
        return json.loads(self._store.get(_PLACE)) if self._store.check([_PLACE]) else None

    def _check_that_somebody_trains(self) -> None:
        """Raise if all members have been gone for some time, so that nobody can admit this worker."""
        newest: Sequence[int] = range(self._limits.initial)
        if self._store.check([NOW]):
            now = Generation.read(self._store.get(NOW))
            if now.unrecoverable:
                raise Unrecoverable(now.unrecoverable)
            newest = now.members
        gone = self._store.gone
        if not gone:
            return
        if not all(f"worker {member}" in gone for member in newest):
            self._deserted = None
        elif self._deserted is None:
            self._deserted = time.monotonic()
        elif time.monotonic() - self._deserted > _ALL_GONE:
            lost = self._store.missing([f"worker {member}" for member in newest])
            raise PeerError(f"cannot join the training: nobody trains any more. {lost}. Start the job again")

    def _is_elsewhere(self, epoch: int) -> bool:
        place = self.place()
        return place is not None and place["epoch"] != epoch

    def end(self) -> None:
        """Tell workers that still wait to join that the training has ended."""
        if self.admitted and self.current.members[0] == self._me:
            self._store.compare_set(OVER, b"", b"1")

    # ---- deciding ----

    @staticmethod
    def _key(number: int, *parts: object) -> str:
        return "/".join(map(str, (NOW, number, *parts)))

    def _wait(self, key: str, seconds: float = _LOOK) -> None:
        with suppress(PeerError):  # not there yet
            self._store.wait([key], seconds)

    def _read(self, number: int) -> Generation:
        return Generation.read(self._store.get(self._key(number)))

    def _newest(self) -> int:
        return Generation.read(self._store.get(NOW)).number if self._store.check([NOW]) else 0

    def _take(self, number: int) -> Generation:
        found = self._read(number)
        if found.unrecoverable:
            raise Unrecoverable(found.unrecoverable)
        if self._me not in found.everyone:
            if self._said(number, self._me) is not None and found.seats.places > 1:
                raise Expelled(f"worker {self._me} has lost a partner in its replica, and waits for its replacement")
            raise Expelled(f"worker {self._me} was not heard from, and the other workers went on without it")
        self.current, self._called, self._calls = found, False, -1
        self.admitted = self._me in found.members
        return found

    def _decide(self, number: int, late: bool) -> tuple[str, str]:
        """Write the next generation if this is the member to do so and all others are ready.

        Return what is lacking, and the key to wait for. If `late`, members that are alive and not ready count as gone.
        """
        key = self._key(number)
        gone, current = self._store.gone, self.current
        alive = [member for member in current.everyone if f"worker {member}" not in gone]
        said = {member: found for member in alive if (found := self._said(number, member)) is not None}
        if lacking := [member for member in alive if member not in said]:
            left = {name for name, each in self._store.roster().items() if each["state"] == "left"}
            lacking = [member for member in lacking if f"worker {member}" not in left]
        first = next((member for member in sorted(current.members) if member in alive), None)
        if lacking and not late:
            awaited = self._key(number, "ready", lacking[0]) if self._me == first else key
            return self._store.missing([f"worker {member}" for member in lacking]), awaited
        ready = {member: each for member, each in said.items() if member in current.members}
        if not ready:
            raise PeerError("all workers that had the state of the training are gone: start the job again")
        if self._me != min(ready):
            return f"the decision of worker {min(ready)}", key
        return self._compose(number, said, ready, late), key

    def _compose(
        self, number: int, said: Mapping[int, Mapping[str, Any]], ready: Mapping[int, Mapping[str, Any]], late: bool
    ) -> str:
        """Write the next generation, from what workers have said, of whom the members are `ready`.

        Return what is lacking, or nothing.
        """
        current = self.current
        seats = max((_seats(each["seats"]) for each in ready.values()), key=lambda each: each.places)
        replicas = self._whole(seats, ready)
        kept = [member for replica in replicas for member in replica]
        if seats.places > 1 and not kept:
            self._give_up(number, seats, ready)
            return ""
        blank = [member for member, each in ready.items() if each["steps"] < 0]
        statuses = {member: _status(each) for member, each in said.items()}
        here = [statuses[member] for member in ready if member in kept or member in blank]
        following = [m for m in current.followers if m in said and _is_along(statuses[m], here)]
        done = [member for member in following if statuses[member].steps >= 0]
        joiners = {member: each for member, each in self._joiners(here).items() if member not in said}
        follow = [m for m, each in joiners.items() if seats.places == 1 and _can_follow(each["follows"], here)]
        if any(each.epoch is None for each in here):  # nobody can tell how many steps are left
            follow += following
        else:
            follow += [member for member in following if _can_follow(statuses[member].left, here)]
        joiners |= {member: said[member] for member in (*blank, *following)}
        if seats.places > 1:  # what is left of a replica may be part of a new one
            epochs = {each.epoch for each in here}
            joiners |= {m: s for m, s in ready.items() if m not in kept and {s["epoch"]} == epochs != {None}}
        kept += done
        waiting = [(m, self._place_of(m, each, seats)) for m, each in joiners.items() if m not in (*kept, *follow)]
        added = complete(waiting, seats.places, (self._limits.most - len(kept)) // seats.places)
        members = seats.members([*replicas, *((member,) for member in done), *added])
        followers = tuple(sorted(member for member in follow if member not in members))
        followers = followers[: max(0, self._limits.most - len(members))]
        if len(members) < self._limits.least and not late:
            return f"more workers: there are {len(members)} of at least {self._limits.least}"
        steps, divisor = agreed(here)
        nodes = {member: int(each["node"]) for member, each in {**said, **joiners}.items()}
        new = [member for member in members if member not in kept]
        calls = max(each.calls for each in here if each.steps >= 0)
        is_intact = len(said) == len(current.everyone) and all(each.intact for each in statuses.values())
        made = Generation(
            number,
            members,
            tuple(nodes[each] for each in members),
            steps,
            divisor,
            calls,
            max(each.passes for each in here),
            max((each.training for each in here if each.training is not None), default=None),
            tuple(member for member in kept if said[member]["calls"] < calls),
            tuple(new),
            seats,
            followers=followers,
            follower_nodes=tuple(nodes[each] for each in followers),
            continues=is_intact and [*members, *followers] == list(current.everyone),
        )
        self._write(made)
        return ""

    def _whole(self, seats: Seats, ready: Mapping[int, Mapping[str, Any]]) -> list[tuple[int, ...]]:
        """Return the replicas of which all members are ready and have the state of the training."""
        current = self.current
        # Before the layout was known, the workers had the numbers of their ranks.
        before = current.members if current.seats.places == seats.places else range(self._limits.initial)
        return whole(seats.replicas(before), [member for member, each in ready.items() if each["steps"] >= 0])

    def _give_up(self, number: int, seats: Seats, ready: Mapping[int, object]) -> None:
        """Write that nobody can go on, because no replica is complete."""
        lost = [member for member in self.current.members if member not in ready]
        self._write(
            Generation(
                number,
                (),
                (),
                seats=seats,
                unrecoverable=f"no complete replica of the layout {seats.layout} is left after the loss of "
                f"worker{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}: nobody has all parts of the model. Start "
                "the job again, from files that it has saved",
            )
        )

    def _write(self, made: Generation) -> None:
        content = json.dumps(asdict(made))
        if self._store.compare_set(self._key(made.number), b"", content) == content.encode():
            self._publish(content)

    def _publish(self, content: str) -> None:
        before = self._store.get(NOW) if self._store.check([NOW]) else b""
        self._store.compare_set(NOW, before, content)

    def _said(self, number: int, member: int) -> dict[str, Any] | None:
        key = self._key(number, "ready", member)
        found: dict[str, Any] | None = json.loads(self._store.get(key)) if self._store.check([key]) else None
        return found

    def _joiners(self, statuses: list[Status] | None) -> dict[int, Mapping[str, Any]]:
        """The workers that wait to join, by number: all, or those that may join members with these statuses."""
        store, found = self._store, {}
        gone = store.gone
        for place in range(1, store.add("elastic/joiners", 0) + 1):
            key = f"elastic/joiner/{place}"
            if not store.check([key]):
                continue
            said = json.loads(store.get(key))
            if f"worker {said['member']}" in gone:
                continue
            if statuses is None or all(s.epoch is not None and said["epoch"] in (None, s.epoch) for s in statuses):
                found[int(said["member"])] = said
        return found


def _status(said: Mapping[str, Any]) -> Status:
    return Status(**{name: value for name, value in said.items() if name not in ("node", "place", "seats")})


def _is_along(follower: Status, members: list[Status]) -> bool:
    """Whether a worker that follows is in the epoch of the members."""
    return all(each.epoch in (None, follower.epoch) for each in members)


def _can_follow(steps: int, members: list[Status]) -> bool:
    """Whether a worker that joins can follow the members for so many steps of this epoch; 0 if it cannot follow."""
    return 0 < steps <= min(each.left for each in members)


def agreed(statuses: list[Status]) -> tuple[int, float]:
    """Return the number of steps that count, and the divisor of the last one.

    A member commits a step only when all members have its sums. So if one has committed it, all others hold its sums
    and commit it too. If all hold them, it counts as well: a lost member may have committed it. If a batch has several
    steps, they count together: when a member has begun the next batch.
    """
    with_state = [each for each in statuses if each.steps >= 0]
    if not with_state:
        raise PeerError("all workers that had the state of the training are gone: start the job again")
    steps = max(each.steps for each in with_state)
    behind = [each for each in with_state if each.steps < steps]
    assert all(each.holds and each.steps == steps - 1 for each in behind)
    divisor = 0.0
    if behind:
        divisor = behind[0].divisor
    elif all(each.holds for each in with_state):
        steps, divisor = steps + 1, with_state[0].divisor
    began = max(each.began for each in with_state)
    return (steps, divisor) if began < 0 else (min(steps, began), divisor)
