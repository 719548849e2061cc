"""Authenticated frames between processes that hold the same secret.

A connection begins with a proof on both sides that the job's secret is known; until then exactly 73 bytes of a peer are
read. After it come frames: a fixed header, a small JSON object, and a payload that goes from memory to memory. Each is
authenticated by a key of this connection and its number, so that a relay can neither change, repeat, reorder nor
redirect frames. Nothing is ever unpickled. With TLS, only certificates that are in the job's file are trusted.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import importlib.util
import itertools
import json
import os
import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from ..base import MXNetError

_HEADER = struct.Struct("<4sBxxxIQ")
_MAGIC = b"NMX2"
_GREETING = b"NEOMX/2\n"
_REFUSAL = b"refused: this is no proof".ljust(32)  # in the place of a proof, for the caller's error message
_NONCE = 32
_ANSWER = len(_GREETING) + 1 + 2 * _NONCE  # bytes of a caller that are read before its proof is checked
_TAG = 16
_META_LIMIT = 1 << 22
_SMALL_PAYLOAD = 1 << 26  # what a receiver takes without having been asked where to put it
_PIECE = 1 << 18  # bytes of a payload that are authenticated while they are in the cache
GREETING_TIME = 10.0  # seconds for the whole greeting of a caller, TLS included
_ATTEMPT, _RETRY = 2.0, 0.2  # seconds for TCP's own greeting, which a flooded listener may miss; between two attempts
_SILENCE = 20.0
_TLS_RECORD = b"\x16\x03"  # how TLS's handshake begins
_SAME_SECRET = "--secret-file, or NEOMX_SECRET, must be the same on all hosts"
_SAME_TLS = "Give the same --tls-file to all nodes, or to none"
_NAME = 80  # characters of a peer's name that are shown
_HUNG_UP = getattr(select, "POLLRDHUP", 0)  # beside errors, of which poll tells always
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


class SettingsDiffer(WireError):
    """Both sides were started with different secrets or TLS settings: to try again is of no use."""


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


def printable(text: str) -> str:
    """What a peer said, for terminals and logs: control characters and what has no encoding are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def split_address(address: str) -> tuple[str, int]:
    """'host:port' as a pair."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ValueError(f"an address is host:port, with a port up to 65535, received {address!r:.80}")
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
        remedy = "Choose another port (0 takes a free one), or an address of this machine"
        if isinstance(error, socket.gaierror):
            remedy = "Give a host name that resolves, or an address of this machine"
        raise WireError(f"cannot listen on {join_address(host, port)}: {error.strerror or error}. {remedy}") from error


def silence(environ: Mapping[str, str] = os.environ) -> float:
    """The seconds after which a process that gives no sign of life counts as gone: NEOMX_SILENCE."""
    value = environ.get("NEOMX_SILENCE") or _SILENCE
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 1.0 < seconds < float("inf"):
        raise MXNetError(f"NEOMX_SILENCE must be a number of seconds above 1, received {value!r}")
    return seconds


# ---- authentication ----


class _Mac(Protocol):
    def update(self, data: Any, /) -> None: ...

    def digest(self) -> bytes: ...


class _Gmac:
    """AES-GCM's authentication of data that is not encrypted."""

    def __init__(self, key: bytes, number: bytes):
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes  # here: a launcher needs none

        self._cipher = Cipher(algorithms.AES(key), modes.GCM(number.rjust(12, b"\0"))).encryptor()
        self.update = self._cipher.authenticate_additional_data

    def digest(self) -> bytes:
        self._cipher.finalize()
        return bytes(self._cipher.tag)


def _hmac(key: bytes, number: bytes) -> _Mac:
    return hmac.new(key, number, "sha256")


@functools.cache
def _has_gmac() -> bool:
    return importlib.util.find_spec("cryptography") is not None


