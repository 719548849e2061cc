"""Frames between processes that hold the same secret.

A connection begins with a proof on both sides that the job's secret is known; until then exactly 72 bytes of a peer are
read. After it come frames: a fixed header, a small JSON object, and a payload that goes from memory to memory. Nothing
is ever unpickled. With TLS the certificate of the job is the only one that is trusted.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..base import MXNetError

_HEADER = struct.Struct("<4sBxxxIQ")
_MAGIC = b"NMX1"
_GREETING = b"NEOMX/1\n"
_NONCE = 32
_META_LIMIT = 1 << 22
_SMALL_PAYLOAD = 1 << 26  # what a receiver takes without having been asked where to put it
_STALL = 30.0  # seconds without one more byte in the middle of a frame
HELLO = 0

Into = Callable[[int, Any, int], memoryview]


class WireError(MXNetError):
    """Something is wrong with a connection or with what came through it."""


class Closed(WireError):
    """The peer closed the connection, or died."""


class TimedOut(WireError):
    """The peer said nothing in time."""


class Refused(WireError):
    """The peer sent what must not be: its connection is to be closed."""


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


def split_address(address: str) -> tuple[str, int]:
    """'host:port' as a pair."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise ValueError(f"an address is host:port, received {address!r}")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """A pair as 'host:port'."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach that address."""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A socket that waits for connections on that address; on a free port if not told."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        raise WireError(
            f"cannot listen on {join_address(host, port)}: {error.strerror or error}. Choose another port (0 takes a "
            "free one), or an address of this machine"
        ) from error


class Connection:
    """Frames to and from one peer. Sending and receiving may be done by two threads at once."""

    def __init__(self, sock: socket.socket, address: str = ""):
        sock.setblocking(False)
        self._sock = sock
        self._sending = threading.Lock()
        self._tls = threading.Lock() if isinstance(sock, ssl.SSLSocket) else None
        self.address = address
        self.peer: dict[str, Any] = {}
        self.stall = _STALL

    def fileno(self) -> int:
        """The descriptor, for select."""
        return self._sock.fileno()

    def send(self, kind: int, meta: Any = None, *buffers: Any) -> None:
        """Send a frame; tensors and other buffers go out of their own memory, one after the other."""
        parts = [as_bytes(buffer) for buffer in buffers]
        said = b"" if meta is None else json.dumps(meta, separators=(",", ":")).encode()
        size = sum(part.nbytes for part in parts)
        head = _HEADER.pack(_MAGIC, kind, len(said), size)
        with self._sending:
            self._write([memoryview(head + said), *(part for part in parts if part.nbytes)])

    def receive(self, into: Into | None = None, timeout: float | None = None) -> Frame:
        """The next frame. `into(kind, meta, nbytes)` gives the memory for its payload, or raises Refused.

        `timeout` limits the wait for its beginning; within a frame a peer that falls silent is given up sooner.
        """
        head = bytearray(_HEADER.size)
        self._read(memoryview(head), timeout)
        magic, kind, said, size = _HEADER.unpack(head)
        if magic != _MAGIC or said > _META_LIMIT:
            raise Refused(f"{self}: what came is no frame: it begins with {bytes(head)!r}")
        meta = self._read_meta(said) if said else None
        if into is not None:
            memory = into(kind, meta, size)
            if memory.nbytes != size:
                raise Refused(f"{self}: a frame brings {size} bytes, expected {memory.nbytes}")
        elif size > _SMALL_PAYLOAD:
            raise Refused(f"{self}: a frame claims {size} bytes, more than the {_SMALL_PAYLOAD} that are taken here")
        else:
            memory = memoryview(bytearray(size))
        if size:
            self._read(memory, self.stall)
        return Frame(kind, meta, memory)

    def _read_meta(self, size: int) -> Any:
        data = bytearray(size)
        self._read(memoryview(data), self.stall)
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise Refused(f"{self}: a frame without sense: {error}") from None

    def close(self) -> None:
        """Close it; who waits for it, here or there, sees Closed."""
        _shut(self._sock)

    def __str__(self) -> str:
        who = self.peer.get("name", "a peer")
        return f"{who} at {self.address}" if self.address else str(who)

    # ---- bytes ----

    def _read(self, memory: memoryview, timeout: float | None) -> None:
        at, size = 0, memory.nbytes
        while at < size:
            got = self._try(self._sock.recv_into, memory[at:])
            if got is None:
                self._wait(select.POLLIN, timeout if at == 0 else self.stall)
            elif got == 0:
                raise Closed(f"{self} closed the connection" + (" in the middle of a frame" if at else ""))
            else:
                at += got

    def _write(self, parts: list[memoryview]) -> None:
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
        try:
            poll = select.poll()
            poll.register(self._sock, event)
            ready = poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        except (OSError, ValueError) as error:  # closed by another thread
            raise Closed(f"{self}: the connection is closed") from error
        if not ready:
            raise TimedOut(f"{self} sent nothing for {timeout:.1f} s")


# ---- the proof ----


