"""RecordIO: files of consecutive records with an optional index file, as written by MXNet and its tools.

`formats/records.py` describes the encoding of a record.
"""

from __future__ import annotations

import os
import struct
import warnings
from typing import Any, NamedTuple, TypeVar

import numpy as np

from .base import MXNetError
from .formats import picture, records
from .formats.atomic import Replacement

Reader = TypeVar("Reader", bound="MXRecordIO")


class MXRecordIO:
    """A RecordIO file, opened for reading ('r') or writing ('w'); a context manager that closes the file.

    A truncated file is read up to its last complete record, with a warning; other damage raises an error. A copy in
    another process (by fork or pickle) opens the file again and reads from the start. Only the process that opened a
    file may write to it.

    A writer writes to a temporary file that gets its name when the writer is closed. Until then readers see the
    previous file. A writer that was not closed is closed when it is deleted. An exception within `with`, or `reset`,
    discards what was written.
    """

    def __init__(self, uri: str | os.PathLike[str], flag: str):
        self.uri, self.flag = os.fspath(uri), flag
        self.is_open = False
        self.open()

    def open(self) -> None:
        """Open the file; reopen it if it was closed."""
        if self.flag not in ("r", "w"):
            raise ValueError(f"Invalid flag {self.flag!r}: expected 'r' or 'w'")
        self.writable = self.flag == "w"
        if self.writable:
            # Unbuffered: a forked copy must not hold data that it could write a second time.
            self._written = Replacement(self.uri, buffering=0)
        else:
            self._records, self._position, self._count = records.RecordFile(self.uri), 0, 0
        self.pid: int | None = os.getpid()
        self.is_open = True

    def close(self) -> None:
        """Close the file and give a written file its name. Closing it again is a no-op."""
        was_open, self.is_open, self.pid = self.is_open, False, None
        if was_open:
            if self.writable:
                self._commit()
            else:
                self._records.close()

    def _commit(self) -> None:
        self._written.commit()

    def _discard(self) -> None:
        """Close a writer and discard what it has written."""
        was_open, self.is_open, self.pid = self.is_open, False, None
        if was_open:
            self._written.discard()

    def reset(self) -> None:
        """Restart: a reader at the first record, a writer with an empty file."""
        if self.writable:
            self._discard()
        else:
            self.close()
        self.open()

    def tell(self) -> int:
        """Return the position of the next record to write or read."""
        self._check_process()
        return self._written.file.tell() if self.writable else self._position

    def write(self, buf: bytes) -> None:
        """Append a record."""
        assert self.writable, f"{self.uri} is open for reading. Open it with flag 'w' to write"
        self._check_process()
        if not isinstance(buf, (bytes, bytearray, memoryview)):
            raise TypeError(f"a record must be bytes, received {type(buf).__name__}")
        self._written.write(records.encode(bytes(buf)))

    def read(self) -> bytes | None:
        """Return the next record; None at the end of the file or where it is truncated."""
        assert not self.writable, f"{self.uri} is open for writing. Open it with flag 'r' to read"
        self._check_process()
        if self._position >= self._records.size:
            return None
        try:
            record, self._position = self._records.read_on(self._position)
        except records.CutShort as error:
            warnings.warn(
                f"{error}; reading stops there, after {self._count} complete records", RuntimeWarning, stacklevel=2
            )
            self._position = self._records.size
            return None
        self._count += 1
        return record

    def _check_process(self) -> None:
        if self.is_open and self.pid == os.getpid():
            return
        if not self.is_open:
            raise MXNetError(f"{self.uri} is closed. Call open() or reset()")
        if self.writable:
            raise MXNetError(f"{self.uri} was opened by another process; only that process may write to it")
        self.reset()  # the position belongs to the parent process

    def __getstate__(self) -> dict[str, Any]:
        state = {name: value for name, value in vars(self).items() if name not in ("_written", "_records", "_index")}
        return {**state, "pid": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, is_open=False)
        if state["is_open"]:
            if self.writable:
                raise MXNetError(f"{self.uri} is open for writing in another process; a copy cannot write to it")
            self.open()

    def __enter__(self: Reader) -> Reader:
        return self

    def __exit__(self, *error: object) -> None:
        if self.writable and error[0] is not None:
            self._discard()
        else:
            self.close()

    def __del__(self) -> None:
        if getattr(self, "is_open", False):
            self.close()


