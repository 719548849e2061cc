"""Timeouts for silent peers."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ...base import MXNetError

GREETING_TIME = 10.0  # seconds for the whole greeting of a caller, TLS included
_SILENCE = 20.0


def silence(environ: Mapping[str, str] = os.environ) -> float:
    """Return NEOMX_SILENCE: the seconds without a heartbeat after which a process counts as gone."""
    value = environ.get("NEOMX_SILENCE") or _SILENCE
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 1.0 < seconds < float("inf"):
        raise MXNetError(f"NEOMX_SILENCE must be a number of seconds above 1, received {value!r}")
    return seconds
