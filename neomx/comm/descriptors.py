"""How many files and connections a process may have open."""

from __future__ import annotations

import contextlib
import os

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

_A_CORE, _ANYWAY = 64, 256  # processes: so many for each core, and so many on any machine
_FILES, _UNLIMITED = 8, 1 << 20  # descriptors that a launcher needs for a process; those that it has without a limit
EXHAUSTED = "Too many open files"


def most_processes() -> int:
    """How many processes a launcher starts at most on this machine."""
    files = _UNLIMITED if resource is None else resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    files = _UNLIMITED if files < 0 else files
    return min(max(_ANYWAY, _A_CORE * (os.cpu_count() or 1)), files // _FILES)


def raise_limit() -> None:
    """Raise the soft limit on open descriptors to the hard one, for this process and those that it starts.

    The usual soft limit of 1024 is for programs that call `select`. gloo ends a process that runs into it.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # macOS refuses more than its kernel has
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
