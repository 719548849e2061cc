"""`make bench-dist`: compare neomx on two workers with torch's DDP, MXNet 1.9.1 and a bare socket.

Each process has one thread. All contestants of a table are started together and step in turns, so that noise on the
machine affects them equally. A ratio is the median over rounds of our time divided by theirs, followed by the middle
half of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial

import dist_contestants as contestants
import dist_link
import record
from dist_team import Team
from netns import why_not
from record import Row

HOST, COPY, LINK = "a training step, one machine", "push and pull of 100 MB", "a training step, two machines"
BETWEEN = "between the machines"


def row(
    group: str,
    what: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    by: str,
    against: str,
    at_most: float = 0,
    at_least: float = 0,
) -> Row:
    """Return a row with what was wanted of its ratio, and whether it was met."""
    found = record.row(group, what, unit, ours, theirs, by, against)
    goal = f"<= {at_most}" if at_most else f">= {at_least}" if at_least else ""
    met = found.ratio <= at_most if at_most else found.ratio >= at_least
    found.extra.update(goal=goal, verdict=("met" if met else "MISSED") if goal else "")
    return found


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


def race(group: str, times: dict[str, list[float]], ours: str, theirs: str, what: str, at_most: float = 0) -> Row:
    return row(group, what, "s", times[ours], times[theirs], ours, theirs, at_most)


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
        race(HOST, times, "neomx all-reduce", "torch DDP", "all-reduce", 0.75),
        race(HOST, times, "neomx Module", "neomx all-reduce", "Module", 1.05),
    ]
    if oracle:
        rows += [
            race(HOST, times, "neomx all-reduce", "MXNet dist_sync", "all-reduce", 0.55),
            race(HOST, times, "neomx dist_sync by servers", "MXNet dist_sync", "servers", 0.8),
            race(HOST, times, "neomx dist_async by servers", "MXNet dist_async", "servers", 0.7),
        ]
    return rows


def copies(oracle: str, rounds: int) -> list[Row]:
    """Measure 100 MB pushed to one server and pulled back, against the same bytes through a socket and back."""
    start = [contestants.bare_copy, partial(contestants.neomx, "dist_sync", "copy", workers=1, servers=1)]
    if oracle:
        start.append(partial(contestants.mxnet, oracle, "dist_sync", "copy", workers=1, servers=1))
    times = rounds_of(start, "copy", 3, rounds)
    return [race(COPY, times, name, "a bare socket", "1 server") for name in list(times)[1:]]


def two_machines(rounds: int, count: int) -> list[Row]:
    """Measure training over a 1 Gbit/s link: bytes sent, link utilization, and communication hidden by backward."""
    link = dist_link.measure(rounds, count, 1)
    rows = [link_race(link, "1 worker on each machine")]
    for name, goal in (("neomx all-reduce", 0.9), ("torch DDP", 0)):
        figures = link[name]
        alone = [dist_link.BOUND / seconds for seconds in figures.alone]
        busy = [share * dist_link.RATE for share in figures.shares]
        rates = {"theirs": [dist_link.RATE] * rounds, "by": name, "against": "1 Gbit/s"}
        rows += [
            sent(name, figures, 1),
            row(BETWEEN, "while communicating", "bytes/s", busy, **rates, at_least=goal),
            row(BETWEEN, "one all-reduce alone", "bytes/s", alone, **rates),
            row(BETWEEN, "hidden behind backward", "s", figures.hidden, figures.alone, name, "all communication"),
        ]
    link = dist_link.measure(rounds, count, 2)
    rows.append(link_race(link, "2 workers on each machine"))
    return rows + [sent(name, figures, 2) for name, figures in link.items()]


def link_race(link: dict[str, dist_link.Figures], what: str) -> Row:
    steps = {name: figures.steps for name, figures in link.items()}
    return race(LINK, steps, "neomx all-reduce", "torch DDP", what, 1.05)


def sent(name: str, figures: dist_link.Figures, each: int) -> Row:
    """Return what crosses the link, against the least that a ring of two machines must send."""
    bound = [dist_link.BOUND] * len(figures.sent)
    what = f"sent in a step, {each} worker{'s' * (each > 1)} on each machine"
    return row(BETWEEN, what, "bytes", figures.sent, bound, name, "the ring's bound")


def shown(value: float, unit: str) -> str:
    """Return a number as people read it."""
    scale, of = {"s": (1e3, "ms"), "bytes": (1e-6, "MB"), "bytes/s": (1e-6, "MB/s")}[unit]
    return f"{value * scale:.1f} {of}"


def table(rows: Sequence[Row]) -> str:
    lines, group = [], ""
    for each in rows:
        if each.group != group:
            group = each.group
            lines.append(f"{group:46} {'this':38} {'against':30} ratio  middle half    goal     verdict")
        ours, theirs = (f"{each.by} {shown(each.ours, each.unit)}", f"{each.against} {shown(each.theirs, each.unit)}")
        low, high = each.middle_half or (each.ratio, each.ratio)
        cells = f"{each.what:46} {ours:38} {theirs:30} {each.ratio:5.2f}  {low:5.2f} - {high:5.2f}"
        lines.append(f"{cells}  {each.extra['goal']:8} {each.extra['verdict']}".rstrip())
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--oracle", default="", help="path of a Python with mxnet==1.9.1")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=10, help="steps per team and round")
    parser.add_argument("--only", default="", choices=("", "host", "copy", "link"), help="only this table")
    record.add_option(parser)
    args = parser.parse_args()
    if args.only in ("", "link") and (reason := why_not()):
        sys.exit(f"{reason}; --only host and --only copy need no network namespaces")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))  # by way of all that ends the teams
    oracle = args.oracle and os.path.abspath(args.oracle)  # teams start in folders of their own
    parts = {
        "host": lambda: one_host(oracle, args.rounds, args.steps),
        "copy": lambda: copies(oracle, args.rounds),
        "link": lambda: two_machines(args.rounds, args.steps),
    }
    result = record.begin("dist")
    for name, part in parts.items():
        if args.only in ("", name):
            rows = part()
            result.rows += rows
            print(table(rows), flush=True)
    result.save(args.json)


if __name__ == "__main__":
    main()
