"""Keeps one replica of a server in its chain: fills it, follows the holder before it, and leads when it is the first.

All decisions are changes of the chain in the job's store (`comm/chain.py`). A holder that finds a neighbor lost removes
it from the chain; if the other one has removed it first, it discards what it has and is filled again. Only the holder
before it adds a new one. So a holder that is in the chain has every operation that was acknowledged.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..buckets import Courier
from ..chain import Chain, Chains, Holder
from ..store import PeerError
from ..wire import Closed, Connection, Refused, TimedOut, WireError
from . import messages as m
from .messages import field
from .replica import TAKEN, Replica
from .service import Service

_log = logging.getLogger("neomx")
_LOOK = 0.5  # seconds between checks of the chain
_PAUSE = 0.02  # seconds until something is tried again
_NEWS = 0.1  # seconds in which the roll call usually knows that a process has ended, after its connections broke
_PATIENCE = 5.0  # seconds without a connection after which a neighbor is removed from the chain although it runs
_END = 10.0  # seconds for the threads to end


@dataclass(frozen=True)
class Job:
    """What a keeper needs of the process that it is in, and of the job."""

    host: dict[str, Any]
    make: Callable[[int], Replica]  # creates an empty replica of a server
    dial: Callable[[Holder, dict[str, Any]], Connection]  # connects to another process
    lost: Callable[[], dict[int, str]]  # workers that have ended, and why
    is_over: Callable[[], bool]  # whether all workers have ended
    joined: Callable[[int], None]  # notes that this process holds a shard
    left: Callable[[int], None]  # notes that others have removed it from the holders of a shard
    fail: Callable[[Exception], None]  # ends the process with an error


class _Next:
    """The connection to the next holder. Frames are sent in order by a thread."""

    def __init__(self, holder: Holder, connection: Connection, is_near: bool, is_new: bool):
        self.holder, self.connection, self.is_near = holder, connection, is_near
        self.is_new = is_new  # whether it is not in the chain yet
        self._courier: Courier | None = Courier(f"to {holder.name}")
        self._guard = threading.Lock()

    def send(self, kind: int, meta: Any, *buffers: Any) -> Future[None]:
        """Send a frame."""
        with self._guard:
            if self._courier is not None:
                return self._courier.send(lambda: self.connection.send(kind, meta, *buffers))
        failed: Future[None] = Future()
        failed.set_exception(Closed("the connection to the next holder is closed"))
        return failed

    def close(self) -> None:
        """Disconnect."""
        self.connection.close()
        with self._guard:
            courier, self._courier = self._courier, None
        if courier is not None:
            courier.close()


class Keeper:
    """One replica of server `home`, in the process `me`. The job's store has its chain."""

    def __init__(self, home: int, me: Holder, chains: Chains, job: Job):
        self.home, self.me = home, me
        self._chains, self._job = chains, job
        self.replica = job.make(home)
        self._service: Service | None = None  # while it leads
        self._previous: Connection | None = None
        self._next: _Next | None = None
        self._is_member = False  # whether it was in the chain
        self._apart: dict[Holder, float] = {}  # since when neighbors are not connected
        self._tending = threading.RLock()  # held while the chain is changed after this holder
        self._wake = threading.Event()  # wakes the main thread while it leads
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"replica of server {home}")

    def start(self) -> None:
        """Start keeping the replica, in a thread."""
        self._thread.start()

    def end(self) -> None:
        """Stop, without a change of the chain: the other holders notice."""
        self._ended.set()
        self._wake.set()
        for connection in (self._previous, self._next and self._next.connection):
            if connection is not None:
                connection.close()
        self._thread.join(_END)
        self.replica.close()

    def lose(self, rank: int, why: str) -> None:
        """Handle the loss of a worker."""
        self.replica.lose(rank, why)

    # ---- the main thread ----

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self._take_part()
            except PeerError as error:  # the process ends if the job's store is lost
                _log.debug("%s, shard %d: %s", self.me.name, self.home, error)
                self._ended.wait(_LOOK)
            except Exception as error:  # the process ends, so that the other holders go on without it
                self._job.fail(error)
                return

    def _take_part(self) -> None:
        """Do what the chain asks of this holder, until the chain changes."""
        chain = self._chains.read(self.home)
        if chain is None:
            if self.home == self.me.server:
                self._chains.begin(self.home, self.me)
            self._ended.wait(_PAUSE)
            return
        if self.me not in chain.holders:
            self._start_over()
            self._follow(chain.tail)
            return
        self._join()
        before = chain.before(self.me)
        if before is None:
            self._lead()
        else:
            self._follow(before)

    def _read(self) -> Chain:
        """Return the chain, which has begun."""
        chain = self._chains.read(self.home)
        assert chain is not None
        return chain

    def _join(self) -> None:
        """Note that this holder is in the chain."""
        if not self._is_member:
            self._is_member = True
            self._job.joined(self.home)

    def _start_over(self) -> None:
        """Discard what this holder has, after others have removed it from the chain, or before it was complete."""
        with self._tending:
            if self._is_member:
                self._job.left(self.home)
            self._is_member = False
            if self._next is not None:
                self._next.close()
                self._next = None
            self.replica.close()
            self.replica = self._job.make(self.home)

    # ---- leading ----

    def _lead(self) -> None:
        """Serve workers while this holder is the first."""
        self._tend()
        self.replica.lead(self._job.lost())
        self._service = service = Service(self.replica, self._job.host)
        better = None
        try:
            while not self._ended.is_set():
                chain = self._tend()
                if chain.head != self.me:
                    return
                if (better := self._better(chain)) is not None:
                    break
                self._wake.wait(_PAUSE if self._apart else _LOOK)
                self._wake.clear()
        finally:
            self._service = None
            self.replica.follow()
            service.close()
        if better is not None:
            self._hand_over(better)

    def _better(self, chain: Chain) -> Holder | None:
        """Return the holder that should lead instead: the server itself, so that each server leads one shard."""
        other = next((holder for holder in chain.holders if holder.server == self.home), self.me)
        return other if other != self.me and self._chains.is_here(other) else None

    def _hand_over(self, better: Holder) -> None:
        """Let another holder lead, once all have the same. Workers repeat what was not acknowledged."""
        limit = time.monotonic() + _PATIENCE
        while not self.replica.is_settled:
            if self._ended.wait(_PAUSE) or time.monotonic() > limit:
                return
            self._tend()
        with self._tending:
            chain = self._read()
            if chain.head != self.me or better not in chain.holders:
                return
            if self._chains.change(self.home, chain, chain.led_by(better)):
                _log.info("%s leads shard %d of the parameters again", better.name, self.home)
                self._tend()

    def serve(self, connection: Connection) -> None:
        """Serve a worker if this holder leads. Otherwise tell the worker to look again."""
        service = self._service
        connection.send(m.MOVED if service is None else m.DONE, {})
        if service is not None:
            service.handle(connection)

    # ---- the holder before this one ----

    def _follow(self, before: Holder) -> None:
        """Receive operations from another holder, until its connection ends or the chain changes."""
        asked = {"follow": self.home, "server": self.me.server, "life": self.me.life, **self._job.host}
        try:
            connection = self._previous = self._job.dial(before, asked)
            try:
                have = self.replica.begin_following(functools.partial(_answer, connection))
                connection.send(m.FOLLOW, {"have": list(have.items()) if self._is_member else None})
                self._receive(connection, before)
            finally:
                self._previous = None
                connection.close()  # before the chain is changed: nothing comes from there any more
        except Refused as error:
            _log.warning("%s, shard %d: %s", self.me.name, self.home, error)
        except WireError as error:
            _log.debug("%s, shard %d: %s", self.me.name, self.home, error)
        self._suspect(before)

    def _receive(self, connection: Connection, before: Holder) -> None:
        looked = time.monotonic()
        while not self._ended.is_set():
            try:
                frame = connection.receive(self.replica.room, _PAUSE if self._apart else _LOOK)
            except TimedOut:
                frame = None
            if frame is not None:
                if frame.kind not in TAKEN:
                    return  # it cannot send operations now
                self._apart.pop(before, None)
                self.replica.take(frame)
                if frame.kind == m.FULL:
                    connection.send(m.DONE, {})
            if self._apart or time.monotonic() - looked > _LOOK:
                looked = time.monotonic()
                if not self._still_follows(self._tend(), before):
                    return

    def _still_follows(self, chain: Chain, before: Holder) -> bool:
        """Whether the chain still says so, and the other holder is not stopped."""
        if self.me not in chain.holders:
            return not self._is_member and chain.tail == before
        self._join()
        return chain.before(self.me) == before and not self._chains.is_silent(before)

    def _suspect(self, before: Holder) -> None:
        """Remove the holder before this one from the chain if it is lost. Wait a moment for news about it."""
        limit = time.monotonic() + _NEWS
        while not self._ended.wait(_PAUSE) and time.monotonic() < limit:
            chain = self._tend()
            if self.me not in chain.holders or chain.before(self.me) != before:
                return
            shorter = chain.without(before)
            if self._is_lost(before) and self._chains.change(self.home, chain, shorter):
                if shorter.head == self.me:
                    what = "shard %d of the parameters is on %s now, with all updates: %s is lost"
                    _log.warning(what, self.home, self.me.name, before.name)
                return

    def _is_lost(self, neighbor: Holder) -> bool:
        """Whether a neighbor has ended while the job runs, or was not connected for a while."""
        since = self._apart.setdefault(neighbor, time.monotonic())
        if self._ended.is_set() or (self._chains.is_here(neighbor) and time.monotonic() - since < _PATIENCE):
            return False
        if self._job.is_over():
            return False
        self._apart.pop(neighbor, None)
        return True

    # ---- the holder after this one ----

    def feed(self, connection: Connection) -> None:
        """Pass operations on to another holder, after filling it if it is new, until the connection ends."""
        hello = connection.peer
        holder = Holder(field(hello, "server", int), field(hello, "life", str))
        have = _numbers(connection.receive(timeout=_END).meta)
        after = _Next(holder, connection, m.are_near(hello, self._job.host), have is None)
        try:
            filling = self._accept(after, have)
            if filling is None:
                connection.send(m.MOVED, {})
                return
            name = f"fill {holder.name}"
            threading.Thread(target=_drain, args=(filling, connection), daemon=True, name=name).start()
            self._hear(after)
        except PeerError as error:
            _log.debug("%s, shard %d: %s", self.me.name, self.home, error)
        finally:
            after.close()
            with self._tending:
                if self._next is after:
                    self._next = None
                    with contextlib.suppress(PeerError):
                        self._tend()
            self._wake.set()

    def _accept(self, after: _Next, have: dict[int, int] | None) -> Iterator[Any] | None:
        """Begin to feed another holder. Return what remains to be sent, or None if it cannot follow this one now."""
        with self._tending:
            chain = self._chains.read(self.home)
            if self._ended.is_set() or chain is None or self.me not in chain.holders:
                return None
            expected = chain.after(self.me)
            if have is None:
                if expected is not None or self._next is not None:
                    return None
                filling = self.replica.fill(after)
                first = next(filling)
                self._next = after
                return itertools.chain([first], filling)
            if expected != after.holder:
                return None
            if self._next is not None:
                self._next.close()
            if not self.replica.resume(after, have):
                self._chains.change(self.home, chain, chain.without(after.holder))  # it must be filled again
                return None
            self._next = after
            self._apart.pop(after.holder, None)
            return iter(())

    def _hear(self, after: _Next) -> None:
        """Handle what the next holder tells."""
        replica = self.replica
        while self._next is after and not self._ended.is_set():
            try:
                frame = after.connection.receive(timeout=_LOOK)
            except TimedOut:
                if self._chains.is_silent(after.holder):
                    return
                continue
            if frame.kind == m.DONE:
                self._add(after)
            else:
                replica.hear(frame)

    def _add(self, after: _Next) -> None:
        """Add a new holder, which has everything, to the chain."""
        with self._tending:
            while after.is_new and self._next is after:
                chain = self._read()
                if self.me not in chain.holders:
                    return
                if self._chains.change(self.home, chain, chain.with_(after.holder)):
                    after.is_new = False

    def _tend(self) -> Chain:
        """Remove the next holder from the chain if it is lost, and wait for the one after it, or for none.

        Return the chain.
        """
        with self._tending:
            while True:
                chain = self._read()
                if self._ended.is_set() or self.me not in chain.holders:
                    return chain
                expected = chain.after(self.me)
                self._forget_others(expected, chain.before(self.me))
                if self._next is not None:
                    if self._next.holder == expected or (self._next.is_new and expected is None):
                        return chain
                    self._next.close()  # the chain has changed
                    self._next = None
                if expected is None:
                    self.replica.release()
                    return chain
                self.replica.await_holder()
                if not self._is_lost(expected):
                    return chain
                if self._chains.change(self.home, chain, chain.without(expected)):
                    _log.info("%s is lost: %s still holds shard %d", expected.name, self.me.name, self.home)

    def _forget_others(self, *neighbors: Holder | None) -> None:
        """Forget since when others than these were not connected."""
        for holder in [holder for holder in self._apart if holder not in neighbors]:
            self._apart.pop(holder, None)


def _answer(connection: Connection, kind: int, meta: Any) -> None:
    """Send a frame, unless the connection is lost, which the thread that receives notices."""
    with contextlib.suppress(WireError):
        connection.send(kind, meta)


def _numbers(meta: Any) -> dict[int, int] | None:
    """Return the last operation of each store that another holder has, or None if it is new."""
    have = field(meta, "have", (list, type(None)))
    try:
        return None if have is None else {m.whole(space): m.whole(number) for space, number in have}
    except (TypeError, ValueError) as error:
        raise Refused(f"a server asked for operations after {have!r:.80}: {error!r:.80}") from None


def _drain(filling: Iterator[Any], connection: Connection) -> None:
    """Send one part after the other."""
    try:
        for sent in filling:
            sent.result()
    except WireError:
        pass  # the other holder is gone
    except Exception:
        _log.exception("cannot fill %s", connection)
        connection.close()
