"""Limits on open files and connections of a process."""

from __future__ import annotations

import contextlib
import os

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

_A_CORE, _ANYWAY = 64, 256  # maximum number of processes: per core, but at least this many
_FILES, _UNLIMITED = 8, 1 << 20  # descriptors per process that a launcher needs; descriptors if there is no limit
EXHAUSTED = "Too many open files"


def most_processes() -> int:
    """The maximum number of processes that a launcher starts on this machine."""
    files = _UNLIMITED if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _UNLIMITED if files < 0 else files
    return min(max(_ANYWAY, _A_CORE * (os.cpu_count() or 1)), files // _FILES)


def raise_limit() -> None:
    """Raise the soft limit on open descriptors to the hard limit, for this process and its children.

    The usual soft limit of 1024 exists for programs that call `select`. gloo aborts a process that reaches it.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS refuses more than its kernel allows
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
