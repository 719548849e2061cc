"""What a flood of strangers' connections costs a training: `python benchmarks/flood.py [--at server ...] [--rate 400]`.

A flooder connects to a port of a training job at this rate per second. In turn, it disconnects immediately, stays half
open, or sends noise. Rounds alternate between no flood, the flooder at an unserved port (the kernel completes its
connections without any process: this measures the flooder's own use of the CPU), and the flooder at the job's port. It
prints the medians of steps per second with their ratios, and the CPU time of the listening process, which other work on
the machine affects less.
"""

from __future__ import annotations

import argparse
import contextlib
import mmap
import os
import pathlib
import secrets
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import record

HERE = pathlib.Path(__file__).resolve().parents[1]
STEPS = struct.Struct("<q")
TRAINING = """
import mmap, os, struct, sys
import neomx as mx
from neomx import autograd, gluon

kv = mx.kv.create("dist_sync")
net = gluon.nn.Sequential()
net.add(gluon.nn.Dense(256, activation="relu"), gluon.nn.Dense(256, activation="relu"), gluon.nn.Dense(10))
net.initialize()
trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=kv)
x = mx.nd.random.normal(shape=(64, 128))
with open(sys.argv[1], "r+b") as file:
    count = mmap.mmap(file.fileno(), 8)
steps = 0
while True:
    with autograd.record():
        loss = (net(x) ** 2).mean()
    loss.backward()
    trainer.step(64 * kv.num_workers)
    steps += 1
    if kv.rank == 0:
        count[:] = struct.pack("<q", steps)  # one copy, unlike pack_into
"""
FLOODER = """
import os, socket, sys, time
port, rate = int(sys.argv[1]), float(sys.argv[2])
held, made, began = [], 0, time.monotonic()
while True:
    due = int((time.monotonic() - began) * rate)
    for made in range(made, due):
        try:
            sock = socket.create_connection(("127.0.0.1", port), 1)
            if made % 3 == 2:
                sock.send(os.urandom(80))
        except OSError:
            continue
        if made % 3:
            held.append(sock)
        else:
            sock.close()
        if len(held) > 150:
            held.pop(0).close()
    made = max(made, due)
    time.sleep(0.005)
"""


def command_of(where: str, checkout: str, program: str, counter: str, workers: int) -> list[subprocess.Popen[bytes]]:
    """Start the job and return its processes."""
    environ = {**os.environ, "PYTHONPATH": checkout, "OMP_NUM_THREADS": "1"}
    if where != "worker":
        servers = ["-s", "1"] if where == "server" else []
        launcher = [sys.executable, "-m", "neomx", "run", "-n", str(workers), *servers, "--no-progress"]
        return [subprocess.Popen([*launcher, program, counter], env=environ)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(workers),
        "LOCAL_WORLD_SIZE": str(workers),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "NEOMX_SECRET": secrets.token_hex(16),
    }
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(workers)]
    command = [sys.executable, program, counter]
    return [subprocess.Popen(command, env={**environ, **shared, **place}) for place in places]


@contextlib.contextmanager
def job(where: str, checkout: str, workers: int) -> Iterator[tuple[Callable[[], int], int, int]]:
    """Run a training job; yields a function that returns the number of steps, the listening process, and its port."""
    with tempfile.TemporaryDirectory() as folder:
        program, counter = os.path.join(folder, "train.py"), os.path.join(folder, "steps")
        pathlib.Path(program).write_text(TRAINING)
        pathlib.Path(counter).write_bytes(bytes(8))
        with open(counter, "r+b") as file, mmap.mmap(file.fileno(), 8) as memory:
            processes = command_of(where, checkout, program, counter, workers)
            try:
                while STEPS.unpack_from(memory)[0] < 100:
                    if any(process.poll() is not None for process in processes):
                        raise SystemExit("the job ended before training started")
                    time.sleep(0.1)
                pid = listener_of(where, processes[0].pid)
                (port,) = ports_of(pid)
                yield lambda: int(STEPS.unpack_from(memory)[0]), pid, port
            finally:
                for process in processes:
                    process.send_signal(signal.SIGTERM)
                for process in processes:
                    process.wait()


