"""Runs the program `trial.py`, which tries torch, within a time limit and collects what it printed."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from typing import Any

SECONDS = 90.0  # importing torch from a slow disk takes most of it
_TRIAL = [sys.executable, "-m", "neomx.doctor.trial"]


@dataclasses.dataclass(frozen=True)
class Engine:
    """What the trial printed, and how it ended if not by itself."""

    lines: list[dict[str, Any]]
    failure: str  # empty if the trial came to its end
    output: str  # the last lines of its error output

    def facts(self, key: str) -> list[dict[str, Any]]:
        """The lines that have a field of that name."""
        return [line for line in self.lines if key in line]

    @property
    def trying(self) -> str:
        """What the trial did last."""
        return str(self.facts("trying")[-1]["trying"]) if self.facts("trying") else "starting Python"


def examine(command: list[str] = _TRIAL, seconds: float = SECONDS) -> Engine:
    """Run the trial. Neither its death nor its silence is an error here."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # this neomx, not another
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
        with contextlib.suppress(subprocess.TimeoutExpired):  # a driver that hangs keeps even a killed process
            printed, complaints = process.communicate(timeout=5)
    tail = complaints.strip().splitlines()[-1:] if failure else []
    return Engine([line for text in printed.splitlines() if (line := _parsed(text))], failure, " ".join(tail))


def _how(code: int) -> str:
    if code > 0:
        return f"failed with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _parsed(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
