"""`make bench-versions BEFORE=DIR`: compare this checkout with another one, for example that of the last release.

Both run the same workloads in turns: single processes, two workers on this machine, and two machines connected by a
slow link (network namespaces, which need root). Each workload is started several times, with alternating order: two
processes of the same checkout may differ by 6 % for their whole lifetime. A ratio is the median over rounds of this
checkout's time divided by the other's, followed by the middle half of the rounds. Below 1, this checkout is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import dist_contestants as contestants
import module_workloads
import op_workloads
import train_workloads
from dist_team import Team
from netns import TwoMachines, why_not
from race import Runner

STARTS = 4  # number of starts of each team
Pair = tuple[float, float]  # seconds per step: here, before
TEAMS = {
    "two workers: Trainer, all-reduce": ("dist_sync", "train", 0),
    "two workers: Trainer, servers": ("dist_sync", "train", 2),
    "two workers: Trainer, asynchronous servers": ("dist_async", "train", 2),
    "two workers: Module, all-reduce": ("dist_sync", "module", 0),
    "two workers: Module, servers": ("dist_sync", "module", 2),
    "two workers: layout data=2": ("data=2", "layout", 0),
    "two workers: layout shard=2": ("shard=2", "layout", 0),
    "two workers: layout tensor=2": ("tensor=2", "layout", 0),
}
LINKS = {
    "two machines, 1 Gbit/s: all-reduce": ("1gbit", ("train", "neomx", "dist_sync")),
    "two machines, 100 Mbit/s: 2bit": ("100mbit", ("train", "neomx", "dist_sync", "2bit")),
    "two machines, 1 Gbit/s: Module": ("1gbit", ("module", "neomx", "dist_sync")),
}


def in_turns(here: Callable[[], float], before: Callable[[], float], rounds: int) -> list[Pair]:
    """Return the times of both, round by round; the first one alternates."""
    pairs = []
    for i in range(rounds):
        first, second = (here, before) if i % 2 == 0 else (before, here)
        a, b = first(), second()
        pairs.append((a, b) if i % 2 == 0 else (b, a))
    return pairs


def single(before: str, chosen: Callable[[str], bool], rounds: int, seconds: float) -> Iterator[tuple[str, list[Pair]]]:
    """Measure ops, training steps and epochs of a Module in one process with one thread."""
    workloads = (
        ("op_workloads", {**op_workloads.SMALL, **op_workloads.HEAVY, **op_workloads.UPDATES}),
        ("train_workloads", train_workloads.WORKLOADS),
        ("module_workloads", module_workloads.WORKLOADS),
    )
    for module, names in workloads:
        pairs: dict[str, list[Pair]] = {name: [] for name in names if chosen(name)}
        for turn in range(STARTS if pairs else 0):
            packages = {"here": str(HERE), "before": before}
            order = sorted(packages, reverse=turn % 2 == 0)
            started = {which: Runner(sys.executable, "neomx", module, package=packages[which]) for which in order}
            for name, found in pairs.items():
                times = (partial(started[which].seconds, name, seconds) for which in ("here", "before"))
                found += in_turns(*times, -(-rounds // STARTS))
            for runner in started.values():
                runner.close()
        yield from pairs.items()


def teams(before: str, chosen: Callable[[str], bool], rounds: int, steps: int) -> Iterator[tuple[str, list[Pair]]]:
    """Measure two workers on this machine, then on two machines."""
    for name in filter(chosen, TEAMS):
        store, program, servers = TEAMS[name]
        start = [partial(contestants.neomx, store, program, 2, servers, package) for package in ("", before)]
        yield name, race(start, rounds, steps)
    wanted = [name for name in LINKS if chosen(name)]
    if wanted and (reason := why_not()):
        sys.exit(reason)
    for name in wanted:
        rate, how = LINKS[name]
        with TwoMachines(rate) as machines:
            yield (
                name,
                race([partial(contestants.neomx_on, machines, 1, how, each) for each in ("", before)], rounds, steps),
            )


def race(start: Sequence[Callable[[], Team]], rounds: int, steps: int) -> list[Pair]:
    pairs = []
    for turn in range(STARTS):
        with contextlib.ExitStack() as stack:
            order = (0, 1) if turn % 2 == 0 else (1, 0)
            started = {which: stack.enter_context(start[which]()) for which in order}
            for team in started.values():
                team.run("step", 3)
            here, before = (partial(started[which].seconds, "step", steps) for which in (0, 1))
            pairs += in_turns(here, before, -(-rounds // STARTS))
    return pairs


HERE = pathlib.Path(__file__).resolve().parent.parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", required=True, help="folder of the other checkout")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10, help="steps per team and round")
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds per process and round")
    parser.add_argument("--only", default="", help="run only workloads whose name contains this")
    args = parser.parse_args()
    before = str(pathlib.Path(args.before).resolve())
    if not pathlib.Path(before, "neomx", "__init__.py").exists():
        parser.error(f"--before {args.before}: expected a checkout of neomx, with a folder neomx in it")

    def chosen(name: str) -> bool:
        return args.only.lower() in name.lower()

    print(f"{'':46} {'here':>11} {'before':>11} {'ratio':>6}  middle half", flush=True)
    found = []
    for runs in (
        single(before, chosen, args.rounds, args.seconds),
        teams(before, chosen, args.rounds, args.steps),
    ):
        for name, pairs in runs:
            ratios = [a / b for a, b in pairs]
            low, ratio, high = statistics.quantiles(ratios, n=4)
            a, b = (statistics.median(each) * 1e3 for each in zip(*pairs, strict=True))
            found.append(ratio)
            print(f"{name:46} {a:8.2f} ms {b:8.2f} ms {ratio:6.3f}  {low:.3f} - {high:.3f}", flush=True)
    if found:
        print(f"{'geometric mean':46} {'':>11} {'':>11} {statistics.geometric_mean(found):6.3f}")


if __name__ == "__main__":
    main()
