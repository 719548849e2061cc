"""Ends what is left of a job when its launcher is gone, even by SIGKILL.

The launcher runs this file as a process of its own, without the package (it starts in milliseconds), and writes it the
number of each process group it starts. The end of that pipe is the end of the launcher.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

GRACE = 1.0  # seconds between asking and killing when the launcher was killed


def signal_group(group: int, signum: int) -> bool:
    """Send a signal to all of a process group. False if nobody is left in it."""
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:  # macOS says so of a group that holds only zombies
        return False
    return True


def strays(job: str, node: int) -> list[int]:
    """The processes that carry this job's environment, also those that left their session. Linux only."""
    wanted = {f"NEOMX_JOB={job}".encode(), f"NEOMX_NODE={node}".encode()}
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit() and int(name) != os.getpid():
            with contextlib.suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                if wanted <= set(file.read().split(b"\0")):
                    found.append(int(name))
    return found


def sweep(job: str, node: int, seconds: float = 2.0) -> None:
    """Kill every process of the job on this node and return when none is left."""
    limit = time.monotonic() + seconds
    while (found := strays(job, node)) and time.monotonic() < limit:
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def main(job: str, node: str) -> None:
    """Read process groups until the launcher's end of the pipe closes; then end them."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)
    groups = {int(line) for line in sys.stdin if line.strip()}
    limit = time.monotonic() + GRACE
    while any([signal_group(group, signal.SIGTERM) for group in groups]) and time.monotonic() < limit:
        time.sleep(0.05)
    for group in groups:
        signal_group(group, signal.SIGKILL)
    sweep(job, int(node))


if __name__ == "__main__":
    main(*sys.argv[1:])
