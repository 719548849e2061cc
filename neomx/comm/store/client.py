"""A process's connection to the job's store."""

from __future__ import annotations

import itertools
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol

from ...base import MXNetError
from .. import wire
from .connections import Connections, Moved
from .protocol import ASK, BEAT, ERROR, THE_STORE, PeerError, Value
from .pulse import is_running
from .roll import MemberInfo

_NUMBERED = ("set", "add", "swap", "delete")  # requests that must not be executed again if they are repeated
_WITHDRAW = 6.0  # seconds until others keep the store without this process
_REPEAT = 0.05  # seconds until a request that failed is repeated


class Replica(Protocol):
    """A store of this process that is a replica of the job's store."""

    address: str

    @property
    def replica(self) -> str:
        """The name of the replica."""

    def offered(self, client: StoreClient | None) -> None:
        """Note that a client of this process has offered to keep the store here, or (None) that it does so no more."""


class StoreClient:
    """A process's connection to the store: values, waits, counters, and the roll call."""

    def __init__(self, address: str, secret: bytes, timeout: float = 300.0, tls: str | None = None, name: str = ""):
        """`address` is the address of the store, or those of some of the processes that keep it, with commas."""
        self.name = name
        hello = {"name": name, "token": secrets.token_hex(16)}  # identifies the connections of this client
        self._connections = Connections(address, secret, tls, hello)
        self._patience = wire.silence()
        self._limit = timeout
        self._numbers, self._unanswered = itertools.count(1), set[int]()  # of requests
        self._guard = threading.Lock()
        self.gone: dict[str, str] = {}
        self.calls = 0  # the counter CALLS, as of the last heartbeat
        self._callbacks: list[Callable[[str, str], None]] = []
        self._life: wire.Connection | None = None
        self._leaving = threading.Event()
        self._hosted: Replica | None = None
        if self._connections.has_others and not self._connections.find(time.monotonic() + timeout):
            raise wire.WireError(f"no process at {address} led the job's store within {timeout:.0f} s")
        with self._connections.one(timeout):
            pass

    @property
    def address(self) -> str:
        """The address of the process that leads the store."""
        return self._connections.address

    def _ask(self, do: str, payload: bytes = b"", wait: float | None = None, **fields: Any) -> wire.Frame:
        """Send a request and return the answer, within `wait` seconds."""
        seconds = self._patience if wait is None else wait
        if do not in _NUMBERED:
            return self._repeat(do, payload, seconds, fields)
        with self._guard:
            number = next(self._numbers)
            self._unanswered.add(number)
            fields |= {"number": number, "done": min(self._unanswered)}
        try:
            return self._repeat(do, payload, seconds, fields)
        finally:
            with self._guard:
                self._unanswered.discard(number)

    def _repeat(self, do: str, payload: bytes, seconds: float, fields: dict[str, Any]) -> wire.Frame:
        """Send a request. If the leader of the store changes before it answers, send it to the new one."""
        began = time.monotonic()
        while True:
            address = self.address
            left = max(0.1, began + seconds - time.monotonic())
            try:
                with self._connections.one(self._reach()) as connection:
                    connection.send(ASK, {"do": do, **fields}, payload)
                    frame = self._connections.receive(connection, left)
                if frame.kind != ERROR or frame.meta.get("error") != "elsewhere":
                    break
                raise Moved(f"the process at {address} does not lead the store")
            except wire.Refused as error:
                raise PeerError(f"the connection to the job's store at {address} cannot be trusted: {error}") from error
            except wire.WireError as error:
                limit = min(began + seconds, time.monotonic() + self._reach())
                if not self._connections.has_others or not self._connections.find(limit, address):
                    raise PeerError(self._unreachable(address, error)) from error
            if "timeout" in fields:
                fields["timeout"] = max(0.0, fields["timeout"] - (time.monotonic() - began))
            time.sleep(_REPEAT)
        if frame.kind == ERROR and frame.meta.get("error") == "refused":
            raise MXNetError(f"the job's store refused this request: {frame.meta['why']}")
        return frame

    def _reach(self) -> float:
        """Seconds to connect to the store."""
        return 1.0 if self._leaving.is_set() or THE_STORE in self.gone else self._patience

    def _unreachable(self, address: str, error: wire.WireError) -> str:
        if self._connections.has_others:
            return (
                f"the job's store at {address} does not answer ({error}), and the other processes that keep it have "
                "no new leader: a majority of them ended, or their hosts are not reachable"
            )
        return (
            f"the job's store at {address} does not answer ({error}). It runs in the process that started "
            "the job, or in worker 0: that process ended or is stopped, or its host is not reachable"
        )

    # ---- values; the method names are those of torch's Store ----

    def set(self, key: str, value: Value) -> None:
        """Set the value of a key."""
        self._ask("set", _encoded(value), key=key)

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """Wait for the value of a key and return it."""
        seconds = self._limit if timeout is None else timeout
        frame = self._ask("get", wait=seconds + self._patience, key=key, timeout=seconds)
        if frame.kind == ERROR:
            raise PeerError(f"no process set {key!r} in the job's store within {seconds:.0f} s. {self.missing()}")
        return bytes(frame.payload)

    def look(self, key: str) -> bytes | None:
        """Return the value of a key, or None if it has none now."""
        frame = self._ask("get", key=key, timeout=0.0)
        return None if frame.kind == ERROR else bytes(frame.payload)

    def get_from(self, name: str, key: str) -> bytes:
        """Wait for a value that the member `name` sets. Raises if that member is gone."""
        deadline = time.monotonic() + self._limit
        while True:
            try:
                return self.get(key, timeout=min(1.0, self._limit))
            except PeerError:
                over = self._has_left(name) or name in self.gone or THE_STORE in self.gone
                if over or time.monotonic() > deadline:
                    waited = "" if over else f" within {self._limit:g} s"
                    hint = ". All workers must make the same calls in the same order"
                    if name in self.gone or THE_STORE in self.gone:  # it failed, so its program did not diverge
                        hint = ""
                    raise PeerError(
                        f"the first call of all workers did not complete{waited}: {self.missing([name])}{hint}"
                    ) from None

    def add(self, key: str, amount: int) -> int:
        """Add to a counter and return the new value."""
        return int(self._ask("add", key=key, amount=amount).meta["total"])

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Set a value if the current one is as expected (empty: no value). Return the current value."""
        wanted = _encoded(desired)
        return bytes(self._ask("swap", wanted, key=key, expected=_decoded(expected)).payload)

    def wait(self, keys: Iterable[str], timeout: timedelta | float | None = None) -> None:
        """Wait until all keys have values."""
        seconds = self._limit if timeout is None else _seconds(timeout)
        frame = self._ask("wait", wait=seconds + self._patience, keys=list(keys), timeout=seconds)
        if frame.kind == ERROR:
            lacking = ", ".join(frame.meta["missing"][:8])
            raise PeerError(f"no process set {lacking} in the job's store within {seconds:.0f} s. {self.missing()}")

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._ask("check", keys=list(keys)).meta["there"])

    def delete_key(self, key: str) -> bool:
        """Delete a value. Return whether there was one."""
        return bool(self._ask("delete", key=key).meta["was"])

    def num_keys(self) -> int:
        """Return the number of values."""
        return int(self._ask("count").meta["count"])

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the timeout of `get` and `wait`."""
        self._limit = _seconds(timeout)

    @property
    def timeout(self) -> timedelta:
        """The timeout of `get` and `wait`."""
        return timedelta(seconds=self._limit)

    # ---- the roll call ----

    def join(self, name: str) -> None:
        """Join the roll call: from now on all others are notified if this process dies."""
        self.name = name
        try:
            answer = self._enrol()
        except wire.WireError as error:
            raise PeerError(
                f"{name} cannot join: the job's store at {self.address} does not answer ({error})"
            ) from error
        if answer.kind == ERROR:
            raise MXNetError(f"the job's store refused {name}: {answer.meta['why']}")
        self._patience = float(answer.meta["silence"])  # the same timeout as the store has for this process
        threading.Thread(target=self._live, daemon=True, name="heartbeat").start()

    def come_back(self) -> bool:
        """Join the roll call again after the store could not be reached. Return whether it answers now."""
        self._connections.drop()
        try:
            if self._enrol().kind == ERROR:  # it still has the connection that broke
                return False
        except wire.WireError:
            return False
        self.gone = {name: why for name, why in self.gone.items() if name != THE_STORE}
        threading.Thread(target=self._live, daemon=True, name="heartbeat").start()
        return True

    def _enrol(self) -> wire.Frame:
        """Join the roll call on a new connection, which is the one for heartbeats from now on."""
        limit = time.monotonic() + self._patience
        while True:
            life = self._life = self._connections.dial(self._patience)
            life.send(ASK, {"do": "join", "name": self.name, "host": socket.gethostname(), "pid": os.getpid()})
            answer = self._connections.receive(life, self._patience)
            if answer.kind != ERROR or answer.meta.get("error") != "elsewhere":
                return answer
            life.close()
            if not self._connections.find(limit, life.address):
                raise Moved("no process leads the store")
            time.sleep(_REPEAT)

    def _live(self) -> None:
        news, running = 0, list[str]()
        while (life := self._life) is not None and not self._leaving.is_set():
            try:
                life.send(ASK, {"do": "beat", "name": self.name, "running": running, "news": news})
                frame = self._connections.receive(life, self._patience)
                if frame.kind == ERROR:
                    raise Moved(f"the process at {self.address} does not lead the store")
            except wire.WireError as error:
                if not self._leaving.is_set() and not self._return():
                    self._heard({THE_STORE: self._silent(error)})
                    return
                continue
            told = frame.meta
            news, self.calls = int(told["news"]), int(told["calls"])
            self._heard(told.get("gone", {}))
            running = [name for name, pid in told.get("look", {}).items() if is_running(pid)]
            self._connections.learn(told["stores"])
            if self._hosted is not None and self._hosted.address not in told["stores"]:
                with suppress(MXNetError):  # it is offered again after the next heartbeat
                    self._offer(self._hosted)

    def _return(self) -> bool:
        """Continue the heartbeats with the process that leads the store now. Return whether there is one in time."""
        limit = time.monotonic() + self._patience
        while self._connections.has_others and (life := self._life) is not None and not self._leaving.is_set():
            life.close()
            if not self._connections.find(limit, life.address):
                return False
            try:
                return self._enrol().kind != ERROR
            except wire.WireError:
                time.sleep(_REPEAT)
        return self._leaving.is_set()

    def _silent(self, error: wire.WireError) -> str:
        if self._connections.has_others:
            return self._unreachable(self.address, error)
        if isinstance(error, wire.TimedOut):
            return (
                f"no answer from {self.address} for {self._patience:g} s (NEOMX_SILENCE): the process that hosts it "
                "is stopped, or its host is not reachable"
            )
        return f"no answer from {self.address}: {error}"

    def _heard(self, gone: dict[str, str]) -> None:
        gone.pop(self.name, None)
        news = [(name, why) for name, why in gone.items() if name not in self.gone]
        self.gone = gone
        for name, why in news:
            for callback in self._callbacks:
                callback(name, why)

    def on_gone(self, callback: Callable[[str, str], None]) -> None:
        """Call `callback(name, why)`, in the heartbeat thread, for each member that is gone without leaving."""
        self._callbacks.append(callback)

    def leave(self) -> None:
        """Leave the roll call: this process ends normally."""
        self._leaving.set()
        if self._life is not None:
            with suppress(PeerError):  # the store may already have ended
                self._ask("leave", wait=2.0, name=self.name)
            self._life.close()
            self._life = None

    def give_up(self) -> None:
        """Make all waits that check for lost members raise, because this process ends."""
        self._leaving.set()
        self.gone = {**self.gone, THE_STORE: "this process ends"}

    def close(self) -> None:
        """Leave the roll call and close all connections. A replica in this process ends to keep the store."""
        hosted, self._hosted = self._hosted, None
        if hosted is not None:  # first, because others may end when this process has left
            hosted.offered(None)
            with suppress(MXNetError):  # there may be no other replica
                self._ask("withdraw", wait=_WITHDRAW, replica=hosted.replica)
        self.leave()
        self._connections.close()

    def offer(self, replica: Replica) -> None:
        """Let a store of this process keep a copy of the job's store, until this client is closed."""
        self._offer(replica)
        self._hosted = replica
        replica.offered(self)

    def _offer(self, replica: Replica) -> None:
        self._ask("offer", replica=replica.replica, address=replica.address)

    def report_gone(self, name: str, why: str) -> None:
        """Report to all that a member is gone, for example after its process ended."""
        self._ask("gone", wait=2.0, name=name, why=why)

    def roster(self) -> dict[str, MemberInfo]:
        """Return all processes that ever joined, by name."""
        return dict(self._ask("roster").meta["members"])

    def _has_left(self, name: str) -> bool:
        try:
            member = self.roster().get(name)
        except PeerError:
            return False
        return member is not None and member["state"] == "left"

    def missing(self, names: Iterable[str] = ()) -> str:
        """Describe the missing members: those of `names` that are not here, or all that are gone or silent."""
        try:
            members = self.roster()
        except PeerError as error:
            return str(error)
        said = []
        for name in names or members:
            member = members.get(name)
            if member is None:
                said.append(f"{name} never connected")
                continue
            where = f"{name} on {member['host']} (process {member['pid']})"
            if member["state"] == "gone":
                said.append(f"{where} is gone: {member['why']}")
            elif member["state"] == "left":
                said.append(f"{where} has ended its program")
            elif member["silent"] > 3 * BEAT + 1:
                said.append(f"{where} has been silent for {member['silent']:.0f} s")
            elif names:
                said.append(f"{where} is alive but has not reached this call")
        return "; ".join(said) or "All members are alive"


def _encoded(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _decoded(value: Value) -> str:
    return value if isinstance(value, str) else bytes(value).decode("latin-1")


def _seconds(timeout: timedelta | float) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
