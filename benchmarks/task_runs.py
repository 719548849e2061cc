"""`make tasks`: run the programs of examples/tasks to their targets, on one worker and on two, and keep their curves.

    python benchmarks/task_runs.py [NAME ...] [--json benchmarks/results/task_runs.json]

Results of tasks that are not run again stay in the file. `scripts/task_figures.py` makes docs/tasks.md's table and
drawings of them.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import record

ROOT = pathlib.Path(__file__).resolve().parents[1]
TASKS = ROOT / "examples" / "tasks"
LIMIT = 1800  # seconds, of one run
SEEDS = (1, 2, 3)
EQUAL = 1e-3  # curves that differ by more part visibly; other seeds then show the spread


class Case(NamedTuple):
    """A program of examples/tasks with its options."""

    group: str
    program: str
    options: tuple[str, ...] = ()
    launch: tuple[str, ...] = ()  # options of `neomx run`

    @property
    def what(self) -> str:
        """The name of the case."""
        return " ".join([self.program.replace("_", " "), *self.options[1::2]])


def cases(group: str, program: str, option: str = "", values: str = "", **more: Any) -> list[Case]:
    """Return a case for each value of an option, or one without the option."""
    if not option:
        return [Case(group, program, **more)]
    return [Case(group, program, (f"--{option}", value), **more) for value in values.split()]


CASES = [
    *cases("Pictures", "image_classification", "network", "resnet vgg mobilenet"),
    *cases("Pictures", "several_labels"),
    *cases("Pictures", "detection"),
    *cases("Pictures", "segmentation", "network", "fcn unet"),
    *cases("Pictures", "gan", "network", "dcgan conditional"),
    *cases("Pictures", "vae"),
    *cases("Pictures", "diffusion"),
    *cases("Pictures", "augmentation"),
    *cases("Text", "text_classification", "network", "pooling textcnn bert"),
    *cases("Text", "across_languages"),
    *cases("Text", "language_model", "network", "lstm gpt2"),
    *cases("Text", "translation"),
    *cases("Text", "tagging"),
    *cases("Sound", "speech_recognition", "sounds", "tones"),
    *cases("Sound", "speech_synthesis", "sounds", "tones"),
    *cases("Other data", "recommendation", "network", "mf wide_deep", launch=("-s", "1")),
    *cases("Other data", "reinforcement"),
    *cases("Other data", "time_series", "network", "lstm tcn"),
    *cases("Other data", "graph_convolution"),
    *cases("Ways to learn", "transfer"),
    *cases("Ways to learn", "several_tasks"),
    *cases("Ways to learn", "few_examples", "method", "prototypical matching maml"),
    *cases("Ways to learn", "self_supervised", "method", "simclr byol rotation masked"),
    *cases("Ways to learn", "semi_supervised", "method", "pseudo fixmatch"),
    *cases("Ways to learn", "curriculum"),
    *cases("Ways to learn", "training_recipes"),
    *cases("Ways to learn", "hyperparameter_search"),
]


@dataclass
class Run:
    """One run of a case: what it wrote with `--curve`, and the seconds that it took."""

    case: Case
    workers: int
    seed: int
    seconds: float = 0.0
    found: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    def do(self) -> Run:
        """Run the program to its end."""
        with tempfile.TemporaryDirectory() as folder:
            curve = pathlib.Path(folder, "curve.json")
            command = [sys.executable, "-m", "neomx", "run", "-n", str(self.workers), *self.case.launch]
            command += [str(TASKS / f"{self.case.program}.py"), *self.case.options]
            command += ["--seed", str(self.seed), "--curve", str(curve)]
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
            began = time.monotonic()
            try:
                done = subprocess.run(
                    command, env=environment, cwd=folder, capture_output=True, text=True, timeout=LIMIT
                )
            except subprocess.TimeoutExpired:
                self.error = f"did not end within {LIMIT} s"
                return self
            self.seconds = time.monotonic() - began
            if curve.exists():
                self.found = json.loads(curve.read_text())
            if done.returncode:
                self.error = done.stderr.strip().rpartition("\n")[2]
        shown = f"{self.found['metric']} {self.found['value']:.4f}" if self.found else "no result"
        error = f": {self.error}" if self.error else ""
        print(
            f"{self.case.what}, {self.workers} worker(s), seed {self.seed}: {shown}, {self.seconds:.0f} s{error}",
            flush=True,
        )
        return self


def difference(one: list[dict[str, float]], two: list[dict[str, float]]) -> float:
    """Return the largest difference between two curves, relative to the largest value of each quantity."""
    worst = 0.0
    for name in {name for each in two for name in each} - {"epoch"}:
        pairs = [(a[name], b[name]) for a, b in zip(one, two, strict=False) if name in a and name in b]
        size = max((max(map(abs, pair)) for pair in pairs), default=0.0) or 1.0
        worst = max(worst, max((abs(a - b) for a, b in pairs), default=0.0) / size)
    return worst


def measured(cases: list[Case]) -> Iterator[tuple[list[Run], list[Run]]]:
    """Run each case with the first seed, and with the others if the curves of one worker and two part."""
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1))) as pool:  # programs on one worker, one per core
        first = list(pool.map(Run.do, [Run(case, 1, SEEDS[0]) for case in cases]))
        for run in first:
            alone, together = [run], [Run(run.case, 2, SEEDS[0]).do()]
            curves = [each.found["curve"] for each in (*alone, *together) if each.found]
            if len(curves) == 2 and difference(*curves) > EQUAL:
                alone += pool.map(Run.do, [Run(run.case, 1, seed) for seed in SEEDS[1:]])
                together += [Run(run.case, 2, seed).do() for seed in SEEDS[1:]]
            yield alone, together


def row_of(case: Case, alone: list[Run], together: list[Run]) -> record.Row:
    """Return the row of a case."""
    first = together[0].found
    curves = {"1": alone[0].found["curve"], "2": together[0].found["curve"]}
    return record.row(
        case.group,
        case.what,
        "",
        [run.found["value"] for run in together],
        by="2 workers",
        metric=first["metric"],
        target=first["target"],
        lower=first["lower"],
        seeds=[run.seed for run in together],
        difference=difference(*curves.values()),
        values={"1": [run.found["value"] for run in alone], "2": [run.found["value"] for run in together]},
        curves=curves,
        seconds=together[0].seconds,
        samples_per_second=first["samples_per_second"],
        command=" ".join(["neomx run -n 2", *case.launch, f"examples/tasks/{case.program}.py", *case.options]),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs of examples/tasks; default: all")
    record.add_option(parser)
    args = parser.parse_args()
    if unknown := set(args.names) - {case.program for case in CASES}:
        parser.error(f"unknown task: {', '.join(sorted(unknown))}")
    result = record.begin("task_runs")
    result.command = "make tasks"
    path = pathlib.Path(args.json) if args.json else None
    rows = {row.what: row for row in record.read(path).rows} if path and path.exists() else {}
    failed = 0
    for alone, together in measured([case for case in CASES if not args.names or case.program in args.names]):
        runs = alone + together
        failed += sum(bool(run.error) for run in runs)
        if all(run.found for run in runs):
            rows[runs[0].case.what] = row_of(runs[0].case, alone, together)
            result.rows = [rows[case.what] for case in CASES if case.what in rows]
            result.save(args.json)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
