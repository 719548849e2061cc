"""`make bench-elastic`: a worker is killed, and the others go on: neomx against torch elastic and torchft.

    python benchmarks/elastic.py [--rounds 5] [--workers 2 4] [--torchft .venv-torchft/bin/python] [--json FILE]

Each contestant trains the MLP of dist_worker.py (10M parameters, 8 samples per worker) on this machine. In each round
every contestant starts anew, in turns, and loses one worker. Measured are the seconds from the kill to

- the next step that the others commit without it. torchrun restarts all workers, here without reading a checkpoint;
- the first step with a replacement, which is started at once.

While the replacement joins, the others go on. Their pause is their longest step from the first one without the lost
worker to some steps at full strength, minus an ordinary step of the same run, at full strength.

The last part compares the steps of a job of neomx with and without --elastic, in which nothing fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import record
from dist_team import ONE_THREAD, Team, free_port

HERE = pathlib.Path(__file__).resolve().parent
WORKER = str(HERE / "elastic_worker.py")
PACKAGE = str(HERE.parent)
WARM = 10  # steps before the kill
JOINED = 10  # steps after which a replacement is an ordinary worker
ORDINARY = 20  # steps after them, which are measured as ordinary ones
LIMIT = 180.0  # seconds for anything to happen
Command = tuple[list[str], dict[str, str]]


@dataclass
class Contestant:
    """How a job is started: all of it, and the replacement of a lost worker unless the job starts it itself."""

    name: str
    start: Callable[[int, str], list[Command]]
    replace: Callable[[int], list[Command]] = lambda rank: []
    rejoins: bool = True


def neomx(*options: str) -> Callable[[int, str], list[Command]]:
    def start(workers: int, folder: str) -> list[Command]:
        job = ["-m", "neomx", "run", "-n", str(workers), "--elastic", "--no-progress", *options]
        return [([sys.executable, *job, WORKER, "neomx", folder], {})]

    return start


def torchrun(workers: int, folder: str) -> list[Command]:
    job = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}", "--max-restarts=3"]
    return [([sys.executable, *job, "--monitor-interval=0.1", WORKER, "torch", folder], {})]


class Torchft:
    """A lighthouse and one process for each replica group. The settings are the fastest that work reliably here."""

    def __init__(self, python: str):
        self.python, self.lighthouse = python, str(pathlib.Path(python).parent / "torchft_lighthouse")
        self.folder, self.port = "", 0

    def start(self, workers: int, folder: str) -> list[Command]:
        self.folder, self.port = folder, free_port()
        times = ["--heartbeat_timeout_ms", "1000", "--join_timeout_ms", "1000", "--quorum_tick_ms", "50"]
        serve = [self.lighthouse, "--bind", f"127.0.0.1:{self.port}", "--min_replicas", "1", *times]
        return [(serve, {}), *(each for rank in range(workers) for each in self.replace(rank))]

    def replace(self, rank: int) -> list[Command]:
        where = {"RANK": str(rank), "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{self.port}"}
        return [([self.python, WORKER, "torchft", self.folder], where)]


# ---- one job ----


@dataclass
class Steps:
    """What a worker wrote: when it committed steps, and with how many workers."""

    pid: int
    rank: int
    steps: list[tuple[float, int]]


class Job:
    """A running job of a contestant."""

    def __init__(self, contestant: Contestant, workers: int, folder: str):
        self.contestant, self.workers, self.folder = contestant, workers, pathlib.Path(folder)
        self.steps = self.folder / "steps"
        self.steps.mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []
        self._start(contestant.start(workers, str(self.steps)))

    def _start(self, commands: list[Command]) -> None:
        environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join([PACKAGE, str(HERE)])}
        with open(self.folder / "log", "a") as log:
            for command, extra in commands:
                self.processes.append(
                    subprocess.Popen(
                        command, env={**environment, **extra}, stdout=log, stderr=log, start_new_session=True
                    )
                )

    def found(self) -> list[Steps]:
        """Return the steps of all workers so far."""
        made = []
        for path in self.steps.iterdir():
            first, *lines = path.read_text().splitlines(keepends=True) or [""]
            if first.endswith("\n"):
                steps = [tuple(json.loads(line)) for line in lines if line.endswith("\n")]
                made.append(Steps(int(path.name), json.loads(first)["rank"], steps))
        return made

    def until(self, condition: Callable[[list[Steps]], bool], what: str) -> list[Steps]:
        """Wait until a condition holds for the steps of all workers, and return them."""
        limit = time.monotonic() + LIMIT
        while not condition(found := self.found()):
            if time.monotonic() > limit:
                tail = "\n".join((self.folder / "log").read_text(errors="replace").splitlines()[-30:])
                raise RuntimeError(f"{self.contestant.name}: timed out waiting for {what}. Its last lines:\n{tail}")
            time.sleep(0.02)
        return found

    def kill_one(self) -> tuple[float, list[int]]:
        """Kill the last worker after some steps, and have it replaced. Return when, and the others."""
        enough = self.until(
            lambda found: (
                sum(len(each.steps) >= WARM and each.steps[-1][1] == self.workers for each in found) == self.workers
            ),
            f"the first {WARM} steps",
        )
        trained = [each for each in enough if each.steps]  # a spare has none
        victim = max(trained, key=lambda each: each.rank)
        killed = time.time()
        os.kill(victim.pid, signal.SIGKILL)
        self._start(self.contestant.replace(victim.rank))
        return killed, [each.pid for each in trained if each is not victim]

    def close(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


@contextlib.contextmanager
def job(contestant: Contestant, workers: int) -> Iterator[Job]:
    with tempfile.TemporaryDirectory(prefix="neomx-bench-") as folder:
        made = Job(contestant, workers, folder)
        try:
            yield made
        finally:
            made.close()


@dataclass
class Times:
    """Seconds from the kill, in each round."""

    step: list[float] = field(default_factory=list)  # to the next step without the lost worker
    full: list[float] = field(default_factory=list)  # to the first step with its replacement
    pause: list[float] = field(default_factory=list)  # of the others while it joined, beyond an ordinary step
    ordinary: list[float] = field(default_factory=list)  # seconds of such a step


def measure(contestant: Contestant, workers: int, times: Times) -> None:
    """Kill a worker of a new job, and add the times."""
    with job(contestant, workers) as running:
        killed, others = running.kill_one()

        def joined(found: list[Steps]) -> float | None:
            """The first step of a process that was started later, with all workers."""
            steps = [step for each in found if each.pid not in others for step in each.steps if step[0] > killed]
            return min((at for at, members in steps if members == workers), default=None)

        def next_step(found: list[Steps]) -> float | None:
            """The first step without the lost worker, or with its replacement if a spare is admitted at once."""
            full = joined(found) or math.inf
            steps = [step for each in found for step in each.steps if step[0] > killed]
            return min((at for at, members in steps if members < workers or at >= full), default=None)

        begun = next_step(running.until(lambda found: next_step(found) is not None, "a step without it"))
        assert begun is not None
        times.step.append(begun - killed)
        if not contestant.rejoins:
            return
        found = running.until(lambda found: joined(found) is not None, "its replacement")
        full = joined(found)
        assert full is not None
        times.full.append(full - killed)
        last = JOINED + ORDINARY
        found = running.until(
            lambda now: all(sum(at >= full for at, _ in each.steps) > last for each in now if each.pid in others),
            "steps with its replacement",
        )
        pauses, ordinary = [], []
        for each in found:
            if each.pid in others:
                before = [at for at, _ in each.steps if begun <= at < full]
                after_it = [at for at, _ in each.steps if at >= full]
                joining = [*before, *after_it[:JOINED]]
                pauses += [b - a for a, b in zip(joining, joining[1:], strict=False)]
                ordinary += [b - a for a, b in zip(after_it[JOINED:last], after_it[JOINED + 1 : last + 1], strict=True)]
        times.ordinary.append(statistics.median(ordinary))
        times.pause.append(max(pauses) - times.ordinary[-1])


# ---- without failures ----


def cost(rounds: int, count: int, workers: int) -> tuple[list[float], list[float]]:
    """Return the seconds per step with and without --elastic, in turns."""
    plain = [sys.executable, "-m", "neomx", "run", "-n", str(workers), "--no-progress"]
    environment = {"PYTHONPATH": os.pathsep.join([PACKAGE, str(HERE)])}
    seconds: dict[str, list[float]] = {"elastic": [], "plain": []}
    with (
        Team("elastic", [([*plain, "--elastic", WORKER, "neomx", "-"], environment)], workers) as elastic,
        Team("plain", [([*plain, WORKER, "neomx", "-"], environment)], workers) as fixed,
    ):
        teams = {"elastic": elastic, "plain": fixed}
        for team in teams.values():
            team.run("step", WARM)
        for number in range(rounds):
            for name in sorted(teams, reverse=bool(number % 2)):
                moments = teams[name].run("step", count)
                spent = [b - a for each in moments for a, b in zip(each, each[1:], strict=False)]
                seconds[name].append(statistics.median(spent))
    return seconds["elastic"], seconds["plain"]


# ---- all ----


def contestants(torchft: str) -> list[Contestant]:
    found = [Contestant("neomx", neomx()), Contestant("neomx, a spare", neomx("--spares", "1"))]
    found.append(Contestant("torch elastic", torchrun, rejoins=False))
    if pathlib.Path(torchft).exists():
        third = Torchft(torchft)
        found.append(Contestant("torchft", third.start, third.replace))
    else:
        print(f"no {torchft}: `make .venv-torchft/installed` creates it")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--steps", type=int, default=20, help="steps of a round without failures")
    parser.add_argument("--torchft", default=".venv-torchft/bin/python", help="a Python with torchft 0.2.0")
    parser.add_argument(
        "--only", default="", help="only contestants whose names contain this; `cost` for the last part"
    )
    record.add_option(parser)
    given = parser.parse_args()
    result = record.begin("elastic")
    for workers in given.workers:
        times = {each.name: (each, Times()) for each in contestants(given.torchft) if given.only in each.name}
        for number in range(given.rounds):
            for name in sorted(times, reverse=bool(number % 2)):
                measure(times[name][0], workers, times[name][1])
        for name, (_, found) in times.items():
            for what, seconds in (
                ("next step", found.step),
                ("full strength", found.full),
                ("pause", found.pause),
                ("ordinary step", found.ordinary),
            ):
                if seconds:
                    result.add(record.row(f"{workers} workers", what, "s", seconds, by=name))
                    spread = f"{min(seconds):.2f} to {max(seconds):.2f}"
                    print(
                        f"{workers} workers, {name}: {what} {statistics.median(seconds):.2f} s ({spread})", flush=True
                    )
    if given.only in ("", "cost"):
        for workers in given.workers[:1]:
            with_, without = cost(4 * given.rounds, given.steps, workers)
            row = record.row(f"{workers} workers", "step without failures", "s", with_, without, "--elastic", "plain")
            result.add(row)
            print(
                f"{workers} workers: {row.ours * 1e3:.1f} ms a step with --elastic, {row.theirs * 1e3:.1f} ms without "
                f"it, ratio {row.ratio:.3f}"
            )
    result.save(given.json)


if __name__ == "__main__":
    main()
