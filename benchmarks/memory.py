"""`make bench`: memory of training: the peak of ResNet-18 compared with plain torch, and the growth over 10,000 steps.

Each value is measured in a separate process.
"""

from __future__ import annotations

import argparse
import gc
import os
import resource
import subprocess
import sys

import record

RESNET, MLP = "ResNet-18 on 32x32, batch 32", "MLP 784-256-128, batch 64"


def steps_of(engine: str, name: str, mode: str):
    import torch

    torch.set_num_threads(1)
    if engine == "torch":
        from torch_workloads import WORKLOADS

        return WORKLOADS[f"{name} ({mode})"](None)
    from train_workloads import WORKLOADS

    import neomx

    return WORKLOADS[f"{name} ({mode})"](neomx)


def peak(engine: str, mode: str) -> None:
    """Print the peak memory, in MB, of a few steps of ResNet-18."""
    step = steps_of(engine, RESNET, mode)
    for _ in range(5):
        step()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


def resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def leak(engine: str, mode: str) -> None:
    """Print by how many MB and objects 10,000 steps exceed 1,000 steps."""
    step = steps_of(engine, MLP, mode)

    def after(count: int) -> tuple[float, int]:
        for _ in range(count):
            step()
        gc.collect()
        return resident(), len(gc.get_objects())

    (memory, objects), (more_memory, more_objects) = after(1000), after(10_000)
    print(more_memory - memory, more_objects - objects)


def run(what: str, engine: str, mode: str) -> list[float]:
    command = [sys.executable, __file__, what, engine, mode]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return [float(word) for word in output.split()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("memory")
    plain = run("peak", "torch", "imperative")
    print(f"peak of {RESNET}: plain torch {plain[0]:.0f} MB")
    for mode in ("imperative", "hybridized"):
        ours = run("peak", "neomx", mode)
        row = result.add(record.row("peak of a process", f"{RESNET}, {mode}", "MB", ours, plain, against="torch"))
        print(f"  neomx, {mode}: {row.ours:.0f} MB, {row.ratio:.2f} of it", flush=True)
    for mode in ("imperative", "hybridized"):
        memory, objects = run("leak", "neomx", mode)
        for unit, number in (("MB", memory), ("objects", objects)):
            result.add(record.row("added by 10,000 steps", f"{MLP}, {mode}", unit, [number]))
        print(f"10,000 steps of {MLP}, {mode}: {memory:+.1f} MB, {objects:+.0f} objects", flush=True)
    result.save(args.json)


if __name__ == "__main__":
    if sys.argv[1:2] in (["peak"], ["leak"]):  # a process that `run` started
        {"peak": peak, "leak": leak}[sys.argv[1]](*sys.argv[2:])
    else:
        main()
