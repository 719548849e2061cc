"""Random access to RecordIO files from several threads: record positions and contents, parts, and shuffled orders.

A record is the magic number, a word with its length and three flag bits, the bytes, and zeros up to a multiple of four.
If the bytes contain the magic number at a multiple of four, the record is split there and the number left out. A
reader that starts in the middle of a file can therefore find the next record by searching for the magic number.
"""

from __future__ import annotations

import os
import stat
import struct
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..base import MXNetError
from .atomic import being_written
from .text import numbered_lines

MAGIC = struct.pack("<I", 0xCED7230A)
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)  # the position of a piece in its record
_LENGTH = (1 << 29) - 1
_MEGABYTE = 1 << 20
_MOST_DIGITS = 18  # of a position in an index; no file is longer


class CutShort(MXNetError):
    """The file ends within a record."""


def files_of(uri: str) -> list[str]:
    """Return the files that `uri` names: a file, the files of a folder, or several of either separated by ';'."""
    found: list[str] = []
    for path in filter(None, uri.split(";")):
        if os.path.isdir(path):
            entries = (os.path.join(path, name) for name in sorted(os.listdir(path)))
            found += [entry for entry in entries if os.path.isfile(entry)]
        elif os.path.exists(path):
            found.append(path)
        else:
            raise MXNetError(f"cannot open {path}: no such file or directory")
    if not found:
        raise MXNetError(f"{uri!r} contains no files")
    return found


class RecordFile:
    """A RecordIO file whose records may be read from any thread, in any order."""

    def __init__(self, path: str):
        self.path = path
        try:
            if not stat.S_ISREG(os.stat(path).st_mode):  # opening a pipe would block
                raise MXNetError(f"cannot open the record file {path}: not a regular file")
            self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise MXNetError(f"cannot open the record file {path}: {error.strerror}{unfinished(path)}") from error
        self.size = os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file. Closing it again is a no-op."""
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self.close()

    def read(self, position: int) -> bytes:
        """Return the record that begins at `position`."""
        return self.read_on(position)[0]

    def read_on(self, position: int) -> tuple[bytes, int]:
        """Return the record that begins at `position`, and the position of the next one."""
        pieces = list(self._pieces(position))
        parts = [self._pread(start, length) for start, length in pieces]
        start, length = pieces[-1]
        return parts[0] if len(parts) == 1 else MAGIC.join(parts), start + length + -length % 4

    def begin(self, position: int, size: int) -> bytes:
        """Return the first bytes, at most `size`, of the record at `position`."""
        data = b""
        for number, (start, length) in enumerate(self._pieces(position)):
            data += MAGIC * (number > 0)
            data += self._pread(start, max(0, min(length, size - len(data))))
            if len(data) >= size:
                break
        return data[:size]

    def length(self, position: int) -> int:
        """Return the number of bytes in the record at `position`."""
        pieces = [length for _, length in self._pieces(position)]
        return sum(pieces) + len(MAGIC) * (len(pieces) - 1)

    def positions(self, start: int = 0, end: int | None = None) -> Iterator[int]:
        """Yield the positions of records that begin in [start, end). Raises CutShort if the file ends within one."""
        end = self.size if end is None else end
        position = self._first_from(start)
        while position < end:
            *_, (at, length) = self._pieces(position)
            yield position
            position = at + length + -length % 4

    def will_read(self, start: int, end: int) -> None:
        """Ask the system to read this range of the file ahead."""
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._file.fileno(), start, end - start, os.POSIX_FADV_WILLNEED)

    def _pread(self, position: int, size: int) -> bytes:
        data = os.pread(self._file.fileno(), size, position)
        while len(data) < size:
            more = os.pread(self._file.fileno(), size - len(data), position + len(data))
            if not more:
                raise CutShort(f"{self.path} is truncated: it ends within the record at byte {position}")
            data += more
        return data

    def _pieces(self, position: int) -> Iterator[tuple[int, int]]:
        """Yield the position and length of each piece of the record's bytes."""
        kind, length = self._head(position)
        if kind not in (_WHOLE, _FIRST):
            raise self._damaged(position, "the middle of a record where one should begin")
        yield position + 8, length
        while kind not in (_WHOLE, _LAST):
            position += 8 + length + -length % 4
            kind, length = self._head(position)
            if kind not in (_MIDDLE, _LAST):
                raise self._damaged(position, "a new record within another")
            yield position + 8, length

    def _head(self, position: int) -> tuple[int, int]:
        if position < 0:
            raise self._damaged(position, "no record")
        head = os.pread(self._file.fileno(), 8, position) if position < self.size else b""
        if head[:4] != MAGIC[: len(head)]:
            raise self._damaged(position, "no record (is this a RecordIO file, and its index the right one?)")
        kind, length = divmod(struct.unpack("<I", head[4:])[0], _LENGTH + 1) if len(head) == 8 else (_WHOLE, 0)
        if len(head) < 8 or position + 8 + length > self.size:
            raise CutShort(
                f"{self.path} is truncated: the record at byte {position} has only {max(self.size - position, 0)} bytes"
            )
        return kind, length

    def _first_from(self, start: int) -> int:
        """Return the position of the first record at or after `start`: nothing within a record looks like a header."""
        position = start + -start % 4
        if position == 0:
            return 0
        while position < self.size:
            block = os.pread(self._file.fileno(), _MEGABYTE, position)
            at = block.find(MAGIC)
            while at >= 0:
                word = block[at + 4 : at + 8] if at % 4 == 0 else b""
                if len(word) == 4 and struct.unpack("<I", word)[0] >> 29 in (_WHOLE, _FIRST):
                    return position + at
                at = block.find(MAGIC, at + 1)
            position += max(len(block) - 4, 4)  # a header may begin in the last word of the block
        return self.size

    def _damaged(self, position: int, found: str) -> MXNetError:
        return MXNetError(f"{self.path} is damaged: at byte {position} there is {found}")


