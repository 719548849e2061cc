"""`make bench`: ops of neomx and MXNet 1.9.1, with one thread, in turns; below 1, neomx is faster."""

from __future__ import annotations

import argparse
import statistics
import sys

import record
from op_workloads import HEAVY, SMALL, SMALL_CALLS, UPDATES
from race import Runner, race


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", required=True, help="path of a Python with mxnet==1.9.1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="how long one side runs in a round")
    parser.add_argument("--only", default="", help="only workloads whose name contains this")
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("ops")
    ours = Runner(sys.executable, "neomx", "op_workloads")
    theirs = Runner(args.oracle, "mxnet", "op_workloads")
    groups = (
        ("small ops", SMALL, "us", SMALL_CALLS),
        ("heavy ops, forward and backward", HEAVY, "ms", 1),
        ("optimizer steps, 4M elements", UPDATES, "ms", 1),
    )
    for title, group, unit, per in groups:
        ratios = []
        print(f"\n{title:34} {'neomx':>9} {'MXNet':>9} {'ratio':>7}")
        for name in (n for n in group if args.only in n):
            times = [[each / per for each in side] for side in race(ours, theirs, name, args.rounds, args.seconds)]
            row = result.add(record.row(title, name, "s", *times, against="MXNet"))
            scale = 1e6 if unit == "us" else 1e3
            ratios.append(row.ratio)
            shown = f"{row.ours * scale:6.2f} {unit} {row.theirs * scale:6.2f} {unit}"
            print(f"{name:34} {shown} {row.ratio:7.2f}", flush=True)
        if ratios:
            print(f"{'geometric mean':34} {'':>9} {'':>9} {statistics.geometric_mean(ratios):7.2f}")
    ours.close()
    theirs.close()
    result.save(args.json)


if __name__ == "__main__":
    main()
