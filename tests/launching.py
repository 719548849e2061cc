"""For tests with several processes: scripts, launchers as processes of their own, and who is left."""

import contextlib
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import neomx

LIMIT = 1800.0  # seconds after which a wait hangs: many times what any takes, also on a machine that is busy otherwise
ROOT = str(pathlib.Path(neomx.__file__).parents[1])

# A worker with a child of its own, one that will not be asked to stop, and one that left its session.
FAMILY = """
    import os, subprocess, sys, time
    rank = os.environ["RANK"]
    sleep = "import time; time.sleep(60)"
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN);" + sleep
    python = [sys.executable, "-S", "-c"]
    family = [subprocess.Popen([*python, sleep]), subprocess.Popen([*python, stubborn])]
    family.append(subprocess.Popen([*python, sleep], start_new_session=True))
    with open(sys.argv[1] + "/part" + rank, "w") as file:
        file.write(" ".join(str(p.pid) for p in family) + f" {os.getpid()}")
    os.rename(sys.argv[1] + "/part" + rank, sys.argv[1] + "/pids" + rank)
    if rank == "1" and sys.argv[2:] == ["fail"]:
        sys.exit(4)
    time.sleep(60)
"""


def write(directory, text, name="script.py"):
    """A script in a file; its path."""
    path = directory / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def environment(**more):
    """Ours, for a process that is to find this neomx."""
    return {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", **more}


def neomx_run(*arguments, timeout=120):
    """`neomx run`, to its end: its exit code and output."""
    command = [sys.executable, "-m", "neomx", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment())


@contextlib.contextmanager
def launcher(*arguments):
    """`neomx run` as a process of its own, ended with the block."""
    command = [sys.executable, "-m", "neomx", "run", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment(), text=True, **pipes)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=90)


def alive(pid):
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def assert_gone(pids, seconds=0.0):
    """None of them runs any more, at once or after so long."""
    limit = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < limit:
        time.sleep(0.05)
    assert [pid for pid in pids if alive(pid)] == []


def family_of(directory, workers, seconds=120.0):
    """The numbers of all processes of FAMILY, once all workers have told theirs."""
    limit = time.monotonic() + seconds
    files = [directory / f"pids{rank}" for rank in range(workers)]
    while not all(file.exists() for file in files):
        assert time.monotonic() < limit, "the workers did not start"
        time.sleep(0.05)
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    assert len(pids) == 4 * workers
    return pids
