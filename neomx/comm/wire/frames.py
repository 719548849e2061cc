"""Frames of a connection: a fixed header, a small JSON object, and a payload that is copied from memory to memory."""

from __future__ import annotations

import contextlib
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
_SMALL_PAYLOAD = 1 << 26  # maximum bytes of a payload without an `into` callback
_PIECE = 1 << 18  # bytes of a payload that are authenticated while in the cache
_NAME = 80  # maximum characters of a peer's name in messages
_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # poll reports errors even if not requested

Into = Callable[[int, Any, int], memoryview]


@dataclass(slots=True)
class Frame:
    """A received frame."""

    kind: int
    meta: Any
    payload: memoryview


def as_bytes(buffer: Any) -> memoryview:
    """Return the memory of a contiguous CPU tensor, or of any buffer, as bytes."""
    if hasattr(buffer, "detach"):
        import torch  # imported here: the launcher sends no tensors and starts faster without torch

        return memoryview(buffer.detach().reshape(-1).view(torch.uint8).numpy())
    view = memoryview(buffer)
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


class Connection:
    """Frames to and from one peer. One thread may send while another receives."""

    def __init__(self, sock: socket.socket, address: str = ""):
        try:
            sock.setblocking(False)
        except OSError as error:
            raise Closed(f"the connection to {address} is closed") from error
        self._sock = sock
        self._sending = threading.Lock()
        self._tls = threading.Lock() if isinstance(sock, ssl.SSLSocket) else None
        self.address = address
        self.peer: dict[str, Any] = {}
        self.stall = 2 * silence()  # seconds without progress in the middle of a frame
        self.deadline: float | None = None  # of the greeting
        self._copy = memoryview(bytearray())
        self._out: Direction | None = None
        self._in: Direction | None = None

    def secure(self, out: Direction, into: Direction) -> None:
        """Authenticate all frames from now on."""
        self._out, self._in = out, into
        self._copy = memoryview(bytearray(_PIECE))

    def fileno(self) -> int:
        """Return the descriptor, for select."""
        return self._sock.fileno()

    def expect_progress(self, seconds: float) -> None:
        """Close the connection if the peer's host confirms no data for so long, as if the peer had closed it."""
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
            with contextlib.suppress(OSError):  # closed already
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * seconds))

    def send(self, kind: int, meta: Any = None, *buffers: Any) -> None:
        """Send a frame. Tensors and other buffers are sent directly from their memory, one after the other."""
        parts = [as_bytes(buffer) for buffer in buffers]
        said = b"" if meta is None else json.dumps(meta, separators=(",", ":")).encode()
        size = sum(part.nbytes for part in parts)
        head = HEADER.pack(_MAGIC, kind, len(said), size)
        with self._sending:
            assert self._out is not None, "cannot send a frame before the greeting"
            tag = self._out.tag(head, said)
            mac = self._out.payload() if size else None
            start = memoryview(head + tag + said)
            if mac is None:
                self.write([start, *(part for part in parts if part.nbytes)])
            else:
                self._write_signed(start, parts, mac)

    def receive(self, into: Into | None = None, timeout: float | None = None) -> Frame:
        """Receive the next frame. `into(kind, meta, nbytes)` returns the memory for its payload, or raises Refused.

        `timeout` limits the wait for its first byte. A peer that stops within a frame loses its connection.
        """
        assert self._in is not None, "cannot receive a frame before the greeting"
        start = bytearray(HEADER.size + TAG)
        self.read(memoryview(start), timeout)
        head, tag = start[: HEADER.size], start[HEADER.size :]
        magic, kind, said, size = HEADER.unpack(head)
        if magic != _MAGIC or said > _META_LIMIT:
            raise Refused(f"{self}: received invalid data instead of a frame: it begins with {bytes(head)!r}")
        words = bytearray(said)
        self._read_on(memoryview(words))
        self._verify(tag, self._in.tag(head, words))
        meta = self._parse(words) if said else None
        if into is not None:
            memory = into(kind, meta, size)
            if memory.nbytes != size:
                raise Refused(f"{self}: a frame has {size} bytes, expected {memory.nbytes}")
        elif size > _SMALL_PAYLOAD:
            raise Refused(f"{self}: a frame claims {size} bytes, expected at most {_SMALL_PAYLOAD}")
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
            raise Refused(f"{self}: authentication failed: a frame was changed, repeated or left out in transit")

    def _parse(self, words: bytearray) -> Any:
        try:
            return json.loads(words)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{self}: a frame with invalid JSON: {error}") from None

    def close(self) -> None:
        """Close the connection. Threads that wait for it, on either side, raise Closed."""
        shut(self._sock)

    def hang_up(self) -> None:
        """End the connection of a thread that will close it: that thread raises Closed.

        Closing it here could let that thread wait for another connection, which gets the same descriptor.
        """
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def has_ended(self) -> bool:
        """Whether the connection was closed by the peer or is lost. Data received before may still be readable."""
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
        """Fill the memory. Raises TimedOut if no first byte arrives within `timeout`; the read may then be retried."""
        if memory.nbytes:
            got = self._receive_some(memory, timeout)
            self._read_on(memory[got:])

    def _read_on(self, memory: memoryview, mac: Mac | None = None) -> None:
        """Fill the memory with the rest of a frame."""
        at, size = 0, memory.nbytes
        try:
            while at < size:
                got = self._receive_some(memory[at : at + _PIECE], self.stall)
                if mac is not None:
                    mac.update(memory[at : at + got])
                at += got
        except TimedOut as error:
            raise Closed(f"{error} in the middle of a frame: closing the connection") from None

    def _receive_some(self, memory: memoryview, timeout: float | None) -> int:
        while (got := self._try(self._sock.recv_into, memory)) is None:
            self._wait(select.POLLIN, timeout)
        if not got:
            raise Closed(f"{self} closed the connection")
        return got

    def _write_signed(self, start: memoryview, parts: list[memoryview], mac: Mac) -> None:
        """Send a frame whose payload is authenticated while it is sent.

        The memory may change meanwhile, as on asynchronous servers. So pieces are copied, which makes sure that the
        authenticated bytes are the ones that are sent. The copies stay in the CPU's cache.
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
        """Send raw bytes, without a frame."""
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
        """Return how many bytes were moved, or None if it would block."""
        try:
            if self._tls is None:
                return move(memory)
            with self._tls:  # OpenSSL has one state for both directions
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
            what = "accepted no data" if event == select.POLLOUT else "sent nothing"
            raise TimedOut(f"{self} {what} for {timeout:.1f} s")
