"""The greeting of a connection: both sides prove that they hold the job's secret, and derive keys.

Before the proof, exactly 73 bytes of a caller are read.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import select
import socket
import ssl
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from .addresses import join_address, shut, split_address
from .authentication import Direction, Gmac, has_gmac, new_hmac
from .errors import Closed, Refused, SettingsDiffer, TimedOut, WireError
from .frames import Connection
from .timeouts import GREETING_TIME
from .tls import SAME_TLS, certificates, wrap, wrap_caller

_GREETING = b"NEOMX/2\n"
_REFUSAL = b"refused: this is no proof".ljust(32)  # sent instead of a proof, for the caller's error message
_NONCE = 32
_ANSWER = len(_GREETING) + 1 + 2 * _NONCE  # bytes read from a caller before its proof is checked
_ATTEMPT, _RETRY = 2.0, 0.2  # seconds for a TCP connect, which a flooded listener may miss; seconds between attempts
_TLS_RECORD = b"\x16\x03"  # the first bytes of a TLS handshake
_SAME_SECRET = "--secret-file, or NEOMX_SECRET, must be the same on all hosts"
HELLO = 0  # the kind of the first frame, in which a caller identifies itself


@dataclass(frozen=True)
class Greeting:
    """The public data of a new connection. Every proof and key is derived from the secret and all of it."""

    called: bytes  # one byte for the kind of payload authentication, then the nonce
    caller: bytes
    certificate: bytes  # of the called side, as seen by each side; empty without TLS
    service: str  # the service that the caller wants

    def proof(self, secret: bytes, role: bytes) -> bytes:
        """Return a proof that only a holder of the secret can compute, for this role and greeting."""
        seen = hashlib.sha256(self.certificate).digest()
        return hmac.digest(
            secret, b"".join((b"neomx/2 ", role, self.called, self.caller, seen, self.service.encode())), "sha256"
        )

    def directions(self, secret: bytes) -> tuple[Direction, Direction]:
        """Return the keys of the directions from the caller and to it."""
        best = min(self.called[0], self.caller[0])
        payloads = None if self.certificate else Gmac if best else new_hmac
        caller, called = (Direction(self.proof(secret, role), payloads) for role in (b"caller's key", b"called's key"))
        return caller, called


def _nonce() -> bytes:
    return bytes([has_gmac()]) + os.urandom(_NONCE)


class Guest:
    """A caller that has not yet proved that it holds the secret. Does not block until it has."""

    def __init__(self, sock: socket.socket, place: Any, secret: bytes, tls: str | None, service: str, seconds: float):
        """The caller at `place` has `seconds` for the whole greeting."""
        self.deadline = time.monotonic() + seconds
        self.host: str = place[0]
        self.address = join_address(*place[:2])
        self._secret, self._service = secret, service
        self._certificate = certificates(tls)[0] if tls else b""
        self._mine = b""
        self._answer = bytearray()
        try:
            sock.setblocking(False)
            self._sock = sock if tls is None else wrap(sock, tls)
        except (OSError, ValueError) as error:  # already disconnected
            sock.close()
            raise Closed(f"a peer closed the connection: {error}") from error

    def fileno(self) -> int:
        """Return the descriptor, for select."""
        return self._sock.fileno()

    def advance(self) -> int:
        """Continue without blocking. Return the event of select.poll to wait for, or 0 once the secret is proved."""
        try:
            if not self._mine:
                if isinstance(self._sock, ssl.SSLSocket):
                    self._sock.do_handshake()
                self._mine = _nonce()
                self._sock.send(_GREETING + self._mine)  # fits into the buffer of a new connection
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
                f"a peer at {self.address} closed the connection before the TLS handshake: does it run without TLS? "
                f"{SAME_TLS}"
            ) from error
        except (OSError, ValueError) as error:
            raise Refused(f"a peer at {self.address} failed to connect: {error}") from error
        self._check_proof()
        return 0

    def _check_words(self) -> None:
        """Refuse invalid data at its first bytes."""
        if not _GREETING.startswith(self._answer[: len(_GREETING)]):
            self._refuse()

    def _check_proof(self) -> None:
        theirs, proof = bytes(self._answer[len(_GREETING) : -_NONCE]), bytes(self._answer[-_NONCE:])
        self._greeting = Greeting(self._mine, theirs, self._certificate, self._service)
        if not hmac.compare_digest(proof, self._greeting.proof(self._secret, b"caller")):
            self._refuse()

    def _refuse(self) -> NoReturn:
        with contextlib.suppress(OSError):
            self._sock.send(_REFUSAL)
        if self._answer.startswith(_TLS_RECORD):
            raise Refused(f"a peer at {self.address} uses TLS, but this process does not. {SAME_TLS}")
        raise Refused(
            f"a peer at {self.address} does not hold the job's secret, or asked for another service than "
            f"{self._service}. {_SAME_SECRET}"
        )

    def welcome(self) -> Connection:
        """Prove the secret to a caller that has proved it, and receive its name."""
        with contextlib.suppress(OSError):  # already disconnected
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = Connection(self._sock, self.address)
        connection.deadline = self.deadline
        connection.write([memoryview(self._greeting.proof(self._secret, b"called"))])
        into, out = self._greeting.directions(self._secret)
        connection.secure(out, into)
        hello = connection.receive()
        if hello.kind != HELLO or not isinstance(hello.meta, dict):
            raise Refused(f"a peer at {self.address} did not identify itself")
        connection.peer, connection.deadline = hello.meta, None
        return connection

    def drop(self) -> None:
        """Close it before the proof."""
        self._sock.close()

    def close(self) -> None:
        """Close the connection. Threads that wait for it, on either side, raise Closed."""
        shut(self._sock)


def accept(
    sock: socket.socket, secret: bytes, tls: str | None = None, timeout: float = GREETING_TIME, service: str = ""
) -> Connection:
    """Accept a new connection. Raises Refused if the peer does not prove that it holds the secret.

    The peer has `timeout` seconds for the whole greeting.
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


