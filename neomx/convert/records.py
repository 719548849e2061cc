"""What is in the files of data: RecordIO (.rec), its index (.idx), and lists of pictures (.lst)."""

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
_ENOUGH = 1 << 16  # of a record, to see its labels and how large its picture is


class Record(NamedTuple):
    """A record: where it begins, how many bytes it has, and its first bytes."""

    position: int
    length: int
    start: bytes


def scan(path: str, looked_at: int = 0) -> Iterator[Record]:
    """All records, without reading most of their bytes; more of the first `looked_at`. Raises at a damaged one."""
    file = RecordFile(path)
    for number, position in enumerate(file.positions()):
        wanted = _ENOUGH if number < looked_at else _HEAD.size
        yield Record(position, file.length(position), file.begin(position, wanted))


@dataclass(frozen=True)
class Summary:
    """What a scan found: how many records, their lengths together and at most, how many have so many labels."""

    count: int
    total: int
    longest: int
    widths: Counter[int]
    first: list[Record]
    positions: list[int]
    problem: MXNetError | None


def summarised(path: str, rows: int) -> Summary:
    """Scan a .rec file to its end, or to where it is damaged, with a bar on a terminal if that takes long."""
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
    """How many labels a record has by its header; -1 if it cannot be one with a header."""
    if len(record.start) < _HEAD.size:
        return -1
    flag = _HEAD.unpack_from(record.start)[0]
    return -1 if flag * 4 + _HEAD.size > record.length else flag or 1


class _Bar:
    """How far we are, on a terminal, from the second second on."""

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
    """The header of a record and the bytes after it, as far as they were read; None if it has no header."""
    if _width(record) < 0:
        return None
    try:
        return unpack(record.start)
    except MXNetError:
        return None


def picture_size(data: bytes) -> str:
    """`JPEG 640x480`, from the first bytes of a picture; empty if it is none that we know."""
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


# ---- its index ----


def index_problem(entries: list[tuple[str, int]], positions: list[int]) -> str | None:
    """How an index does not fit the records it is for, if it does not."""
    known = set(positions)
    wrong = [key for key, position in entries if position not in known]
    if wrong:
        return f"{len(wrong)} of its {len(entries)} keys point to no record, first {wrong[0]!r}"
    if len(entries) != len(positions):
        return f"it has {len(entries)} keys for {len(positions)} records"
    return None


def short(values: Any, most: int = 6) -> str:
    """Some of the values, and dots if there are more."""
    shown = [f"{value:g}" for value in list(values)[:most]]
    return " ".join(shown) + (" ..." if len(values) > most else "")
