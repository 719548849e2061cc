"""Addresses as "host:port", and sockets on them."""

from __future__ import annotations

import contextlib
import socket

from .errors import WireError


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


def shut(sock: socket.socket) -> None:
    """Close a socket, and wake who waits for it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
