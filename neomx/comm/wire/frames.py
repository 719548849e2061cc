"""Frames on a connection: a fixed header, a small JSON object, and a payload that goes from memory to memory."""

from __future__ import annotations

import hmac
import json
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .addresses import shut
from .authentication import TAG, Direction, Mac
from .errors import Closed, Refused, TimedOut, printable
from .timeouts import silence

HEADER = struct.Struct("<4sBxxxIQ")
_MAGIC = b"NMX2"
_META_LIMIT = 1 << 22
_SMALL_PAYLOAD = 1 << 26  # bytes that a receiver accepts without having been asked where to put them
_PIECE = 1 << 18  # bytes of a payload that are authenticated while they are in the cache
_NAME = 80  # characters of a peer's name that are shown
_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # poll reports errors as well, unasked

Into = Callable[[int, Any, int], memoryview]


@dataclass(slots=True)
class Frame:
    """What a peer said."""

    kind: int
    meta: Any
    payload: memoryview


def as_bytes(buffer: Any) -> memoryview:
    """The memory of a contiguous CPU tensor, or of any buffer, as bytes."""
    if hasattr(buffer, "detach"):
        import torch  # here, for the launcher sends no tensors, and starts sooner without it

        return memoryview(buffer.detach().reshape(-1).view(torch.uint8).numpy())
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


