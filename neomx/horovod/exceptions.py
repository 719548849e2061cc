"""Errors with the names and meanings of `horovod.common.exceptions`."""

from __future__ import annotations

from ..comm.store import PeerError


class HorovodInternalError(PeerError):
    """A call did not complete, usually because a worker is gone. `hvd.elastic.run` then restores the last commit."""


class HostsUpdatedInterrupt(RuntimeError):
    """Workers wait to join. `hvd.elastic.run` admits them and calls its function again with the current state.

    With `skip_sync`, the state is not synchronized if no worker joins.
    """

    def __init__(self, skip_sync: bool = False) -> None:
        super().__init__("workers wait to join")
        self.skip_sync = skip_sync
