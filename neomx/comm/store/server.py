"""The server of the job's store."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from .. import listener, wire
from .client import StoreClient
from .messages import replica_name
from .protocol import ANSWER, ASK, BEAT, CALLS, ERROR, KEY_LIMIT, SERVICE
from .pulse import BROKE, Pulse
from .replication import Elsewhere, Replication
from .roll import Member
from .state import Answer, State
from .values import HOST

_log = logging.getLogger("neomx")
_WAIT_KEYS = 1 << 16  # maximum keys in one wait
_LOOK_AT_MEMBERS = 0.05  # seconds between checks whether a member that waits for news is still connected
_LOOK = 1.0  # seconds between checks whether a waiting client is still connected
_WATCH, _WATCH_REPLICAS = 1.0, 0.2  # seconds between checks of the members
_REFUSALS = 100  # maximum number kept
_RETIRE = 5.0  # seconds after which a replica that retires is no longer waited for


class _Ask(dict[str, Any]):
    """A request of a member, and whether the member still waits for the reply."""

    def __init__(self, said: Any, connection: wire.Connection):
        super().__init__(said if isinstance(said, dict) else {})
        self.connection = connection
        self["token"] = connection.peer.get("token")

    def is_over(self) -> bool:
        """Whether the connection has ended."""
        return self.connection.has_ended()


class StoreServer:
    """Hosts the values and the roll call. `start` it in one process of the job, and close it when all have left.

    With `replicas`, several processes keep the store: the one that `founds` it, and others that offer themselves with
    `StoreClient.offer`. One of them leads; clients find it. The store survives as long as a majority of them does.
    """

    def __init__(
        self,
        host: str,
        port: int,
        secret: bytes,
        tls: str | None = None,
        silence: float | None = None,
        replicas: int = 1,
        founds: bool = True,
    ):
        self._listening = wire.listen(host, port)
        self.address = wire.join_address(host, self._listening.getsockname()[1])
        self._secret, self._tls = secret, tls
        self._state = State()
        self._pulse = Pulse(wire.silence() if silence is None else silence)
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        self._has_news = threading.Condition(lock)
        self._watched = threading.Condition(lock)
        self._told = 0  # the news of which waiting heartbeats were told
        self._stop: Callable[[], None] | None = None
        self._closed = False
        self.refusals: list[str] = []  # reasons of the first refusals
        self._client: StoreClient | None = None  # of this process, if there are replicas
        self._replication: Replication | None = None
        if replicas > 1 or not founds:
            parts = (lock, self._changed, self._applied, self._led, self._refused)
            self._replication = Replication(self._state, self.address, *parts, secret, tls, replicas, founds)

    def start(self) -> StoreServer:
        """Start serving, in threads."""
        self._stop = listener.serve(self._listening, self._secret, self._tls, self._talk, self._refused, SERVICE)
        if self._replication is not None:
            self._replication.start()
        threading.Thread(target=self._watch, daemon=True, name="roll call").start()
        return self

    def close(self) -> None:
        """Stop serving and close all connections."""
        if self._replication is not None:
            self._replication.close()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            self._has_news.notify_all()
            self._watched.notify_all()
        if self._stop is None:
            self._listening.close()
        else:
            self._stop()

    # ---- for the process that hosts it ----

    @property
    def leads(self) -> bool:
        """Whether this process serves the clients: always, unless there are several replicas."""
        return self._replication is None or self._replication.leads

    @property
    def replica(self) -> str:
        """The name of this replica."""
        assert self._replication is not None, "this store has no replicas"
        return self._replication.name

    def roster(self) -> dict[str, Member]:
        """Return all that ever joined, by name."""
        with self._changed:
            return self._state.roll.all()

    def get(self, key: str) -> bytes | None:
        """Return a value, or None."""
        with self._changed:
            return self._state.values.get(key)

    def set(self, key: str, value: bytes) -> None:
        """Set a value."""
        if self._client is not None:  # another process may lead
            self._client.set(key, value)
            return
        with self._changed:
            self._execute({"do": "set", "key": key, "token": HOST}, value)

    def mark_gone(self, name: str, code: int | None = None, why: str = "") -> None:
        """Report to all that a member is gone, for example after its process ended."""
        why = why or f"its process ended with code {code}"
        if self._client is not None:
            self._client.report_gone(name, why)
            return
        with self._changed:
            self._execute({"do": "gone", "name": name, "token": HOST, "host": socket.gethostname(), "why": why})

    def offered(self, client: StoreClient | None) -> None:
        """Note that a client of this process has offered to keep the store here, or (None) that it does so no more."""
        self._client = client
        if client is None and self._replication is not None:
            with self._changed:
                self._replication.retire()

    # ---- commands ----

    def _execute(self, command: dict[str, Any], payload: bytes = b"") -> Answer:
        """Execute a command, on all replicas if there are several. Needs the lock, and may release it meanwhile."""
        if self._replication is not None:
            return self._replication.agree(command, payload)
        answer = self._state.apply(command, payload)
        self._applied()
        return answer

    def _applied(self) -> None:
        """Wake the threads that wait for a change. Needs the lock."""
        self._changed.notify_all()
        if self._state.news != self._told:
            self._told = self._state.news
            self._has_news.notify_all()

    def _led(self, leads: bool) -> None:
        """Begin or end to serve. Needs the lock."""
        if leads:
            self._pulse.begin(self._state.roll.present())
        self._changed.notify_all()
        self._has_news.notify_all()

    def _request(self, ask: _Ask, payload: bytes = b"", **command: Any) -> Answer:
        """Execute a command of a client, once even if the client repeats it."""
        command |= {"do": ask["do"], "token": ask["token"]}
        if self._replication is not None and "number" in ask:
            command |= {"number": int(ask["number"]), "done": int(ask["done"])}
        return self._execute(command, payload)

    def _read(self, meta: dict[str, Any], payload: bytes = b"") -> Answer:
        """Return an answer once it is certain that it is current."""
        if self._replication is not None:
            self._replication.confirm()
        return meta, payload

    # ---- serving ----

    def _refused(self, error: wire.WireError) -> None:
        if len(self.refusals) < _REFUSALS:
            self.refusals.append(str(error))
        _log.warning("store: refused: %s", error)

    def _talk(self, connection: wire.Connection) -> None:
        joined: set[str] = set()
        try:
            while True:
                frame = connection.receive()
                ask = _Ask(frame.meta, connection)
                handler = _HANDLERS.get(str(ask.get("do")))
                if frame.kind != ASK or handler is None:
                    raise wire.Refused(f"store: {connection} asked for {frame.meta!r:.80}")
                meta, payload = self._answer(handler, ask, bytes(frame.payload))
                if meta.get("error") == "invalid":
                    raise wire.Refused(f"store: {connection} asked for {ask!r:.80}: {meta['why']}")
                if meta.get("error") == "refused":
                    _log.warning("store: %s: %s", connection, meta["why"])
                if ask["do"] == "join" and "error" not in meta:
                    joined.add(ask["name"])
                connection.send(ANSWER if "error" not in meta else ERROR, meta, payload)
        finally:
            for name in joined:
                self._end(name, connection)

    def _answer(self, handler: _Handler, ask: _Ask, payload: bytes) -> Answer:
        try:
            _text(ask["token"])
            with self._changed:
                if not self.leads and ask["do"] != "where":
                    raise Elsewhere
                return handler(self, ask, payload)
        except Elsewhere:
            return {"error": "elsewhere"}, b""
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            return {"error": "invalid", "why": f"{error!r:.200}"}, b""

    # ---- members ----

    def _end(self, name: str, connection: wire.Connection) -> None:
        """Handle the end of a member's connection."""
        with self._changed:
            token = self._pulse.end(name, connection)
            if token is None or self._closed:
                return
            if self._replication is not None:  # it may connect again
                self._watched.notify()
            else:
                self._execute({"do": "lose", "name": name, "of": token, "why": BROKE})

    def _watch(self) -> None:
        every = _WATCH if self._replication is None else _WATCH_REPLICAS
        looked = time.monotonic()
        with self._changed:
            while not self._closed:
                self._watched.wait(every)
                now = time.monotonic()
                self._forgive(now - looked - every)
                looked = now
                if self.leads:
                    self._lose(list(self._pulse.lost(self._state.roll.present())))

    def _lose(self, lost: list[tuple[Member, str]]) -> None:
        try:
            for member, why in lost:
                self._execute({"do": "lose", "name": member.name, "of": member.token, "why": why})
        except Elsewhere:
            pass  # the next leader finds out by itself

    def _forgive(self, seconds: float) -> None:
        """Ignore the silence of members while this process itself did not run."""
        if seconds < BEAT:
            return
        self._pulse.forgive(seconds)
        if seconds > 5.0:
            _log.warning("store: this process was stopped or did not run for %.0f s: keeping all members", seconds)

    # ---- requests; the lock is held ----

    def _await(self, ready: Callable[[], bool], ask: _Ask) -> bool:
        """Wait until the client's timeout expires or it disconnects."""
        deadline = time.monotonic() + max(0.0, min(float(ask["timeout"]), 86400.0))
        while not self._changed.wait_for(
            lambda: ready() or self._closed or not self.leads,
            timeout=max(0.0, min(_LOOK, deadline - time.monotonic())),
        ):
            if time.monotonic() >= deadline or ask.is_over():
                return False
        if not self.leads:
            raise Elsewhere
        return True

    def _set(self, ask: _Ask, payload: bytes) -> Answer:
        return self._request(ask, payload, key=_text(ask["key"]))

    def _get(self, ask: _Ask, _: bytes) -> Answer:
        key = _text(ask["key"])
        self._await(lambda: key in self._state.values, ask)
        value = self._state.values.get(key)
        return self._read({"error": "timeout"}) if value is None else self._read({}, value)

    def _add(self, ask: _Ask, _: bytes) -> Answer:
        return self._request(ask, key=_text(ask["key"]), amount=int(ask["amount"]))

    def _swap(self, ask: _Ask, payload: bytes) -> Answer:
        return self._request(ask, payload, key=_text(ask["key"]), expected=_text(ask["expected"]))

    def _wait(self, ask: _Ask, _: bytes) -> Answer:
        keys = {_text(key) for key in ask["keys"]}
        if len(keys) > _WAIT_KEYS:
            raise ValueError(f"expected at most {_WAIT_KEYS} keys in a wait, received {len(keys)}")
        if not self._await(self._state.values.wait_for(keys), ask):
            return self._read({"error": "timeout", "missing": self._state.values.lacking(keys)[:8]})
        return self._read({})

    def _check(self, ask: _Ask, _: bytes) -> Answer:
        return self._read({"there": all(_text(key) in self._state.values for key in ask["keys"])})

    def _delete(self, ask: _Ask, _: bytes) -> Answer:
        return self._request(ask, key=_text(ask["key"]))

    def _count(self, ask: _Ask, _: bytes) -> Answer:
        return self._read({"count": len(self._state.values)})

    def _join(self, ask: _Ask, _: bytes) -> Answer:
        name, host, pid = _name(ask["name"]), _name(ask["host"]), int(ask["pid"])
        before = self._state.roll.all().get(name)
        if before is None or before.token != ask["token"] or before.state != "here":
            meta, _ = self._request(ask, name=name, host=host, pid=pid)
            if "error" in meta:
                return meta, b""
        self._pulse.beat(self._me(ask), ask.connection)
        return {"silence": self._pulse.silence}, b""

    def _beat(self, ask: _Ask, _: bytes) -> Answer:
        me = self._me(ask)
        self._pulse.beat(me, ask.connection)
        back = [me, *map(self._state.roll.named, self._pulse.note(me, ask.get("running", ())))]
        for member in back:
            if member.is_silent:
                self._execute({"do": "come back", "name": member.name, "of": member.token})
        look = self._pulse.look(me, self._state.roll.all())
        known, limit = ask.get("news"), time.monotonic() + BEAT
        while not self._has_news.wait_for(
            lambda: self._state.news != known or self._closed or not self.leads, timeout=_LOOK_AT_MEMBERS
        ):
            if time.monotonic() > limit or ask.is_over():  # a member that has died is noticed by its connection
                break
        if not self.leads:
            raise Elsewhere
        calls = int(self._state.values.get(CALLS) or b"0")
        told = {"gone": self._state.roll.gone(), "look": look, "news": self._state.news, "calls": calls}
        return {**told, "stores": self._stores()}, b""

    def _me(self, ask: _Ask) -> Member:
        return self._state.roll.speaker(_text(ask["name"]), ask["token"])

    def _leave(self, ask: _Ask, _: bytes) -> Answer:
        return self._request(ask, name=self._me(ask).name)

    def _roster(self, ask: _Ask, _: bytes) -> Answer:
        members = self._state.roll.all()
        return self._read({"members": {name: m.told(self._pulse.silent(m)) for name, m in members.items()}})

    def _report_gone(self, ask: _Ask, _: bytes) -> Answer:
        name, why = _name(ask["name"]), wire.printable(_text(ask["why"])[:KEY_LIMIT])
        return self._request(ask, name=name, host=socket.gethostname(), why=why)

    # ---- requests about replicas ----

    def _where(self, ask: _Ask, _: bytes) -> Answer:
        if self.leads:
            return {"leads": True, "stores": self._stores()}, b""
        assert self._replication is not None
        return {"leads": False, "leader": self._replication.leader}, b""

    def _stores(self) -> list[str]:
        """Return the addresses of all replicas."""
        return list(self._state.replicas.values()) or [self.address]

    def _offer(self, ask: _Ask, _: bytes) -> Answer:
        if self._replication is None:
            return {"error": "refused", "why": "this store is kept by one process only"}, b""
        address = _name(ask["address"])
        wire.split_address(address)
        return self._request(ask, replica=replica_name(ask["replica"]), address=address)

    def _withdraw(self, ask: _Ask, _: bytes) -> Answer:
        if self._replication is None:
            return {}, b""
        name = replica_name(ask["replica"])
        answer = self._request(ask, replica=name)
        limit = time.monotonic() + _RETIRE
        while self._replication.is_voter(name) and self._state.replicas and time.monotonic() < limit:
            self._changed.wait(0.05)
            if not self.leads:
                raise Elsewhere
        return answer


_Handler = Callable[[StoreServer, _Ask, bytes], Answer]
_HANDLERS: dict[str, _Handler] = {
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
    "where": StoreServer._where,
    "offer": StoreServer._offer,
    "withdraw": StoreServer._withdraw,
}


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
