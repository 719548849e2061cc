"""The job's store: values shared by its processes, and a roll call of the processes that are alive.

Processes set small values by key, wait for them, and use counters. Processes that join are monitored: one that closes
its connection without leaving has died, and one that sends no heartbeat is stopped or disconnected from the network.
All others know within a second. One process hosts the store (`server`, with its `values` and its `roll`); the others
connect with a `client`. Nothing here needs torch, so that the launcher can use it; process groups use torch_store.py.
"""

from .client import StoreClient
from .protocol import CALLS, NEWS, SERVICE, THE_STORE, TOLERATES_LOSS, PeerError, Value
from .roll import Member, MemberInfo
from .server import StoreServer

__all__ = [
    "CALLS",
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
