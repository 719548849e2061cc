"""safetensors files: named arrays, the format in which Hugging Face publishes weights.

    file    uint64 length of the header (little-endian), the header, the arrays' bytes one after the other
    header  JSON: {name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, "__metadata__": {text: text}}

Offsets count from the end of the header. The arrays cover all bytes after it without overlap.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base import MXNetError
from .atomic import replacing

_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "F32": torch.float32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F64": torch.float64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_MOST_HEADER = 100_000_000  # the limit of other readers; more means that the file is corrupt
_METADATA = "__metadata__"
_MAX_DIMS = 64  # numpy's limit; more means that the file is corrupt


@dataclass(frozen=True)
class Location:
    """The location of an array: bytes from `begin` to `end`, counted from the start of the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class Archive(Mapping[str, torch.Tensor]):
    """The arrays of a file by name. The header is read and checked immediately, arrays on access."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = os.fspath(path)
        try:
            info = os.stat(self.path)
            if not stat.S_ISREG(info.st_mode):  # opening a pipe would block
                raise MXNetError(f"{self.path}: not a regular file")
            with open(self.path, "rb") as file:
                self.metadata, self._entries = read_header(lambda _, size: file.read(size), info.st_size, self.path)
        except OSError as error:
            raise MXNetError(f"cannot read {self.path}: {error.strerror or error}") from error

    def __getitem__(self, name: str) -> torch.Tensor:
        entry = self._entries[name]
        result = torch.empty(entry.shape, dtype=entry.dtype)
        try:
            with open(self.path, "rb", buffering=0) as file:
                file.seek(entry.begin)
                _fill(file, result, f"{self.path}: {name!r}")
        except OSError as error:
            raise MXNetError(f"cannot read {self.path}: {error.strerror or error}") from error
        if result.dtype is torch.bool:  # in a file any nonzero byte means true; in torch only 1 does
            result.view(torch.uint8).clamp_(max=1)
        return result

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries


def read(path: str | os.PathLike[str]) -> dict[str, torch.Tensor]:
    """Return all arrays of a file, by name."""
    return dict(Archive(path))


def write(
    path: str | os.PathLike[str], tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
) -> None:
    """Write arrays by name, atomically."""
    arrays = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    header, entries = make_header({name: (each.dtype, each.shape) for name, each in arrays.items()}, metadata)
    with replacing(path) as file:
        file.write(header)
        for name in entries:
            file.write(bytes_of(arrays[name]))


def make_header(
    described: Mapping[str, tuple[torch.dtype, Sequence[int]]], metadata: Mapping[str, str] | None = None
) -> tuple[bytes, dict[str, Location]]:
    """Return the bytes before the arrays of a file, and the location of each array, in the order of the file."""
    header: dict[str, Any] = {_METADATA: dict(metadata)} if metadata else {}
    ordered = sorted(described, key=lambda name: (-described[name][0].itemsize, name))  # so that all are aligned
    entries: dict[str, Location] = {}
    end = 0
    for name in ordered:
        dtype, shape = described[name]
        if name == _METADATA or dtype not in _NAMES:
            raise MXNetError(f"cannot write {name!r} of {dtype} to a safetensors file")
        begin, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = Location(dtype, tuple(shape), begin, end)
        header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    start = 8 + len(text)
    placed = {
        name: Location(each.dtype, each.shape, start + each.begin, start + each.end) for name, each in entries.items()
    }
    return struct.pack("<Q", len(text)) + text, placed


def read_header(read: Callable[[int, int], bytes], size: int, path: str) -> tuple[dict[str, str], dict[str, Location]]:
    """Return the metadata and the arrays of a file of `size` bytes, of which `read(begin, size)` returns some.

    `read` is called for bytes in ascending order.
    """
    start, header = _header(read, size, path)
    metadata = _metadata(header.pop(_METADATA, {}), path)
    entries = {name: _entry(name, facts, start, size, path) for name, facts in header.items()}
    _check_cover(entries, start, size, path)
    return metadata, entries


def name_of(dtype: torch.dtype) -> str:
    """Return the name of a dtype in these files."""
    return _NAMES[dtype]


def dtype_of(name: Any) -> torch.dtype | None:
    """Return the dtype with a name in these files, or None if there is none."""
    return _DTYPES.get(name) if isinstance(name, str) else None


# ---- the header, which is not trusted ----


def _fail(path: str, problem: str) -> MXNetError:
    return MXNetError(f"{path}: not a readable safetensors file: {problem}")


def _header(read: Callable[[int, int], bytes], size: int, path: str) -> tuple[int, dict[str, Any]]:
    """Return the offset of the first array, and the header."""
    if size < 8:
        raise _fail(path, f"it has {size} bytes, but the length of the header alone takes 8")
    (length,) = struct.unpack("<Q", read(0, 8))
    if length > min(size - 8, _MOST_HEADER):
        raise _fail(
            path, f"the header would take {length} bytes; the file has {size - 8}, and the limit is {_MOST_HEADER}"
        )
    try:
        header = json.loads(read(8, length).decode(), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise _fail(path, f"its header is not JSON: {error!s:.200}") from error
    if not isinstance(header, dict):
        raise _fail(path, f"its header is a {type(header).__name__}, expected an object of names")
    return 8 + length, header


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"the name {name!r} occurs twice")
        result[name] = value
    return result


def _metadata(value: Any, path: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise _fail(path, f"{_METADATA} must map strings to strings")
    return value


def _entry(name: str, facts: Any, start: int, size: int, path: str) -> Location:
    if not isinstance(facts, dict) or facts.keys() != {"dtype", "shape", "data_offsets"}:
        raise _fail(path, f"{name!r} must have dtype, shape and data_offsets, received {facts!r:.100}")
    shape, offsets = facts["shape"], facts["data_offsets"]
    if not _is_counts(shape) or not _is_counts(offsets) or len(offsets) != 2:
        raise _fail(path, f"{name!r} has shape {shape!r:.100} at {offsets!r:.100}: expected lists of integers >= 0")
    dtype = dtype_of(facts["dtype"])
    if dtype is None:
        raise _fail(path, f"{name!r} has dtype {facts['dtype']!r:.100}, expected one of {', '.join(_DTYPES)}")
    if len(shape) > _MAX_DIMS:
        raise _fail(path, f"{name!r} has {len(shape)} dimensions, expected at most {_MAX_DIMS}")
    begin, end = (start + offset for offset in offsets)
    if end > size:
        raise _fail(path, f"{name!r} would end at byte {end}, but the file has {size}")
    wanted = math.prod(shape) * dtype.itemsize
    if end - begin != wanted:
        raise _fail(path, f"{name!r} of shape {shape} takes {wanted} bytes, but its data_offsets span {end - begin}")
    if math.prod(n or 1 for n in shape) * dtype.itemsize >= 2**63:
        raise _fail(path, f"{name!r} has shape {shape}, which is too large")
    return Location(dtype, tuple(shape), begin, end)


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(type(each) is int and 0 <= each < 2**63 for each in value)


def _check_cover(entries: Mapping[str, Location], start: int, size: int, path: str) -> None:
    """Fail if arrays overlap, or if there are bytes that belong to none."""
    reached, last = start, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin < reached:
            raise _fail(path, f"{name!r} overlaps with {last!r}")
        if entry.begin > reached:
            raise _fail(path, f"{entry.begin - reached} bytes before {name!r} belong to no array")
        reached, last = entry.end, name
    if reached < size:
        raise _fail(path, f"{size - reached} bytes at the end belong to no array")


# ---- bytes ----


def bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous tensor."""
    if not tensor.numel():
        return memoryview(b"")
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def _fill(file: Any, tensor: torch.Tensor, what: str) -> None:
    left = bytes_of(tensor)
    while left:
        count = file.readinto(left)
        if not count:
            raise MXNetError(f"{what} ends too early: {len(left)} bytes are missing. The file may have been changed")
        left = left[count:]
