"""Limits of the system: file descriptors, memory, shared memory, locked memory."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator

from ..comm.descriptors import most_processes
from . import cgroup
from .finding import Finding, amount, text_of

_FILES = 4096  # descriptors that a job of many workers may need
_MEMORY = 1 << 30  # bytes: each process needs half of it to import torch and train a small model
_SHM = 256 << 20
_SHARED = 1 << 20  # bytes shared in the test
_OTHER_SIDE = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
sys.exit(mmap.mmap(fd, int(sys.argv[2]))[:16].hex() != sys.argv[3])
"""


def check() -> Iterator[Finding]:
    """Yield the limits of this machine and this user."""
    yield _files()
    yield _memory()
    yield _shared_memory()
    yield from _dev_shm()
    yield from _locked_memory()


def _files() -> Finding:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    least = min(_number(soft), _number(hard))
    values = {"soft": _limit(soft), "hard": _limit(hard), "most_processes": most_processes()}
    said = f"file descriptors: {_limit(soft) or 'unlimited'} (soft), {_limit(hard) or 'unlimited'} (hard); "
    said += f"neomx run starts up to {values['most_processes']} processes here"
    if _number(hard) < _FILES:
        remedy = f"Raise the hard limit to at least {_FILES}: ulimit -Hn, LimitNOFILE= in systemd, --ulimit in Docker"
        return Finding("limits.files", "warn", said, remedy, values)
    if least < _number(hard):
        said += "; neomx raises the soft limit itself"
    return Finding("limits.files", "ok", said, values=values)


def _limit(value: int) -> int | None:
    return None if value < 0 else value


def _number(value: int) -> int:
    return sys.maxsize if value < 0 else value


def _memory(meminfo: str = "/proc/meminfo") -> Finding:
    found = {name: int(size) * 1024 for name, size in re.findall(r"^(\w+):\s+(\d+) kB", text_of(meminfo), re.MULTILINE)}
    total, available = found.get("MemTotal"), found.get("MemAvailable")
    _, limit = cgroup.limits()
    if total is not None and limit is not None and limit >= total:
        limit = None
    values = {"total": total, "available": available, "limit": limit}
    if total is None or available is None:
        return Finding("limits.memory", "ok", "memory: unknown on this system (no /proc/meminfo)", values=values)
    said = f"memory: {amount(available)} available of {amount(total)}"
    said += f"; a cgroup limits this process and its group to {amount(limit)}" if limit else ""
    if min(available, limit or available) < _MEMORY:
        remedy = "Stop other programs or raise the container's limit: each worker needs about 0.5 GiB plus its model"
        return Finding("limits.memory", "warn", said, remedy, values)
    return Finding("limits.memory", "ok", said, values=values)


def _shared_memory() -> Finding:
    """Report whether a process can map memory that another process created, as workers of one host do."""
    if not hasattr(os, "memfd_create") or not os.path.isdir("/proc/self/fd"):
        why = "this system does not provide memfd_create or /proc"
    else:
        why = _try_sharing()
    values = {"works": not why}
    if why:
        remedy = (
            "Workers of this host exchange tensors by gloo over loopback instead, which is slower; allow /proc/PID/fd"
        )
        return Finding("limits.shared_memory", "warn", f"processes cannot share memory: {why}", remedy, values)
    return Finding("limits.shared_memory", "ok", "processes of this user can share memory (memfd)", values=values)


def _try_sharing() -> str:
    """Share memory with another process. Return why it failed; empty on success."""
    mark = secrets.token_bytes(16)
    try:
        fd = os.memfd_create("neomx-doctor")
    except OSError as error:
        return str(error)
    try:
        os.posix_fallocate(fd, 0, _SHARED)
        os.pwrite(fd, mark, 0)
        asked = [f"/proc/{os.getpid()}/fd/{fd}", str(_SHARED), mark.hex()]
        run = subprocess.run(
            [sys.executable, "-S", "-c", _OTHER_SIDE, *asked], capture_output=True, text=True, timeout=20
        )
        return (run.stderr.strip().splitlines() or ["the other process read wrong bytes"])[-1] if run.returncode else ""
    except (OSError, subprocess.SubprocessError) as error:
        return str(error)
    finally:
        os.close(fd)


def _dev_shm(path: str = "/dev/shm") -> Iterator[Finding]:
    if not os.path.isdir(path):
        return
    room = os.statvfs(path)
    free, total = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    values = {"free": free, "total": total}
    said = f"{path}: {amount(free)} free of {amount(total)}; NCCL and torch's own DataLoader use it, neomx does not"
    if free < _SHM:
        remedy = "In Docker pass --shm-size=1g or --ipc=host; otherwise remove old files there, or mount it larger"
        yield Finding("limits.dev_shm", "warn", said, remedy, values)
    else:
        yield Finding("limits.dev_shm", "ok", said, values=values)


def _locked_memory(devices: str = "/sys/class/infiniband") -> Iterator[Finding]:
    """Report the limit if there is InfiniBand, whose drivers lock the memory that they send."""
    adapters: list[str] = []
    with contextlib.suppress(OSError):
        adapters = sorted(os.listdir(devices))
    if not adapters:
        return
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    values = {"soft": _limit(soft), "adapters": adapters}
    said = f"locked memory: {'unlimited' if soft < 0 else amount(soft)}, with InfiniBand at {', '.join(adapters)}"
    if soft >= 0:
        remedy = (
            "Set ulimit -l unlimited (memlock in limits.conf, --ulimit memlock=-1 in Docker): NCCL locks its buffers"
        )
        yield Finding("limits.locked_memory", "warn", said, remedy, values)
    else:
        yield Finding("limits.locked_memory", "ok", said, values=values)
