"""The job's blackboard and roll call: one store for all processes of a job.

Processes leave small values for each other under keys, wait for them, and count. Those that join it are watched: one
that closes its connection without taking leave has died, one that falls silent is stopped or cut off, and all others
know within a second. Nothing here needs torch, which the launcher does without: process groups use torch_store.py.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypedDict

from ..base import MXNetError
from . import listener, wire

_log = logging.getLogger("neomx")
_ASK, _ANSWER, _ERROR = 1, 2, 3
_BEAT = 0.5  # seconds between two signs of life
_NOT_HEARD = "not heard from"
_AT_ONCE = 16  # connections that one client keeps for reuse
_KEYS, _BYTES = 1 << 20, 1 << 30  # what the store holds at most
_KEYS_EACH, _BYTES_EACH = 1 << 17, 1 << 28  # and what one member may have in it
_KEY_LIMIT = 1 << 12  # characters of a key
NEWS = 10.0  # seconds in which all learn who is behind a connection that broke: one, and more on a busy machine
SERVICE = "the job's store"  # what a connection to it is for
_WAIT_KEYS = 1 << 16  # keys that one wait may be for
_LOOK = 1.0  # seconds after which a wait looks whether the one that waits is still connected
_HOST = object()  # who owns what the process that keeps the store leaves in it: equal to no member's token
_MEMBERS = 1 << 16
_REFUSALS = 100  # that are kept
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
    token: str = ""  # what its connections say, and no other's
    running: float = 0.0  # when another process of its host last saw it run

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


class OverQuota(MXNetError):
    """A value that the store does not take."""


@dataclass(slots=True)
class _Entry:
    """A value, and the token of who left it; of nobody if members share it."""

    value: bytes
    owner: object = None


class _Values:
    """The values by key, within quotas."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self._bytes = 0
        self._of: dict[object, list[int]] = {}  # keys and bytes, by owner

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: str) -> bytes | None:
        """The value, if it is there."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def owner(self, key: str) -> object:
        """Who left it."""
        entry = self._entries.get(key)
        return None if entry is None else entry.owner

    def lacking(self, keys: Iterable[str]) -> list[str]:
        """Those that have no values."""
        return sorted(key for key in keys if key not in self._entries)

    def wait_for(self, keys: Iterable[str]) -> Callable[[], bool]:
        """A question, asked at every change, whether all keys have values or had them at an earlier question."""
        left = list(keys)

        def are_there() -> bool:
            while left and left[-1] in self._entries:
                left.pop()
            return not left

        return are_there

    def put(self, key: str, value: bytes, owner: object, limited: bool = True) -> None:
        """Keep a value; raises OverQuota if there is no room for it."""
        old = self._entries.get(key)
        size = len(key) + len(value)
        keys, room = self._of.get(owner, [0, 0])
        mine = old is not None and old.owner == owner
        grown = size - (0 if old is None else len(key) + len(old.value))
        if limited and (
            len(key) > _KEY_LIMIT
            or len(self) + (old is None) > _KEYS
            or self._bytes + grown > _BYTES
            or keys + (not mine) > _KEYS_EACH
            or room + (grown if mine else size) > _BYTES_EACH
        ):
            raise OverQuota(
                f"the job's store has no room for {len(value)} bytes under {key!r:.80}: it holds {len(self)} keys and "
                f"{self._bytes} bytes, of which this process left {keys} and {room}; a process may leave "
                f"{_KEYS_EACH} and {_BYTES_EACH}"
            )
        self.pop(key)
        self._entries[key] = _Entry(value, owner)
        self._count(owner, 1, size)

    def pop(self, key: str) -> bool:
        """Forget a value; whether it was there."""
        old = self._entries.pop(key, None)
        if old is not None:
            self._count(old.owner, -1, -len(key) - len(old.value))
        return old is not None

    def _count(self, owner: object, keys: int, size: int) -> None:
        self._bytes += size
        now = self._of.setdefault(owner, [0, 0])
        now[0] += keys
        now[1] += size
        if not now[0]:
            del self._of[owner]


class _Ask(dict[str, Any]):
    """What a member asks for, and whether it still waits for the answer."""

    def __init__(self, said: Any, connection: wire.Connection):
        super().__init__(said if isinstance(said, dict) else {})
        self._connection = connection
        self["token"] = connection.peer.get("token")

    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self._connection.has_ended()


class StoreServer:
    """Keeps the values and the roll. `start` it in one process of the job, close it when all have left."""

    def __init__(self, host: str, port: int, secret: bytes, tls: str | None = None, silence: float | None = None):
        self._listening = wire.listen(host, port)
        self.address = wire.join_address(host, self._listening.getsockname()[1])
        self._secret, self._tls = secret, tls
        self._silence = wire.silence() if silence is None else silence
        self._values = _Values()
        self._members: dict[str, Member] = {}
        self._changed = threading.Condition()
        self._stop: Callable[[], None] | None = None
        self._closed = False
        self.refusals: list[str] = []  # why peers were refused, the first ones

    def start(self) -> StoreServer:
        """Serve from now on, in threads."""
        self._stop = listener.serve(self._listening, self._secret, self._tls, self._talk, self._refused, SERVICE)
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
            self._values.put(key, value, _HOST, limited=False)
            self._changed.notify_all()

    def mark_gone(self, name: str, code: int | None = None, why: str = "") -> None:
        """Tell all that a member is gone, as one knows who saw its process end."""
        with self._changed:
            member = self._members.setdefault(name, Member(name, socket.gethostname(), 0))
            member.go(why or f"its process ended with code {code}")
            self._changed.notify_all()

    # ---- serving ----

    def _refused(self, error: wire.WireError) -> None:
        if len(self.refusals) < _REFUSALS:
            self.refusals.append(str(error))
        _log.warning("store: refused: %s", error)

    def _talk(self, connection: wire.Connection) -> None:
        joined: Member | None = None
        try:
            while True:
                frame = connection.receive()
                ask = _Ask(frame.meta, connection)
                handler = _HANDLERS.get(str(ask.get("do")))
                if frame.kind != _ASK or handler is None:
                    raise wire.Refused(f"store: {connection} asked for {frame.meta!r:.80}")
                try:
                    _text(ask["token"])
                    meta, payload = handler(self, ask, bytes(frame.payload))
                except (KeyError, TypeError, ValueError, OverflowError) as error:
                    raise wire.Refused(f"store: {connection} asked for {ask!r:.80}: {error!r:.200}") from error
                except OverQuota as error:
                    _log.warning("store: %s: %s", connection, error)
                    meta, payload = {"error": "refused", "why": str(error)}, b""
                if ask["do"] == "join" and "error" not in meta:
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
        looked = time.monotonic()
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, timeout=1.0):
                    return
                now = time.monotonic()
                self._forgive(now - looked - 1.0)
                looked = now
                for member in self._members.values():
                    silent = now - member.heard
                    if member.state == "here" and silent > self._silence and not self._runs(member, now):
                        member.go(f"{_NOT_HEARD} for {silent:.0f} s: stopped, frozen, or its host is cut off")
                        self._changed.notify_all()

    def _forgive(self, seconds: float) -> None:
        """If this process did not run for so long, it is not the members that were silent."""
        if seconds < _BEAT:
            return
        for member in self._members.values():
            member.heard += seconds
            member.running += seconds
        if seconds > 5.0:
            _log.warning(
                "store: this process was stopped, or did not run, for %.0f s: all members are waited for", seconds
            )

    def _runs(self, member: Member, now: float) -> bool:
        """Whether a silent process is known to run: it is busy in code that lets none of its threads say so.

        Its connection is open, else it would be gone. Whether it was stopped is seen here, or by another of its host.
        """
        if member.host == socket.gethostname() and is_running(member.pid):
            return True
        return now - member.running < self._silence

    def _await(self, ready: Callable[[], bool], ask: _Ask) -> bool:
        """Wait, for as long as the member asks and stays connected."""
        deadline = time.monotonic() + max(0.0, min(float(ask["timeout"]), 86400.0))
        while not self._changed.wait_for(
            lambda: ready() or self._closed, timeout=max(0.0, min(_LOOK, deadline - time.monotonic()))
        ):
            if time.monotonic() >= deadline or ask.is_over():
                return False
        return True

    def _may_change(self, ask: _Ask, key: str) -> bool:
        """Whether a key is not that of another member which is here."""
        owner = self._values.owner(key)
        holder = self._member_of(owner)
        return owner in (None, ask["token"]) or owner != _HOST and (holder is None or holder.state != "here")

    def _member_of(self, token: object) -> Member | None:
        return next((member for member in self._members.values() if token and member.token == token), None)

    def _set(self, ask: _Ask, payload: bytes) -> tuple[dict[str, Any], bytes]:
        key = _text(ask["key"])
        with self._changed:
            if not self._may_change(ask, key):
                if self._values.get(key) == payload:
                    return {}, b""
                return _denied(f"the key {key!r:.80} belongs to another process"), b""
            self._values.put(key, payload, ask["token"])
            self._changed.notify_all()
        return {}, b""

    def _get(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        key = _text(ask["key"])
        with self._changed:
            self._await(lambda: key in self._values, ask)
            value = self._values.get(key)
            return ({"error": "timeout"}, b"") if value is None else ({}, value)

    def _add(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        key, amount = _text(ask["key"]), int(ask["amount"])
        with self._changed:
            if not self._may_change(ask, key):
                return _denied(f"the key {key!r:.80} belongs to another process"), b""
            total = int(self._values.get(key) or b"0") + amount
            if not -(1 << 63) <= total < 1 << 63:
                raise ValueError("a count beyond 64 bits")
            self._values.put(key, str(total).encode(), None)
            self._changed.notify_all()
        return {"total": total}, b""

    def _swap(self, ask: _Ask, payload: bytes) -> tuple[dict[str, Any], bytes]:
        key, expected = _text(ask["key"]), _text(ask["expected"]).encode()
        with self._changed:
            now = self._values.get(key)
            if now == expected or (now is None and not expected):
                if not self._may_change(ask, key):
                    return _denied(f"the key {key!r:.80} belongs to another process"), b""
                self._values.put(key, payload, None)
                self._changed.notify_all()
                now = payload
            return {}, expected if now is None else now

    def _wait(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        keys = {_text(key) for key in ask["keys"]}
        if len(keys) > _WAIT_KEYS:
            raise ValueError(f"a wait for {len(keys)} keys, more than {_WAIT_KEYS}")
        with self._changed:
            if not self._await(self._values.wait_for(keys), ask):
                return {"error": "timeout", "missing": self._values.lacking(keys)[:8]}, b""
        return {}, b""

    def _check(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"there": all(_text(key) in self._values for key in ask["keys"])}, b""

    def _delete(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            key = _text(ask["key"])
            if not self._may_change(ask, key):
                return _denied(f"the key {key!r:.80} belongs to another process"), b""
            return {"was": self._values.pop(key)}, b""

    def _count(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"count": len(self._values)}, b""

    def _join(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        member = Member(_name(ask["name"]), _name(ask["host"]), int(ask["pid"]), token=ask["token"])
        with self._changed:
            before = self._members.get(member.name)
            if before is not None and before.state == "here" and before.token != member.token:
                return _denied(f"{member.name} is here already, as process {before.pid} on {before.host}"), b""
            if len(self._members) >= _MEMBERS and before is None:
                return _denied(f"there are {_MEMBERS} members already"), b""
            self._members[member.name] = member
            self._changed.notify_all()
        return {"silence": self._silence}, b""

    def _beat(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        now = time.monotonic()
        with self._changed:
            me = self._me(ask)
            me.heard = now
            if me.is_silent:
                me.state, me.why = "here", ""
            others = [m for m in self._members.values() if m.host == me.host and m is not me]
            for member in others:
                if member.name in ask.get("running", ()):
                    member.running = now
                    if member.is_silent:
                        member.state, member.why = "here", ""
            look = {m.name: m.pid for m in others if m.state != "left" and now - m.heard > self._silence / 4}
            return {"gone": {m.name: m.why for m in self._members.values() if m.state == "gone"}, "look": look}, b""

    def _me(self, ask: _Ask) -> Member:
        """The member that asks: nobody speaks for another."""
        member = self._members[_text(ask["name"])]
        if not member.token or member.token != ask["token"]:
            raise ValueError(f"{member.name} is another process")
        return member

    def _leave(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            self._me(ask).state = "left"
            self._changed.notify_all()
        return {}, b""

    def _roster(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"members": {m.name: m.told() for m in self._members.values()}}, b""

    def _report_gone(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        name, why = _name(ask["name"]), _text(ask["why"])
        with self._changed:
            me = self._member_of(ask["token"])
            if me is None or name != me.name and not name.endswith(f" of {me.name}"):
                raise ValueError(f"only {name} itself, or a launcher, says that it is gone")
            if len(self._members) >= _MEMBERS and name not in self._members:
                return _denied(f"there are {_MEMBERS} members already"), b""
            self.mark_gone(name, None, wire.printable(why[:_KEY_LIMIT]))
        return {}, b""


_HANDLERS: dict[str, Callable[[StoreServer, _Ask, bytes], tuple[dict[str, Any], bytes]]] = {
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


def _denied(why: str) -> dict[str, Any]:
    return {"error": "refused", "why": why}


def is_running(pid: int) -> bool:
    """Whether a process of this host is there and was not stopped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[0] not in (b"T", b"t", b"Z", b"X")
    except (OSError, IndexError):
        return False


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, received {value!r:.40}")
    return value


