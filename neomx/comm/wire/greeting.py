"""How a connection begins: both sides prove that they hold the job's secret, and derive its keys from the proof.

Until the proof exactly 73 bytes of a caller are read.
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
_REFUSAL = b"refused: this is no proof".ljust(32)  # in the place of a proof, for the caller's error message
_NONCE = 32
_ANSWER = len(_GREETING) + 1 + 2 * _NONCE  # bytes of a caller that are read before its proof is checked
_ATTEMPT, _RETRY = 2.0, 0.2  # seconds for TCP's own greeting, which a flooded listener may miss; between two attempts
_TLS_RECORD = b"\x16\x03"  # how TLS's handshake begins
_SAME_SECRET = "--secret-file, or NEOMX_SECRET, must be the same on all hosts"
HELLO = 0  # the kind of the first frame, in which a caller says who it is


@dataclass(frozen=True)
class Greeting:
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

    def directions(self, secret: bytes) -> tuple[Direction, Direction]:
        """From the caller, and to it."""
        best = min(self.called[0], self.caller[0])
        payloads = None if self.certificate else Gmac if best else new_hmac
        caller, called = (Direction(self.proof(secret, role), payloads) for role in (b"caller's key", b"called's key"))
        return caller, called


def _nonce() -> bytes:
    return bytes([has_gmac()]) + os.urandom(_NONCE)


class Guest:
    """A caller that has not proved yet that it holds the secret. Nothing here blocks until it has."""

    def __init__(self, sock: socket.socket, place: Any, secret: bytes, tls: str | None, service: str, seconds: float):
        """The caller at `place` has so many seconds for all of it."""
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
                f"{SAME_TLS}"
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
        self._greeting = Greeting(self._mine, theirs, self._certificate, self._service)
        if not hmac.compare_digest(proof, self._greeting.proof(self._secret, b"caller")):
            self._refuse()

    def _refuse(self) -> NoReturn:
        with contextlib.suppress(OSError):
            self._sock.send(_REFUSAL)
        if self._answer.startswith(_TLS_RECORD):
            raise Refused(f"a peer at {self.address} speaks TLS, and this process does not. {SAME_TLS}")
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
        connection.write([memoryview(self._greeting.proof(self._secret, b"called"))])
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
            raise WireError(f"what listens at {address} is not this job: it began with {bytes(said[:16])!r}")
        greeting = Greeting(bytes(said[len(_GREETING) :]), _nonce(), certificate, service)
        connection.write([memoryview(_GREETING + greeting.caller + greeting.proof(secret, b"caller"))])
        proof = bytearray(_NONCE)
        connection.read(memoryview(proof), timeout)
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
