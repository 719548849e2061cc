"""Findings, and a runner that turns an exception or a timeout of a check into one more finding."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable
from typing import Any, Literal

Status = Literal["ok", "warn", "problem"]
SECONDS = 30.0  # time limit of one check, unless it needs another


@dataclasses.dataclass(frozen=True)
class Finding:
    """The result of one check: a status, one line that says what was found, and one line that says what to do."""

    check: str  # "limits.files": the kind of check, then its name
    status: Status
    finding: str
    remedy: str = ""
    values: dict[str, Any] = dataclasses.field(default_factory=dict)  # the facts behind it, for programs

    def __post_init__(self) -> None:
        for name in ("finding", "remedy"):
            object.__setattr__(self, name, " ".join(getattr(self, name).split()))


@dataclasses.dataclass(frozen=True)
class Check:
    """A function that yields findings, with the kind that they belong to and the time that it may take."""

    kind: str
    run: Callable[[], Iterable[Finding]]
    seconds: float = SECONDS

    def findings(self) -> list[Finding]:
        """All findings. The check runs in a thread, so that a call that never returns does not stop the others."""
        found: list[Finding] = []

        def collect() -> None:
            try:
                for finding in self.run():
                    found.append(finding)
            except Exception as error:
                remedy = "This is an error in neomx doctor, not in your machine: report it with this line"
                said = f"the check failed: {type(error).__name__}: {error}"
                found.append(Finding(f"{self.kind}.error", "problem", said, remedy))

        thread = threading.Thread(target=collect, daemon=True, name=f"doctor {self.kind}")
        thread.start()
        thread.join(self.seconds)
        results = list(found)
        if thread.is_alive():
            remedy = "The system did not answer: look for a hanging file system, device driver or name server"
            said = f"the check did not finish within {self.seconds:g} s"
            results.append(Finding(f"{self.kind}.timeout", "problem", said, remedy))
        return results


def amount(nbytes: float) -> str:
    """A number of bytes for people: '1.5 GiB'."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if nbytes < 1024:
            return f"{nbytes:.4g} {unit}"
        nbytes /= 1024
    return f"{nbytes:.4g} TiB"


def text_of(path: str, most: int = 1 << 16) -> str:
    """The beginning of a text file of the system; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(most)
    except OSError:
        return ""
