"""MXNet's launcher starts one script in three roles. As server and scheduler, a script only imports the library."""

from __future__ import annotations

import contextlib
import os
import sys
import time

from ..comm.store import PeerError, StoreServer
from ..comm.world import World, discover, store_place


def take_role() -> None:
    """In a server or scheduler process, do that work and exit. In a worker, return."""
    role = os.environ.get("DMLC_ROLE")
    if role == "scheduler":
        keep_store(discover())
        sys.exit(0)
    if role == "server":
        from . import server

        server.main()
        sys.exit(0)


def keep_store(world: World) -> None:
    """Serve the store of the job until all processes have joined and left."""
    with contextlib.closing(StoreServer(*store_place(world), world.secret, world.tls)) as store:
        store.start()
        limit = time.monotonic() + world.timeout
        while missing := _everybody(world) - store.roster().keys():
            if time.monotonic() > limit:
                names = ", ".join(sorted(missing))
                raise PeerError(
                    f"timed out after {world.timeout:g} s waiting for {names} to connect to the scheduler at "
                    f"{store.address}"
                )
            time.sleep(0.05)
        while any(member.state == "here" for member in store.roster().values()):
            time.sleep(0.05)


def _everybody(world: World) -> set[str]:
    counts = (("worker", world.size), ("server", world.servers))
    return {f"{role} {number}" for role, count in counts for number in range(count)}
