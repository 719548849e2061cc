"""Connections to other hosts: name resolution, open ports, and network performance."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from ..base import MXNetError
from ..comm import wire
from ..comm.secret import SHORTEST
from ..comm.store import SERVICE as STORE
from . import measure
from .finding import Finding, Status, amount

CONNECT_SECONDS, GREETING_SECONDS = 5.0, wire.GREETING_TIME
_MOST_ADDRESSES = 4
SECONDS = (_MOST_ADDRESSES + 1) * CONNECT_SECONDS + 2 * GREETING_SECONDS + measure.CALL_SECONDS + 30.0  # and DNS
_SLOW_LATENCY = 0.01  # seconds
_SLOW_RATE = 12.5e6  # bytes a second: 100 Mbit/s


def parse(text: str) -> tuple[str, int]:
    """Parse 'host', 'host:port', '::1' or '[::1]:port' to a pair. The default port is that of neomx doctor --listen.

    Raises ValueError.
    """
    if text.count(":") > 1 and not text.startswith("["):
        return text, measure.PORT
    if text.startswith("[") and text.endswith("]"):
        return text[1:-1], measure.PORT
    return wire.split_address(text if ":" in text else f"{text}:{measure.PORT}")


def check(host: str, port: int, environ: Mapping[str, str], secret_file: str | None) -> Iterator[Finding]:
    """Resolve, connect, and measure if neomx doctor --listen is running there."""
    where = {"host": host, "port": port}
    try:
        addresses = _resolve(host)
    except OSError as error:
        remedy = "Check the spelling, add the host to /etc/hosts or DNS, or pass its address"
        yield Finding("host.resolve", "problem", f"{host}: the name does not resolve: {error}", remedy, where)
        return
    yield Finding("host.resolve", "ok", f"{host} is {', '.join(addresses)}", values={**where, "addresses": addresses})
    errors: list[tuple[str, OSError]] = []
    for address in addresses[:_MOST_ADDRESSES]:
        began = time.monotonic()
        try:
            socket.create_connection((address, port), CONNECT_SECONDS).close()
        except OSError as error:
            errors.append((address, error))
            continue
        seconds = round(time.monotonic() - began, 6)
        values = {**where, "address": address, "seconds": seconds}
        said = f"{host}: port {port} at {address} accepts connections (in {1000 * seconds:.2g} ms)"
        yield Finding("host.connect", "ok", said, values=values)
        yield from _greet(wire.join_address(address, port), address, where, environ, secret_file)
        return
    yield _unreachable(host, port, *errors[0], where)


def _resolve(host: str) -> list[str]:
    found = [str(info[4][0]) for info in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    return list(dict.fromkeys(found))


def _unreachable(host: str, port: int, address: str, error: OSError, where: dict[str, Any]) -> Finding:
    """Report why a connection failed, with a suitable remedy."""
    if isinstance(error, ConnectionRefusedError):
        reason = "refused"
        said = "refused the connection: the host answers, but nothing listens on this port at this address"
        remedy = (
            f"Start `neomx doctor --listen {wire.join_address(address, port)}` there, or the job, and check the port"
        )
    elif isinstance(error, TimeoutError):
        reason, said = (
            "timeout",
            f"did not answer within {CONNECT_SECONDS:g} s: it is down, or a firewall drops packets",
        )
        remedy = f"Check that the host is up (ping), and open TCP port {port} in firewalls and security groups"
    elif error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN, errno.ENETDOWN, errno.EADDRNOTAVAIL):
        reason, said = "unreachable", f"cannot be reached: {error.strerror}"
        remedy = "Check routes (ip route) and that both hosts are on the same network; the host may be down"
    elif error.errno in (errno.EACCES, errno.EPERM):
        reason, said = "forbidden", f"does not allow a connection: {error.strerror}"
        remedy = f"A firewall on this machine blocks it: allow outgoing connections to TCP port {port}"
    else:
        reason, said = "error", f"cannot be reached: {error.strerror or error}"
        remedy = "Check the address and the network"
    values = {**where, "address": address, "reason": reason}
    return Finding("host.connect", "problem", f"{host}: port {port} at {address} {said}", remedy, values)


def _greet(
    place: str, address: str, where: dict[str, Any], environ: Mapping[str, str], secret_file: str | None
) -> Iterator[Finding]:
    def greeting(status: Status, said: str, remedy: str = "") -> Finding:
        return Finding("host.greeting", status, f"{place}: {said}", remedy, where)

    key = measure.key_for(environ, secret_file, wire.is_loopback(address))
    if key is None:
        remedy = f"Set NEOMX_SECRET (at least {SHORTEST} bytes) or pass --secret-file, the same as for the listener"
        yield greeting("warn", "latency and bandwidth are not measured: no secret was provided", remedy)
        return
    try:
        found = measure.measure(place, key, GREETING_SECONDS)
    except wire.SettingsDiffer:
        if _is_store(place, key):
            yield greeting("ok", "the store of a job is listening there and accepts the secret; nothing is measured")
            return
        remedy = (
            "Use the same --secret-file or NEOMX_SECRET on both sides; neomx doctor --listen prints one if none is set"
        )
        yield greeting("problem", "a neomx process is listening there but does not accept this secret", remedy)
    except measure.Busy:
        yield greeting("warn", "the listener is serving another caller", "Try again in a few seconds")
    except wire.WireError as error:
        remedy = f"To measure, run `neomx doctor --listen {place}` there; jobs with --tls are not measured"
        yield greeting("warn", f"latency and bandwidth are not measured: {error}", remedy)
    else:
        yield from _measured(place, where, found)


def _is_store(place: str, key: bytes) -> bool:
    """Return whether the store of a job with this secret is listening there."""
    try:
        wire.connect(place, key, {"name": measure.SERVICE}, timeout=GREETING_SECONDS, service=STORE).close()
        return True
    except MXNetError:
        return False


def _measured(place: str, where: dict[str, Any], found: measure.Measured) -> Iterator[Finding]:
    yield _versions(place, where, found)
    values = {**where, "seconds": found.latency}
    said = f"{place}: the round trip of a small message takes {1000 * found.latency:.3g} ms (median)"
    if found.latency > _SLOW_LATENCY:
        remedy = "Place the workers closer together, or use larger batches, so that there are fewer steps"
        yield Finding("host.latency", "warn", said, remedy, values)
    else:
        yield Finding("host.latency", "ok", said, values=values)
    values = {**where, "sent": found.sent, "received": found.received, "largest": found.largest}
    slowest = min(found.sent, found.received)
    said = f"{place}: {_megabits(found.sent)} to it, {_megabits(found.received)} from it, over one authenticated "
    said += f"connection ({amount(found.largest)}); 100 MB of gradients take {1e8 / slowest:.3g} s"
    if slowest < _SLOW_RATE:
        remedy = "Use a faster network (see network.job for the interface in use), or compress gradients"
        yield Finding("host.bandwidth", "warn", said, remedy, values)
    else:
        yield Finding("host.bandwidth", "ok", said, values=values)


def _versions(place: str, where: dict[str, Any], found: measure.Measured) -> Finding:
    ours = measure.versions()
    differing = [name for name in ours if ours[name] != found.versions.get(name)]
    values = {**where, "name": found.name, "here": ours, "there": found.versions}
    if differing:
        listed = ", ".join(f"{name} {found.versions.get(name)} (here {ours[name]})" for name in differing)
        remedy = "Install the same versions on all hosts of a job"
        return Finding("host.versions", "warn", f"{place}: {found.name} has other versions: {listed}", remedy, values)
    return Finding("host.versions", "ok", f"{place}: {found.name} has the same versions as this host", values=values)


def _megabits(rate: float) -> str:
    return f"{8e-6 * rate:,.0f} Mbit/s" if 8e-6 * rate >= 10 else f"{8e-6 * rate:.2g} Mbit/s"
