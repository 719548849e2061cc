"""The job's store: values that its processes leave for each other, and a roll call of who is alive.

Processes leave small values under keys, wait for them, and count. Those that join are watched: one that closes its
connection without leaving has died, one that falls silent is stopped or cut off, and all others know within a second.
One process keeps the store (`server`, with its `values` and its `roll`); the others talk to it through a `client`.
Nothing here needs torch, which the launcher does without: process groups use torch_store.py.
"""

from .client import StoreClient
from .protocol import NEWS, SERVICE, THE_STORE, TOLERATES_LOSS, PeerError, Value
from .roll import Member, MemberInfo
from .server import StoreServer

__all__ = [
    "NEWS",
    "SERVICE",
    "THE_STORE",
    "TOLERATES_LOSS",
    "Member",
    "MemberInfo",
    "PeerError",
    "StoreClient",
    "StoreServer",
    "Value",
]
