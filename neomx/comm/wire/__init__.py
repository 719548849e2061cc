"""Authenticated frames between processes that share a secret.

A connection begins with a `greeting`, in which both sides prove that they hold the job's secret. Then they exchange
`frames`, each authenticated with a key of this connection and a sequence number (`authentication`), so that a relay
cannot change, repeat, reorder or redirect frames. Nothing is ever unpickled. `tls` trusts only the certificates in the
job's file.
"""

from .addresses import is_loopback, join_address, listen, shut, split_address
from .errors import Closed, Refused, SettingsDiffer, TimedOut, WireError, printable
from .frames import Connection, Frame, Into, as_bytes
from .greeting import HELLO, Guest, accept, connect
from .timeouts import GREETING_TIME, silence
from .tls import check_pem

__all__ = [
    "GREETING_TIME",
    "HELLO",
    "Closed",
    "Connection",
    "Frame",
    "Guest",
    "Into",
    "Refused",
    "SettingsDiffer",
    "TimedOut",
    "WireError",
    "accept",
    "as_bytes",
    "check_pem",
    "connect",
    "is_loopback",
    "join_address",
    "listen",
    "printable",
    "shut",
    "silence",
    "split_address",
]
