"""Supervision of a job until it ends, and its result: the core of `neomx run` and `mx.dist.launch`."""

from __future__ import annotations

import collections
import dataclasses
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from . import guard
from .chain import Holder, survives
from .child import Child, Command, Failure
from .store import TOLERATES_LOSS, Member
from .tree import Tree

RESTARTS = 10  # how often a server is started again
FAREWELL = 5.0  # seconds for the other processes to report their errors after one has failed
_Handler = Callable[[int, FrameType | None], Any] | int | None
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Records SIGINT, SIGTERM and SIGHUP instead of raising, within a `with` block in the main thread."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[int, _Handler] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {signum: signal.signal(signum, self._note) for signum in _ENDING}
        return self

    def __exit__(self, *exc: object) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def _note(self, signum: int, frame: FrameType | None) -> None:
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
    """Decides from the exits of processes when a job is over and whether it failed, for one node or several."""

    def __init__(self, store: Blackboard):
        self._store = store
        self._news: list[str] = []
        self.failures: list[Failure] = []
        self.lost: list[Failure] = []
        self.successes = 0
        self._since = 0.0
        self.servers = EndedServers(store.get)

    def ended(self, child: Child) -> None:
        """Handle the exit of a process of this node."""
        if child.code == 0:
            self.successes += child.name.startswith("worker")
        else:
            self.failed(child.failure())

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

    def over(self, running: bool) -> bool:
        """Whether to end the job: no process works any more, or one failed and the others had time to report errors."""
        return not running or bool(self.failures) and time.monotonic() - self._since > FAREWELL

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
        if self.failures:
            causes = [failure for failure in self.failures if not failure.is_consequence] or self.failures
            members = self._members()
            return min(causes, key=lambda failure: members[failure.name].since)
        return self.lost[0] if self.lost and not self.successes else None


def supervise(tree: Tree, verdict: Verdict, interrupts: Interrupts, parting: float = 0.0) -> None:
    """Watch until the job is over or interrupted, then end all.

    Processes have `parting` seconds to end by themselves.
    """
    given_up: list[Child] = []
    while not interrupts.received and not verdict.over(bool(tree.running("worker"))):
        for child in tree.watch(0.05):
            verdict.ended(child)
            if (command := verdict.servers.again(child)) is not None:
                tree.start(command)
        for text in verdict.news():
            tree.say(text)
        for child in tree.running("worker"):
            if child not in given_up and verdict.is_forsaken(child):
                given_up.append(child)
                tree.say(f"{child.name} is silent and all other workers have ended: killing it")
                guard.signal_group(child.group, signal.SIGKILL)
    interrupted = interrupts.received[0] if interrupts.received else None
    verdict.announce(interrupted)
    if interrupted is not None:
        tree.say(f"{signal.Signals(interrupted).name} received: ending all processes (repeat to end immediately)")
    if parting:
        tree.wait(parting, interrupts.again)
    elif interrupted == signal.SIGINT:
        tree.interrupt(interrupts.again)
    tree.end(hurry=interrupts.again)
