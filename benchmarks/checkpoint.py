"""What checkpoints cost: `python benchmarks/checkpoint.py [--scale 1] [--directory DIR]`.

A training with Adam, whose parameters and states take SCALE GB, saves and resumes. Rounds alternate with `dd` to the
same disk (conv=fsync, as many bytes), and with torch.save (and fsync) and torch.load of the same content. It prints

- the speed of writing, from `save` until the files are durable, and its ratio to dd's: at least 0.8 is the aim;
- the pause: how long `save` takes, and how long the next update waits for it, as a share of the time of writing. At
  most 5 % is the aim. The first save allocates memory and is not counted;
- the time of `restore`, which verifies all checksums, and of torch.load with copying to the same parameters.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable

import record
import torch

import neomx as mx
from neomx import autograd, gluon
from neomx.checkpoint import Checkpointer

WIDTH = 2048  # of the layers: 16 MB each


class Training:
    """Dense layers with Adam, whose parameters and states take about `size` bytes."""

    def __init__(self, size: int):
        mx.random.seed(1)
        layers = max(1, round(size / 3 / (WIDTH * WIDTH * 4)))
        self.net = gluon.nn.HybridSequential()
        for _ in range(layers):
            self.net.add(gluon.nn.Dense(WIDTH, in_units=WIDTH, use_bias=False))
        self.net.initialize()
        self.trainer = gluon.Trainer(self.net.collect_params(), "adam", {"learning_rate": 1e-4})
        self.x = mx.nd.random.normal(shape=(8, WIDTH))
        self.backward()
        self.update()

    def backward(self) -> None:
        """Compute gradients."""
        with autograd.record():
            loss = (self.net(self.x) ** 2).mean()
        loss.backward()

    def update(self) -> float:
        """Return the seconds of an update."""
        return seconds(lambda: self.trainer.step(1))

    def tensors(self) -> list[torch.Tensor]:
        """Return all parameters and states."""
        found = [param.data()._data.detach() for param in self.net.collect_params().values()]
        for state in self.trainer.training.updater().states.values():
            found += [array._data for array in state]
        return found


def seconds(call: Callable[[], object]) -> float:
    """Return how long a call takes."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def dd(path: pathlib.Path, size: int) -> float:
    """Return the seconds that dd takes to write a file of this size."""
    command = ["dd", "if=/dev/zero", f"of={path}", f"bs={8 << 20}", f"count={size >> 23}", "conv=fsync"]
    found = seconds(lambda: subprocess.run(command, check=True, capture_output=True))
    path.unlink()
    return found


def torch_save(path: pathlib.Path, tensors: list[torch.Tensor]) -> float:
    """Return the seconds that torch.save and fsync take."""

    def save() -> None:
        with open(path, "wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())

    return seconds(save)


def torch_load(path: pathlib.Path, tensors: list[torch.Tensor]) -> float:
    """Return the seconds that torch.load and copying to parameters and states take."""

    def load() -> None:
        for target, value in zip(tensors, torch.load(path), strict=True):
            target.copy_(value)

    return seconds(load)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=float(os.environ.get("SCALE", "1")), help="GB of the content")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--directory", help="on the disk to measure (default: a temporary one)")
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("checkpoint")
    folder = pathlib.Path(tempfile.mkdtemp(dir=args.directory))
    try:
        measure(result, folder, int(args.scale * 1e9), args.rounds)
    finally:
        shutil.rmtree(folder)
    result.save(args.json)


def measure(result: record.Result, folder: pathlib.Path, aim: int, rounds: int) -> None:
    """Add all rows."""
    training = Training(aim)
    tensors = training.tensors()
    size = sum(each.nbytes for each in tensors)
    ckpt = Checkpointer(folder / "run", net=training.net, trainer=training.trainer, keep=1, signals=False)
    times: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        times.setdefault(name, []).append(value)

    for number in range(rounds + 1):
        training.backward()
        usual = statistics.median(training.update() for _ in range(3))
        ckpt.step()
        began = time.perf_counter()
        saving = seconds(ckpt.save)
        training.backward()
        update = training.update()
        ckpt.wait()
        whole = time.perf_counter() - began
        ckpt.step()
        idle = seconds(lambda: (ckpt.save(), ckpt.wait()))  # type: ignore[func-returns-value]
        if number == 0:
            continue
        note("dd", dd(folder / "dd", size))
        note("write", idle)
        note("write beside a step", whole)
        note("pause", saving + max(0.0, update - usual))
        note("torch.save", torch_save(folder / "torch", tensors))
        note("restore", seconds(ckpt.restore))
        tensors = training.tensors()
        note("torch.load", torch_load(folder / "torch", tensors))
    ckpt.close()
    add_rows(result, size, times)


def add_rows(result: record.Result, size: int, times: dict[str, list[float]]) -> None:
    """Add the rows, and print them."""
    mega = size / 1e6
    group = f"{size / 1e9:.2f} GB"
    speeds = {name: [mega / each for each in times[name]] for name in ("write", "dd", "torch.save")}
    writing = result.add(record.row(group, "writing", "MB/s", speeds["write"], speeds["dd"], against="dd"))
    other = result.add(record.row(group, "saving", "MB/s", speeds["write"], speeds["torch.save"], against="torch.save"))
    share = [a / b for a, b in zip(times["pause"], times["write"], strict=True)]
    pause = result.add(record.row(group, "pause", "s", times["pause"], times["write"], against="writing"))
    resume = result.add(record.row(group, "resume", "s", times["restore"], times["torch.load"], against="torch.load"))
    print(f"{group} of parameters and states of Adam, medians of {len(share)} rounds")
    print(f"written at   {writing.ours:7.0f} MB/s, dd {writing.theirs:.0f} MB/s: ratio {writing.ratio:.2f}")
    print(f"             torch.save with fsync {other.theirs:.0f} MB/s: ratio {other.ratio:.2f}")
    print(f"pause        {pause.ours * 1e3:7.0f} ms, {pause.ratio:.1%} of the time of writing")
    print(f"resume       {resume.ours:7.2f} s, torch.load {resume.theirs:.2f} s: ratio {resume.ratio:.2f}")


if __name__ == "__main__":
    main()
