"""The worker processes of a job, as a test sees them: which are stopped, where they hang, and what they leave."""

import contextlib
import os
import pathlib
import signal
import time

from launching import until

_DUMP = 3.0  # seconds in which a worker writes where it is


def is_stopped(pid):
    """Return whether a process was stopped by a signal."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in ("T", "t")
    except OSError:
        return False


def where(cluster, members):
    """Return the stacks of workers that hang, which they write to their logs."""
    for member in members:
        cluster.kill(member, signal.SIGUSR2)
    time.sleep(_DUMP)
    logs = {member: pathlib.Path(cluster.output, f"worker-{member}.log").read_text() for member in sorted(members)}
    return "\n".join(f"worker {member}:\n{text[-4000:]}" for member, text in logs.items())


def processes_of(sessions):
    """Return the workers and their children in these sessions that run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            with open(f"/proc/{name}/stat") as file:
                words = file.read().rpartition(")")[2].split()
            with open(f"/proc/{name}/cmdline") as file:
                is_worker = "forking.py" in file.read()  # another process may have got the id of a session
            if is_worker and int(words[3]) in sessions and words[0] not in "ZX":
                found.append(int(name))
    return found


def check_left(job, pids):
    """Check that workers with these process ids, which have ended, left no process and no file behind."""
    if not until(lambda: not processes_of(pids), 5):
        job.tell(f"processes are left: {processes_of(pids)}")
        for pid in processes_of(pids):
            os.kill(pid, signal.SIGKILL)
    loaders = {pid for _, (found, *_) in job.of("loaders") for pid in found}
    named = [str(pid) for pid in {*pids, *loaders}]
    if left := [name for name in os.listdir("/dev/shm") if any(pid in name for pid in named)]:
        job.tell(f"files are left in /dev/shm: {left}")
    if left := sorted(map(str, (job.folder / "tmp").rglob("*"))):
        job.tell(f"temporary files are left: {left}")
