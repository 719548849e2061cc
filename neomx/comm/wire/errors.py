"""Errors of connections, and escaping of text from peers."""

from __future__ import annotations

from ...base import MXNetError


class WireError(MXNetError):
    """An error of a connection or in received data."""


class Closed(WireError):
    """The peer closed the connection, or died."""


class TimedOut(WireError):
    """The peer sent nothing before the timeout."""


class Refused(WireError):
    """The peer sent invalid data; its connection must be closed."""


class SettingsDiffer(WireError):
    """Both sides were started with different secrets or TLS settings, so retrying is useless."""


def printable(text: str) -> str:
    """Escape control characters and unencodable characters in text from a peer, for terminals and logs."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
