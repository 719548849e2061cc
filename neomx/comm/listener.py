"""A listener that withstands floods: members get in, and unauthenticated peers cost little.

One nonblocking thread handles all callers that have not yet proved that they hold the secret. Only a caller that has
proved it gets its own thread. Many unauthenticated callers are handled in rounds with pauses in between, so that they
take only part of one core from the training.
"""

from __future__ import annotations

import collections
import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from . import wire

_UNPROVEN, _PER_ADDRESS = 128, 64  # maximum connections in their greeting, in total and per address
_A_SECOND = 1000  # connections per second and address that are greeted; others are closed, and members retry
_AT_ONCE = 256  # connections accepted in one round
_ROUND = 0.04  # seconds between rounds while unauthenticated callers connect
_IDLE = 4  # the pause after such a round, as a multiple of its CPU time: callers get at most a fifth of a core
_PAUSE = 0.05  # seconds until accepting is retried
_COMPLAINTS, _WINDOW = 10, 60.0  # refused callers reported individually, per so many seconds


def serve(
    listening: socket.socket,
    secret: bytes,
    tls: str | None,
    handle: Callable[[wire.Connection], None],
    refused: Callable[[wire.WireError], None],
    service: str = "",
) -> Callable[[], None]:
    """Call `handle(connection)`, in a separate thread, for each peer that proves the secret. Return a function to stop.

    An error of a peer is passed to `refused` and ends only its connection. When too many connections are in their
    greeting, the oldest is dropped. A member needs milliseconds for the greeting, and retries if it was dropped.
    """
    members = _Members(handle, refused)

    def greet(sock: socket.socket, place: Any) -> wire.Guest:
        return wire.Guest(sock, place, secret, tls, service, wire.GREETING_TIME)

    reception = _Reception(listening, greet, members, refused)
    thread = threading.Thread(target=reception.run, daemon=True, name="accept")
    thread.start()

    def stop() -> None:
        reception.stop()
        if thread is not threading.current_thread():
            thread.join()
        members.close()

    return stop


class _Members:
    """The connections of peers that hold the secret, each with its thread."""

    def __init__(self, handle: Callable[[wire.Connection], None], refused: Callable[[wire.WireError], None]):
        self._handle, self._refused = handle, refused
        self._open: set[wire.Guest | wire.Connection] = set()
        self._guard = threading.Lock()
        self._closed = False

    def admit(self, guest: wire.Guest) -> None:
        """Handle the peer in a new thread. Raises RuntimeError if no thread can be started."""
        threading.Thread(target=self._talk, args=(guest,), daemon=True).start()

    def _talk(self, guest: wire.Guest) -> None:
        try:
            with self._kept(guest):
                connection = guest.welcome()
                with self._kept(connection):
                    self._handle(connection)
        except wire.Closed:
            pass  # the peer disconnected; processes that depend on it have noticed
        except wire.WireError as error:
            self._refused(error)
        finally:
            guest.close()

    @contextlib.contextmanager
    def _kept(self, one: wire.Guest | wire.Connection) -> Iterator[None]:
        with self._guard:
            if self._closed:
                raise wire.Closed("the listener is closed")
            self._open.add(one)
        try:
            yield
        finally:
            with self._guard:
                self._open.discard(one)

    def close(self) -> None:
        """Close all connections."""
        with self._guard:
            self._closed = True
            left = list(self._open)
        for one in left:
            one.close()


