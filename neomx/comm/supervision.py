"""Supervision of a job until it ends, and its result: the core of `neomx run` and `mx.dist.launch`."""

from __future__ import annotations

import collections
import dataclasses
import math
import signal
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Protocol

from . import guard
from .chain import Holder, survives
from .child import Child, Command, Failure
from .store import TOLERATES_LOSS, Member
from .tree import Tree

RESTARTS = 10  # how often a server is started again
FAREWELL = 5.0  # seconds for the other processes to report their errors after one has failed
GRACE = 30.0  # seconds for the workers to save a checkpoint after a signal, or after one of them has done so
SAVED = 75  # exit code of a worker that saved a checkpoint and ended because of a signal, and then of the launcher
_Handler = Callable[[int, FrameType | None], Any] | int | None
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Records SIGINT, SIGTERM and SIGHUP instead of raising, within a `with` block in the main thread.

    A SIGHUP that is ignored, as after nohup, stays ignored. With `forwards`, SIGUSR1 is recorded too, as a request that
    is passed on to the workers. With `grace`, the first SIGTERM is such a request as well, and the workers have that
    many seconds to save a checkpoint.
    """

    def __init__(self, forwards: bool = False, grace: float | None = None) -> None:
        self.received: list[int] = []
        self.requests: list[int] = []
        self.grace = grace
        self._signals = (*_ENDING, signal.SIGUSR1) if forwards else _ENDING
        self._before: dict[int, _Handler] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for signum in self._signals:
                if signum != signal.SIGHUP or signal.getsignal(signum) is not signal.SIG_IGN:
                    self._before[signum] = signal.signal(signum, self._note)
        return self

    def __exit__(self, *exc: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
        waits = self.grace is not None and signal.SIGTERM not in self.requests
        if signum == signal.SIGUSR1 or signum == signal.SIGTERM and waits:
            self.requests.append(signum)
        else:
            self.received.append(signum)

    def again(self) -> bool:
        """Whether the user interrupted twice."""
        return len(self.received) > 1


class Blackboard(Protocol):
    """The part of the job's store that the launcher of a node needs."""

    def get(self, key: str) -> bytes | None:
        """Return a value, or None."""

    def mark_gone(self, name: str, code: int, why: str) -> None:
        """Report to all that a member is gone."""

    def roster(self) -> dict[str, Member]:
        """Return all that ever joined, by name."""


class EndedServers:
    """The parameter servers that have ended, whose replicas may continue. `get` returns a value of the job's store."""

    def __init__(self, get: Callable[[str], bytes | None]):
        self._get = get
        self._dead: set[Holder] = set()
        self._losses = collections.Counter[str]()
        self._restarts: set[str] = set()

    def tolerates(self, name: str) -> str:
        """Note that a process has failed. If it is a server without which the job continues, return how."""
        role, _, number = name.partition(" ")
        if role != "server" or not survives(self._get, self._dead, int(number)):
            return ""
        self._losses[name] += 1
        if self._losses[name] > RESTARTS:
            return f"the job continues with its replicas; it was restarted {RESTARTS} times and is not started again"
        self._restarts.add(name)
        return "the job continues with its replicas, and it is started again"

    def again(self, child: Child) -> Command | None:
        """Return the command that starts a server again, if it ended and shall be."""
        if child.name not in self._restarts:
            return None
        self._restarts.remove(child.name)
        return dataclasses.replace(child.command, environ={**child.command.environ, "NEOMX_JOINS": "1"})


