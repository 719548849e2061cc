"""The job's blackboard and roll call: one store for all processes of a job.

Processes leave small values for each other under keys, wait for them, and count. Those that join it are watched: one
that closes its connection without taking leave has died, one that falls silent is stopped or cut off, and all others
know within a second. Nothing here needs torch, which the launcher does without: process groups use torch_store.py.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict

from ..base import MXNetError
from . import wire

_log = logging.getLogger("neomx")
_ASK, _ANSWER, _ERROR = 1, 2, 3
_BEAT = 0.5  # seconds between two signs of life
_SILENCE = 20.0  # seconds without one after which a member counts as gone; NEOMX_SILENCE replaces it
_NOT_HEARD = "not heard from"
_AT_ONCE = 16  # connections that one client keeps for reuse
_NO_ANSWER = 10.0  # seconds after which a store that does not answer a sign of life is lost
NEWS = 10.0  # seconds in which all learn who is behind a connection that broke: one, and more on a busy machine
THE_STORE = "the job's store"  # how the roll call speaks of itself
TOLERATES_LOSS = "tolerates-loss"  # a key whose presence says that the job goes on without a worker that died


Value = str | bytes | bytearray | Sequence[int]  # torch hands bytes over as lists of numbers


class PeerError(MXNetError):
    """Another process of the job is gone, or did not come in time."""


class MemberInfo(TypedDict):
    """What the roll call tells of a process."""

    host: str
    pid: int
    state: str  # 'here', 'left' or 'gone'
    why: str
    silent: float  # seconds since the last sign of life


@dataclass(slots=True)
class Member:
    """A process in the roll call."""

    name: str
    host: str
    pid: int
    state: str = "here"  # or "left", or "gone"
    why: str = ""
    heard: float = field(default_factory=time.monotonic)
    since: float = 0.0  # when it went

    def go(self, why: str) -> None:
        """It is gone."""
        if self.state != "gone":
            self.since = time.monotonic()
        self.state, self.why = "gone", why

    @property
    def is_silent(self) -> bool:
        """Whether it counts as gone only because nothing is heard from it: it may come back."""
        return self.state == "gone" and self.why.startswith(_NOT_HEARD)

    def told(self) -> MemberInfo:
        """What others are told of it."""
        silent = time.monotonic() - self.heard
        return {"host": self.host, "pid": self.pid, "state": self.state, "why": self.why, "silent": silent}


class StoreServer:
    """Keeps the values and the roll. `start` it in one process of the job, close it when all have left."""

    def __init__(self, host: str, port: int, secret: bytes, tls: str | None = None, silence: float | None = None):
        self._listening = wire.listen(host, port)
        self.address = wire.join_address(host, self._listening.getsockname()[1])
        self._secret, self._tls = secret, tls
        self._silence = _silence_from(os.environ) if silence is None else silence
        self._values: dict[str, bytes] = {}
        self._members: dict[str, Member] = {}
        self._changed = threading.Condition()
        self._stop: Callable[[], None] | None = None
        self._closed = False

    def start(self) -> StoreServer:
        """Serve from now on, in threads."""
        self._stop = wire.serve(self._listening, self._secret, self._tls, self._talk, self._refused)
        threading.Thread(target=self._watch_silence, daemon=True, name="roll call").start()
        return self

    def close(self) -> None:
        """End it: all connections are closed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._stop is None:
            self._listening.close()
        else:
            self._stop()

    # ---- for the process that hosts it ----

    def roster(self) -> dict[str, Member]:
        """All that ever joined, by name."""
        with self._changed:
            return dict(self._members)

    def get(self, key: str) -> bytes | None:
        """A value, if it is there."""
        with self._changed:
            return self._values.get(key)

    def set(self, key: str, value: bytes) -> None:
        """Leave a value."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def mark_gone(self, name: str, code: int | None = None, why: str = "") -> None:
        """Tell all that a member is gone, as one knows who saw its process end."""
        with self._changed:
            member = self._members.setdefault(name, Member(name, socket.gethostname(), 0))
            member.go(why or f"its process ended with code {code}")
            self._changed.notify_all()

    # ---- serving ----

    @staticmethod
    def _refused(error: wire.WireError) -> None:
        _log.warning("store: refused: %s", error)

    def _talk(self, connection: wire.Connection) -> None:
        joined: Member | None = None
        try:
            while True:
                frame = connection.receive()
                ask = frame.meta if isinstance(frame.meta, dict) else {}
                handler = _HANDLERS.get(ask.get("do", ""))
                if frame.kind != _ASK or handler is None:
                    raise wire.Refused(f"store: {connection} asked for {frame.meta!r:.80}")
                try:
                    meta, payload = handler(self, ask, bytes(frame.payload))
                except (KeyError, TypeError, ValueError) as error:
                    raise wire.Refused(f"store: {connection} asked for {ask!r:.80}: {error!r}") from error
                if ask["do"] == "join":
                    joined = self._members[ask["name"]]
                connection.send(_ANSWER if "error" not in meta else _ERROR, meta, payload)
        finally:
            if joined is not None:
                self._lost(joined)

    def _lost(self, member: Member) -> None:
        with self._changed:
            if member.state == "here" and self._members.get(member.name) is member and not self._closed:
                member.go("its connection broke: the process died or its host is cut off")
                self._changed.notify_all()

    def _watch_silence(self) -> None:
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, timeout=1.0):
                    return
                for member in self._members.values():
                    silent = time.monotonic() - member.heard
                    if member.state == "here" and silent > self._silence:
                        member.go(f"{_NOT_HEARD} for {silent:.0f} s: stopped, frozen, or its host is cut off")
                        self._changed.notify_all()

    def _await(self, ready: Callable[[], bool], seconds: float) -> bool:
        return self._changed.wait_for(lambda: ready() or self._closed, timeout=max(0.0, min(seconds, 86400.0)))

    def _set(self, ask: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        self.set(_text(ask["key"]), payload)
        return {}, b""

    def _get(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        key = _text(ask["key"])
        with self._changed:
            if not self._await(lambda: key in self._values, float(ask["timeout"])) or key not in self._values:
                return {"error": "timeout"}, b""
            return {}, self._values[key]

    def _add(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        key, amount = _text(ask["key"]), int(ask["amount"])
        with self._changed:
            total = int(self._values.get(key, b"0")) + amount
            self._values[key] = str(total).encode()
            self._changed.notify_all()
        return {"total": total}, b""

    def _swap(self, ask: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
        key, expected, size = _text(ask["key"]), _text(ask["expected"]).encode(), ask["size"]
        with self._changed:
            now = self._values.get(key)
            if now == expected or (now is None and not expected):
                now = self._values[key] = payload[:size]
                self._changed.notify_all()
            return {}, expected if now is None else now

    def _wait(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        keys = {_text(key) for key in ask["keys"]}
        with self._changed:
            if not self._await(lambda: keys <= self._values.keys(), float(ask["timeout"])):
                return {"error": "timeout", "missing": sorted(keys - self._values.keys())}, b""
        return {}, b""

    def _check(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"there": all(_text(key) in self._values for key in ask["keys"])}, b""

    def _delete(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"was": self._values.pop(_text(ask["key"]), None) is not None}, b""

    def _count(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"count": len(self._values)}, b""

    def _join(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        member = Member(_text(ask["name"]), _text(ask["host"]), int(ask["pid"]))
        with self._changed:
            self._members[member.name] = member
            self._changed.notify_all()
        return {}, b""

    def _beat(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            member = self._members[_text(ask["name"])]
            member.heard = time.monotonic()
            if member.is_silent:
                member.state, member.why = "here", ""
            return {"gone": {m.name: m.why for m in self._members.values() if m.state == "gone"}}, b""

    def _leave(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            self._members[_text(ask["name"])].state = "left"
            self._changed.notify_all()
        return {}, b""

    def _roster(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"members": {m.name: m.told() for m in self._members.values()}}, b""

    def _report_gone(self, ask: dict[str, Any], _: bytes) -> tuple[dict[str, Any], bytes]:
        self.mark_gone(_text(ask["name"]), None, _text(ask["why"]))
        return {}, b""


_HANDLERS: dict[str, Callable[[StoreServer, dict[str, Any], bytes], tuple[dict[str, Any], bytes]]] = {
    "set": StoreServer._set,
    "get": StoreServer._get,
    "add": StoreServer._add,
    "swap": StoreServer._swap,
    "wait": StoreServer._wait,
    "check": StoreServer._check,
    "delete": StoreServer._delete,
    "count": StoreServer._count,
    "join": StoreServer._join,
    "beat": StoreServer._beat,
    "leave": StoreServer._leave,
    "roster": StoreServer._roster,
    "gone": StoreServer._report_gone,
}


def _silence_from(environ: Mapping[str, str]) -> float:
    value = environ.get("NEOMX_SILENCE") or _SILENCE
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 2 * _BEAT:
        raise MXNetError(f"NEOMX_SILENCE must be a number of seconds above {2 * _BEAT:g}, received {value!r}")
    return seconds


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, received {value!r:.40}")
    return value


class StoreClient:
    """A process's way to the store: values, waits, counts, and who is still there."""

    def __init__(self, address: str, secret: bytes, timeout: float = 300.0, tls: str | None = None, name: str = ""):
        self.address, self.name = address, name
        self._secret, self._tls, self._limit = secret, tls, timeout
        self._free: list[wire.Connection] = []
        self._guard = threading.Lock()
        self.gone: dict[str, str] = {}
        self._callbacks: list[Callable[[str, str], None]] = []
        self._life: wire.Connection | None = None
        self._leaving = threading.Event()
        self._free.append(self._dial(timeout))

    def _dial(self, timeout: float) -> wire.Connection:
        return wire.connect(self.address, self._secret, {"name": self.name}, self._tls, timeout)

    @contextmanager
    def _connection(self) -> Iterator[wire.Connection]:
        with self._guard:
            connection = self._free.pop() if self._free else None
        if connection is None:
            parting = self._leaving.is_set() or THE_STORE in self.gone
            connection = self._dial(1.0 if parting else 10.0)
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

    def _ask(self, do: str, payload: bytes = b"", wait: float = 30.0, **fields: Any) -> wire.Frame:
        try:
            with self._connection() as connection:
                connection.send(_ASK, {"do": do, **fields}, payload)
                return connection.receive(timeout=wait)
        except wire.WireError as error:
            raise PeerError(
                f"the job's store at {self.address} does not answer ({error}). It lives in the process that started "
                "the job, or in worker 0: that one ended, or its host is cut off"
            ) from error

    # ---- values, by the names that torch has for them ----

    def set(self, key: str, value: Value) -> None:
        """Leave a value under a key."""
        self._ask("set", _encoded(value), key=key)

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """A value, waited for until it is there."""
        seconds = self._limit if timeout is None else timeout
        frame = self._ask("get", wait=seconds + 30, key=key, timeout=seconds)
        if frame.kind == _ERROR:
            raise PeerError(f"nobody left {key!r} in the job's store within {seconds:.0f} s. {self.missing()}")
        return bytes(frame.payload)

    def get_from(self, name: str, key: str) -> bytes:
        """A value that the member `name` leaves, waited for unless that one is gone."""
        deadline = time.monotonic() + self._limit
        while True:
            try:
                return self.get(key, timeout=min(1.0, self._limit))
            except PeerError:
                over = self._has_left(name) or name in self.gone or THE_STORE in self.gone
                if over or time.monotonic() > deadline:
                    waited = "" if over else f" within {self._limit:g} s"
                    raise PeerError(
                        f"the first call that all workers make did not complete{waited}: {self.missing([name])}. All "
                        "workers must make the same calls in the same order"
                    ) from None

    def add(self, key: str, amount: int) -> int:
        """Add to a count; the new count."""
        return int(self._ask("add", key=key, amount=amount).meta["total"])

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Set a value if it is as expected (empty: not there); what it is then."""
        wanted = _encoded(desired)
        return bytes(self._ask("swap", wanted, key=key, expected=_decoded(expected), size=len(wanted)).payload)

    def wait(self, keys: Iterable[str], timeout: timedelta | float | None = None) -> None:
        """Wait until all keys have values."""
        seconds = self._limit if timeout is None else _seconds(timeout)
        frame = self._ask("wait", wait=seconds + 30, keys=list(keys), timeout=seconds)
        if frame.kind == _ERROR:
            lacking = ", ".join(frame.meta["missing"][:8])
            raise PeerError(f"nobody left {lacking} in the job's store within {seconds:.0f} s. {self.missing()}")

    def check(self, keys: Iterable[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._ask("check", keys=list(keys)).meta["there"])

    def delete_key(self, key: str) -> bool:
        """Forget a value; whether it was there."""
        return bool(self._ask("delete", key=key).meta["was"])

    def num_keys(self) -> int:
        """How many values there are."""
        return int(self._ask("count").meta["count"])

    def set_timeout(self, timeout: timedelta) -> None:
        """How long `get` and `wait` wait."""
        self._limit = _seconds(timeout)

    @property
    def timeout(self) -> timedelta:
        """How long `get` and `wait` wait."""
        return timedelta(seconds=self._limit)

    # ---- the roll call ----

    def join(self, name: str) -> None:
        """Enter the roll: from now on a sudden end of this process is told to all others."""
        self.name = name
        self._life = self._dial(30.0)
        self._life.send(_ASK, {"do": "join", "name": name, "host": socket.gethostname(), "pid": os.getpid()})
        self._life.receive(timeout=30.0)
        threading.Thread(target=self._live, daemon=True, name="heartbeat").start()

    def _live(self) -> None:
        assert self._life is not None
        try:
            while not self._leaving.wait(_BEAT):
                self._life.send(_ASK, {"do": "beat", "name": self.name})
                self._heard(self._life.receive(timeout=_NO_ANSWER).meta.get("gone", {}))
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
        """Call `callback(name, why)`, in the heartbeat's thread, for each member that goes without taking leave."""
        self._callbacks.append(callback)

    def leave(self) -> None:
        """Take leave: this process ends as it should."""
        self._leaving.set()
        if self._life is not None:
            with suppress(PeerError):  # the store may have ended before us
                self._ask("leave", wait=2.0, name=self.name)
            self._life.close()
            self._life = None

    def give_up(self) -> None:
        """Have all who wait with a look at who is gone learn that this process ends."""
        self._leaving.set()
        self.gone = {**self.gone, THE_STORE: "this process ends"}

    def close(self) -> None:
        """Take leave and close all connections."""
        self.leave()
        with self._guard:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    def report_gone(self, name: str, why: str) -> None:
        """Tell all that a member is gone, as one knows who saw its process end."""
        self._ask("gone", wait=2.0, name=name, why=why)

    def roster(self) -> dict[str, MemberInfo]:
        """All processes that ever joined, by name."""
        return dict(self._ask("roster").meta["members"])

    def _has_left(self, name: str) -> bool:
        try:
            member = self.roster().get(name)
        except PeerError:
            return False
        return member is not None and member["state"] == "left"

    def missing(self, names: Iterable[str] = ()) -> str:
        """A sentence on who is missing: those of `names` that are not here, or all that are gone or silent."""
        try:
            members = self.roster()
        except PeerError as error:
            return str(error)
        said = []
        for name in names or members:
            member = members.get(name)
            if member is None:
                said.append(f"{name} never came")
                continue
            where = f"{name} on {member['host']} (process {member['pid']})"
            if member["state"] == "gone":
                said.append(f"{where} is gone: {member['why']}")
            elif member["state"] == "left":
                said.append(f"{where} has ended its program")
            elif member["silent"] > 3 * _BEAT + 1:
                said.append(f"{where} has been silent for {member['silent']:.0f} s")
            elif names:
                said.append(f"{where} is alive but did not come")
        return "; ".join(said) or "All members are alive"


def _encoded(value: Value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _decoded(value: Value) -> str:
    return value if isinstance(value, str) else bytes(value).decode("latin-1")


def _seconds(timeout: timedelta | float) -> float:
    return timeout.total_seconds() if isinstance(timeout, timedelta) else float(timeout)
