"""The cost of `--server-replicas 2` without failures: training steps of two workers with two servers on this machine.

The workload is that of `make bench-dist`: an MLP of 10 million parameters, SGD with momentum, one thread per process.
Jobs with and without replicas run at the same time and step in turns. The ratio is that of the medians of the rounds.
"""

from __future__ import annotations

import argparse
from functools import partial

import dist_contestants as contestants
import record
from dist import rounds_of

GOAL = 1.15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=10, help="steps per job and round")
    parser.add_argument("--kvstores", nargs="+", default=["dist_sync", "dist_async"], metavar="NAME")
    record.add_option(parser)
    args = parser.parse_args()
    result = record.begin("server_replicas")
    for kvstore in args.kvstores:
        start = [
            partial(contestants.neomx, kvstore, servers=2, replicas=replicas, name=f"{kvstore}, {replicas}")
            for replicas in (1, 2)
        ]
        alone, held = rounds_of(start, "step", args.steps, args.rounds).values()
        row = result.add(record.row("a training step", kvstore, "s", held, alone, "2 replicas", "1 replica"))
        assert row.theirs is not None and row.middle_half is not None
        ratio = row.ours / row.theirs
        goal = f"goal <= {GOAL}: {'met' if ratio <= GOAL else 'MISSED'}" if kvstore == "dist_sync" else ""
        print(
            f"{kvstore}: a step takes {row.theirs * 1e3:.1f} ms, with 2 replicas {row.ours * 1e3:.1f} ms, ratio "
            f"{ratio:.3f} (middle half of the rounds {row.middle_half[0]:.3f} - {row.middle_half[1]:.3f}) {goal}",
            flush=True,
        )
    result.save(args.json)


if __name__ == "__main__":
    main()
