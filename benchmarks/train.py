"""`make bench`: training steps of neomx, MXNet 1.9.1 and plain torch, with one thread, in turns.

A ratio is our time divided by theirs: below 1, neomx is faster.
"""

from __future__ import annotations

import argparse
import statistics
import sys

import record
from race import Runner, race
from train_workloads import WORKLOADS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", default="", help="path of a Python with mxnet==1.9.1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long one side runs in a round")
    parser.add_argument("--only", default="", help="only workloads whose name contains this")
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("train")
    ours = Runner(sys.executable, "neomx", "train_workloads")
    others = {"torch": Runner(sys.executable, "torch", "torch_workloads")}
    if args.oracle:
        others["MXNet"] = Runner(args.oracle, "mxnet", "train_workloads")
    heads = "".join(f"{name:>11} {'ratio':>6}" for name in others)
    print(f"{'a training step':44} {'neomx':>10}{heads}")
    ratios: dict[tuple[str, str], list[float]] = {}
    for name in (n for n in WORKLOADS if args.only in n):
        model, _, mode = name.rstrip(")").rpartition(" (")
        cells, mine = "", []
        for other, runner in others.items():
            times = race(ours, runner, name, args.rounds, args.seconds)
            row = result.add(record.row(mode, model, "s", *times, against=other))
            mine.append(row.ours)
            ratios.setdefault((mode, other), []).append(row.ratio)
            cells += f"{row.theirs * 1e3:8.2f} ms {row.ratio:6.2f}"
        print(f"{name:44} {statistics.median(mine) * 1e3:7.2f} ms{cells}", flush=True)
    for (mode, other), each in ratios.items():
        print(f"geometric mean, {mode}, against {other}: {statistics.geometric_mean(each):.2f}")
    for runner in (ours, *others.values()):
        runner.close()
    result.save(args.json)


if __name__ == "__main__":
    main()
