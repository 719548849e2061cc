"""A process's connection to the job's store."""

from __future__ import annotations

import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from ...base import MXNetError
from .. import wire
from .protocol import ASK, BEAT, ERROR, SERVICE, THE_STORE, PeerError, Value
from .roll import MemberInfo, is_running

_AT_ONCE = 16  # maximum connections that a client keeps for reuse


class StoreClient:
    """A process's connection to the store: values, waits, counters, and the roll call."""

    def __init__(self, address: str, secret: bytes, timeout: float = 300.0, tls: str | None = None, name: str = ""):
        self.address, self.name = address, name
        self._token = secrets.token_hex(16)  # identifies the connections of this client
        self._patience = wire.silence()
        self._secret, self._tls, self._limit = secret, tls, timeout
        self._free: list[wire.Connection] = []
        self._guard = threading.Lock()
        self.gone: dict[str, str] = {}
        self.calls = 0  # the counter CALLS, as of the last heartbeat
        self._callbacks: list[Callable[[str, str], None]] = []
        self._life: wire.Connection | None = None
        self._leaving = threading.Event()
        self._free.append(self._dial(timeout))

    def _dial(self, timeout: float) -> wire.Connection:
        hello = {"name": self.name, "token": self._token}
        return wire.connect(self.address, self._secret, hello, self._tls, timeout, SERVICE)

    @contextmanager
    def _connection(self) -> Iterator[wire.Connection]:
        with self._guard:
            connection = self._free.pop() if self._free else None
        if connection is None:
            parting = self._leaving.is_set() or THE_STORE in self.gone
            connection = self._dial(1.0 if parting else self._patience)
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._guard:
            if len(self._free) < _AT_ONCE:
                self._free.append(connection)
                return
        connection.close()

    def _ask(self, do: str, payload: bytes = b"", wait: float | None = None, **fields: Any) -> wire.Frame:
        try:
            with self._connection() as connection:
                connection.send(ASK, {"do": do, **fields}, payload)
                frame = connection.receive(timeout=self._patience if wait is None else wait)
        except wire.Refused as error:
            raise PeerError(
                f"the connection to the job's store at {self.address} cannot be trusted: {error}"
            ) from error
        except wire.WireError as error:
            raise PeerError(
                f"the job's store at {self.address} does not answer ({error}). It runs in the process that started "
                "the job, or in worker 0: that process ended or is stopped, or its host is not reachable"
            ) from error
        if frame.kind == ERROR and frame.meta.get("error") == "refused":
            raise MXNetError(f"the job's store refused this request: {frame.meta['why']}")
        return frame

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
            self._life = self._dial(self._patience)
            self._life.send(ASK, {"do": "join", "name": name, "host": socket.gethostname(), "pid": os.getpid()})
            answer = self._life.receive(timeout=self._patience)
        except wire.WireError as error:
            raise PeerError(
                f"{name} cannot join: the job's store at {self.address} does not answer ({error})"
            ) from error
        if answer.kind == ERROR:
            raise MXNetError(f"the job's store refused {name}: {answer.meta['why']}")
        self._patience = float(answer.meta["silence"])  # the same timeout as the store has for this process
        threading.Thread(target=self._live, daemon=True, name="heartbeat").start()

    def _live(self) -> None:
        life = self._life  # `leave` drops it
        assert life is not None
        running: list[str] = []
        news = 0
        try:
            while not self._leaving.is_set():
                life.send(ASK, {"do": "beat", "name": self.name, "running": running, "news": news})
                told = life.receive(timeout=self._patience).meta
                news, self.calls = int(told["news"]), int(told["calls"])
                self._heard(told.get("gone", {}))
                running = [name for name, pid in told.get("look", {}).items() if is_running(pid)]
        except wire.TimedOut:
            self._heard(
                {
                    THE_STORE: f"no answer from {self.address} for {self._patience:g} s (NEOMX_SILENCE): the "
                    "process that hosts it is stopped, or its host is not reachable"
                }
            )
        except wire.WireError as error:
            if not self._leaving.is_set():
                self._heard({THE_STORE: f"no answer from {self.address}: {error}"})

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
        """Leave the roll call and close all connections."""
        self.leave()
        with self._guard:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

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
