"""What can be wrong with a connection, and how a peer's words are shown in messages."""

from __future__ import annotations

from ...base import MXNetError


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


def printable(text: str) -> str:
    """What a peer said, for terminals and logs: control characters and what has no encoding are escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
