"""`make figures`: run the benchmarks whose results are published, and keep each result in benchmarks/results.

    python benchmarks/measure.py [NAME ...] [--oracle .venv-oracle/bin/python]

Run it on a machine that does nothing else. A benchmark that fails does not stop the others, and leaves its old result.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import subprocess
import sys
import time
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
RESULTS = pathlib.Path("benchmarks", "results")
ORACLE = "ORACLE"  # stands for `--oracle PYTHON`


class Benchmark(NamedTuple):
    """How a published result is measured."""

    arguments: tuple[str, ...]
    minutes: float  # about, on two cores


BENCHMARKS = {
    "ops": Benchmark((ORACLE, "--rounds", "5"), 3),
    "train": Benchmark((ORACLE,), 6),
    "module": Benchmark((ORACLE, "--seconds", "1"), 3),
    "records": Benchmark((ORACLE,), 1),
    "memory": Benchmark((), 2),
    "np_ops": Benchmark((), 0.5),
    "np_step": Benchmark((), 0.2),
    "workers": Benchmark((), 1.5),
    "dist": Benchmark((ORACLE, "--rounds", "7"), 6),
    "server_replicas": Benchmark((), 2),
    "elastic": Benchmark((), 10),
    "checkpoint": Benchmark((), 3),
    "layouts": Benchmark(("--rounds", "7"), 4),
    "tasks": Benchmark((), 2.3),
    "flood": Benchmark(("--at", "store", "server", "worker", "--rounds", "6"), 1.7),
}


def command_of(name: str, oracle: str) -> list[str]:
    """Return the command line of a benchmark."""
    words: list[str] = []
    for word in BENCHMARKS[name].arguments:
        words += ["--oracle", oracle] if word == ORACLE else [word]
    return [sys.executable, f"benchmarks/{name}.py", *words, "--json", str(RESULTS / f"{name}.json")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"all, or some of: {', '.join(BENCHMARKS)}")
    parser.add_argument("--oracle", default=".venv-oracle/bin/python", help="the Python that has mxnet==1.9.1")
    args = parser.parse_args()
    if unknown := set(args.names) - set(BENCHMARKS):
        parser.error(f"unknown benchmark: {', '.join(sorted(unknown))}; expected some of: {', '.join(BENCHMARKS)}")
    names = args.names or list(BENCHMARKS)
    print(f"{len(names)} benchmarks, about {sum(BENCHMARKS[name].minutes for name in names):.0f} minutes", flush=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}  # of this checkout
    failed = []
    for name in names:
        print(f"\n{name}, about {BENCHMARKS[name].minutes:g} min", flush=True)
        began = time.monotonic()
        if subprocess.run(command_of(name, args.oracle), cwd=ROOT, env=environment).returncode:
            failed.append(name)
        print(f"{name}: {(time.monotonic() - began) / 60:.1f} min", flush=True)
    if failed:
        print(f"\nThese benchmarks exited with an error: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
