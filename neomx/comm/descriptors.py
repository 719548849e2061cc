"""How many files and connections a process may have open."""

from __future__ import annotations

import contextlib

try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None  # type: ignore[assignment]

EXHAUSTED = "Too many open files"


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
