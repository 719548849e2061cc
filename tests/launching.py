"""For tests with several processes: scripts, launchers as separate processes, and checks for remaining processes."""

import contextlib
import os
import pathlib
import subprocess
import sys
import textwrap
import time

import neomx

# LIMIT is the timeout in seconds for events that should happen, many times what they take on an idle machine. An event
# counts as prompt, and not caused by a timeout of LIMIT, if it happens within SOON.
LIMIT, SOON = 1800.0, 180.0
ROOT = str(pathlib.Path(neomx.__file__).parents[1])

# A worker with three children: a plain one, one that ignores signals, and one in another session. All would live longer
# than a test waits. Before it fails, worker 1 waits until all families have started.
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
    """Write a script to a file and return its path."""
    path = directory / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def environment(**more):
    """Return our environment, for a process that must import this neomx."""
    return {**os.environ, "PYTHONPATH": ROOT, "OMP_NUM_THREADS": "1", **more}


def neomx_run(*arguments):
    """Run `neomx run` to its end; return its exit code and output."""
    command = [sys.executable, "-m", "neomx", "run", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())


@contextlib.contextmanager
def launcher(*arguments):
    """Run `neomx run` as a separate process that ends with the block."""
    command = [sys.executable, "-m", "neomx", "run", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, env=environment(), text=True, **pipes)
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT)


def alive(pid):
    """Return whether a process runs; zombies do not count."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition, seconds=LIMIT):
    """Wait until the condition holds; return False on timeout."""
    limit = time.monotonic() + seconds
    while not (holds := condition()) and time.monotonic() < limit:
        time.sleep(0.02)
    return holds


def assert_gone(pids):
    """Assert that none of the processes runs."""
    assert [pid for pid in pids if alive(pid)] == []


def assert_they_go(pids):
    """Assert that all of the processes end soon."""
    until(lambda: not any(map(alive, pids)))
    assert_gone(pids)


def family_of(directory, workers):
    """Return the process ids of FAMILY, once all workers have written theirs."""
    files = [directory / f"pids{rank}" for rank in range(workers)]
    assert until(lambda: all(file.exists() for file in files)), "the workers did not start"
    pids = [int(pid) for file in files for pid in file.read_text().split()]
    assert len(pids) == 4 * workers
    return pids
