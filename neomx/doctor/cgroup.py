"""The limits on CPU time and memory that a container or a batch system sets for a process, from cgroups v1 and v2."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .finding import text_of

_UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number near 2**63


def limits(membership: str = "/proc/self/cgroup", root: str = "/sys/fs/cgroup") -> tuple[float | None, int | None]:
    """Return the CPUs and the bytes of memory that this process may use; None for no limit.

    A limit applies to all groups below it, so the smallest limit of a group and its ancestors counts.
    """
    cpus: list[float] = []
    memory: list[int] = []
    for line in text_of(membership).splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if not names:  # v2: one hierarchy for everything
            for folder in _upwards(root, path):
                cpus += _quota(*(text_of(os.path.join(folder, "cpu.max")).split() or ["max"]))
                memory += _bytes(text_of(os.path.join(folder, "memory.max")))
        if "cpu" in names.split(","):
            for folder in _upwards(os.path.join(root, names), path) or _upwards(os.path.join(root, "cpu"), path):
                cpus += _quota(*(text_of(os.path.join(folder, f"cpu.cfs_{x}_us")) for x in ("quota", "period")))
        if "memory" in names.split(","):
            for folder in _upwards(os.path.join(root, "memory"), path):
                memory += _bytes(text_of(os.path.join(folder, "memory.limit_in_bytes")))
    return min(cpus, default=None), min(memory, default=None)


def _upwards(root: str, path: str) -> list[str]:
    """Return the folders of a group and its ancestors. In a container, ancestors may not be visible."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [folder for folder in (os.path.join(root, *parts[:n]) for n in range(len(parts), -1, -1))
            if os.path.isdir(folder)]  # fmt: skip


def _quota(quota: str, period: str = "100000") -> Iterator[float]:
    try:
        if int(quota) > 0 and int(period) > 0:
            yield int(quota) / int(period)
    except ValueError:  # "max", or no such file
        return


def _bytes(text: str) -> Iterator[int]:
    if text.strip().isdigit() and int(text) < _UNLIMITED:
        yield int(text)
