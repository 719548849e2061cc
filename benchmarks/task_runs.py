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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import record

ROOT = pathlib.Path(__file__).resolve().parents[1]
TASKS = ROOT / "examples" / "tasks"
LIMIT = 1800  # seconds, of one run


class Case(NamedTuple):
    """A program of examples/tasks with its options."""

    group: str
    program: str
    options: tuple[str, ...] = ()
    seeds: tuple[int, ...] = (1,)  # several if the result depends on the number of workers
    launch: tuple[str, ...] = ()  # options of `neomx run`

    @property
    def what(self) -> str:
        """The name of the case."""
        return " ".join([self.program.replace("_", " "), *self.options[1::2]])


THREE = (1, 2, 3)


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
    *cases("Pictures", "gan", "network", "dcgan conditional", seeds=THREE),
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
    *cases("Other data", "reinforcement", seeds=THREE),
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


def measured(cases: list[Case]) -> tuple[list[record.Row], int]:
    """Run the cases; return their rows, and the number of runs that failed."""
    runs = {n: [Run(case, n, seed) for case in cases for seed in case.seeds] for n in (1, 2)}
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1))) as pool:  # programs on one worker, one per core
        alone = list(pool.map(Run.do, runs[1]))
    together = [run.do() for run in runs[2]]
    rows = []
    for case in cases:
        pairs = [[run for run in each if run.case is case] for each in (alone, together)]
        if all(run.found for part in pairs for run in part):
            rows.append(row_of(case, *pairs))
    return rows, sum(bool(run.error) for run in alone + together)


def row_of(case: Case, alone: list[Run], together: list[Run]) -> record.Row:
    """Return the row of a case."""
    first = together[0].found
    return record.row(
        case.group,
        case.what,
        "",
        [run.found["value"] for run in together],
        [run.found["value"] for run in alone],
        by="2 workers",
        against="1 worker",
        metric=first["metric"],
        target=first["target"],
        lower=first["lower"],
        seeds=list(case.seeds),
        values={"1": [run.found["value"] for run in alone], "2": [run.found["value"] for run in together]},
        curves={"1": alone[0].found["curve"], "2": together[0].found["curve"]},
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
    rows, failed = measured([case for case in CASES if not args.names or case.program in args.names])
    path = pathlib.Path(args.json) if args.json else None
    before = {row.what: row for row in record.read(path).rows} if path and path.exists() else {}
    now = {**before, **{row.what: row for row in rows}}
    result.rows = [now[case.what] for case in CASES if case.what in now]
    result.save(args.json)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