def unfinished(path: str) -> str:
    """Return a message suffix for a missing file that is still being written, else an empty string."""
    writing = not os.path.exists(path) and being_written(path)
    return ". It is being written: a record file appears under its name when its writer is closed" if writing else ""


def encode(data: bytes) -> bytes:
    """Return the bytes of a record as stored in a file."""
    if len(data) > _LENGTH:
        raise MXNetError(f"a record must have at most {_LENGTH} bytes, received {len(data)}")
    parts, start, at = [], 0, data.find(MAGIC)
    while at >= 0:
        if at % 4 == 0:
            parts.append(data[start:at])
            start = at + 4
            at = data.find(MAGIC, start)
        else:
            at = data.find(MAGIC, at + 1)
    parts.append(data[start:])
    last = len(parts) - 1
    kinds = [_WHOLE] if last == 0 else [_FIRST, *[_MIDDLE] * (last - 1), _LAST]
    return b"".join(
        MAGIC + struct.pack("<I", kind << 29 | len(part)) + part + b"\0" * (-len(part) % 4)
        for kind, part in zip(kinds, parts, strict=True)
    )


def read_index(path: str) -> list[tuple[str, int]]:
    """Return the keys and positions of an index, in file order."""
    entries = []
    for number, line in numbered_lines(path):
        key, _, position = line.partition("\t")
        if not position.strip().isdecimal() or len(position) > _MOST_DIGITS:
            raise MXNetError(f"{path}, line {number}: expected a key, a tab and a position, received {line!r:.80}")
        entries.append((key, int(position)))
    return entries


@dataclass(frozen=True)
class RecordPosition:
    """The file and the offset of a record."""

    file: RecordFile
    position: int

    def read(self) -> bytes:
        """Return the bytes of the record."""
        return self.file.read(self.position)


class NumberedRecords:
    """Records of several files, numbered from 0. `positions` has those of each file."""

    def __init__(self, files: list[RecordFile], positions: list[np.ndarray]):
        self._files, self._positions = files, np.concatenate(positions)
        self._ends = np.cumsum([len(each) for each in positions])

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, number: int) -> RecordPosition:
        file = int(np.searchsorted(self._ends, number, side="right"))
        return RecordPosition(self._files[file], int(self._positions[number]))


