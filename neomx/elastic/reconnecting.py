"""Waits for the job's store after this worker was cut off from it."""

from __future__ import annotations

import logging
import time

from ..comm import session, wire
from ..comm.store import THE_STORE, PeerError

_log = logging.getLogger("neomx")
_LOOK = 0.2  # seconds between two attempts to reach the store


def wait_for_store(error: PeerError) -> None:
    """Wait until the job's store can be reached again. Raises the error if it can, or never comes back."""
    opened = session.session()
    store, limit = opened.store, time.monotonic() + opened.world.timeout
    assert store is not None
    noticed = time.monotonic() + wire.silence() + 1.0  # the heartbeats may notice it later than this call
    while THE_STORE not in store.gone:
        if time.monotonic() > noticed:
            raise error
        time.sleep(0.05)
    _log.warning(
        "%s is cut off from the job's store: it does not train until it reaches the store again, for up to %g s",
        *(opened.world.name, opened.world.timeout),
    )
    while not store.come_back():
        if time.monotonic() > limit:
            raise error
        time.sleep(_LOOK)
