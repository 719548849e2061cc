"""The protocol between the server of the store and its clients."""

from __future__ import annotations

from collections.abc import Sequence

from ...base import MXNetError

ASK, ANSWER, ERROR = 1, 2, 3  # kinds of frames
BEAT = 0.5  # seconds between two heartbeats; the store answers one earlier if there is news
CALLS = "calls"  # a counter: adding to it tells all members at once that one of them needs their attention
KEY_LIMIT = 1 << 12  # maximum characters of a key or a name
NEWS = 10.0  # seconds until all know which process is behind a broken connection: usually one, more on a busy machine
SERVICE = "the job's store"  # the service name of its connections
THE_STORE = "the job's store"  # the name of the store itself in the list of lost members
TOLERATES_LOSS = "tolerates-loss"  # if this key is set, the job continues without workers that died

Value = str | bytes | bytearray | Sequence[int]  # torch passes bytes as lists of numbers


class PeerError(MXNetError):
    """Another process of the job is gone, or a wait for it timed out."""
