"""Keep coverage's report as a result of `scripts/figures.py`: the last step of `make coverage`.

python scripts/record_coverage.py build/coverage.json benchmarks/results/coverage.json
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections import Counter
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import record  # noqa: E402  # found by the line above


def shares(files: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Return the share of lines that were run, of the whole package and of each of its rooms."""
    lines: Counter[str] = Counter()
    covered: Counter[str] = Counter()
    for path, file in files.items():
        parts = pathlib.PurePosixPath(path).parts[1:]  # without neomx
        for name in ("all of neomx", parts[0] if len(parts) > 1 else "files of the package itself"):
            lines[name] += file["summary"]["num_statements"]
            covered[name] += file["summary"]["covered_lines"]
    return {name: covered[name] / lines[name] for name in sorted(lines, key=lambda name: (" " not in name, name))}


def main() -> None:
    report, path = sys.argv[1:]
    result = record.begin("coverage")
    result.command = "make coverage"
    for name, share in shares(json.loads(pathlib.Path(report).read_text())["files"]).items():
        result.add(record.row("lines run by the quick tests", name, "share", [share], by="tests"))
    result.save(path)


if __name__ == "__main__":
    main()
