"""When a job is over, and how it went: the core of `neomx run` and `mx.dist.launch`."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

from . import guard
from .child import Child, Failure
from .store import TOLERATES_LOSS, Member
from .tree import Tree

FAREWELL = 5.0  # seconds that the other processes have to report what they lost after one has failed
_Handler = Callable[[int, FrameType | None], Any] | int | None
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupts:
    """Ctrl-C and its kin, remembered instead of raised, for the time of a `with` block in the main thread."""

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
        """Whether the user asked twice."""
        return len(self.received) > 1


class Blackboard(Protocol):
    """What the launcher of this node needs of the job's store."""

    def get(self, key: str) -> bytes | None: ...

    def mark_gone(self, name: str, code: int, why: str) -> None: ...

    def roster(self) -> dict[str, Member]: ...


class Verdict:
    """Decides from the ends of processes when a job is over and how it went: one node's, or told of other nodes'."""

    def __init__(self, store: Blackboard):
        self._store = store
        self._news: list[str] = []
        self.failures: list[Failure] = []
        self.lost: list[Failure] = []
        self.successes = 0
        self._since = 0.0

    def ended(self, child: Child) -> None:
        """A process of this node has ended."""
        if child.code == 0:
            self.successes += child.name.startswith("worker")
        else:
            self.failed(child.failure())

    def failed(self, failure: Failure) -> None:
        """A process has failed: the others are told who is gone."""
        self._store.mark_gone(failure.name, failure.code, failure.why)
        if failure.name.startswith("worker") and self._store.get(TOLERATES_LOSS) is not None:
            self._news.append(f"{failure.name} on {failure.host} is lost ({failure.why}); the job goes on without it")
            self.lost.append(failure)
            return
        if not self.failures:
            self._news.append(f"{failure.name} on {failure.host} ended by {failure.why}")
            self._since = time.monotonic()
        self.failures.append(failure)

    def news(self) -> list[str]:
        """What the user should hear at once, each only once."""
        news, self._news = self._news, []
        return news

    def over(self, running: bool) -> bool:
        """Whether it is time to end: nobody works any more, or somebody failed and the others had time to say so."""
        return not running or bool(self.failures) and time.monotonic() - self._since > FAREWELL

    def is_forsaken(self, child: Child) -> bool:
        """Whether nothing is heard from a worker that runs, and the others have taken leave, as far as they live."""
        members = self._members()
        others = {m.state for name, m in members.items() if name.startswith("worker") and name != child.name}
        mine = members.get(child.name)
        return mine is not None and mine.is_silent and "left" in others and "here" not in others

    def _members(self) -> dict[str, Member]:
        return self._store.roster()

    def announce(self, interrupted: int | None) -> None:
        """The job ends now, perhaps by a signal to us. Here nobody else needs to be told."""

    def part(self) -> None:
        """All processes of this node have ended. Here there is no other node to wait for."""

    def failure(self) -> Failure | None:
        """What the job failed of, if it did: who went first and not for the loss of another."""
        if self.failures:
            causes = [failure for failure in self.failures if not failure.is_consequence] or self.failures
            members = self._members()
            return min(causes, key=lambda failure: members[failure.name].since)
        return self.lost[0] if self.lost and not self.successes else None


def supervise(tree: Tree, verdict: Verdict, interrupts: Interrupts, parting: float = 0.0) -> None:
    """Watch until the job is over or interrupted, then end all. `parting`: seconds for those that end by themselves."""
    given_up: list[Child] = []
    while not interrupts.received and not verdict.over(bool(tree.running("worker"))):
        for child in tree.watch(0.05):
            verdict.ended(child)
        for text in verdict.news():
            tree.say(text)
        for child in tree.running("worker"):
            if child not in given_up and verdict.is_forsaken(child):
                given_up.append(child)
                tree.say(f"{child.name} is silent and all other workers have ended: it is killed")
                guard.signal_group(child.group, signal.SIGKILL)
    interrupted = interrupts.received[0] if interrupts.received else None
    verdict.announce(interrupted)
    if interrupted is not None:
        tree.say(f"{signal.Signals(interrupted).name} received: ending all processes (once more: at once)")
    if parting:
        tree.wait(parting, interrupts.again)
    elif interrupted == signal.SIGINT:
        tree.interrupt(interrupts.again)
    tree.end(hurry=interrupts.again)
