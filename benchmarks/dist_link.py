"""Training on two machines (network namespaces) connected by a 1 Gbit/s link."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from bisect import bisect_left
from dataclasses import dataclass, field

import dist_contestants as contestants
from dist_team import Team
from dist_worker import PARAMETERS
from netns import TwoMachines, why_not

RATE = 1e9 / 8  # bytes per second
BOUND = 4 * PARAMETERS  # each machine of a ring must send 2 (N - 1) / N of the gradients, N = 2
# Reads the machine's counter a thousand times per second until it is terminated, then prints times and counts.
SAMPLER = """
import json, signal, time
signal.signal(signal.SIGTERM, lambda *_: (print(json.dumps(seen), flush=True), exit()))
seen = []
with open("/sys/class/net/eth0/statistics/tx_bytes") as counter:
    print("ready", flush=True)
    while True:
        counter.seek(0)
        seen.append((time.perf_counter(), int(counter.read())))
        time.sleep(0.001)
"""


@dataclass
class Figures:
    """The results of one team's rounds on the link."""

    steps: list[float] = field(default_factory=list)  # seconds per step
    sent: list[float] = field(default_factory=list)  # bytes per step
    shares: list[float] = field(default_factory=list)  # link utilization while communicating
    alone: list[float] = field(default_factory=list)  # seconds of one all-reduce of all gradients, run separately
    hidden: list[float] = field(default_factory=list)  # seconds by which a step is shorter than the sum of its parts


class Sampler:
    """Samples the bytes that machine 0 sends."""

    def __init__(self, machines: TwoMachines):
        command = machines.command(0, [sys.executable, "-c", SAMPLER])
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.process.stdout.readline()

    def stop(self) -> list[tuple[float, int]]:
        self.process.send_signal(signal.SIGTERM)
        return [tuple(each) for each in json.loads(self.process.communicate(timeout=20)[0])]


def share(samples: list[tuple[float, int]], start: float, end: float) -> tuple[float, float]:
    """Return the bytes of a step, and the link utilization from its first 1 % of bytes to its last."""
    inside = [sample for sample in samples if start <= sample[0] <= end]
    moments, counts = [at for at, _ in inside], [count for _, count in inside]
    total = counts[-1] - counts[0]
    first = bisect_left(counts, counts[0] + total * 0.01)
    last = bisect_left(counts, counts[0] + total * 0.99)
    return total, (counts[last] - counts[first]) / (moments[last] - moments[first]) / RATE


def one_round(team: Team, machines: TwoMachines, count: int, figures: Figures) -> None:
    compute, alone = team.seconds("compute", count), team.seconds("communicate", 3)
    sampler = Sampler(machines)
    moments = team.run("step", count)[0]
    samples = sampler.stop()
    step = (moments[-1] - moments[0]) / count
    each = [share(samples, *ends) for ends in zip(moments, moments[1:], strict=False)]
    figures.steps.append(step)
    figures.sent.append(sum(total for total, _ in each) / count)
    figures.shares.append(sum(part for _, part in each) / count)
    figures.alone.append(alone)
    figures.hidden.append(compute + alone - step)


def measure(rounds: int, count: int, each: int) -> dict[str, Figures]:
    """Measure neomx and torch's DDP, with `each` workers on each machine, in turns, over one link."""
    if reason := why_not():
        sys.exit(reason)
    with contextlib.ExitStack() as stack:
        machines = stack.enter_context(TwoMachines("1gbit"))
        teams = [stack.enter_context(start(machines, each)) for start in (contestants.neomx_on, contestants.ddp)]
        figures = {team.name: Figures() for team in teams}
        for team in teams:
            for what in ("step", "compute", "communicate"):
                team.run(what, 2)
        for i in range(rounds):
            for team in teams if i % 2 == 0 else reversed(teams):
                one_round(team, machines, count, figures[team.name])
    return figures
