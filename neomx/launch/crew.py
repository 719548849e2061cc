"""The workers of an elastic job: on which hosts they run, and when a lost one is replaced. This file only decides.

A job has a *seat* for each worker that it may have, spares included. The worker in a seat is replaced a limited number
of times, after growing pauses. Every worker has a member number, which is never used again.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable

_MINUTE = 60.0
_FAILURES = 3  # within a minute, after which a host is left out for some time
_LONGEST = 30.0  # seconds between a loss and the start of the replacement


@dataclasses.dataclass(frozen=True)
class Limits:
    """How many workers a job may have, and how often they are replaced."""

    least: int
    most: int
    spares: int = 0
    restarts: int = 3
    cooldown: tuple[float, float] = (60.0, 600.0)


@dataclasses.dataclass(eq=False)
class Host:
    """A machine of the job, and its workers."""

    name: str
    room: int  # maximum number of workers
    first: int | None = None  # how many of them are started first, None: all for which there is room
    node: int | None = None  # the number of its launcher, None: it has none now
    is_ready: bool = False  # whether its launcher can start workers
    workers: dict[int, int] = dataclasses.field(default_factory=dict)  # local ranks by member number
    out_until: float = 0.0  # it is left out until then
    _failures: collections.deque[float] = dataclasses.field(default_factory=collections.deque)
    _cooldown: float = 0.0

    @property
    def free(self) -> int:
        """How many more workers it has room for, if its launcher is ready."""
        return max(0, self.room - len(self.workers))

    def local_rank(self) -> int:
        """Return the lowest local rank that no worker of the host has."""
        return next(rank for rank in itertools.count() if rank not in self.workers.values())

    def fail(self, now: float, cooldown: tuple[float, float]) -> float:
        """Record the failure of its launcher or a worker. Return for how long it is left out now, in seconds, or 0."""
        self._failures.append(now)
        while now - self._failures[0] > _MINUTE:
            self._failures.popleft()
        if len(self._failures) < _FAILURES:
            return 0.0
        self._failures.clear()
        self._cooldown = min(max(cooldown[0], 2 * self._cooldown), cooldown[1])
        self.out_until = now + self._cooldown
        return self._cooldown


@dataclasses.dataclass
class Seat:
    """A place for one worker."""

    member: int | None = None  # the worker in it
    successor: int | None = None  # the member number of the worker that replaces a lost one
    restarts: int = 0
    since: float = 0.0  # the earliest time of the next start
    is_closed: bool = False  # its worker has ended its program, or may not be replaced again

    @property
    def is_vacant(self) -> bool:
        """Whether a worker may be started in it."""
        return self.member is None and not self.is_closed


@dataclasses.dataclass(frozen=True)
class Start:
    """A worker to start now."""

    member: int
    host: Host
    local_rank: int
    joins: bool  # whether the training has begun without it


@dataclasses.dataclass(frozen=True)
class Loss:
    """A lost worker, and what follows."""

    host: Host
    successor: int | None = None  # the worker that replaces it, None: it is not replaced
    pause: float = 0.0  # seconds until the replacement starts
    restarts: int = 0  # how often the worker in its seat has been replaced, this time included


class Crew:
    """Decides which workers run on which hosts."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic):
        self.limits = limits
        self.hosts: list[Host] = []
        self.size = 0  # the number of workers at the start
        self.closing = False  # whether no more workers are started
        self._clock = clock
        self._seats = [Seat() for _ in range(limits.most + limits.spares)]
        self._numbers = itertools.count()

    # ---- questions ----

    @property
    def running(self) -> set[int]:
        """The member numbers of all workers that run."""
        return {seat.member for seat in self._seats if seat.member is not None}

    @property
    def room(self) -> int:
        """The number of workers for which the ready hosts have room."""
        return sum(host.room for host in self.hosts if host.is_ready)

    def host_of(self, member: int) -> Host | None:
        """Return the host on which a worker runs."""
        return next((host for host in self.hosts if member in host.workers), None)

    def host_with(self, node: int) -> Host | None:
        """Return the host whose launcher has this number."""
        return next((host for host in self.hosts if host.node == node), None)

    def could_start(self, hosts: Iterable[Host] | None) -> int:
        """Return how many more workers could be started, now or later, on some hosts. None: on any number of hosts."""
        vacant = 0 if self.closing else sum(seat.is_vacant for seat in self._seats)
        return vacant if hosts is None else min(vacant, sum(host.free for host in hosts))

    def pauses(self) -> bool:
        """Whether the replacement of a worker waits for the end of a pause."""
        return any(seat.is_vacant and self._clock() < seat.since for seat in self._seats)

    # ---- events ----

    def begin(self) -> list[Start]:
        """Return the workers with which the job starts."""
        places = [host for host in self.hosts if host.is_ready for _ in range(host.room)[: host.first]]
        self.size = min(self.limits.most, len(places))
        return [
            self._start(seat, host, joins=False) for seat, host in zip(self._seats, places[: self.size], strict=False)
        ]

    def due(self) -> list[Start]:
        """Return the workers that must be started now: replacements, spares, and those for which hosts have room."""
        now, starts = self._clock(), []
        for seat in self._seats:
            host = None if self.closing else self._host_with_room()
            if host is not None and seat.is_vacant and now >= seat.since:
                starts.append(self._start(seat, host, joins=True))
        return starts

    def lose(self, member: int, hesitates: bool = False) -> Loss:
        """Record the loss of a worker. If it `hesitates`, its replacement starts after at least a second."""
        seat, host = self._vacate(member)
        if seat.restarts >= self.limits.restarts or self.closing:
            seat.is_closed = True
            return Loss(host, restarts=seat.restarts)
        seat.restarts += 1
        pause = max(pause_before(seat.restarts), 1.0 if hesitates else 0.0)
        seat.since, seat.successor = self._clock() + pause, next(self._numbers)
        return Loss(host, seat.successor, pause, seat.restarts)

    def finish(self, member: int) -> None:
        """Record that a worker has ended its program."""
        self._vacate(member)[0].is_closed = True

    def leave(self, host: Host) -> list[int]:
        """Record that all workers of a host are gone, through no fault of theirs, and return their member numbers.

        They may be replaced on other hosts as often as before.
        """
        gone = sorted(host.workers)
        for member in gone:
            seat, _ = self._vacate(member)
            seat.successor = next(self._numbers)
        host.node, host.is_ready = None, False
        return gone

    def fail(self, host: Host) -> float:
        """Record a failure of a host. Return for how long it is left out now, in seconds, or 0."""
        if len(self.hosts) == 1:
            return 0.0
        return host.fail(self._clock(), self.limits.cooldown)

    # ---- inside ----

    def _host_with_room(self) -> Host | None:
        """Return the host with the most room for a worker now, or None."""
        now = self._clock()
        found = [host for host in self.hosts if host.is_ready and host.free and now >= host.out_until]
        return max(found, key=lambda host: host.free, default=None)

    def _start(self, seat: Seat, host: Host, joins: bool) -> Start:
        seat.member = next(self._numbers) if seat.successor is None else seat.successor
        seat.successor = None
        start = Start(seat.member, host, host.local_rank(), joins)
        host.workers[start.member] = start.local_rank
        return start

    def _vacate(self, member: int) -> tuple[Seat, Host]:
        seat = next(seat for seat in self._seats if seat.member == member)
        host = self.host_of(member)
        assert host is not None
        seat.member = None
        del host.workers[member]
        return seat, host


def pause_before(restart: int) -> float:
    """Return the pause before the n-th replacement of the worker in a seat, in seconds: none before the first."""
    return 0.0 if restart == 1 else min(0.5 * 2 ** min(restart - 2, 10), _LONGEST)
