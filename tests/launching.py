"""For tests with several processes: scripts, launchers as processes of their own, and who is left."""

import contextlib
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import neomx

# Seconds after which a wait is one for something that never comes: many times what any takes on a quiet machine.
# Something is told soon, and not only when a time is over, if that is within SOON where the time is LIMIT.
LIMIT, SOON = 1800.0, 180.0
ROOT = str(pathlib.Path(neomx.__file__).parents[1])

# A worker with a child of its own, one that will not be asked to stop, and one that left its session. All would live
# for longer than a test waits. To fail, worker 1 waits until all families are there.
FAMILY = """
    import os, subprocess, sys, time
    rank = os.environ["RANK"]
    sleep = "import time; time.sleep(3600)"
    stubborn = "import signal; signal.signal(15, signal.SIG_IGN); signal.signal(2, signal.SIG_IGN);" + sleep
    python = [sys.executable, "-S", "-c"]
    family = [subprocess.Popen([*python, sleep]), subprocess.Popen([*python, stubborn])]
    family.append(subprocess.Popen([*python, sleep], start_new_session=True))
    with open(sys.argv[1] + "/part" + rank, "w") as file:
        file.write(" ".join(str(p.pid) for p in family) + f" {os.getpid()}")
    os.rename(sys.argv[1] + "/part" + rank, sys.argv[1] + "/pids" + rank)
    if rank == "1" and sys.argv[2:] == ["fail"]:
        while not all(os.path.exists(f"{sys.argv[1]}/pids{n}") for n in range(int(os.environ["WORLD_SIZE"]))):
            time.sleep(0.05)
        sys.exit(4)
    time.sleep(3600)
"""


def write(directory, text, name="script.py"):
    """A script in a file; its path."""
    path = directory / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def environment(**more):
    """Ours, for a process that is to find this neomx."""
    return {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", **more}


def neomx_run(*arguments):
    """`neomx run`, to its end: its exit code and output."""
    command = [sys.executable, "-m", "neomx", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())


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
        process.communicate(timeout=LIMIT)


def alive(pid):
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition, seconds=LIMIT):
    """Wait until it holds; whether it does, which is false only after so long."""
    limit = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < limit:
        time.sleep(0.02)
    return holds


def assert_gone(pids):
    """None of them runs any more."""
    assert [pid for pid in pids if alive(pid)] == []


def assert_they_go(pids):
    """All of them end: nobody is left to wait for that."""
    until(lambda: not any(map(alive, pids)))
    assert_gone(pids)


def family_of(directory, workers):
    """The numbers of all processes of FAMILY, once all workers have told theirs."""
    files = [directory / f"pids{rank}" for rank in range(workers)]
    assert until(lambda: all(file.exists() for file in files)), "the workers did not start"
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    assert len(pids) == 4 * workers
    return pids
