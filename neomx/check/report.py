"""Findings as lines of text, in the format of compilers, and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from .program import KINDS, Facts, Finding
from .sources import Source
from .starting import Start

_LISTED = 8  # maximum number of lines listed for a name


@dataclasses.dataclass(frozen=True)
class Report:
    """A file and its findings."""

    source: Source
    findings: list[Finding]
    facts: Facts
    starts: list[Start]

    @property
    def is_good(self) -> bool:
        """Whether nothing is missing."""
        return not any(finding.kind in ("error", "missing") for finding in self.findings)

    def names(self) -> dict[str, int]:
        """Return {kind: number of different names}."""
        return {kind: len({each.name for each in self.findings if each.kind == kind}) for kind in KINDS}

    def lines(self, verbose: bool) -> Iterator[str]:
        """Yield one line for each name and message; names that run are included only if `verbose`."""
        groups: dict[tuple[str, ...], list[Finding]] = {}
        for finding in self.findings:
            if verbose or finding.kind != "runs":
                groups.setdefault((finding.kind, finding.name, finding.message, finding.link), []).append(finding)
        for (kind, name, message, link), findings in groups.items():
            others = list(dict.fromkeys(self._where(each.line) for each in findings))[1:]
            more = ", ..." if len(others) > _LISTED else ""
            also = f" (also {', '.join(others[:_LISTED])}{more})" if others else ""
            told = ": ".join(filter(None, [name + also, message]))
            yield f"{self._place(findings[0].line)}: {kind}: {told}{f' [{link}]' if link else ''}"

    def summary(self) -> str:
        """Return how many names run, differ and are missing."""
        names = self.names()
        runs = f"{names['runs']} name{'s run' if names['runs'] != 1 else ' runs'}"
        differ = f"{names['differs']} differ{'' if names['differs'] != 1 else 's'}"
        return f"{runs} on neomx, of which {differ} from MXNet; {names['missing']} missing"

    def _place(self, line: int) -> str:
        cell, line = self.source.place(line)
        return f"{self.source.path}:{line}" if cell is None else f"{self.source.path}:cell {cell}:{line}"

    def _where(self, line: int) -> str:
        cell, line = self.source.place(line)
        return f"line {line}" if cell is None else f"cell {cell} line {line}"

    def as_json(self) -> dict[str, Any]:
        """Return all findings, for tools: one per position, with `cell`, which is null for scripts."""
        findings = []
        for finding in self.findings:
            cell, line = self.source.place(finding.line)
            findings.append({**dataclasses.asdict(finding), "line": line, "cell": cell})
        return {
            "path": self.source.path,
            "names": self.names(),
            "findings": findings,
            "start": [dataclasses.asdict(start) for start in self.starts],
        }
