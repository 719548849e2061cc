"""What the server of the store and its clients agree on."""

from __future__ import annotations

from collections.abc import Sequence

from ...base import MXNetError

ASK, ANSWER, ERROR = 1, 2, 3  # kinds of frames
BEAT = 0.5  # seconds between two signs of life
KEY_LIMIT = 1 << 12  # characters of a key or a name
NEWS = 10.0  # seconds in which all learn who is behind a connection that broke: one, and more on a busy machine
SERVICE = "the job's store"  # what a connection to it is for
THE_STORE = "the job's store"  # the name of the store itself among the members that are gone
TOLERATES_LOSS = "tolerates-loss"  # a key whose presence says that the job goes on without a worker that died

Value = str | bytes | bytearray | Sequence[int]  # torch hands bytes over as lists of numbers


class PeerError(MXNetError):
    """Another process of the job is gone, or did not come in time."""
