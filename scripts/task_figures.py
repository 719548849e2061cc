"""The table and the drawings of docs/tasks.md, from benchmarks/results/task_runs.json; `figures.py` calls them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from benchmarks.record import Row

COLUMNS, CELL_WIDTH, CELL_HEIGHT, TOP = 3, 236, 168, 64
STYLE = """
    text { font: 12px system-ui, sans-serif; fill: #1f2430; }
    .head { font-size: 14px; font-weight: 600; }
    .name { font-weight: 600; }
    .small { fill: #555d70; font-size: 10px; }
    .end { text-anchor: end; }
    .frame { fill: none; stroke: #c9cfdb; }
    .one { fill: none; stroke: #e0a25a; stroke-width: 5; stroke-opacity: 0.6; stroke-linejoin: round; }
    .two { fill: none; stroke: #2455a4; stroke-width: 1.5; stroke-linejoin: round; }
    @media (prefers-color-scheme: dark) {
      text { fill: #e3e6ef; }
      .small { fill: #aab2c5; }
      .frame { stroke: #4a5266; }
      .two { stroke: #8ab4ff; }
    }
"""


def slug(group: str) -> str:
    """Return the name of a group in the name of its drawing."""
    return f"tasks-{group.lower().replace(' ', '-')}.svg"


def short(value: float) -> str:
    """Return a number with three decimals, fewer if it is large, or an exponent if it is small."""
    if 0 < abs(value) < 0.001:
        return f"{value:.0e}"
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def shown_value(row: Row) -> str:
    """Return the name of the curve's value that is drawn: the last one that the last epoch reports."""
    return list(row.extra["curves"]["2"][-1])[-1]


def result_of(row: Row, workers: str) -> str:
    """Return the metric on one worker or on two; for several seeds, their mean and range."""
    values = row.extra["values"][workers]
    if len(values) == 1:
        return short(values[0])
    return f"{short(sum(values) / len(values))} ({short(min(values))} to {short(max(values))})"


def table_rows(rows: Sequence[Row]) -> list[list[str]]:
    """Return the cells of the table: one row for each task."""
    cells = []
    for row in rows:
        extra: dict[str, Any] = row.extra
        bound = "at most" if extra["lower"] else "at least"
        apart = f"{extra['difference']:.0e}" if extra["curves"]["2"] else "no curve"
        results = [result_of(row, "1"), result_of(row, "2"), apart, f"{extra['seconds']:.0f} s"]
        cells.append([row.what, extra["metric"], f"{bound} {extra['target']:g}", *results])
    return cells


HEAD = ["task", "metric", "target", "1 worker", "2 workers", "curves differ by", "time, 2 workers"]


def drawing(group: str, rows: Sequence[Row]) -> str:
    """Return an SVG with the curves of a group of tasks that have one, one worker and two."""
    rows = [row for row in rows if row.extra["curves"]["2"]]
    height = TOP + -(-len(rows) // COLUMNS) * CELL_HEIGHT
    width = COLUMNS * CELL_WIDTH + 8
    said = "; ".join(f"{row.what}: {result_of(row, '1')} and {result_of(row, '2')}" for row in rows)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'role="img" aria-labelledby="title desc">',
        f'<title id="title">{escape(group)}: training on one worker and on two</title>',
        f'<desc id="desc">{escape(said)}.</desc>',
        f"<style>{STYLE}  </style>",
        f'<text class="head" x="10" y="22">{escape(group)}</text>',
        '<line class="one" x1="10" y1="42" x2="34" y2="42"/><text x="40" y="46">1 worker</text>',
        '<line class="two" x1="110" y1="42" x2="134" y2="42"/><text x="140" y="46">2 workers</text>',
    ]
    for at, row in enumerate(rows):
        left, top = 8 + at % COLUMNS * CELL_WIDTH, TOP + at // COLUMNS * CELL_HEIGHT
        lines += cell(row, left, top)
    return "\n  ".join(lines) + "\n</svg>\n"


def cell(row: Row, left: int, top: int) -> list[str]:
    """Return the part of the drawing about one task."""
    name = shown_value(row)
    curves = {workers: [each[name] for each in curve if name in each] for workers, curve in row.extra["curves"].items()}
    values = [value for curve in curves.values() for value in curve]
    low, high = min(values), max(values)
    scale = math.log if low > 0 and high / low > 20 else float  # a loss that falls by orders of magnitude
    span, width, height = scale(high) - scale(low) or 1.0, CELL_WIDTH - 28, CELL_HEIGHT - 62
    y0 = top + 22
    epochs = max(len(curve) for curve in curves.values())
    axis = f"{name}, {short(low)} to {short(high)}{' (log scale)' if scale is math.log else ''}"

    def points(curve: list[float]) -> str:
        across = [left + 6 + (width - 12) * at / max(len(curve) - 1, 1) for at in range(len(curve))]
        down = [y0 + height - 6 - (height - 12) * (scale(value) - scale(low)) / span for value in curve]
        return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))

    return [
        f'<text class="name" x="{left}" y="{top + 12}">{escape(row.what)}</text>',
        f'<rect class="frame" x="{left}" y="{y0}" width="{width}" height="{height}"/>',
        f'<polyline class="one" points="{points(curves["1"])}"/>',
        f'<polyline class="two" points="{points(curves["2"])}"/>',
        f'<text class="small" x="{left}" y="{y0 + height + 13}">{escape(axis)}</text>',
        f'<text class="small end" x="{left + width}" y="{y0 + height + 13}">{epochs} epochs</text>',
    ]