class Verdict:
    """Decides from the exits of processes when a job is over and whether it failed, for one node or several.

    `grace` is the number of seconds that the other workers have after one has saved a checkpoint and ended. Without
    it, such an exit is a failure like others.
    """

    forsaken = "is silent and all other workers have ended"  # why a worker is killed that `is_forsaken`

    def __init__(self, store: Blackboard, grace: float | None = None):
        self._store = store
        self._grace = grace
        self._news: list[str] = []
        self.failures: list[Failure] = []
        self.lost: list[Failure] = []
        self.successes = 0
        self.saved = 0  # workers that saved a checkpoint and ended because of a signal
        self._since = 0.0
        self._saved_since = 0.0
        self.servers = EndedServers(store.get)

    def ended(self, child: Child) -> None:
        """Handle the exit of a process of this node."""
        if child.code == 0:
            self.successes += child.name.startswith("worker")
        elif child.code == SAVED and self._grace is not None and child.name.startswith("worker"):
            self.note_saved(1)
        else:
            self.failed(child.failure())

    def note_saved(self, workers: int) -> None:
        """Record that workers saved a checkpoint and ended because of a signal."""
        if workers and not self.saved:
            self._saved_since = time.monotonic()
        self.saved += workers

    def failed(self, failure: Failure) -> None:
        """Handle a failure: report the process as gone to the others."""
        self._store.mark_gone(failure.name, failure.code, failure.why)
        if failure.name.startswith("worker") and self._store.get(TOLERATES_LOSS) is not None:
            self._news.append(f"{failure.name} on {failure.host} is lost ({failure.why}); the job continues without it")
            self.lost.append(failure)
            return
        if how := self.servers.tolerates(failure.name):
            self._news.append(f"{failure.name} on {failure.host} is lost ({failure.why}); {how}")
            return
        if not self.failures:
            self._news.append(f"{failure.name} on {failure.host} ended with {failure.why}")
            self._since = time.monotonic()
        self.failures.append(failure)

    def news(self) -> list[str]:
        """Return new messages for the user."""
        news, self._news = self._news, []
        return news

    def tick(self) -> None:
        """Do what is due while the job runs. Called several times per second. Does nothing here."""

    def request(self, signum: int) -> None:
        """Pass a signal for the workers on to other nodes. Does nothing here."""

    def over(self, running: bool) -> bool:
        """Whether to end the job: no process works any more, or the others had time to report errors or to save."""
        now = time.monotonic()
        failed = bool(self.failures) and now - self._since > FAREWELL
        return not running or failed or self._has_saved(now)

    def _has_saved(self, now: float) -> bool:
        """Whether a worker saved a checkpoint and ended, and the others had time to do the same."""
        return bool(self.saved) and now - self._saved_since > (self._grace or 0.0)

    def is_forsaken(self, child: Child) -> bool:
        """Whether a running worker is silent and all other workers have left or are gone."""
        members = self._members()
        others = {m.state for name, m in members.items() if name.startswith("worker") and name != child.name}
        mine = members.get(child.name)
        return mine is not None and mine.is_silent and "left" in others and "here" not in others

    def _members(self) -> dict[str, Member]:
        return self._store.roster()

    def announce(self, interrupted: int | None) -> None:
        """Announce the end of the job to other nodes, possibly because of a signal. Does nothing here."""

    def part(self) -> None:
        """Wait for other nodes after all processes of this node have ended. Does nothing here."""

    def failure(self) -> Failure | None:
        """Return the cause of the job's failure, if any: the first failure that is not a consequence of another."""
        causes = [failure for failure in self.failures if not failure.is_consequence and not failure.is_interruption]
        if self.failures and (causes or not self.saved):
            members = self._members()
            return min(causes or self.failures, key=lambda failure: members[failure.name].since)
        return self.lost[0] if self.lost and not self.successes else None

    def report(self, failure: Failure) -> str:
        """Return what the user should know about a failed job, of which `failure` is the cause."""
        others = [other for other in self.failures if other is not failure]
        alike = [other for other in others if failure.is_like(other) and not other.is_consequence]
        return failure.summary(alike) + _afterwards([other for other in others if other not in alike])


def _afterwards(failures: Sequence[Failure]) -> str:
    if not failures:
        return ""
    return "\nAfter it: " + ", ".join(f"{failure.name} ({failure.why})" for failure in failures)


def supervise(tree: Tree, verdict: Verdict, interrupts: Interrupts, parting: float = 0.0) -> None:
    """Watch until the job is over or interrupted, then end all.

    Processes have `parting` seconds to end by themselves.
    """
    given_up: list[Child] = []
    passed_on, limit = 0, math.inf
    while not interrupts.received and time.monotonic() < limit and not verdict.over(bool(tree.running("worker"))):
        for signum in interrupts.requests[passed_on:]:
            passed_on += 1
            verdict.request(signum)
            tree.tell_workers(signum)
            if interrupts.grace is not None and limit == math.inf:
                limit = time.monotonic() + interrupts.grace
                name = signal.Signals(signum).name
                tree.say(f"{name} received: the workers have {interrupts.grace:g} s to save a checkpoint")
        for child in tree.watch(0.05):
            verdict.ended(child)
            if (command := verdict.servers.again(child)) is not None:
                tree.start(command)
        verdict.tick()
        for text in verdict.news():
            tree.say(text)
        for child in tree.running("worker"):
            if child not in given_up and verdict.is_forsaken(child):
                given_up.append(child)
                tree.say(f"{child.name} {verdict.forsaken}: killing it")
                guard.signal_group(child.group, signal.SIGKILL)
    if time.monotonic() >= limit and not interrupts.received:
        tree.say(f"not all workers saved a checkpoint within {interrupts.grace:g} s (--grace): ending all processes")
        interrupts.received.append(interrupts.requests[0])
    interrupted = interrupts.received[0] if interrupts.received else None
    verdict.announce(interrupted)
    if interrupted is not None and time.monotonic() < limit:
        tree.say(f"{signal.Signals(interrupted).name} received: ending all processes (repeat to end immediately)")
    ending = tree.running()
    if parting:
        tree.wait(parting, interrupts.again)
    elif interrupted == signal.SIGINT:
        tree.interrupt(interrupts.again)
    tree.end(hurry=interrupts.again)
    verdict.note_saved(sum(child.code == SAVED for child in ending))
