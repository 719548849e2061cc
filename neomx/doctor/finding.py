"""Findings, and a runner that turns an exception or a timeout of a check into a finding."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

Status = Literal["ok", "warn", "problem"]
SECONDS = 30.0  # default time limit of one check


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check: a status, one line that describes it, and one line that says what to do."""

    check: str  # "limits.files": the kind of check, then its name
    status: Status
    finding: str
    remedy: str = ""
    values: dict[str, Any] = dataclasses.field(default_factory=dict)  # the underlying values, for programs

    def __post_init__(self) -> None:
        for name in ("finding", "remedy"):
            object.__setattr__(self, name, " ".join(getattr(self, name).split()))


@dataclasses.dataclass(frozen=True)
class Check:
    """A function that yields findings, with their kind and a time limit."""

    kind: str
    run: Callable[[], Iterable[Finding]]
    seconds: float = SECONDS

    def findings(self) -> list[Finding]:
        """Return all findings. The check runs in a thread, so that a hanging call does not block the other checks."""
        found: list[Finding] = []

        def collect() -> None:
            try:
                for finding in self.run():
                    found.append(finding)
            except Exception as error:
                remedy = "This is a bug in neomx doctor, not a problem of your machine: report it with this line"
                said = f"the check failed: {type(error).__name__}: {error}"
                found.append(Finding(f"{self.kind}.error", "problem", said, remedy))

        thread = threading.Thread(target=collect, daemon=True, name=f"doctor {self.kind}")
        thread.start()
        thread.join(self.seconds)
        results = list(found)
        if thread.is_alive():
            remedy = "The system did not respond: check for a hanging file system, device driver or name server"
            said = f"the check did not finish within {self.seconds:g} s"
            results.append(Finding(f"{self.kind}.timeout", "problem", said, remedy))
        return results


def amount(nbytes: float) -> str:
    """Format a number of bytes: '1.5 GiB'."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"


def text_of(path: str, most: int = 1 << 16) -> str:
    """Return the beginning of a text file of the system; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""