def _name(value: Any) -> str:
    if len(name := _text(value)) > _KEY_LIMIT:
        raise ValueError(f"a name of {len(name)} characters")
    if not name.isprintable():
        raise ValueError("a name that cannot be printed")
    return name


class StoreClient:
    """A process's way to the store: values, waits, counts, and who is still there."""

    def __init__(self, address: str, secret: bytes, timeout: float = 300.0, tls: str | None = None, name: str = ""):
        self.address, self.name = address, name
        self._token = secrets.token_hex(16)  # tells this client's connections from those of others
        self._patience = wire.silence()
        self._secret, self._tls, self._limit = secret, tls, timeout
        self._free: list[wire.Connection] = []
        self._guard = threading.Lock()
        self.gone: dict[str, str] = {}
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
                connection.send(_ASK, {"do": do, **fields}, payload)
                frame = connection.receive(timeout=self._patience if wait is None else wait)
        except wire.Refused as error:
            raise PeerError(
                f"the connection to the job's store at {self.address} cannot be trusted: {error}"
            ) from error
        except wire.WireError as error:
            raise PeerError(
                f"the job's store at {self.address} does not answer ({error}). It lives in the process that started "
                "the job, or in worker 0: that one ended or is stopped, or its host is cut off"
            ) from error
        if frame.kind == _ERROR and frame.meta.get("error") == "refused":
            raise MXNetError(f"the job's store refused this: {frame.meta['why']}")
        return frame

    # ---- values, by the names that torch has for them ----

    def set(self, key: str, value: Value) -> None:
        """Leave a value under a key."""
        self._ask("set", _encoded(value), key=key)

    def get(self, key: str, timeout: float | None = None) -> bytes:
        """A value, waited for until it is there."""
        seconds = self._limit if timeout is None else timeout
        frame = self._ask("get", wait=seconds + self._patience, key=key, timeout=seconds)
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
                    hint = ". All workers must make the same calls in the same order"
                    if name in self.gone or THE_STORE in self.gone:  # it failed, and did not take another way
                        hint = ""
                    raise PeerError(
                        f"the first call that all workers make did not complete{waited}: {self.missing([name])}{hint}"
                    ) from None

    def add(self, key: str, amount: int) -> int:
        """Add to a count; the new count."""
        return int(self._ask("add", key=key, amount=amount).meta["total"])

    def compare_set(self, key: str, expected: Value, desired: Value) -> bytes:
        """Set a value if it is as expected (empty: not there); what it is then."""
        wanted = _encoded(desired)
        return bytes(self._ask("swap", wanted, key=key, expected=_decoded(expected)).payload)

    def wait(self, keys: Iterable[str], timeout: timedelta | float | None = None) -> None:
        """Wait until all keys have values."""
        seconds = self._limit if timeout is None else _seconds(timeout)
        frame = self._ask("wait", wait=seconds + self._patience, keys=list(keys), timeout=seconds)
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
        try:
            self._life = self._dial(self._patience)
            self._life.send(_ASK, {"do": "join", "name": name, "host": socket.gethostname(), "pid": os.getpid()})
            answer = self._life.receive(timeout=self._patience)
        except wire.WireError as error:
            raise PeerError(
                f"{name} cannot join: the job's store at {self.address} does not answer ({error})"
            ) from error
        if answer.kind == _ERROR:
            raise MXNetError(f"the job's store refused {name}: {answer.meta['why']}")
        self._patience = float(answer.meta["silence"])  # as patient as the store is with this process
        threading.Thread(target=self._live, daemon=True, name="heartbeat").start()

    def _live(self) -> None:
        assert self._life is not None
        running: list[str] = []
        try:
            while not self._leaving.wait(_BEAT):
                self._life.send(_ASK, {"do": "beat", "name": self.name, "running": running})
                told = self._life.receive(timeout=self._patience).meta
                self._heard(told.get("gone", {}))
                running = [name for name, pid in told.get("look", {}).items() if is_running(pid)]
        except wire.TimedOut:
            self._heard(
                {
                    THE_STORE: f"no answer from {self.address} for {self._patience:g} s (NEOMX_SILENCE): the "
                    "process that keeps it is stopped, or its host is cut off"
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
