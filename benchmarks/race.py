"""Two interpreters run the same workload in turns, so that noise on the machine affects both equally.

A workload is a function `setup(mx)` that returns the step to time. The child process below loads a module of workloads,
where `mx` is neomx (also for plain torch) or MXNet, and times steps on request.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CHILD = """
import importlib, json, os, sys, time
workloads, engine = sys.argv[1:3]
import numpy
if engine == "mxnet":
    import mxnet as mx
    wait = mx.nd.waitall
else:
    import neomx as mx, torch
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    wait = lambda: None
module = importlib.import_module(workloads)
steps = {}
print("ready", flush=True)
for line in sys.stdin:
    name, seconds = json.loads(line)
    if name not in steps:
        numpy.random.seed(0)
        steps[name] = module.WORKLOADS[name](mx)
        for _ in range(3):
            steps[name]()
        wait()
    step, count = steps[name], 0
    start = time.perf_counter()
    while True:
        step()
        wait()
        count += 1
        spent = time.perf_counter() - start
        if spent > seconds:
            break
    print(json.dumps(spent / count), flush=True)
"""


class Runner:
    """A child interpreter that times workloads on request."""

    def __init__(self, python: str, engine: str, workloads: str, threads: int = 1, package: str = str(HERE.parent)):
        limits = {"OMP_NUM_THREADS": f"{threads}", "MKL_NUM_THREADS": f"{threads}", "MXNET_CPU_WORKER_NTHREADS": "1"}
        limits["OMP_WAIT_POLICY"] = "PASSIVE"  # spinning threads would disturb the other process
        path = os.pathsep.join([str(HERE), package])
        self.child = subprocess.Popen(
            [python, "-c", CHILD, workloads, engine],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=package,  # Python imports from here first
            env={**os.environ, **limits, "PYTHONPATH": path},
        )
        self._answer()

    def _answer(self) -> str:
        assert self.child.stdout
        line = self.child.stdout.readline().strip()
        if not line:
            sys.exit(f"the child that runs {self.child.args[-1]} ended; its error is above")
        return line

    def seconds(self, name: str, budget: float) -> float:
        """Return the seconds per step, over as many steps as fit into the budget."""
        assert self.child.stdin
        self.child.stdin.write(json.dumps([name, budget]) + "\n")
        self.child.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        assert self.child.stdin
        self.child.stdin.close()
        self.child.wait(30)


def race(ours: Runner, theirs: Runner, name: str, rounds: int, budget: float) -> tuple[list[float], list[float]]:
    """Return the seconds of ours and of theirs in each round."""
    found: dict[Runner, list[float]] = {ours: [], theirs: []}
    for i in range(rounds):
        runners = (ours, theirs) if i % 2 == 0 else (theirs, ours)
        for runner in runners:
            found[runner].append(runner.seconds(name, budget))
    return found[ours], found[theirs]
