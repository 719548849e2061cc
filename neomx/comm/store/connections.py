"""A client's connections to the process that leads the store."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from .. import wire
from .protocol import ANSWER, ASK, SERVICE

_AT_ONCE = 16  # maximum connections that are kept for reuse
_SUSPECT = 1.0  # seconds without an answer after which the other processes are asked whether they lead
_ASKING = 1.0  # seconds for one of them to answer
_PAUSE = 0.05  # seconds until all are asked again


class Moved(wire.WireError):
    """Another process leads the store now."""


class Connections:
    """Connections to the store. If several processes keep it, they find the one that leads."""

    def __init__(self, addresses: str, secret: bytes, tls: str | None, hello: dict[str, Any]):
        """`addresses` are those of the processes that keep the store, with commas between them; usually one."""
        self._stores = addresses.split(",")
        self.address = self._stores[0]  # of the process that leads
        self.hello = hello
        self._secret, self._tls = secret, tls
        self._free: list[wire.Connection] = []
        self._used: set[wire.Connection] = set()
        self._is_closed = False
        self._guard = threading.Lock()
        self._seeking = threading.Lock()
        self._heard = 0.0  # when the leader last answered

    @property
    def has_others(self) -> bool:
        """Whether several processes keep the store."""
        return len(self._stores) > 1

    def learn(self, stores: Collection[str]) -> None:
        """Note which processes keep the store now."""
        if stores:
            self._stores = list(stores)

    # ---- requests ----

    def dial(self, timeout: float) -> wire.Connection:
        """Open a connection to the leader."""
        if self.has_others:  # an address that does not answer is not tried again before the others
            return wire.connect(
                self.address, self._secret, self.hello, self._tls, min(timeout, _ASKING), SERVICE, retries=False
            )
        return wire.connect(self.address, self._secret, self.hello, self._tls, timeout, SERVICE)

    @contextmanager
    def one(self, timeout: float) -> Iterator[wire.Connection]:
        """A connection for a request and its answer. After an error it is closed, otherwise kept for reuse."""
        with self._guard:
            connection = self._free.pop() if self._free else None
        if connection is None:
            connection = self.dial(timeout)
        with self._guard:
            self._used.add(connection)
        keep = False
        try:
            yield connection
            keep = True
        finally:
            with self._guard:
                self._used.discard(connection)
                keep = keep and not self._is_closed and len(self._free) < _AT_ONCE
                keep = keep and connection.address == self.address
                if keep:
                    self._free.append(connection)
            if not keep:
                connection.close()

    def receive(self, connection: wire.Connection, timeout: float) -> wire.Frame:
        """Receive an answer. Raises Moved if another process leads the store meanwhile."""
        deadline = time.monotonic() + timeout
        while self.has_others and deadline - time.monotonic() > _SUSPECT:
            with suppress(wire.TimedOut):
                frame = connection.receive(timeout=_SUSPECT)
                self._heard = time.monotonic()
                return frame
            self._doubt(connection.address)
        return connection.receive(timeout=max(0.0, deadline - time.monotonic()))

    def close(self) -> None:
        """Close the connections that are not in use now, and others after their answers."""
        self._is_closed = True
        self.drop()

    def drop(self) -> None:
        """Close the connections that are not in use."""
        with self._guard:
            free, self._free = self._free, []
        for connection in free:
            connection.close()

    # ---- the leader ----

    def find(self, limit: float, failed: str = "") -> bool:
        """Find the process that leads, after a request to `failed` did not succeed. Return False after `limit`.

        `limit` is a time of time.monotonic().
        """
        with self._seeking:
            if failed and self.address != failed:  # another thread has found it
                return True
            while True:
                leader = self._look([*(store for store in self._stores if store != failed), *filter(None, [failed])])
                if leader is not None:
                    self._follow(leader)
                    return True
                if time.monotonic() + _PAUSE > limit:
                    return False
                time.sleep(_PAUSE)

    def _doubt(self, address: str) -> None:
        """Look for another leader, unless the one at `address` answered somebody recently. Raises Moved."""
        with self._seeking:
            if self.address == address and time.monotonic() - self._heard > _SUSPECT:
                self._heard = time.monotonic()
                leader = self._look([store for store in self._stores if store != address])
                if leader is not None:
                    self._follow(leader)
        if self.address != address:
            raise Moved(f"the process at {address} does not lead the job's store any more")

    def _look(self, stores: list[str]) -> str | None:
        """Return the first of the addresses whose process says that it leads, or the one to which others point."""
        asked = set()
        while stores:
            address = stores.pop(0)
            if address in asked:
                continue
            asked.add(address)
            with suppress(wire.WireError):
                told = self._where(address)
                if told["leads"]:
                    self.learn(told["stores"])
                    return address
                if told["leader"] is not None:
                    stores.insert(0, told["leader"])
        return None

    def _where(self, address: str) -> dict[str, Any]:
        connection = wire.connect(address, self._secret, self.hello, self._tls, _ASKING, SERVICE, retries=False)
        try:
            connection.send(ASK, {"do": "where"})
            frame = connection.receive(timeout=_ASKING)
        finally:
            connection.close()
        if frame.kind != ANSWER:
            raise wire.Refused(f"the process at {address} did not say who leads the job's store")
        return dict(frame.meta)

    def _follow(self, leader: str) -> None:
        """Use another process from now on. Requests that wait for the one before are repeated by their threads."""
        with self._guard:
            self.address = leader
            left = [connection for connection in (*self._free, *self._used) if connection.address != leader]
            self._free = [connection for connection in self._free if connection.address == leader]
        for connection in left:
            connection.close()
