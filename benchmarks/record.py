"""Results of a benchmark as a JSON file, `--json FILE`. `scripts/figures.py` makes tables, sentences and plots of them.

All benchmarks write the same structure: a `Result` with its `Row`s.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import pathlib
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "numpy")  # whose versions a result names


@dataclass(frozen=True)
class Row:
    """One comparison, or one number if nothing is compared with it."""

    group: str  # the part of the table
    what: str  # the workload
    by: str  # who ran it
    against: str  # who else ran it; empty if nobody
    unit: str  # of both numbers: s, us, MB, bytes, pictures/s, ...
    ours: float  # the median of the rounds
    theirs: float | None
    ratio: float | None  # the median of the rounds' ratios, ours by theirs
    middle_half: tuple[float, float] | None  # of the rounds' ratios; none if there are fewer than four rounds
    rounds: int
    extra: dict[str, Any] = field(default_factory=dict)  # what only this benchmark has


def row(
    group: str,
    what: str,
    unit: str,
    ours: Sequence[float],
    theirs: Sequence[float] = (),
    by: str = "neomx",
    against: str = "",
    **extra: Any,
) -> Row:
    """Return the row of a workload from the numbers of its rounds."""
    medians = statistics.median(ours), statistics.median(theirs) if theirs else None
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)] if theirs else []
    ratio = statistics.median(ratios) if ratios else None
    middle = None
    if len(ratios) >= 4:
        low, _, high = statistics.quantiles(ratios, n=4)
        middle = (low, high)
    return Row(group, what, by, against, unit, *medians, ratio, middle, len(ours), extra)


@dataclass
class Result:
    """What one run of a benchmark found, and where and when."""

    name: str
    command: str
    date: str
    seconds: float  # that the run took
    machine: dict[str, Any]
    rows: list[Row]

    def add(self, each: Row) -> Row:
        """Add a row, and return it."""
        self.rows.append(each)
        return each

    def save(self, path: str) -> None:
        """Write the file; do nothing if the path is empty, which is the default of `--json`."""
        if path:
            self.seconds = round(time.monotonic() - _STARTED, 1)
            write(pathlib.Path(path), json.dumps(asdict(self), indent=1) + "\n")


_STARTED = time.monotonic()


def begin(name: str) -> Result:
    """Return a result without rows. Call it before anything is measured: it reads the load of the machine."""
    return Result(name, command(sys.argv), time.strftime("%Y-%m-%d", time.gmtime()), 0.0, machine(), [])


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--json FILE`."""
    parser.add_argument("--json", default="", metavar="FILE", help="also write the results to this file")


def command(argv: Sequence[str]) -> str:
    """Return the command line that repeats a run, without `--json`; paths in the repository are relative to it."""
    words, rest = ["python"], iter(argv)
    for word in rest:
        if word == "--json":
            next(rest, None)
        elif not word.startswith("--json="):
            words.append(_relative(word))
    return shlex.join(words)


def _relative(word: str) -> str:
    path = pathlib.Path(os.path.abspath(word))  # symbolic links stay: a virtual environment's python is one
    inside = (os.sep in word or word.endswith(".py")) and path.is_relative_to(ROOT)
    return str(path.relative_to(ROOT)) if inside else word


def machine() -> dict[str, Any]:
    """Return what the numbers depend on: the processor, memory, versions, and how busy the machine is now."""
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "load": [round(each, 2) for each in os.getloadavg()],
    }


def _processor() -> str:
    """Return the model's name; the architecture where Linux does not tell it."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write(path: pathlib.Path, text: str) -> None:
    """Write a whole file or none: a reader, or a run that is interrupted, never leaves half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_text(text)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def read(path: pathlib.Path) -> Result:
    """Return the result that a benchmark wrote."""
    try:
        found = json.loads(path.read_text())
        return Result(**{**found, "rows": [Row(**each) for each in found["rows"]]})
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: expected the results of a benchmark ({error}); measure again") from error