class _Reception:
    """Accepts connections and handles those that have not proved the secret."""

    def __init__(
        self,
        listening: socket.socket,
        greet: Callable[[socket.socket, Any], wire.Guest],
        members: _Members,
        refused: Callable[[wire.WireError], None],
    ):
        self._listening, self._greet, self._members = listening, greet, members
        self._complaints = _Complaints(refused)
        self._guests: dict[int, wire.Guest] = {}  # by descriptor, oldest first
        self._hosts = collections.Counter[str]()  # number of guests by host
        self._second, self._greeted = 0, collections.Counter[str]()  # greeted connections of each host in this second
        self._strangers = False  # whether a caller was turned away in this round
        self._stopped = threading.Event()
        self._awake, self._waker = socket.socketpair()
        listening.setblocking(False)
        self._poll = select.poll()  # unlike epoll, needs no system call per guest
        self._poll.register(listening, select.POLLIN)
        self._poll.register(self._awake, select.POLLIN)

    def stop(self) -> None:
        """Make `run` return."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._waker.send(b"x")

    def run(self) -> None:
        """Serve until stopped."""
        door = self._listening.fileno()
        try:
            while not self._stopped.is_set():
                ready = self._poll.poll(self._patience())
                began, self._strangers = time.thread_time(), False
                for fd, _ in ready:
                    if fd == door:
                        self._accept()
                    elif fd in self._guests:  # not dropped since it was ready
                        self._advance(fd, self._guests[fd])
                self._expire()
                if self._strangers:
                    self._stopped.wait(max(_ROUND, _IDLE * (time.thread_time() - began)))
        finally:
            self._close()

    def _patience(self) -> float | None:
        """Milliseconds until the deadline of the oldest guest."""
        oldest = next(iter(self._guests.values()), None)
        return None if oldest is None else max(0.0, oldest.deadline - time.monotonic()) * 1000 + 1

    def _accept(self) -> None:
        try:
            for _ in range(_AT_ONCE):
                self._begin(*self._listening.accept())
        except BlockingIOError:
            pass
        except OSError:  # out of descriptors or memory, temporarily
            self._drop_oldest()
            self._stopped.wait(_PAUSE)

    def _begin(self, sock: socket.socket, place: Any) -> None:
        if not self._may_come(place[0]):
            self._strangers = True
            sock.close()
            return
        try:
            guest = self._greet(sock, place)
        except wire.WireError:  # already disconnected
            self._strangers = True
            return
        fd = guest.fileno()
        self._guests[fd] = guest
        self._hosts[guest.host] += 1
        if self._hosts[guest.host] > _PER_ADDRESS:
            self._drop_oldest(guest.host)
        elif len(self._guests) > _UNPROVEN:
            self._drop_oldest()
        self._advance(fd, guest)

    def _may_come(self, host: str) -> bool:
        second = int(time.monotonic())
        if self._second != second:
            self._second, self._greeted = second, collections.Counter()
        self._greeted[host] += 1
        return self._greeted[host] <= _A_SECOND

    def _advance(self, fd: int, guest: wire.Guest) -> None:
        try:
            event = guest.advance()
            if event:
                self._poll.register(fd, event)
                return
            self._forget(fd)
            self._members.admit(guest)
        except wire.Closed:
            self._drop(fd)
        except wire.WireError as error:
            self._drop(fd)
            self._complaints.hear(error)
        except RuntimeError:  # no thread available: the peer retries
            guest.drop()
            self._drop_oldest()
            self._stopped.wait(_PAUSE)

    def _expire(self) -> None:
        now = time.monotonic()
        while (fd := next(iter(self._guests), None)) is not None and self._guests[fd].deadline <= now:
            where = self._guests[fd].address
            self._drop(fd)
            self._complaints.hear(wire.TimedOut(f"a peer at {where} did not prove in time that it is a member"))

    def _drop_oldest(self, host: str | None = None) -> None:
        oldest = next((fd for fd, guest in self._guests.items() if host in (None, guest.host)), None)
        if oldest is not None:
            self._drop(oldest)

    def _drop(self, fd: int) -> None:
        self._strangers = True
        self._forget(fd).drop()

    def _forget(self, fd: int) -> wire.Guest:
        guest = self._guests.pop(fd)
        self._hosts[guest.host] -= 1
        if not self._hosts[guest.host]:
            del self._hosts[guest.host]
        with contextlib.suppress(KeyError):  # it was never registered
            self._poll.unregister(fd)
        return guest

    def _close(self) -> None:
        for fd in list(self._guests):
            self._drop(fd)
        for sock in (self._listening, self._awake, self._waker):
            wire.shut(sock)


class _Complaints:
    """Rate limit for reports on refused callers, so that a flood does not fill the log."""

    def __init__(self, tell: Callable[[wire.WireError], None]):
        self._tell, self._since, self._count = tell, 0.0, 0

    def hear(self, error: wire.WireError) -> None:
        """Report the error, unless there were many recently."""
        now = time.monotonic()
        if now - self._since > _WINDOW:
            if self._count > _COMPLAINTS:
                others = self._count - _COMPLAINTS
                self._tell(wire.Refused(f"{others} more peers were refused in the last {now - self._since:.0f} s"))
            self._since, self._count = now, 0
        self._count += 1
        if self._count <= _COMPLAINTS:
            self._tell(error)
        elif self._count == _COMPLAINTS + 1:
            self._tell(wire.Refused(f"{error}. Further refusals are counted and reported after {_WINDOW:.0f} s"))
