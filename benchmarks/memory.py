"""`make bench`: memory of training: the peak of ResNet-18 compared with plain torch, and the growth over 10,000 steps.

Each value is measured in a separate process.
"""

from __future__ import annotations

import gc
import os
import resource
import subprocess
import sys

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
    (plain,) = run("peak", "torch", "imperative")
    print(f"peak of {RESNET}: plain torch {plain:.0f} MB")
    for mode in ("imperative", "hybridized"):
        (ours,) = run("peak", "neomx", mode)
        print(f"  neomx, {mode}: {ours:.0f} MB, {ours / plain:.2f} of it", flush=True)
    for mode in ("imperative", "hybridized"):
        memory, objects = run("leak", "neomx", mode)
        print(f"10,000 steps of {MLP}, {mode}: {memory:+.1f} MB, {objects:+.0f} objects", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"peak": peak, "leak": leak}[sys.argv[1]](*sys.argv[2:])
    else:
        main()