class _Direction:
    """Authenticates one direction of a connection: frames are numbered, and each number is used once."""

    def __init__(self, key: bytes, payloads: Callable[[bytes, bytes], _Mac] | None):
        self._key, self._payload_key = (hmac.digest(key, part, "sha256") for part in (b"frame", b"payload"))
        self._payloads = payloads
        self._numbers = itertools.count()
        self._number = b""

    def tag(self, head: bytes | bytearray, said: bytes | bytearray) -> bytes:
        """The tag of the next frame's header and JSON."""
        self._number = next(self._numbers).to_bytes(8, "big")
        return hashlib.blake2b(b"".join((self._number, head, said)), key=self._key, digest_size=_TAG).digest()

    def payload(self) -> _Mac | None:
        """What authenticates the payload of that frame; TLS does it already."""
        return None if self._payloads is None else self._payloads(self._payload_key, self._number)


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
        self._out: _Direction | None = None
        self._in: _Direction | None = None

    def secure(self, out: _Direction, into: _Direction) -> None:
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
        head = _HEADER.pack(_MAGIC, kind, len(said), size)
        with self._sending:
            assert self._out is not None, "no frame goes out before the greeting is over"
            tag = self._out.tag(head, said)
            mac = self._out.payload() if size else None
            start = memoryview(head + tag + said)
            if mac is None:
                self._write([start, *(part for part in parts if part.nbytes)])
            else:
                self._write_signed(start, parts, mac)

    def receive(self, into: Into | None = None, timeout: float | None = None) -> Frame:
        """The next frame. `into(kind, meta, nbytes)` gives the memory for its payload, or raises Refused.

        `timeout` limits the wait for its beginning; a peer that falls silent within a frame has lost its connection.
        """
        assert self._in is not None, "no frame comes in before the greeting is over"
        start = bytearray(_HEADER.size + _TAG)
        self._read(memoryview(start), timeout)
        head, tag = start[: _HEADER.size], start[_HEADER.size :]
        magic, kind, said, size = _HEADER.unpack(head)
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
            self._verify(tag, mac.digest()[:_TAG])
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

    def _read(self, memory: memoryview, timeout: float | None) -> None:
        """Fill the memory. After `timeout` without a first byte the connection can still be read."""
        if memory.nbytes:
            got = self._receive_some(memory, timeout)
            self._read_on(memory[got:])

    def _read_on(self, memory: memoryview, mac: _Mac | None = None) -> None:
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

    def _write_signed(self, start: memoryview, parts: list[memoryview], mac: _Mac) -> None:
        """Send a frame whose payload is authenticated as it leaves.

        Others may write to the memory meanwhile, as servers do without rounds: pieces are copied, so that what is
        authenticated is what is sent. They stay in the CPU's cache.
        """
        waiting, copied = [start], False
        for part in parts:
            for at in range(0, part.nbytes, _PIECE):
                if copied:
                    self._write(waiting)
                    waiting = []
                piece = self._copy[: min(_PIECE, part.nbytes - at)]
                piece[:] = part[at : at + _PIECE]
                mac.update(piece)
                waiting.append(piece)
                copied = True
        self._write([*waiting, memoryview(mac.digest()[:_TAG])])

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


# ---- the proof ----


@dataclass(frozen=True)
class _Greeting:
    """All that both sides of a new connection know: every proof and key follows from the secret and all of this."""

    called: bytes  # one byte for the payloads' authentication, then the nonce
    caller: bytes
    certificate: bytes  # of the called side, as each side sees it; empty without TLS
    service: str  # whom the caller means to talk to

    def proof(self, secret: bytes, role: bytes) -> bytes:
        """What only a holder of the secret can say, in that role, in this greeting."""
        seen = hashlib.sha256(self.certificate).digest()
        return hmac.digest(
            secret, b"".join((b"neomx/2 ", role, self.called, self.caller, seen, self.service.encode())), "sha256"
        )

    def directions(self, secret: bytes) -> tuple[_Direction, _Direction]:
        """From the caller, and to it."""
        best = min(self.called[0], self.caller[0])
        payloads = None if self.certificate else _Gmac if best else _hmac
        caller, called = (_Direction(self.proof(secret, role), payloads) for role in (b"caller's key", b"called's key"))
        return caller, called


def _nonce() -> bytes:
    return bytes([_has_gmac()]) + os.urandom(_NONCE)


