"""Measure latency and bandwidth between two machines, over the connections that jobs use.

The listener accepts callers that prove that they have the same secret, and supports three requests: answer, receive
some bytes, send some bytes. The bytes and the time of a caller are limited, and one caller is served at a time.
"""

from __future__ import annotations

import dataclasses
import socket
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..comm import listener, secret, wire
from .software import version_of

PORT = 29400  # as in the examples of neomx run --rdzv
SERVICE = "neomx doctor"  # identifies the purpose of a connection
_ANSWER, _TAKE, _GIVE, _REPLY, _BUSY = 1, 2, 3, 4, 5
_PIECES = tuple(1 << bits for bits in (16, 18, 20, 22, 24, 26))  # bytes, from 64 KiB to 64 MiB
_TOTAL = 2 * sum(_PIECES)  # bytes that one caller may send and request: those of one measurement
_PINGS, _PING_SECONDS = 100, 0.5
_RATE_SECONDS = 2.0  # for each direction
CALL_SECONDS = 20.0  # for a whole measurement
PACKAGES = ("neomx", "torch", "numpy")


@dataclasses.dataclass(frozen=True)
class Measured:
    """Network performance between two hosts."""

    latency: float  # median round trip of a small message, in seconds
    sent: float  # bytes per second to the other host
    received: float  # bytes per second from the other host
    largest: int  # bytes of the largest message that was sent
    name: str  # the other host's name
    versions: dict[str, str | None]  # of packages on the other host


class Busy(wire.WireError):
    """The listener is serving another caller."""


# ---- the listening side ----


def serve(listening: socket.socket, key: bytes, told: Callable[[str], None]) -> Callable[[], None]:
    """Answer callers that have the secret, until the returned function is called. `told` receives lines to show."""
    one_at_a_time = threading.Lock()

    def handle(connection: wire.Connection) -> None:
        if not one_at_a_time.acquire(blocking=False):
            connection.send(_BUSY)
            return
        try:
            told(f"measuring with {connection}")
            _answer(connection)
        finally:
            one_at_a_time.release()

    return listener.serve(listening, key, None, handle, lambda error: told(str(error)), SERVICE)


def _answer(connection: wire.Connection) -> None:
    """Serve one caller until it disconnects or its time is up."""
    connection.deadline = time.monotonic() + CALL_SECONDS
    memory = memoryview(bytearray(_PIECES[-1]))
    left = _TOTAL

    def room(nbytes: Any) -> memoryview:
        nonlocal left
        if type(nbytes) is not int or not 0 <= nbytes <= min(len(memory), left):
            raise wire.Refused(f"{connection} requested {nbytes!r:.40} bytes: at most {len(memory)} at a time")
        left -= nbytes
        return memory[:nbytes]

    while True:
        frame = connection.receive(into=lambda kind, meta, size: room(size))
        if frame.kind == _ANSWER:
            connection.send(_REPLY, {"name": socket.gethostname(), "versions": versions()})
        elif frame.kind == _TAKE:
            connection.send(_REPLY)
        elif frame.kind == _GIVE:
            connection.send(_REPLY, None, room(frame.meta.get("bytes") if isinstance(frame.meta, dict) else None))
        else:
            raise wire.Refused(f"{connection} requested {frame.kind}, which neomx doctor does not support")


def versions() -> dict[str, str | None]:
    """Return the versions that should be equal on all hosts of a job."""
    return {package: version_of(package) for package in PACKAGES}


# ---- the calling side ----


def measure(address: str, key: bytes, timeout: float) -> Measured:
    """Measure against the listener at 'host:port'. Raises wire.WireError; wire.SettingsDiffer if the secrets differ."""
    connection = wire.connect(address, key, {"name": socket.gethostname()}, timeout=timeout, service=SERVICE)
    try:
        connection.deadline = time.monotonic() + CALL_SECONDS
        told, _ = _ask(connection, _ANSWER)
        latency = _latency(connection)
        memory = memoryview(bytearray(_PIECES[-1]))
        sent, largest = _rate(lambda size: _ask(connection, _TAKE, None, memory[:size])[1], latency)
        received, _ = _rate(lambda size: _ask(connection, _GIVE, {"bytes": size}, into=memory[:size])[1], latency)
    finally:
        connection.close()
    told = told if isinstance(told, dict) else {}
    given = told.get("versions")
    theirs = {name: _word(given[name]) for name in PACKAGES if name in given} if isinstance(given, Mapping) else {}
    return Measured(latency, sent, received, largest, _word(told.get("name")) or "unknown", theirs)


def _word(value: object) -> str | None:
    """Return a word from a peer, safe to print."""
    return wire.printable(value[:80]) if isinstance(value, str) else None


def _ask(
    connection: wire.Connection, kind: int, meta: Any = None, *buffers: memoryview, into: memoryview | None = None
) -> tuple[Any, float]:
    """Return the listener's answer, and the seconds until it was complete."""
    began = time.perf_counter()
    connection.send(kind, meta, *buffers)
    frame = connection.receive(into=lambda kind, meta, size: into if into is not None and size else memoryview(b""))
    if frame.kind == _BUSY:
        raise Busy(f"{connection} is serving another caller")
    return frame.meta, time.perf_counter() - began


def _latency(connection: wire.Connection) -> float:
    times: list[float] = []
    while len(times) < _PINGS and sum(times) < _PING_SECONDS:
        times.append(_ask(connection, _TAKE)[1])
    return statistics.median(times)


def _rate(move: Callable[[int], float], latency: float) -> tuple[float, int]:
    """Return bytes per second and the largest message size; sizes grow until the next one would take too long."""
    spent, rate, largest = 0.0, 0.0, 0
    for size in _PIECES:
        seconds = move(size)
        spent += seconds
        travelling = max(seconds - latency, 1e-6)
        rate, largest = size / travelling, size
        if spent + latency + 4 * travelling > _RATE_SECONDS:
            break
    return rate, largest


def key_for(environ: Mapping[str, str], file: str | None, one_host: bool) -> bytes | None:
    """Return the shared secret: from a file, NEOMX_SECRET, or, on one host, of this user; None if there is none."""
    if file is not None:
        return secret.read(file, f"--secret-file {file}")
    if "NEOMX_SECRET" in environ or one_host:
        return secret.find(environ, SERVICE, one_host)
    return None