def _proof(secret: bytes, role: bytes, *nonces: bytes) -> bytes:
    return hmac.digest(secret, role + b"".join(nonces), "sha256")


def accept(sock: socket.socket, secret: bytes, tls: str | None = None, timeout: float = 5.0) -> Connection:
    """The listening side of a new connection: a peer that does not prove it holds the secret is Refused."""
    try:
        where = join_address(*sock.getpeername()[:2])
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(timeout)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls)
            sock = context.wrap_socket(sock, server_side=True)
        connection = Connection(sock, where)
        connection.stall = timeout
        nonce = os.urandom(_NONCE)
        connection._write([memoryview(_GREETING + nonce)])
        answer = bytearray(len(_GREETING) + 2 * _NONCE)
        connection._read(memoryview(answer), timeout)
        theirs, proof = bytes(answer[len(_GREETING) :][:_NONCE]), bytes(answer[-_NONCE:])
        if not hmac.compare_digest(proof, _proof(secret, b"caller", nonce, theirs)):
            raise Refused(f"a peer at {where} does not hold the job's secret")
        connection._write([memoryview(_proof(secret, b"called", theirs, nonce))])
        hello = connection.receive(timeout=timeout)
        if hello.kind != HELLO or not isinstance(hello.meta, dict):
            raise Refused(f"a peer at {where} did not say who it is")
        connection.peer, connection.stall = hello.meta, _STALL
        return connection
    except (OSError, WireError) as error:
        sock.close()
        if isinstance(error, WireError):
            raise
        raise Refused(f"a peer failed to connect: {error}") from error


def connect(
    address: str, secret: bytes, hello: dict[str, Any], tls: str | None = None, timeout: float = 30.0
) -> Connection:
    """A connection to who listens there; tried again until `timeout`, for it may come up a little later."""
    deadline = time.monotonic() + timeout
    pause = 0.02
    while True:
        left = max(0.1, deadline - time.monotonic())
        try:
            return _connect(address, secret, hello, tls, min(left, 10.0))
        except OSError as error:
            if time.monotonic() + pause > deadline:
                raise WireError(
                    f"cannot connect to {address} within {timeout:.0f} s: {error}. Is the process there alive, and the "
                    "port not closed by a firewall?"
                ) from error
        time.sleep(pause)
        pause = min(pause * 1.5, 0.5)


def _connect(address: str, secret: bytes, hello: dict[str, Any], tls: str | None, timeout: float) -> Connection:
    sock = socket.create_connection(split_address(address), timeout)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False  # the certificate is this job's own, and no other is trusted
            context.load_verify_locations(tls)
            try:
                sock = context.wrap_socket(sock)
            except ssl.SSLError as error:
                raise WireError(f"{address} does not speak TLS with the job's certificate: {error}") from error
        connection = Connection(sock, address)
        greeting = bytearray(len(_GREETING) + _NONCE)
        connection._read(memoryview(greeting), timeout)
        if not greeting.startswith(_GREETING):
            raise WireError(f"what listens at {address} is not this job: it began with {bytes(greeting[:16])!r}")
        theirs, mine = bytes(greeting[len(_GREETING) :]), os.urandom(_NONCE)
        connection._write([memoryview(_GREETING + mine + _proof(secret, b"caller", theirs, mine))])
        proof = bytearray(_NONCE)
        try:
            connection._read(memoryview(proof), timeout)
        except Closed as error:
            raise WireError(f"{address} refused the connection: this process does not hold its job's secret") from error
        if not hmac.compare_digest(bytes(proof), _proof(secret, b"called", mine, theirs)):
            raise WireError(f"what listens at {address} does not hold the job's secret")
        connection.send(HELLO, hello)
        return connection
    except BaseException:
        sock.close()
        raise


def serve(
    listening: socket.socket,
    secret: bytes,
    tls: str | None,
    handle: Callable[[Connection], None],
    refused: Callable[[WireError], None],
) -> Callable[[], None]:
    """Call `handle(connection)`, in a thread of its own, for each peer that holds the secret.

    What is wrong with a peer is given to `refused` and ends its connection only. Returns the way to stop it.
    """
    open_now: set[Connection] = set()
    guard = threading.Lock()
    stopped = threading.Event()

    def one(sock: socket.socket) -> None:
        connection = None
        try:
            connection = accept(sock, secret, tls)
            with guard:
                open_now.add(connection)
            if not stopped.is_set():  # else `stop` did not see this one
                handle(connection)
        except Closed:
            pass  # a peer may go; whoever counts on it has seen it
        except WireError as error:
            refused(error)
        finally:
            if connection is not None:
                with guard:
                    open_now.discard(connection)
                connection.close()

    def loop() -> None:
        while True:
            try:
                sock, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=one, args=(sock,), daemon=True).start()

    threading.Thread(target=loop, daemon=True, name="accept").start()

    def stop() -> None:
        stopped.set()
        _shut(listening)
        with guard:
            left: Iterable[Connection] = list(open_now)
        for connection in left:
            connection.close()

    return stop


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)  # wakes who waits for it
    sock.close()