class Connection:
    """Frames to and from one peer. Sending and receiving may be done by two threads at once."""

    def __init__(self, sock: socket.socket, address: str = ""):
        sock.setblocking(False)
        self._sock = sock
        self._sending = threading.Lock()
        self._tls = threading.Lock() if isinstance(sock, ssl.SSLSocket) else None
        self.address = address
        self.peer: dict[str, Any] = {}
        self.stall = 2 * silence()  # seconds without one more byte in the middle of a frame
        self.deadline: float | None = None  # of the greeting
        self._copy = memoryview(bytearray())
        self._out: Direction | None = None
        self._in: Direction | None = None

    def secure(self, out: Direction, into: Direction) -> None:
        """Authenticate all frames from now on."""
        self._out, self._in = out, into
        self._copy = memoryview(bytearray(_PIECE))

    def fileno(self) -> int:
        """The descriptor, for select."""
        return self._sock.fileno()

    def send(self, kind: int, meta: Any = None, *buffers: Any) -> None:
        """Send a frame; tensors and other buffers go out of their own memory, one after the other."""
        parts = [as_bytes(buffer) for buffer in buffers]
        said = b"" if meta is None else json.dumps(meta, separators=(",", ":")).encode()
        size = sum(part.nbytes for part in parts)
        head = HEADER.pack(_MAGIC, kind, len(said), size)
        with self._sending:
            assert self._out is not None, "no frame goes out before the greeting is over"
            tag = self._out.tag(head, said)
            mac = self._out.payload() if size else None
            start = memoryview(head + tag + said)
            if mac is None:
                self.write([start, *(part for part in parts if part.nbytes)])
            else:
                self._write_signed(start, parts, mac)

    def receive(self, into: Into | None = None, timeout: float | None = None) -> Frame:
        """The next frame. `into(kind, meta, nbytes)` gives the memory for its payload, or raises Refused.

        `timeout` limits the wait for its beginning; a peer that falls silent within a frame has lost its connection.
        """
        assert self._in is not None, "no frame comes in before the greeting is over"
        start = bytearray(HEADER.size + TAG)
        self.read(memoryview(start), timeout)
        head, tag = start[: HEADER.size], start[HEADER.size :]
        magic, kind, said, size = HEADER.unpack(head)
        if magic != _MAGIC or said > _META_LIMIT:
            raise Refused(f"{self}: what came is no frame: it begins with {bytes(head)!r}")
        words = bytearray(said)
        self._read_on(memoryview(words))
        self._verify(tag, self._in.tag(head, words))
        meta = self._parse(words) if said else None
        if into is not None:
            memory = into(kind, meta, size)
            if memory.nbytes != size:
                raise Refused(f"{self}: a frame brings {size} bytes, expected {memory.nbytes}")
        elif size > _SMALL_PAYLOAD:
            raise Refused(f"{self}: a frame claims {size} bytes, more than the {_SMALL_PAYLOAD} that are taken here")
        else:
            memory = memoryview(bytearray(size))
        mac = self._in.payload() if size else None
        self._read_on(memory, mac)
        if mac is not None:
            self._read_on(memoryview(tag))
            self._verify(tag, mac.digest()[:TAG])
        return Frame(kind, meta, memory)

    def _verify(self, tag: bytearray, expected: bytes) -> None:
        if not hmac.compare_digest(tag, expected):
            raise Refused(f"{self}: a frame was changed, repeated or left out on its way: its authentication fails")

    def _parse(self, words: bytearray) -> Any:
        try:
            return json.loads(words)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{self}: a frame without sense: {error}") from None

    def close(self) -> None:
        """Close it; who waits for it, here or there, sees Closed."""
        shut(self._sock)

    def has_ended(self) -> bool:
        """Whether the peer has closed the connection, or it is lost; what came before may still be read."""
        try:
            poll = select.poll()
            poll.register(self._sock, _HUNG_UP)
            return bool(poll.poll(0))
        except (OSError, ValueError):  # closed by another thread
            return True

    def __str__(self) -> str:
        who = printable(str(self.peer.get("name") or "a peer")[:_NAME])
        return f"{who} at {self.address}" if self.address else who

    # ---- bytes ----

    def read(self, memory: memoryview, timeout: float | None) -> None:
        """Fill the memory. If no first byte arrives within `timeout`, raise TimedOut; a later read may follow."""
        if memory.nbytes:
            got = self._receive_some(memory, timeout)
            self._read_on(memory[got:])

    def _read_on(self, memory: memoryview, mac: Mac | None = None) -> None:
        """Fill the memory with what must follow."""
        at, size = 0, memory.nbytes
        try:
            while at < size:
                got = self._receive_some(memory[at : at + _PIECE], self.stall)
                if mac is not None:
                    mac.update(memory[at : at + got])
                at += got
        except TimedOut as error:
            raise Closed(f"{error} in the middle of a frame: its connection is given up") from None

    def _receive_some(self, memory: memoryview, timeout: float | None) -> int:
        while (got := self._try(self._sock.recv_into, memory)) is None:
            self._wait(select.POLLIN, timeout)
        if not got:
            raise Closed(f"{self} closed the connection")
        return got

    def _write_signed(self, start: memoryview, parts: list[memoryview], mac: Mac) -> None:
        """Send a frame whose payload is authenticated as it leaves.

        Others may write to the memory meanwhile, as servers do without rounds: pieces are copied, so that what is
        authenticated is what is sent. They stay in the CPU's cache.
        """
        waiting, copied = [start], False
        for part in parts:
            for at in range(0, part.nbytes, _PIECE):
                if copied:
                    self.write(waiting)
                    waiting = []
                piece = self._copy[: min(_PIECE, part.nbytes - at)]
                piece[:] = part[at : at + _PIECE]
                mac.update(piece)
                waiting.append(piece)
                copied = True
        self.write([*waiting, memoryview(mac.digest()[:TAG])])

    def write(self, parts: list[memoryview]) -> None:
        """Send bytes as they are, without a frame around them."""
        while parts:
            sent = self._try(self._sock.send, parts[0]) if self._tls else self._try(self._sock.sendmsg, parts[:64])
            if sent is None:
                self._wait(select.POLLOUT, self.stall)
                continue
            while parts and sent >= parts[0].nbytes:
                sent -= parts[0].nbytes
                parts = parts[1:]
            if sent:
                parts = [parts[0][sent:], *parts[1:]]

    def _try(self, move: Callable[[Any], int], memory: Any) -> int | None:
        """How many bytes moved now; None if it must wait."""
        try:
            if self._tls is None:
                return move(memory)
            with self._tls:  # OpenSSL's state is one for both directions
                return move(memory)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (OSError, ValueError) as error:
            raise Closed(f"{self} closed the connection: {error}") from error

    def _wait(self, event: int, timeout: float | None) -> None:
        if self.deadline is not None:
            left = self.deadline - time.monotonic()
            timeout = left if timeout is None else min(timeout, left)
        try:
            poll = select.poll()
            poll.register(self._sock, event)
            ready = poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        except (OSError, ValueError) as error:  # closed by another thread
            raise Closed(f"{self}: the connection is closed") from error
        if not ready:
            what = "takes nothing" if event == select.POLLOUT else "sent nothing"
            raise TimedOut(f"{self} {what} for {timeout:.1f} s")
