"""`make bench`: epochs of symbolic training, neomx and MXNet 1.9.1 in turns, with one thread and with two.

A ratio is our time divided by theirs: below 1, neomx is faster.
"""

from __future__ import annotations

import argparse
import sys

import record
from module_workloads import BATCH, BATCHES, WORKLOADS
from race import Runner, race


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", required=True, help="path of a Python with mxnet==1.9.1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds per engine and round")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="", help="only workloads whose name contains this")
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("module")
    print(f"{f'an epoch of {BATCHES} batches of {BATCH}':44} {'neomx':>11} {'MXNet':>11} {'ratio':>6}")
    for threads in args.threads:
        ours = Runner(sys.executable, "neomx", "module_workloads", threads)
        theirs = Runner(args.oracle, "mxnet", "module_workloads", threads)
        for name in (n for n in WORKLOADS if args.only in n):
            times = race(ours, theirs, name, args.rounds, args.seconds)
            row = result.add(record.row(f"{threads} thread{'s' * (threads > 1)}", name, "s", *times, against="MXNet"))
            shown = f"{row.ours * 1e3:8.1f} ms {row.theirs * 1e3:8.1f} ms {row.ratio:6.2f}"
            print(f"{f'{name}, {row.group}':44} {shown}", flush=True)
        ours.close()
        theirs.close()
    result.save(args.json)


if __name__ == "__main__":
    main()
