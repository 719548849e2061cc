"""The training of `make demo`, measured: a LeNet on one worker and on two, one thread each, in turns.

A ratio is the median of the rounds' ratios, two workers' samples per second by those of one.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys

import record

import neomx as mx

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "examples"))

import distributed_digits  # found by the line above


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=4)
    record.add_option(parser)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # one worker must not use the cores of two
    result = record.begin("workers")
    speeds: dict[int, list[float]] = {1: [], 2: []}
    for number in range(args.rounds):
        trained = {}
        for workers in (1, 2) if number % 2 == 0 else (2, 1):
            trained[workers] = mx.dist.launch(distributed_digits.main, n=workers, args=(args.epochs,))[0]
            speeds[workers].append(trained[workers][1])
    names = {"by": "2 workers", "against": "1 worker"}
    speed = result.add(record.row("training", "LeNet", "samples/s", speeds[2], speeds[1], **names))
    accuracies = [[float(trained[workers][0])] for workers in (2, 1)]
    result.add(record.row("after training", "accuracy", "share", *accuracies, **names))
    pairs = zip(trained[2][2], trained[1][2], strict=True)
    difference = max((a - b).abs().max().asscalar() for a, b in pairs)
    result.add(record.row("after training", "largest difference between weights", "", [float(difference)]))
    print(f"samples/s: 1 worker {speed.theirs:,.0f}, 2 workers {speed.ours:,.0f}, ratio {speed.ratio:.2f}")
    print(f"accuracy: {accuracies[1][0]:.3f}, {accuracies[0][0]:.3f}; weights differ by at most {difference:.1g}")
    result.save(args.json)


if __name__ == "__main__":
    main()
