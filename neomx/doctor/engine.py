"""Runs the program `trial.py`, which tests torch, with a time limit, and collects its output."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from typing import Any

SECONDS = 90.0  # mostly for importing torch from a slow disk
_TRIAL = [sys.executable, "-m", "neomx.doctor.trial"]


@dataclasses.dataclass(frozen=True)
class Engine:
    """The output of the trial, and how it ended if it did not finish."""

    lines: list[dict[str, Any]]
    failure: str  # empty if the trial finished
    output: str  # the last lines of its error output

    def facts(self, key: str) -> list[dict[str, Any]]:
        """Return the lines that have a field of this name."""
        return [line for line in self.lines if key in line]

    @property
    def trying(self) -> str:
        """What the trial did last."""
        return str(self.facts("trying")[-1]["trying"]) if self.facts("trying") else "starting Python"


def examine(command: list[str] = _TRIAL, seconds: float = SECONDS) -> Engine:
    """Run the trial. If it crashes or hangs, this is recorded in the result, not raised."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # to import this neomx
    path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    failure = printed = complaints = ""
    try:
        process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        return Engine([], f"could not be started ({error})", "")
    try:
        printed, complaints = process.communicate(timeout=seconds)
        if process.returncode:
            failure = _how(process.returncode)
    except subprocess.TimeoutExpired:
        failure = f"did not finish within {seconds:g} s"
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):  # a hanging driver can keep a killed process alive
            printed, complaints = process.communicate(timeout=5)
    tail = complaints.strip().splitlines()[-1:] if failure else []
    return Engine([line for text in printed.splitlines() if (line := _parsed(text))], failure, " ".join(tail))


def _how(code: int) -> str:
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
