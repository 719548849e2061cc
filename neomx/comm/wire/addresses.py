"""Addresses of the form "host:port", and sockets."""

from __future__ import annotations

import contextlib
import socket

from .errors import WireError


def split_address(address: str) -> tuple[str, int]:
    """Split 'host:port' into a pair."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        raise ValueError(f"an address must be host:port, with a port up to 65535, received {address!r:.80}")
    return host.strip("[]"), int(port)


def join_address(host: str, port: int) -> str:
    """Join a pair to 'host:port'."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether the address is a loopback address of this machine."""
    return host == "localhost" or host == "::1" or host.startswith("127.")


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """Return a listening socket, on a free port by default."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=512)
    except OSError as error:
        remedy = "Choose another port (0 selects a free one), or an address of this machine"
        if isinstance(error, socket.gaierror):
            remedy = "Use a host name that resolves, or an address of this machine"
        raise WireError(f"cannot listen on {join_address(host, port)}: {error.strerror or error}. {remedy}") from error


def shut(sock: socket.socket) -> None:
    """Close a socket and wake threads that wait for it."""
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