def listener_of(where: str, pid: int) -> int:
    """Return the process of the store, the launcher or worker 0, or the server among the launcher's processes."""
    if where != "server":
        return pid
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    environs = {child: pathlib.Path(f"/proc/{child}/environ").read_bytes().split(b"\0") for child in children}
    (server,) = (int(child) for child, environ in environs.items() if b"NEOMX_ROLE=server" in environ)
    return server


def ports_of(pid: int) -> list[int]:
    """Return the ports on which a process listens."""
    open_files = {os.readlink(path) for path in pathlib.Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()}
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in open_files]


def cpu_of(pid: int) -> float:
    """Return the CPU time of a process, in seconds."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def flooded(port: int | None, rate: float) -> Iterator[None]:
    """Run a flooder at this port, or at an unserved one; none with a rate of 0."""
    with contextlib.ExitStack() as stack:
        if port is None:
            port = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=4096)).getsockname()[1]
        if rate:
            process = subprocess.Popen([sys.executable, "-S", "-c", FLOODER, str(port), str(rate)])
            stack.callback(process.wait)
            stack.callback(process.kill)
            time.sleep(0.5)
        yield


def measure(place: str, arguments: argparse.Namespace) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Steps per second, and CPU seconds of the listener per second, by kind of round."""
    speeds: dict[str, list[float]] = {"quiet": [], "control": [], "flood": []}
    costs: dict[str, list[float]] = {kind: [] for kind in speeds}
    with job(place, arguments.checkout, arguments.workers) as (steps, pid, port):
        kinds = {"quiet": (None, 0.0), "control": (None, arguments.rate), "flood": (port, arguments.rate)}
        for number in range(arguments.rounds):
            order = list(kinds)[number % 3 :] + list(kinds)[: number % 3]
            for kind in order:
                with flooded(*kinds[kind]):
                    before, used, began = steps(), cpu_of(pid), time.monotonic()
                    time.sleep(arguments.seconds)
                    elapsed = time.monotonic() - began
                    speeds[kind].append((steps() - before) / elapsed)
                    costs[kind].append((cpu_of(pid) - used) / elapsed)
    return speeds, costs


def report(place: str, speeds: dict[str, list[float]], costs: dict[str, list[float]]) -> list[record.Row]:
    """Print the medians, and return them as rows."""
    print(f"at the {place}:")
    for kind, values in speeds.items():
        cost = 100 * statistics.median(costs[kind])
        speed = f"{statistics.median(values):8.1f} steps/s ({min(values):.1f} to {max(values):.1f})"
        print(f"{kind:8}{speed}; the listener's process: {cost:.1f} % of a core")
    pairs = (("control", "quiet"), ("flood", "quiet"), ("flood", "control"))
    rows = [record.row("speed", place, "steps/s", speeds[a], speeds[b], by=a, against=b) for a, b in pairs]
    for each in rows:
        print(f"{each.by} / {each.against}: {each.ratio:.2f}", flush=True)
    return rows + [record.row("CPU of the listening process", place, "cores", costs[kind], by=kind) for kind in costs]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    places = ("store", "server", "worker")
    parser.add_argument(
        "--at", choices=places, nargs="+", default=["store"], help="store in the launcher or worker 0, or a server"
    )
    parser.add_argument("--rate", type=float, default=400.0, help="connections per second")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement; rate x seconds below 4096")
    parser.add_argument("--workers", type=int, default=1, help="fewer than cores, to leave one to the flooder")
    parser.add_argument("--checkout", default=str(HERE), help="the neomx to measure, by default this one")
    record.add_option(parser)
    arguments = parser.parse_args()
    result = record.begin("flood")
    for place in arguments.at:
        result.rows += report(place, *measure(place, arguments))
    result.save(arguments.json)


if __name__ == "__main__":
    main()
