"""Measure training steps of tasks on two workers, against the same tasks written by hand in torch with DDP.

Both sides are two processes with one thread each, started together, and step in turns. A step includes the next batch
of a DataLoader. neomx runs the networks of examples/tasks hybridized.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import sys

import record
import task_workloads
from dist_team import Team, free_port

WORKER = str(pathlib.Path(__file__).resolve().parent / "task_worker.py")


def ours() -> Team:
    command = [sys.executable, "-m", "neomx", "run", "-n", "2", WORKER, "neomx"]
    return Team("neomx", [(command, {"NEOMX_TIMEOUT": "100"})], 2)


def theirs() -> Team:
    place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    command = [sys.executable, WORKER, "torch"]
    return Team("torch DDP", [(command, {**place, "RANK": str(rank)}) for rank in range(2)], 2)


def race(teams: list[Team], name: str, rounds: int, seconds: float) -> record.Row:
    """Return the row of a task: samples per second of both sides, in turns."""
    for team in teams:
        team.run(name, 3)
    count = max(3, int(seconds / teams[0].seconds(name, 3)))
    times: dict[str, list[float]] = {team.name: [] for team in teams}
    for number in range(rounds):
        for team in teams[:: 1 - 2 * (number % 2)]:
            times[team.name].append(team.seconds(name, count))
    samples = 2 * task_workloads.DATA[name].batch
    speeds = [[samples / each for each in times[team.name]] for team in teams]
    return record.row("two workers", name, "samples/s", *speeds, against="torch DDP")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="TASK", help=f"default: {', '.join(task_workloads.OURS)}")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.7, help="of a side in a round")
    record.add_option(parser)
    args = parser.parse_args()
    if unknown := set(args.names) - set(task_workloads.OURS):
        parser.error(f"unknown task: {', '.join(sorted(unknown))}; expected some of {', '.join(task_workloads.OURS)}")
    result = record.begin("tasks")
    with ours() as mine, theirs() as other:
        for name in args.names or task_workloads.OURS:
            row = result.add(race([mine, other], name, args.rounds, args.seconds))
            low, high = row.middle_half or (row.ratio, row.ratio)
            print(f"{name:28} {row.ours:9.0f} {row.theirs:9.0f} samples/s  {row.ratio:.2f} ({low:.2f} to {high:.2f})")
    mean = statistics.geometric_mean(row.ratio for row in result.rows)
    print(f"geometric mean of the ratios {mean:.2f}, least {min(row.ratio for row in result.rows):.2f}")
    result.save(args.json)


if __name__ == "__main__":
    main()
