"""Contents of data files: RecordIO (.rec), its index (.idx), and image lists (.lst)."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..base import MXNetError
from ..formats.records import RecordFile
from ..recordio import IRHeader, unpack

_HEAD = struct.Struct("<IfQQ")
_ENOUGH = 1 << 16  # bytes of a record that contain its labels and the image size


class Record(NamedTuple):
    """A record: its position, its length in bytes, and its first bytes."""

    position: int
    length: int
    start: bytes


def scan(path: str, looked_at: int = 0) -> Iterator[Record]:
    """Yield all records with only their first bytes; more for the first `looked_at`. Raises at a damaged record."""
    file = RecordFile(path)
    for number, position in enumerate(file.positions()):
        wanted = _ENOUGH if number < looked_at else _HEAD.size
        yield Record(position, file.length(position), file.begin(position, wanted))


@dataclass(frozen=True)
class Summary:
    """The result of a scan: number of records, total and maximum length, and number of records by label count."""

    count: int
    total: int
    longest: int
    widths: Counter[int]
    first: list[Record]
    positions: list[int]
    problem: MXNetError | None


def summarised(path: str, rows: int) -> Summary:
    """Scan a .rec file to its end, or to the first damage; shows a progress bar on a terminal if it takes long."""
    count = total = longest = 0
    widths: Counter[int] = Counter()
    first: list[Record] = []
    positions: list[int] = []
    problem = None
    bar = _Bar(os.path.getsize(path))
    try:
        for record in scan(path, rows):
            count, total, longest = count + 1, total + record.length, max(longest, record.length)
            widths[_width(record)] += 1
            positions.append(record.position)
            if len(first) < rows:
                first.append(record)
            if count % 1000 == 0:
                bar.show(record.position)
    except MXNetError as error:
        problem = error
    bar.close()
    return Summary(count, total, longest, widths, first, positions, problem)


def _width(record: Record) -> int:
    """Return the number of labels in a record's header; -1 if it has no header."""
    if len(record.start) < _HEAD.size:
        return -1
    flag = _HEAD.unpack_from(record.start)[0]
    return -1 if flag * 4 + _HEAD.size > record.length else flag or 1


class _Bar:
    """A progress bar on a terminal, shown after one second."""

    def __init__(self, size: int):
        self.size, self.begun, self.shown = size, time.monotonic(), False

    def show(self, done: int) -> None:
        if sys.stderr.isatty() and time.monotonic() - self.begun > 1:
            self.shown = True
            part = 30 * done // self.size
            print(f"\r[{'#' * part}{' ' * (30 - part)}] {100 * done // self.size:3d} %", end="", file=sys.stderr)

    def close(self) -> None:
        if self.shown:
            print("\r" + " " * 40 + "\r", end="", file=sys.stderr, flush=True)


def labelled(record: Record) -> tuple[IRHeader, bytes] | None:
    """Return the header of a record and the bytes that were read after it; None if it has no header."""
    if _width(record) < 0:
        return None
    try:
        return unpack(record.start)
    except MXNetError:
        return None


def picture_size(data: bytes) -> str:
    """Return a text such as `JPEG 640x480` from the first bytes of an image; empty if the format is unknown."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24])
        return f"PNG {width}x{height}"
    if data[:2] == b"\xff\xd8":
        return _jpeg_size(data)
    return "npy" if data[:6] == b"\x93NUMPY" else ""


def _jpeg_size(data: bytes) -> str:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker, length = data[at + 1], int.from_bytes(data[at + 2 : at + 4], "big")
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[at + 5 : at + 9])
            return f"JPEG {width}x{height}"
        at += 2 + length
    return "JPEG"


# ---- the index ----


def index_problem(entries: list[tuple[str, int]], positions: list[int]) -> str | None:
    """Return how an index does not match its records, or None if it does."""
    known = set(positions)
    wrong = [key for key, position in entries if position not in known]
    if wrong:
        return f"{len(wrong)} of its {len(entries)} keys do not point to a record, first {wrong[0]!r}"
    if len(entries) != len(positions):
        return f"it has {len(entries)} keys for {len(positions)} records"
    return None


def short(values: Any, most: int = 6) -> str:
    """Return some of the values, with an ellipsis if there are more."""
    shown = [f"{value:g}" for value in list(values)[:most]]
    return " ".join(shown) + (" ..." if len(values) > most else "")
