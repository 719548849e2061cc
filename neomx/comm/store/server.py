"""The server of the job's store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import listener, wire
from .protocol import ANSWER, ASK, BEAT, CALLS, ERROR, KEY_LIMIT, SERVICE
from .roll import NO_ROOM, Member, Roll
from .values import OverQuota, Values

_log = logging.getLogger("neomx")
_WAIT_KEYS = 1 << 16  # maximum keys in one wait
_LOOK = 1.0  # seconds between checks whether a waiting client is still connected
_HOST = object()  # the owner of values set by the hosting process; differs from all tokens
_REFUSALS = 100  # maximum number kept


class _Ask(dict[str, Any]):
    """A request of a member, and whether the member still waits for the reply."""

    def __init__(self, said: Any, connection: wire.Connection):
        super().__init__(said if isinstance(said, dict) else {})
        self._connection = connection
        self["token"] = connection.peer.get("token")

    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self._connection.has_ended()


class StoreServer:
    """Hosts the values and the roll call. `start` it in one process of the job, and close it when all have left."""

    def __init__(self, host: str, port: int, secret: bytes, tls: str | None = None, silence: float | None = None):
        self._listening = wire.listen(host, port)
        self.address = wire.join_address(host, self._listening.getsockname()[1])
        self._secret, self._tls = secret, tls
        self._values = Values()
        self._roll = Roll(wire.silence() if silence is None else silence)
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._has_news = threading.Condition(lock)
        self._news = 0  # changes that members hear of with their next heartbeat
        self._stop: Callable[[], None] | None = None
        self._closed = False
        self.refusals: list[str] = []  # reasons of the first refusals

    def start(self) -> StoreServer:
        """Start serving, in threads."""
        self._stop = listener.serve(self._listening, self._secret, self._tls, self._talk, self._refused, SERVICE)
        threading.Thread(target=self._watch_silence, daemon=True, name="roll call").start()
        return self

    def close(self) -> None:
        """Stop serving and close all connections."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._tell()
        if self._stop is None:
            self._listening.close()
        else:
            self._stop()

    # ---- for the process that hosts it ----

    def roster(self) -> dict[str, Member]:
        """Return all that ever joined, by name."""
        with self._changed:
            return self._roll.all()

    def get(self, key: str) -> bytes | None:
        """Return a value, or None."""
        with self._changed:
            return self._values.get(key)

    def set(self, key: str, value: bytes) -> None:
        """Set a value."""
        with self._changed:
            self._values.put(key, value, _HOST, limited=False)
            self._changed.notify_all()

    def mark_gone(self, name: str, code: int | None = None, why: str = "") -> None:
        """Report to all that a member is gone, for example after its process ended."""
        with self._changed:
            self._roll.mark_gone(name, why or f"its process ended with code {code}")
            self._changed.notify_all()
            self._tell()

    # ---- serving ----

    def _tell(self) -> None:
        """Answer all waiting heartbeats, because a member is gone or has called the others. Needs the lock."""
        self._news += 1
        self._has_news.notify_all()

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
                if frame.kind != ASK or handler is None:
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
                    joined = self._roll.named(ask["name"])
                connection.send(ANSWER if "error" not in meta else ERROR, meta, payload)
        finally:
            if joined is not None:
                self._lost(joined)

    def _lost(self, member: Member) -> None:
        with self._changed:
            if not self._closed and self._roll.lose(member):
                self._changed.notify_all()
                self._tell()

    def _watch_silence(self) -> None:
        looked = time.monotonic()
        while True:
            with self._changed:
                if self._changed.wait_for(lambda: self._closed, timeout=1.0):
                    return
                now = time.monotonic()
                self._forgive(now - looked - 1.0)
                looked = now
                if self._roll.mark_silent():
                    self._changed.notify_all()
                    self._tell()

    def _forgive(self, seconds: float) -> None:
        """Ignore the silence of members while this process itself did not run."""
        if seconds < BEAT:
            return
        self._roll.forgive(seconds)
        if seconds > 5.0:
            _log.warning("store: this process was stopped or did not run for %.0f s: keeping all members", seconds)

    def _await(self, ready: Callable[[], bool], ask: _Ask) -> bool:
        """Wait until the client's timeout expires or it disconnects."""
        deadline = time.monotonic() + max(0.0, min(float(ask["timeout"]), 86400.0))
        while not self._changed.wait_for(
            lambda: ready() or self._closed, timeout=max(0.0, min(_LOOK, deadline - time.monotonic()))
        ):
            if time.monotonic() >= deadline or ask.is_over():
                return False
        return True

    def _may_change(self, ask: _Ask, key: str) -> bool:
        """Whether the client may change a key: it must not belong to another member that is present."""
        owner = self._values.owner(key)
        holder = self._roll.with_token(owner)
        return owner in (None, ask["token"]) or owner != _HOST and (holder is None or holder.state != "here")

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
                raise ValueError("the counter exceeds 64 bits")
            self._values.put(key, str(total).encode(), None)
            self._changed.notify_all()
            if key == CALLS:
                self._tell()
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
            raise ValueError(f"expected at most {_WAIT_KEYS} keys in a wait, received {len(keys)}")
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
            if why := self._roll.join(member):
                return _denied(why), b""
            self._changed.notify_all()
        return {"silence": self._roll.silence}, b""

    def _beat(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            look = self._roll.beat(self._me(ask), ask.get("running", ()))
            known = ask.get("news")
            self._has_news.wait_for(lambda: self._news != known or self._closed, timeout=BEAT)
            calls = int(self._values.get(CALLS) or b"0")
            return {"gone": self._roll.gone(), "look": look, "news": self._news, "calls": calls}, b""

    def _me(self, ask: _Ask) -> Member:
        return self._roll.speaker(_text(ask["name"]), ask["token"])

    def _leave(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            self._me(ask).state = "left"
            self._changed.notify_all()
        return {}, b""

    def _roster(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        with self._changed:
            return {"members": {name: member.told() for name, member in self._roll.all().items()}}, b""

    def _report_gone(self, ask: _Ask, _: bytes) -> tuple[dict[str, Any], bytes]:
        name, why = _name(ask["name"]), _text(ask["why"])
        with self._changed:
            me = self._roll.with_token(ask["token"])
            if me is None or name != me.name and not name.endswith(f" of {me.name}"):
                raise ValueError(f"only {name} itself or a launcher may report it as gone")
            if not self._roll.has_room_for(name):
                return _denied(NO_ROOM), b""
            self.mark_gone(name, None, wire.printable(why[:KEY_LIMIT]))
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


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected text, received {value!r:.40}")
    return value


def _name(value: Any) -> str:
    if len(name := _text(value)) > KEY_LIMIT:
        raise ValueError(f"a name of {len(name)} characters is too long")
    if not name.isprintable():
        raise ValueError("expected a name without control characters")
    return name
