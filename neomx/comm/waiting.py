"""Detection of waits that can never end: for workers in different calls, or for one whose program has ended.

A worker that waits for more than a second publishes in the store what it waits in and for which workers, and repeats
that every second. Each worker reads these entries and follows the dependencies. A cycle is a deadlock: all of its
workers raise an error that says where each one is.

Only waits of main threads count. Groups that other threads use, such as those of gradient buckets, are not used by
main threads. To rule out outdated entries, a wait counts only if it began before the first check and was published
again after it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass

from ..base import MXNetError
from .store import StoreClient

_EVERY = 1.0  # seconds between two checks


class Stuck(MXNetError):
    """A wait can never end. `doing` maps the ranks of the workers it depends on to what they do."""

    def __init__(self, doing: dict[int, str]) -> None:
        super().__init__("; ".join(f"worker {rank}: {what}" for rank, what in sorted(doing.items())))
        self.doing = doing


@dataclass(frozen=True)
class _Wait:
    """The published wait of a worker."""

    number: int  # sequence number of the wait on its worker
    said: int  # how often it was published
    what: str
    late: list[int]  # the workers it waits for


class Waits:
    """The waits of this process's main thread."""

    def __init__(self, store: StoreClient, rank: int) -> None:
        self._store, self._rank = store, rank
        self._number = self._said = 0
        self._what = ""
        self._looked = 0.0
        self._first: dict[int, _Wait] = {}  # waits of others at the first check in this wait

    @contextmanager
    def during(self, what: str) -> Iterator[None]:
        """Context manager for code in which the main thread may wait. Of nested blocks, the outermost counts."""
        if self._what or threading.current_thread() is not threading.main_thread():
            yield
            return
        self._number, self._said, self._first = self._number + 1, 0, {}
        self._what, self._looked = what, time.monotonic()
        try:
            yield
        finally:
            self._what = ""
            if self._said:
                with suppress(MXNetError):  # another worker has written it, or the store is lost
                    self._store.set(self._key(self._rank), b"")

    def look(self, late: Callable[[], list[int]], known: bool = True) -> None:
        """Check a wait for the workers returned by `late()`. Call it repeatedly while waiting.

        Raises Stuck if the wait can never end. Unless `known`, the wait is for an unknown one of these workers: it is
        stuck only if all of them have ended, and what they wait for is ignored.
        """
        if time.monotonic() - self._looked < _EVERY or threading.current_thread() is not threading.main_thread():
            return
        if not self._what:
            return
        self._looked = time.monotonic()
        members = self._store.roster()  # read before `late`: a worker that arrived and then left is not late
        mine = _Wait(self._number, self._said + 1, self._what, late())
        left = {name for name, member in members.items() if member["state"] == "left"}
        ended = [rank for rank in mine.late if f"worker {rank}" in left]
        if not known and len(ended) < len(mine.late):
            return
        if ended:
            raise Stuck({self._rank: self._what} | dict.fromkeys(ended, "its program has ended"))
        self._said = mine.said
        self._store.set(self._key(self._rank), json.dumps(asdict(mine)))
        self._hear_verdict()
        circle = self._circle(self._confirmed(mine))
        if circle:
            self._tell_verdict(circle)
            raise Stuck({rank: wait.what for rank, wait in circle.items()})

    @staticmethod
    def _key(rank: int, kind: str = "waiting") -> str:
        return f"{kind}/{rank}"

    def _read(self, key: str) -> bytes:
        return self._store.get(key, timeout=1.0) if self._store.check([key]) else b""

    def _confirmed(self, mine: _Wait) -> dict[int, _Wait]:
        """Return this wait and those it depends on that existed at the first check, by rank."""
        found, open_, seen = {self._rank: mine}, list(mine.late), {self._rank}
        while open_:
            rank = open_.pop()
            if rank in seen:
                continue
            seen.add(rank)
            content = self._read(self._key(rank))
            if not content:
                self._first.pop(rank, None)
                continue
            wait = _Wait(**json.loads(content))
            first = self._first.get(rank)
            if first is None or first.number != wait.number:
                self._first[rank] = wait
            elif wait.said > first.said:
                found[rank] = wait
            open_ += wait.late
        return found

    def _circle(self, waits: dict[int, _Wait]) -> dict[int, _Wait]:
        """Return the waits on a path from this one into a cycle, or an empty dict."""
        way: list[int] = []
        done: set[int] = set()

        def search(rank: int) -> bool:
            if rank in way:
                return True
            if rank in done or rank not in waits:
                return False
            way.append(rank)
            if any(search(other) for other in waits[rank].late):
                return True
            done.add(way.pop())
            return False

        return {rank: waits[rank] for rank in way} if search(self._rank) else {}

    def _tell_verdict(self, circle: dict[int, _Wait]) -> None:
        said = json.dumps({rank: [wait.number, wait.what] for rank, wait in circle.items()})
        for rank in circle:
            with suppress(MXNetError):  # another worker has written it, or the store is lost
                self._store.set(self._key(rank, "stuck"), said)

    def _hear_verdict(self) -> None:
        """Raise if another worker has already found the cycle."""
        content = self._read(self._key(self._rank, "stuck"))
        circle = json.loads(content) if content else {}
        if circle.get(str(self._rank), [0])[0] == self._number:
            raise Stuck({int(rank): what for rank, (_, what) in circle.items()})
