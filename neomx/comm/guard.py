"""Ends the remaining processes of a job when its launcher is gone, even if it was killed with SIGKILL.

The launcher runs this file as a separate process, without importing the package (so it starts in milliseconds), and
writes the ID of each process group it starts to a pipe, and its negative value once the group is gone. When the pipe
closes, the launcher has ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GRACE = 1.0  # seconds between SIGTERM and SIGKILL after the launcher was killed


def signal_group(group: int, signum: int) -> bool:
    """Send a signal to a process group. Return False if the group has no processes."""
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS raises this for a group of zombies
        return False
    return True


def strays(job: str, node: int, rank: int | None = None) -> list[int]:
    """Return the processes with this job's environment, including those that left their session. Linux only.

    With `rank`, only those of one worker.
    """
    wanted = {f"NEOMX_JOB={job}".encode(), f"NEOMX_NODE={node}".encode()}
    if rank is not None:
        wanted.add(f"RANK={rank}".encode())
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted <= set(file.read().split(b"\0")):
                    found.append(int(name))
    return found


def sweep(job: str, node: int, rank: int | None = None, seconds: float = 2.0) -> None:
    """Kill every process of the job on this node, or of one of its workers, and return when none is left."""
    limit = time.monotonic() + seconds
    while (found := strays(job, node, rank)) and time.monotonic() < limit:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main(job: str, node: str, grace: str) -> None:
    """Read process groups until the launcher closes the pipe, then end them: after `grace` seconds with SIGKILL."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line)
        if group > 0:
            groups.add(group)
        else:
            groups.discard(-group)
    limit = time.monotonic() + float(grace)
    while float(grace) and any([signal_group(group, signal.SIGTERM) for group in groups]) and time.monotonic() < limit:
        time.sleep(0.05)
    for group in groups:
        signal_group(group, signal.SIGKILL)
    sweep(job, int(node))


if __name__ == "__main__":
    main(*sys.argv[1:])