class Guest:
    """A caller that has not proved yet that it holds the secret. Nothing here blocks until it has."""

    def __init__(self, sock: socket.socket, place: Any, secret: bytes, tls: str | None, service: str, seconds: float):
        """The caller at `place` has so many seconds for all of it."""
        self.deadline = time.monotonic() + seconds
        self.host: str = place[0]
        self.address = join_address(*place[:2])
        self._secret, self._service = secret, service
        self._certificate = _certificates(tls)[0] if tls else b""
        self._mine = b""
        self._answer = bytearray()
        try:
            sock.setblocking(False)
            self._sock = sock if tls is None else _wrap(sock, tls)
        except (OSError, ValueError) as error:  # it is gone already
            sock.close()
            raise Closed(f"a peer closed the connection: {error}") from error

    def fileno(self) -> int:
        """The descriptor, for select."""
        return self._sock.fileno()

    def advance(self) -> int:
        """Go on as far as possible now: the event of select.poll to wait for, or 0 once the secret is proved."""
        try:
            if not self._mine:
                if isinstance(self._sock, ssl.SSLSocket):
                    self._sock.do_handshake()
                self._mine = _nonce()
                self._sock.send(_GREETING + self._mine)  # a new connection has room for it
            while len(self._answer) < _ANSWER:
                piece = self._sock.recv(_ANSWER - len(self._answer))
                if not piece:
                    raise Closed(f"a peer at {self.address} closed the connection")
                self._answer += piece
                self._check_words()
        except (BlockingIOError, ssl.SSLWantReadError):
            return select.POLLIN
        except ssl.SSLWantWriteError:
            return select.POLLOUT
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise Refused(
                f"a peer at {self.address} closed the connection before TLS's handshake: does it run without TLS? "
                f"{_SAME_TLS}"
            ) from error
        except (OSError, ValueError) as error:
            raise Refused(f"a peer at {self.address} failed to connect: {error}") from error
        self._check_proof()
        return 0

    def _check_words(self) -> None:
        """Refuse noise at its first bytes."""
        if not _GREETING.startswith(self._answer[: len(_GREETING)]):
            self._refuse()

    def _check_proof(self) -> None:
        theirs, proof = bytes(self._answer[len(_GREETING) : -_NONCE]), bytes(self._answer[-_NONCE:])
        self._greeting = _Greeting(self._mine, theirs, self._certificate, self._service)
        if not hmac.compare_digest(proof, self._greeting.proof(self._secret, b"caller")):
            self._refuse()

    def _refuse(self) -> NoReturn:
        with contextlib.suppress(OSError):
            self._sock.send(_REFUSAL)
        if self._answer.startswith(_TLS_RECORD):
            raise Refused(f"a peer at {self.address} speaks TLS, and this process does not. {_SAME_TLS}")
        raise Refused(
            f"a peer at {self.address} does not hold the job's secret, or asked for another service than "
            f"{self._service}. {_SAME_SECRET}"
        )

    def welcome(self) -> Connection:
        """Prove the secret to a caller that has proved it, and hear who it is."""
        with contextlib.suppress(OSError):  # it is gone already
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self._sock, self.address)
        connection.deadline = self.deadline
        connection._write([memoryview(self._greeting.proof(self._secret, b"called"))])
        into, out = self._greeting.directions(self._secret)
        connection.secure(out, into)
        hello = connection.receive()
        if hello.kind != HELLO or not isinstance(hello.meta, dict):
            raise Refused(f"a peer at {self.address} did not say who it is")
        connection.peer, connection.deadline = hello.meta, None
        return connection

    def drop(self) -> None:
        """Close it before it has proved anything."""
        self._sock.close()

    def close(self) -> None:
        """Close it; who waits for it, here or there, sees Closed."""
        shut(self._sock)


def accept(
    sock: socket.socket, secret: bytes, tls: str | None = None, timeout: float = GREETING_TIME, service: str = ""
) -> Connection:
    """The listening side of a new connection: a peer that does not prove it holds the secret is Refused.

    The peer has `timeout` seconds for all of it.
    """
    try:
        place = sock.getpeername()
    except OSError as error:
        sock.close()
        raise Closed(f"a peer closed the connection: {error}") from error
    guest = Guest(sock, place, secret, tls, service, timeout)
    try:
        while event := guest.advance():
            poll = select.poll()
            poll.register(guest, event)
            if not poll.poll(max(0.0, guest.deadline - time.monotonic()) * 1000):
                raise TimedOut(f"a peer at {guest.address} did not prove in time that it holds the job's secret")
        return guest.welcome()
    except BaseException:
        guest.close()
        raise


@functools.cache
def _certificates(tls: str) -> list[bytes]:
    """The certificates of a PEM file; the first is that of this process."""
    with open(tls) as file:
        blocks = file.read().split("-----BEGIN CERTIFICATE-----")[1:]
    end = "-----END CERTIFICATE-----"
    found = [ssl.PEM_cert_to_DER_cert(f"-----BEGIN CERTIFICATE-----{block.partition(end)[0]}{end}") for block in blocks]
    if not found:
        raise WireError(f"{tls}: there is no certificate in it")
    return found


