"""Statistics of a profile: count, time and memory, by category and name."""

from __future__ import annotations

import json
import threading
from typing import Any

# Kinds of values: the columns of the table after the count, and the divisor for their unit.
_COLUMNS = {
    "Memory": (["Min Use  (kB)", "Max Use  (kB)", "Avg Use  (kB)"], 1e3),
    "Counter": (["Min Value", "Max Value", "Avg Value"], 1.0),
    "Time": (["Time (ms)", "Min Time (ms)", "Max Time (ms)", "Avg Time (ms)"], 1e6),
}
_UNITS = {"Time": "ms", "Memory": "kB"}


class _Stat:
    """Count, sum, minimum and maximum of some values."""

    def __init__(self) -> None:
        self.count, self.total, self.least, self.most = 0, 0.0, float("inf"), float("-inf")

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.least, self.most = min(self.least, value), max(self.most, value)

    def ranked(self) -> dict[str, float]:
        """Return the statistics by the names that `sort_by` accepts."""
        average = self.total / self.count
        return {"count": self.count, "total": self.total, "min": self.least, "max": self.most, "avg": average}


class Stats:
    """Values by kind (Time in ns, Memory in bytes, Counter), category and name."""

    def __init__(self) -> None:
        self._stats: dict[tuple[str, str], dict[str, _Stat]] = {}
        self._lock = threading.Lock()

    def add(self, kind: str, category: str, name: str, value: float) -> None:
        """Add a value."""
        with self._lock:
            self._stats.setdefault((kind, category), {}).setdefault(name, _Stat()).add(value)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._stats.clear()

    def _sorted(self, sort_by: str, ascending: bool) -> list[tuple[str, str, list[tuple[str, dict[str, float]]]]]:
        """Return (kind, category, [(name, statistics in the unit of the kind)]), by category, with sorted names."""
        with self._lock:
            found = {key: {name: stat.ranked() for name, stat in of.items()} for key, of in self._stats.items()}
        sections = []
        for kind, category in sorted(found, key=lambda key: key[1]):
            unit = _COLUMNS[kind][1]
            rows = sorted(found[kind, category].items(), key=lambda row: row[1][sort_by], reverse=not ascending)
            scaled = [(name, {k: v if k == "count" else v / unit for k, v in of.items()}) for name, of in rows]
            sections.append((kind, category, scaled))
        return sections

    def table(self, sort_by: str, ascending: bool) -> str:
        """Return a table with a section for each category."""
        lines = ["", "Profile Statistics:", "\tNote the difference in units for different entries."]
        for kind, category, rows in self._sorted(sort_by, ascending):
            heads = ["Total Count", *_COLUMNS[kind][0]]
            fields = ("total", "min", "max", "avg") if kind == "Time" else ("min", "max", "avg")
            lines += [category, "=" * 17, _line("Name", heads), _line("----", ["-" * len(head) for head in heads])]
            for name, of in rows:
                lines.append(_line(name, [str(of["count"]), *(f"{of[field]:.4f}" for field in fields)]))
            lines.append("")
        return "\n".join([*lines, ""])

    def json(self, sort_by: str, ascending: bool) -> str:
        """Return JSON: {kind: {category: {name: {Count, Total, Min, Max, Avg}}}}, and the units."""
        found: dict[str, Any] = {"Time": {}, "Memory": {}}
        for kind, category, rows in self._sorted(sort_by, ascending):
            of_category = found.setdefault(kind, {}).setdefault(category, {})
            for name, of in rows:
                of_category[name] = {key.capitalize(): value for key, value in of.items()}
                if kind != "Time":
                    del of_category[name]["Total"]
        return json.dumps({**found, "Unit": _UNITS}, indent=4)


def _line(name: str, fields: list[str]) -> str:
    first, *rest = fields
    return f"{name:<25} {first:>15}" + "".join(f" {field:>16}" for field in rest)