def connect(
    address: str,
    secret: bytes,
    hello: dict[str, Any],
    tls: str | None = None,
    timeout: float = 30.0,
    service: str = "",
    retries: bool = True,
) -> Connection:
    """Connect to a service and retry until `timeout`, since the service may start later, or try once.

    A flooded listener may drop a connection during the greeting; that is retried as well.
    """
    deadline = time.monotonic() + timeout
    pause = 0.02
    while True:
        try:
            return _connect(address, secret, hello, tls, max(0.1, deadline - time.monotonic()), service)
        except (OSError, Closed) as error:
            if not retries or time.monotonic() + pause > deadline:
                raise WireError(
                    f"cannot connect to {address} within {timeout:.0f} s: {error}. Check that the process is running "
                    "there and that no firewall blocks the port"
                ) from error
        time.sleep(pause)
        pause = min(pause * 1.5, _RETRY)


def _connect(
    address: str, secret: bytes, hello: dict[str, Any], tls: str | None, timeout: float, service: str
) -> Connection:
    deadline = time.monotonic() + timeout
    sock = socket.create_connection(split_address(address), min(timeout, _ATTEMPT))
    try:
        sock.settimeout(max(0.1, deadline - time.monotonic()))  # for the TLS handshake
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        certificate = b""
        if tls is not None:
            sock = wrap_caller(sock, tls, address)
            certificate = sock.getpeercert(binary_form=True) or b""
        connection = Connection(sock, address)
        connection.deadline = deadline
        said = bytearray(len(_GREETING) + 1 + _NONCE)
        try:
            connection.read(memoryview(said), timeout)
        except TimedOut as error:
            hint = "" if tls else f", or it expects TLS, which this process does not use. {SAME_TLS}"
            raise TimedOut(f"{error}: the process there is stopped or busy{hint}") from None
        if not said.startswith(_GREETING):
            raise WireError(f"the process at {address} does not belong to this job: it sent {bytes(said[:16])!r}")
        greeting = Greeting(bytes(said[len(_GREETING) :]), _nonce(), certificate, service)
        connection.write([memoryview(_GREETING + greeting.caller + greeting.proof(secret, b"caller"))])
        proof = bytearray(_NONCE)
        connection.read(memoryview(proof), timeout)
        if proof == _REFUSAL:
            raise SettingsDiffer(
                f"{address} refused this process: the secrets differ, or it is not "
                f"{service or 'the requested service'}. {_SAME_SECRET}"
            )
        if not hmac.compare_digest(bytes(proof), greeting.proof(secret, b"called")):
            raise SettingsDiffer(f"the process at {address} does not hold the job's secret. {_SAME_SECRET}")
        connection.secure(*greeting.directions(secret))
        connection.send(HELLO, hello)
        connection.deadline = None
        return connection
    except BaseException:
        sock.close()
        raise
