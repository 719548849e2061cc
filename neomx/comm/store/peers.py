"""The connections between the replicas of the store. They carry messages one way; messages may get lost."""

from __future__ import annotations

import secrets
import threading
from collections import deque
from collections.abc import Callable

from .. import listener, wire
from .messages import Invalid, Message, address_of, decode, encode, replica_name

SERVICE = "the replicas of the job's store"
_IDLE = 10.0  # seconds without a message after which a connection is closed
_DIAL = 1.0  # seconds to connect
_PAUSE = 0.2  # seconds until the next attempt
_STALL = 3.0  # seconds without progress after which a connection is broken
_WAITING = 1 << 24  # bytes that may wait for a connection; further messages are dropped
_LARGEST = 1 << 27  # bytes of one message


class Peers:
    """Sends messages to other replicas, and passes on what they send."""

    def __init__(
        self,
        host: str,
        secret: bytes,
        tls: str | None,
        heard: Callable[[str, Message], None],
        broke: Callable[[str], None],
        refused: Callable[[wire.WireError], None],
    ):
        """Listen on a free port. `heard(name, message)` gets all messages; it raises Invalid to refuse one.

        `broke(name)` is called when the connection from another replica ended.
        """
        self._listening = wire.listen(host)
        port = self._listening.getsockname()[1]
        self.name = f"{secrets.token_hex(8)}@{wire.join_address(host, port)}"
        self._secret, self._tls = secret, tls
        self._heard, self._broke, self._refused = heard, broke, refused
        self._lines: dict[str, _Line] = {}
        self._guard = threading.Lock()
        self._stop: Callable[[], None] | None = None

    def start(self) -> None:
        """Start listening."""
        self._stop = listener.serve(self._listening, self._secret, self._tls, self._talk, self._refused, SERVICE)

    def close(self) -> None:
        """End all connections."""
        with self._guard:
            lines, self._lines = list(self._lines.values()), {}
        for line in lines:
            line.close()
        if self._stop is None:
            self._listening.close()
        else:
            self._stop()

    def send(self, name: str, message: Message) -> None:
        """Send a message soon, or drop it. Does not block."""
        with self._guard:
            line = self._lines.get(name)
            if line is None or not line.post(message):
                line = self._lines[name] = _Line(name, self._dial)
                line.post(message)

    def _dial(self, name: str) -> wire.Connection:
        hello = {"name": "a replica of the store", "replica": self.name, "to": name}
        connection = wire.connect(address_of(name), self._secret, hello, self._tls, _DIAL, SERVICE, retries=False)
        connection.stall = _STALL
        connection.expect_progress(_STALL)
        return connection

    def _talk(self, connection: wire.Connection) -> None:
        try:
            name = replica_name(connection.peer.get("replica"))
        except (TypeError, ValueError) as error:
            raise wire.Refused(f"store: {connection} is no replica: {error}") from error
        if connection.peer.get("to") != self.name:  # a process that listened here before, under another name
            raise wire.Closed(f"{connection} looks for another replica")
        try:
            while True:
                frame = connection.receive(lambda kind, meta, size: _memory(connection, size))
                self._heard(name, decode(frame.kind, frame.meta, bytes(frame.payload)))
        except Invalid as error:
            raise wire.Refused(f"store: {connection}: {error}") from error
        finally:
            self._broke(name)


def _memory(connection: wire.Connection, size: int) -> memoryview:
    if size > _LARGEST:
        raise wire.Refused(f"{connection}: a message claims {size} bytes, expected at most {_LARGEST}")
    return memoryview(bytearray(size))


class _Line:
    """A connection to one replica, with its thread."""

    def __init__(self, name: str, dial: Callable[[str], wire.Connection]):
        self._name, self._dial = name, dial
        self._queue: deque[tuple[int, list[object], list[bytes]]] = deque()
        self._size = 0  # bytes of these
        self._changed = threading.Condition()
        self._connection: wire.Connection | None = None
        self._over = False
        threading.Thread(target=self._run, daemon=True, name="replica").start()

    def post(self, message: Message) -> bool:
        """Send a message. Return False if this line has ended, so that another one is needed."""
        encoded = encode(message)
        with self._changed:
            if self._over:
                return False
            if self._size < _WAITING:
                self._queue.append(encoded)
                self._size += sum(map(len, encoded[2])) + 100
                self._changed.notify()
            return True

    def close(self) -> None:
        """End the connection."""
        with self._changed:
            self._over = True
            connection = self._connection
            self._changed.notify()
        if connection is not None:
            connection.close()

    def _run(self) -> None:
        while (message := self._next()) is not None:
            try:
                if self._connection is None:
                    self._keep(self._dial(self._name))
                assert self._connection is not None
                self._connection.send(message[0], message[1], *message[2])
            except wire.WireError:
                self._drop()
        if self._connection is not None:
            self._connection.close()

    def _next(self) -> tuple[int, list[object], list[bytes]] | None:
        with self._changed:
            if not self._changed.wait_for(lambda: self._queue or self._over, timeout=_IDLE):
                self._over = True
            if self._over:
                return None
            message = self._queue.popleft()
            self._size -= sum(map(len, message[2])) + 100
            return message

    def _keep(self, connection: wire.Connection) -> None:
        with self._changed:
            self._connection = connection
            if self._over:
                connection.close()

    def _drop(self) -> None:
        """Drop the connection and the messages that wait for it; those that follow need a new one."""
        with self._changed:
            connection, self._connection = self._connection, None
            self._changed.wait_for(lambda: self._over, timeout=_PAUSE)
            self._queue.clear()
            self._size = 0
        if connection is not None:
            connection.close()
