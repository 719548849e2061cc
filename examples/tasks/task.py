"""What the programs of this directory have in common: options, the printed curve, and the comparison with a target."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
import time

import neomx as mx


class Task:
    """One run of a task.

    `metric` names the number that `finish` receives, and `target` is what a full run must reach. `short` is what a
    short run (`--short`, for the tests) must reach. With `lower=True`, smaller numbers are better. Other keyword
    arguments become options of the program: `epochs=(20, 2)` is `--epochs`, 20 in a full run and 2 in a short one. A
    list such as `network=["mlp", "cnn"]` has the possible values; the first is the default.
    """

    def __init__(self, doc, metric, target, short, lower=False, **options):
        parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--short", action="store_true", help="run a part of the task, as the tests do")
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--curve", metavar="FILE", help="write the curve and the result to a JSON file")
        parser.add_argument("--data", metavar="DIR", help="directory of the real data set (default: made data)")
        for name, values in options.items():
            flag = f"--{name.replace('_', '-')}"
            if isinstance(values, list):
                parser.add_argument(flag, choices=values, default=values[0], help=f"default: {values[0]}")
            else:
                full, less = values
                parser.add_argument(flag, type=type(full), help=f"default: {full}, {less} with --short")
        self.options = parser.parse_args()
        if self.options.data is not None and not pathlib.Path(self.options.data).is_dir():
            parser.error(f"--data must be an existing directory, received {self.options.data}")
        for name, pair in options.items():
            if getattr(self.options, name) is None:
                setattr(self.options, name, pair[self.options.short])
        self.metric, self.target, self.lower = metric, short if self.options.short else target, lower
        self.rank, self.workers = mx.dist.rank(), mx.dist.size()
        self.curve = []
        self._samples, self._seconds, self._began = 0, 0.0, None
        mx.random.seed(self.options.seed)

    def part(self, batch):
        """Return this worker's part of a batch size over all workers."""
        if batch % self.workers:
            raise SystemExit(f"the batch of {batch} samples cannot be split over {self.workers} workers evenly")
        return batch // self.workers

    def epoch(self, samples):
        """Begin to measure an epoch in which all workers together train on this many samples."""
        self._began = samples, time.perf_counter()

    def report(self, number, **values):
        """End an epoch: print its values (numbers that are equal on all workers) and add them to the curve."""
        if self._began is not None:
            samples, began = self._began
            self._samples, self._seconds = self._samples + samples, self._seconds + time.perf_counter() - began
            self._began = None
        values = {name: float(value) for name, value in values.items()}
        self.curve.append({"epoch": number, **values})
        if self.rank == 0:
            print(
                f"epoch {number:2}: " + ", ".join(f"{name} {value:.4f}" for name, value in values.items()), flush=True
            )

    def finish(self, value, **more):
        """Print the result, write the curve, and exit with status 1 if the target was not reached."""
        reached = value <= self.target if self.lower else value >= self.target
        speed = self._samples / self._seconds if self._seconds else None
        if self.rank == 0:
            bound = "at most" if self.lower else "at least"
            more_text = "".join(f", {name} {number:.4g}" for name, number in more.items())
            print(f"{self.metric} {value:.4f} on {self.workers} worker(s){more_text}; target: {bound} {self.target}")
            if speed:
                print(f"{speed:,.0f} samples per second")
            if self.options.curve:
                found = {"metric": self.metric, "value": float(value), "target": self.target, "lower": self.lower}
                found |= {"workers": self.workers, "seed": self.options.seed, "samples_per_second": speed}
                found |= {"more": {name: float(number) for name, number in more.items()}, "curve": self.curve}
                pathlib.Path(self.options.curve).write_text(json.dumps(found) + "\n")
        mx.dist.barrier()
        if not reached:
            sys.exit(f"the target was not reached: {self.metric} is {value:.4f}")


def mean_over_workers(total, count):
    """Return the sum of `total` over all workers, divided by the sum of `count`."""
    both = mx.dist.all_reduce(mx.nd.array([float(total), float(count)], dtype="float64")).asnumpy()
    return both[0] / max(both[1], 1)
