"""MXNet's launcher starts one script in three roles; in two of them a script only imports the library."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from ..comm.store import PeerError, StoreServer
from ..comm.world import World, discover, store_place


def take_role() -> None:
    """In a server's or the scheduler's process do that work and end the process; in a worker's go on."""
    role = os.environ.get("DMLC_ROLE")
    if role == "scheduler":
        keep_store(discover())
        sys.exit(0)
    if role == "server":
        from . import server

        server.main()
        sys.exit(0)


def keep_store(world: World) -> None:
    """Serve the job's store until everybody has come and left again."""
    with contextlib.closing(StoreServer(*store_place(world), world.secret, world.tls)) as store:
        store.start()
        limit = time.monotonic() + world.timeout
        while missing := _everybody(world) - store.roster().keys():
            if time.monotonic() > limit:
                names = ", ".join(sorted(missing))
                raise PeerError(f"{names} did not come to the scheduler at {store.address} within {world.timeout:g} s")
            time.sleep(0.05)
        while any(member.state == "here" for member in store.roster().values()):
            time.sleep(0.05)


def _everybody(world: World) -> set[str]:
    counts = (("worker", world.size), ("server", world.servers))
    return {f"{role} {number}" for role, count in counts for number in range(count)}