class RecordSource:
    """The records of one part of the files, in passes.

    With an index, the parts have equal numbers of records and a shuffled pass is a permutation of the whole part.
    Without an index, which avoids scanning large files, a part is a range of bytes and contains the records that begin
    in it. To shuffle, the range is split into chunks, and both the chunks and the records of each chunk are permuted.
    Each record belongs to exactly one part.
    """

    def __init__(
        self,
        uri: str,
        index: str = "",
        num_parts: int = 1,
        part_index: int = 0,
        shuffle: bool = False,
        seed: tuple[int, ...] = (0,),
        chunk_bytes: int = 0,
    ):
        self.uri, self._part, self._shuffle, self._seed = uri, (num_parts, part_index), shuffle, seed
        self._files = [RecordFile(path) for path in files_of(uri)]
        self._chunk = chunk_bytes or 64 * _MEGABYTE
        self._warned = False
        self._index = self._read_index(index) if index else None

    def _read_index(self, path: str) -> np.ndarray:
        if len(self._files) > 1:
            raise MXNetError(f"the index {path} needs exactly one record file, received {len(self._files)}")
        everything = np.sort(np.array([position for _, position in read_index(path)], np.int64))
        inside = everything[everything < self._files[0].size]
        try:
            if len(inside):
                *_, _last = self._files[0]._pieces(int(inside[-1]))
        except CutShort:
            inside = inside[:-1]
        if len(inside) < len(everything):
            self._warn_cut(
                f"{self.uri} is truncated: its index has {len(everything) - len(inside)} more records, the first at "
                f"byte {everything[len(inside)]}",
                len(inside),
            )
        parts, part = self._part
        return inside[len(inside) * part // parts : len(inside) * (part + 1) // parts]

    def numbered(self) -> NumberedRecords:
        """Return all records of this part in the order of the files, for access by number.

        Without an index, this reads the header of each record.
        """
        if self._index is not None:
            return NumberedRecords(self._files[:1], [self._index])
        found: dict[RecordFile, list[int]] = {file: [] for file in self._files}
        count = 0
        for file, start, end in self._stretches():
            found[file] += self._whole_records(file, start, end, count)
            count += len(found[file])
        return NumberedRecords(self._files, [np.array(each, np.int64) for each in found.values()])

    def one_pass(self, number: int) -> Iterator[RecordPosition]:
        """Yield the records in the order of pass `number`."""
        numbers = np.random.default_rng([*(abs(s) for s in self._seed), number])
        if self._index is not None:
            order = numbers.permutation(self._index) if self._shuffle else self._index
            return (RecordPosition(self._files[0], int(position)) for position in order)
        return self._by_stretches(numbers)

    def _by_stretches(self, numbers: np.random.Generator) -> Iterator[RecordPosition]:
        stretches = list(self._stretches())
        order = numbers.permutation(len(stretches)) if self._shuffle else range(len(stretches))
        count = 0
        for file, start, end in (stretches[i] for i in order):
            file.will_read(start, min(end, start + self._chunk))
            positions = self._whole_records(file, start, end, count)
            for position in numbers.permutation(list(positions)) if self._shuffle else positions:
                count += 1
                yield RecordPosition(file, int(position))

    def _stretches(self) -> Iterator[tuple[RecordFile, int, int]]:
        """Yield the ranges of the files that belong to this part; if shuffled, none is longer than a chunk."""
        total, (parts, part), before = sum(file.size for file in self._files), self._part, 0
        low, high = total * part // parts, total * (part + 1) // parts
        for file in self._files:
            start, end = max(low - before, 0), min(high - before, file.size)
            step = self._chunk if self._shuffle else max(end - start, 1)
            for at in range(start, end, step):
                yield file, at, min(at + step, end)
            before += file.size

    def _whole_records(self, file: RecordFile, start: int, end: int, count: int) -> Iterator[int]:
        try:
            for position in file.positions(start, end):
                count += 1
                yield position
        except CutShort as error:
            self._warn_cut(str(error), count)

    def _warn_cut(self, what: str, count: int) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(f"{what}; reading stops there, after {count} complete records", stacklevel=2)