class MXIndexedRecordIO(MXRecordIO):
    """A RecordIO file with an index: lines of a key, a tab and the position of the record.

    `keys` lists the keys in file order, `idx` maps them to positions.
    """

    def __init__(self, idx_path: str | os.PathLike[str], uri: str | os.PathLike[str], flag: str, key_type: type = int):
        self.idx_path, self.key_type = os.fspath(idx_path), key_type
        self.idx: dict[Any, int] = {}
        self.keys: list[Any] = []
        super().__init__(uri, flag)

    def open(self) -> None:
        """Open the file and its index; reopen them if they were closed."""
        super().open()
        self.idx, self.keys = {}, []
        if self.writable:
            try:
                self._index = Replacement(self.idx_path, buffering=0)
            except MXNetError:
                super()._discard()
                raise
            return
        try:
            # `_add` rejects bytes that are not text, and reports their line.
            with open(self.idx_path, encoding="utf-8", errors="backslashreplace") as index:
                for number, line in enumerate(index, 1):
                    self._add(number, line)
        except OSError as error:
            self.close()
            raise MXNetError(
                f"cannot open the index {self.idx_path} of {self.uri}: {error.strerror}"
                f"{records.unfinished(self.idx_path)}. The index is written together with the file; without it, "
                "MXRecordIO reads the records in the file's order"
            ) from error

    def _add(self, number: int, line: str) -> None:
        key, _, position = line.rstrip("\n").partition("\t")
        try:
            if not 0 <= int(position) < 1 << 63:
                raise ValueError
            self.idx[self.key_type(key)] = int(position)
        except (ValueError, TypeError, OverflowError):
            raise MXNetError(
                f"{self.idx_path}, line {number}: expected a key of type {self.key_type.__name__}, a tab and a "
                f"position, received {line!r:.80}"
            ) from None
        self.keys.append(self.key_type(key))

    def _commit(self) -> None:
        try:
            super()._commit()
        except BaseException:
            self._index.discard()
            raise
        self._index.commit()

    def _discard(self) -> None:
        if self.is_open:
            self._index.discard()
        super()._discard()

    def seek(self, idx: Any) -> None:
        """Set the position so that `read` returns the record with key `idx`."""
        assert not self.writable, f"{self.uri} is open for writing. Open it with flag 'r' to read"
        self._check_process()
        if idx not in self.idx:
            raise KeyError(f"{self.idx_path} has no record {idx!r} among its {len(self.idx)} records")
        self._position = self.idx[idx]

    def read_idx(self, idx: Any) -> bytes:
        """Return the record with key `idx`."""
        self.seek(idx)
        try:
            record, self._position = self._records.read_on(self._position)
        except MXNetError as error:
            raise MXNetError(f"cannot read the record {idx!r} by {self.idx_path}: {error}") from error
        return record

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Append a record with key `idx`."""
        key = self.key_type(idx)
        position = self.tell()
        self.write(buf)
        self._index.write(f"{key}\t{position}\n".encode())
        self.idx[key] = position
        self.keys.append(key)


# ---- image records: a header before the bytes ----


class IRHeader(NamedTuple):
    """The header of a record: the number of labels (0 for a scalar label), the label or labels, and two user ids."""

    flag: int
    label: Any
    id: int
    id2: int

    def __repr__(self) -> str:
        """Return the text that MXNet prints."""
        return f"HEADER(flag={self.flag!r}, label={self.label!r}, id={self.id!r}, id2={self.id2!r})"


_IR_FORMAT = "IfQQ"  # MXNet's private name for the header format, which some programs use
_IR_SIZE = struct.calcsize(_IR_FORMAT)
_HEADER = struct.Struct("<" + _IR_FORMAT)


def pack(header: IRHeader, s: bytes) -> bytes:
    """Return a record with this header and bytes. The label is a number, or a float32 array."""
    header = IRHeader(*header)
    if isinstance(header.label, (int, float, np.number)):
        return _HEADER.pack(0, header.label, header.id, header.id2) + s
    label = np.asarray(header.label, dtype=np.float32)
    return _HEADER.pack(label.size, 0, header.id, header.id2) + label.tobytes() + s


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Return the header and the bytes of a record that `pack` made."""
    if len(s) < _HEADER.size:
        raise MXNetError(f"a record with a header must have at least {_HEADER.size} bytes, received {len(s)}")
    header = IRHeader(*_HEADER.unpack_from(s))
    rest = s[_HEADER.size :]
    if header.flag == 0:
        return header, rest
    if len(rest) < 4 * header.flag:
        raise MXNetError(f"the record's header declares {header.flag} labels, but there are {len(rest) // 4}")
    label = np.frombuffer(rest, np.float32, header.flag)
    return header._replace(label=label), rest[4 * header.flag :]


def pack_img(header: IRHeader, img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Encode an image (height, width[, 3 in BGR order]) as JPEG or PNG and return a record with this header.

    `quality` is JPEG's quality, 1 to 100, or PNG's compression, 0 to 9.
    """
    return pack(header, picture.encode(np.asarray(img), quality, img_fmt, bgr=True))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, np.ndarray]:
    """Return the header and the image, in BGR order; `iscolor` is 1 for color, 0 for gray, -1 as stored."""
    header, encoded = unpack(s)
    img = picture.decode(encoded, iscolor, bgr=True)
    return header, img[:, :, 0] if img.shape[2] == 1 else img