def check_pem(path: str) -> None:
    """Raise WireError unless a file can be used for TLS: a key and its certificate, in PEM."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    for what, mark in (("private key", "PRIVATE KEY-----"), ("certificate", "-----BEGIN CERTIFICATE-----")):
        if mark not in text:
            raise WireError(
                f"no {what} in it; it needs key and certificate in one file: cat key.pem cert.pem > job.pem"
            )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise WireError(
            f"its key does not belong to its first certificate, or one of them is damaged ({error.reason or error})"
        ) from error


def _no_password() -> str:
    raise WireError("its private key is encrypted; remove the password: openssl pkey -in key.pem -out plain.pem")


@functools.cache
def _called_context(tls: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tls)
    context.num_tickets = 0  # nobody resumes a session
    return context


def _wrap(sock: socket.socket, tls: str) -> ssl.SSLSocket:
    return _called_context(tls).wrap_socket(sock, server_side=True, do_handshake_on_connect=False)


def _wrap_caller(sock: socket.socket, tls: str, address: str) -> ssl.SSLSocket:
    """TLS with a holder of one of the file's certificates. Others of the same authority are not the job's."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # stricter: the certificate itself is compared
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(tls)
    try:
        wrapped = context.wrap_socket(sock)
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
        raise ConnectionResetError(f"{address} closed the connection during TLS's handshake") from error
    except ssl.SSLCertVerificationError as error:
        raise SettingsDiffer(f"{address} shows a certificate that is not in {tls}: {error}. {_SAME_TLS}") from error
    except ssl.SSLError as error:
        raise SettingsDiffer(f"{address} does not speak TLS ({error.reason or error}). {_SAME_TLS}") from error
    if wrapped.getpeercert(binary_form=True) not in _certificates(tls):
        wrapped.close()
        raise SettingsDiffer(f"{address} shows a certificate that is not in {tls}: it is none of this job's hosts")
    return wrapped


def connect(
    address: str, secret: bytes, hello: dict[str, Any], tls: str | None = None, timeout: float = 30.0, service: str = ""
) -> Connection:
    """A connection to the service that listens there; tried again until `timeout`, for it may come up a little later.

    A listener may drop a connection during the greeting when strangers flood it: that is tried again as well.
    """
    deadline = time.monotonic() + timeout
    pause = 0.02
    while True:
        try:
            return _connect(address, secret, hello, tls, max(0.1, deadline - time.monotonic()), service)
        except (OSError, Closed) as error:
            if time.monotonic() + pause > deadline:
                raise WireError(
                    f"cannot connect to {address} within {timeout:.0f} s: {error}. Is the process there alive, and the "
                    "port not closed by a firewall?"
                ) from error
        time.sleep(pause)
        pause = min(pause * 1.5, _RETRY)


def _connect(
    address: str, secret: bytes, hello: dict[str, Any], tls: str | None, timeout: float, service: str
) -> Connection:
    deadline = time.monotonic() + timeout
    sock = socket.create_connection(split_address(address), min(timeout, _ATTEMPT))
    try:
        sock.settimeout(max(0.1, deadline - time.monotonic()))  # for TLS's handshake
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        certificate = b""
        if tls is not None:
            sock = _wrap_caller(sock, tls, address)
            certificate = sock.getpeercert(binary_form=True) or b""
        connection = Connection(sock, address)
        connection.deadline = deadline
        said = bytearray(len(_GREETING) + 1 + _NONCE)
        try:
            connection._read(memoryview(said), timeout)
        except TimedOut as error:
            hint = "" if tls else f", or it expects TLS, which this process does not use. {_SAME_TLS}"
            raise TimedOut(f"{error}: the process there is stopped or busy{hint}") from None
        if not said.startswith(_GREETING):
            raise WireError(f"what listens at {address} is not this job: it began with {bytes(said[:16])!r}")
        greeting = _Greeting(bytes(said[len(_GREETING) :]), _nonce(), certificate, service)
        connection._write([memoryview(_GREETING + greeting.caller + greeting.proof(secret, b"caller"))])
        proof = bytearray(_NONCE)
        connection._read(memoryview(proof), timeout)
        if proof == _REFUSAL:
            raise SettingsDiffer(
                f"{address} refused this process, which does not hold its secret, or is not "
                f"{service or 'the service that was asked for'}. {_SAME_SECRET}"
            )
        if not hmac.compare_digest(bytes(proof), greeting.proof(secret, b"called")):
            raise SettingsDiffer(f"what listens at {address} does not hold the job's secret. {_SAME_SECRET}")
        connection.secure(*greeting.directions(secret))
        connection.send(HELLO, hello)
        connection.deadline = None
        return connection
    except BaseException:
        sock.close()
        raise


def shut(sock: socket.socket) -> None:
    """Close a socket, and wake who waits for it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
