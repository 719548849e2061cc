"""MXNet's launcher starts one script in three roles; in two of them a script only imports the library."""

from __future__ import annotations

import importlib
import os
import sys

from ..comm.spawn import keep_store
from ..comm.world import discover


def take_role() -> None:
    """In a server's or the scheduler's process do that work and end the process; in a worker's go on."""
    role = os.environ.get("DMLC_ROLE")
    if role == "scheduler":
        keep_store(discover())
        sys.exit(0)
    if role == "server":
        importlib.import_module("neomx.kvstore.server").main()
        sys.exit(0)
