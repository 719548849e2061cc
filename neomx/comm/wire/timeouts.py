"""How long a process waits for a peer that gives no sign of life."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...base import MXNetError

GREETING_TIME = 10.0  # seconds for the whole greeting of a caller, TLS included
_SILENCE = 20.0


def silence(environ: Mapping[str, str] = os.environ) -> float:
    """The seconds after which a process that gives no sign of life counts as gone: NEOMX_SILENCE."""
    value = environ.get("NEOMX_SILENCE") or _SILENCE
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 1.0 < seconds < float("inf"):
        raise MXNetError(f"NEOMX_SILENCE must be a number of seconds above 1, received {value!r}")
    return seconds
