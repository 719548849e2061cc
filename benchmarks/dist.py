"""`make bench-dist`: compare neomx on two workers with torch's DDP, MXNet 1.9.1 and a bare socket.

Each process has one thread. All contestants of a table are started together and step in turns, so that noise on the
machine affects them equally. A ratio is the median over rounds of our time divided by theirs, followed by the middle
half of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import dist_contestants as contestants
import dist_link
from dist_team import Team


@dataclass
class Row:
    """One comparison: our time divided by theirs, and the goal."""

    what: str
    ours: str
    theirs: str
    ratio: float
    middle_half: tuple[float, float]
    goal: str = ""
    verdict: str = ""


def row(what: str, ours: str, theirs: str, ratios: Sequence[float], at_most: float = 0, at_least: float = 0) -> Row:
    """Return a row of the table from the ratios of all rounds."""
    ratio = statistics.median(ratios)
    low, _, high = statistics.quantiles(ratios, n=4)
    goal = f"<= {at_most}" if at_most else f">= {at_least}" if at_least else ""
    met = ratio <= at_most if at_most else ratio >= at_least
    return Row(what, ours, theirs, ratio, (low, high), goal, ("met" if met else "MISSED") if goal else "")


def rounds_of(start: Sequence[Callable[[], Team]], what: str, count: int, rounds: int) -> dict[str, list[float]]:
    """Return each team's seconds per step, round by round; the team that goes first changes each round."""
    with contextlib.ExitStack() as stack:
        teams = [stack.enter_context(team()) for team in start]
        for team in teams:
            team.run(what, 3)
        times: dict[str, list[float]] = {team.name: [] for team in teams}
        for i in range(rounds):
            first = i % len(teams)
            for team in (*teams[first:], *teams[:first]):
                times[team.name].append(team.seconds(what, count))
    return times


def race(times: dict[str, list[float]], ours: str, theirs: str, what: str, at_most: float = 0) -> Row:
    a, b = times[ours], times[theirs]
    shown = [f"{statistics.median(each) * 1e3:.1f} ms" for each in (a, b)]
    ratios = [x / y for x, y in zip(a, b, strict=True)]
    return row(what, f"{ours} {shown[0]}", f"{theirs} {shown[1]}", ratios, at_most)


def one_host(oracle: str, rounds: int, count: int) -> list[Row]:
    """Measure training steps of two workers on this machine."""
    start = [
        partial(contestants.neomx, "dist_sync"),
        partial(contestants.neomx, "dist_sync", servers=2),
        partial(contestants.neomx, "dist_async", servers=2),
        partial(contestants.neomx, "dist_sync", "module", name="neomx Module"),
        contestants.ddp,
    ]
    if oracle:
        start += [partial(contestants.mxnet, oracle, kvstore) for kvstore in ("dist_sync", "dist_async")]
    times = rounds_of(start, "step", count, rounds)
    rows = [
        race(times, "neomx all-reduce", "torch DDP", "all-reduce", 0.75),
        race(times, "neomx Module", "neomx all-reduce", "a Module against a Trainer", 1.05),
    ]
    if oracle:
        rows += [
            race(times, "neomx all-reduce", "MXNet dist_sync", "all-reduce against servers", 0.55),
            race(times, "neomx dist_sync by servers", "MXNet dist_sync", "servers", 0.8),
            race(times, "neomx dist_async by servers", "MXNet dist_async", "asynchronous", 0.7),
        ]
    return rows


def copies(oracle: str, rounds: int) -> list[Row]:
    """Measure 100 MB pushed to one server and pulled back, against the same bytes through a socket and back."""
    start = [contestants.bare_copy, partial(contestants.neomx, "dist_sync", "copy", workers=1, servers=1)]
    if oracle:
        start.append(partial(contestants.mxnet, oracle, "dist_sync", "copy", workers=1, servers=1))
    times = rounds_of(start, "copy", 3, rounds)
    return [race(times, name, "a bare socket", "push and pull of 100 MB") for name in list(times)[1:]]


def two_machines(rounds: int, count: int) -> list[Row]:
    """Measure training over a 1 Gbit/s link: bytes sent, link utilization, and communication hidden by backward."""
    link = dist_link.measure(rounds, count, 1)
    rows = [link_race(link, "all-reduce, 1 worker on each machine")]
    for name, goal in (("neomx all-reduce", 0.9), ("torch DDP", 0)):
        figures = link[name]
        alone = [dist_link.BOUND / seconds / dist_link.RATE for seconds in figures.alone]
        parts = f"{name} {statistics.median(figures.hidden) * 1e3:.0f} ms"
        whole = f"communication {statistics.median(figures.alone) * 1e3:.0f} ms"
        hidden = [h / c for h, c in zip(figures.hidden, figures.alone, strict=True)]
        rows += [
            sent(name, figures),
            row("share of the link while communicating", name, "1 Gbit/s", figures.shares, at_least=goal),
            row("share of the link in one all-reduce alone", name, "1 Gbit/s", alone),
            row("communication hidden behind backward", parts, whole, hidden),
        ]
    link = dist_link.measure(rounds, count, 2)
    rows.append(link_race(link, "all-reduce, 2 workers on each machine"))
    return rows + [sent(name, figures) for name, figures in link.items()]


def link_race(link: dict[str, dist_link.Figures], what: str) -> Row:
    return race({name: figures.steps for name, figures in link.items()}, "neomx all-reduce", "torch DDP", what, 1.05)


def sent(name: str, figures: dist_link.Figures) -> Row:
    """Compare the bytes sent with the minimum for a ring of two machines."""
    shown = f"{name} {statistics.median(figures.sent) / 1e6:.1f} MB"
    bound = f"the ring's bound {dist_link.BOUND / 1e6:.1f} MB"
    return row("bytes a step", shown, bound, [each / dist_link.BOUND for each in figures.sent])


def table(rows: Sequence[Row]) -> str:
    lines = [f"{'':41} {'this':38} {'against':30} ratio  middle half    goal     verdict"]
    for each in rows:
        low, high = each.middle_half
        cells = f"{each.what:41} {each.ours:38} {each.theirs:30} {each.ratio:5.2f}  {low:5.2f} - {high:5.2f}"
        lines.append(f"{cells}  {each.goal:8} {each.verdict}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", default="", help="path of a Python with mxnet==1.9.1")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10, help="steps per team and round")
    parser.add_argument("--only", default="", choices=("", "host", "copy", "link"), help="only this table")
    parser.add_argument("--json", action="store_true", help="print the rows as JSON")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # exit normally, so that the teams are ended
    parts = {
        "host": lambda: one_host(args.oracle, args.rounds, args.steps),
        "copy": lambda: copies(args.oracle, args.rounds),
        "link": lambda: two_machines(args.rounds, args.steps),
    }
    rows = [each for name, part in parts.items() if args.only in ("", name) for each in part()]
    print(json.dumps([asdict(each) for each in rows], indent=1) if args.json else table(rows))


if __name__ == "__main__":
    main()
