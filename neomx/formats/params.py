"""MXNet's `.params` files: a list of arrays, dense or sparse, with or without names.

All numbers are little-endian, a `shape` being a uint32 count and that many int64:

    file    uint64 0x112, uint64 reserved, uint64 count, the arrays, uint64 count (0 or as many), the names
    name    uint64 length, UTF-8 bytes
    array   uint32 magic, int32 storage, [shape of the stored data, if sparse], shape, int32 device type,
            int32 device id, int32 dtype, [int32 dtype and shape of each index array, if sparse], data,
            [the index arrays, if sparse]

Arrays in files of older versions have no `storage` (their magic is V1) or begin with the shape itself, as uint32 (no
magic). Programs in numpy mode write the magic V3, where a shape without dimensions means a scalar; before V3 it meant
that there is no array, and nothing follows.
"""

from __future__ import annotations

import math
import os
import stat
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..base import MXNetError
from ..dtype import FLAG_OF_TORCH, NAME_OF_TORCH, TORCH_OF_FLAG
from .atomic import replacing

_LIST_MAGIC = 0x112
_V1, _V2, _V3 = 0xF993FAC8, 0xF993FAC9, 0xF993FACA
_STORAGES = {0: "default", 1: "row_sparse", 2: "csr"}
_STORAGE_NUMBERS = {name: number for number, name in _STORAGES.items()}
_INDEX_COUNT = {"row_sparse": 1, "csr": 2}
_MAX_DIMS = 32  # numpy's limit; more means that the file is corrupt
CPU = (1, 0)


@dataclass
class Dense:
    """A dense array of a file, and the device (type number, id) it was stored on."""

    data: torch.Tensor
    device: tuple[int, int] = CPU


@dataclass
class Sparse:
    """A sparse array of a file: `indices` is (row indices,) for row_sparse and (indptr, column indices) for csr."""

    storage: str
    shape: tuple[int, ...]
    data: torch.Tensor
    indices: tuple[torch.Tensor, ...]
    device: tuple[int, int] = CPU


Record = Dense | Sparse


# ---- reading ----


def read(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> tuple[list[Record], list[str]]:
    """Return the arrays of a file, or of its bytes, and their names (an empty list if it has none).

    The data is read from the file directly into the memory of the tensors.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _read_list(_Buffer(source))
    name = os.fspath(source)
    try:
        with open(name, "rb", buffering=0) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise MXNetError(f"{name}: not a regular file")
            return _read_list(_File(file, name, info.st_size))
    except OSError as error:
        raise MXNetError(f"cannot read {name}: {error.strerror or error}") from error


def read_array(source: bytes | bytearray | memoryview) -> Record:
    """Return the array that these bytes encode, as in pickles of MXNet."""
    return _read_array(_Buffer(source))


class _Source:
    """A stream of bytes, with a name for error messages and the number of bytes left."""

    name: str
    left: int
    item = "the header"  # the item being read, for error messages

    def into(self, target: memoryview) -> None:
        raise NotImplementedError

    def fail(self, problem: str) -> MXNetError:
        return MXNetError(f"{self.name}: not a readable .params file: {self.item}: {problem}")

    def need(self, size: int, what: str) -> None:
        """Fail unless `size` more bytes are available; to be called before memory is allocated."""
        if size > self.left:
            raise self.fail(f"{what} would take {size} bytes, but only {self.left} are left")

    def take(self, size: int, what: str) -> bytearray:
        self.need(size, what)
        result = bytearray(size)
        self.into(memoryview(result))
        return result

    def numbers(self, layout: str, what: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout), what))

    def number(self, layout: str, what: str) -> int:
        return self.numbers(layout, what)[0]

    def shape(self, what: str, dimension: str = "q", ndim: int | None = None) -> tuple[int, ...]:
        if ndim is None:
            ndim = self.number("I", f"the dimension count of {what}")
        if ndim > _MAX_DIMS:
            raise self.fail(f"{what} has {ndim} dimensions, expected at most {_MAX_DIMS}")
        dims = self.numbers(f"{ndim}{dimension}", what)
        if min(dims, default=0) < 0:
            raise self.fail(f"{what} is {dims}, expected no negative dimension")
        return dims

    def dtype(self, what: str) -> torch.dtype:
        flag = self.number("i", what)
        if flag not in TORCH_OF_FLAG:
            raise self.fail(f"{what} is {flag}, expected one of {', '.join(map(str, TORCH_OF_FLAG))}")
        return TORCH_OF_FLAG[flag]

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, what: str) -> torch.Tensor:
        self.need(math.prod(shape) * dtype.itemsize, f"{what} of {NAME_OF_TORCH[dtype]}{list(shape)}")
        try:
            result = torch.empty(shape, dtype=dtype)
        except (RuntimeError, TypeError, OverflowError) as error:
            raise self.fail(f"{what} cannot have shape {shape}") from error
        content = _bytes_of(result)
        self.into(content)
        if dtype is torch.bool:  # in a file any nonzero byte means true; in torch only 1 does
            result.view(torch.uint8).clamp_(max=1)
        return result


class _Buffer(_Source):
    def __init__(self, buffer: bytes | bytearray | memoryview):
        self.name, self._rest = "buffer", memoryview(buffer).cast("B")
        self.left = len(self._rest)

    def into(self, target: memoryview) -> None:
        size = len(target)
        target[:] = self._rest[:size]
        self._rest = self._rest[size:]
        self.left -= size


class _File(_Source):
    def __init__(self, file: Any, name: str, size: int):
        self.name, self._file, self.left = name, file, size

    def into(self, target: memoryview) -> None:
        self.left -= len(target)
        while len(target):
            count = self._file.readinto(target)
            if not count:
                raise self.fail("the file was truncated while it was read")
            target = target[count:]


def _read_list(source: _Source) -> tuple[list[Record], list[str]]:
    magic, _ = source.numbers("QQ", "the file's magic number")
    if magic != _LIST_MAGIC:
        raise source.fail(f"it begins with {magic.to_bytes(8, 'little')!r}, expected {_LIST_MAGIC:#x} in 8 bytes")
    count = source.number("Q", "the number of arrays")
    source.need(4 * count, f"a list of {count} arrays")
    records = []
    for i in range(count):
        source.item = f"array {i} of {count}"
        records.append(_read_array(source))
    source.item = "the names"
    named = source.number("Q", "their number")
    if named not in (0, count):
        raise source.fail(f"there are {named} names for {count} arrays")
    names = []
    for i in range(named):
        raw = source.take(source.number("Q", f"the length of name {i}"), f"name {i}")
        try:
            names.append(raw.decode())
        except UnicodeDecodeError as error:
            raise source.fail(f"name {i} is not UTF-8: {error.reason}") from None
    return records, names


def _read_array(source: _Source) -> Record:
    magic = source.number("I", "the magic number")
    storage = "default"
    stored: tuple[int, ...] = ()
    if magic in (_V2, _V3):
        number = source.number("i", "the storage type")
        if number not in _STORAGES:
            raise source.fail(f"the storage type is {number}, expected 0, 1 or 2")
        storage = _STORAGES[number]
        if storage != "default":
            stored = source.shape("the shape of the stored data")
        shape = source.shape("the shape")
    elif magic == _V1:
        shape = source.shape("the shape")
    else:
        shape = source.shape("the shape", dimension="I", ndim=magic)
    if not shape and magic != _V3:
        return Dense(torch.empty((0,)))
    device = source.number("i", "the device type"), source.number("i", "the device id")
    dtype = source.dtype("the dtype")
    if storage == "default":
        return Dense(source.tensor(shape, dtype, "the data"), device)
    layouts = [
        (source.dtype("an index's dtype"), source.shape("an index's shape")) for _ in range(_INDEX_COUNT[storage])
    ]
    if 0 in stored:  # MXNet omits the length if the array was still being computed; its reader counts the indices
        stored = (*layouts[-1][1], *stored[1:])
    _check_layout(source, storage, shape, stored, layouts)
    data = source.tensor(stored, dtype, "the data")
    indices = tuple(source.tensor(dims, kind, "an index") for kind, dims in layouts)
    _check_indices(source, storage, shape, indices)
    return Sparse(storage, shape, data, indices, device)


def _check_layout(source: _Source, storage: str, shape: Any, stored: Any, layouts: Any) -> None:
    """Fail unless the shapes of a sparse array's parts are consistent."""
    for dtype, _ in layouts:
        if dtype not in (torch.int64, torch.int32):
            raise source.fail(f"an index is {NAME_OF_TORCH[dtype]}, expected int64 or int32")
    index_shapes = tuple(dims for _, dims in layouts)
    if storage == "csr":
        fits = len(shape) == 2 and len(stored) == 1 and index_shapes == ((shape[0] + 1,), stored)
    else:
        fits = 0 < len(stored) == len(shape) and stored[1:] == shape[1:] and index_shapes == (stored[:1],)
    if not fits:
        raise source.fail(
            f"a {storage} array of shape {shape} cannot have data of {stored} and indices of {index_shapes}"
        )


def _check_indices(source: _Source, storage: str, shape: Any, indices: tuple[torch.Tensor, ...]) -> None:
    """Fail if an index is out of range: later steps rely on the check."""
    positions, bound = indices[-1], shape[1] if storage == "csr" else shape[0]
    if positions.numel() and not (int(positions.min()) >= 0 and int(positions.max()) < bound):
        raise source.fail(f"an index is outside 0 .. {bound - 1}")
    if storage == "csr":
        starts = indices[0]
        if starts[0] != 0 or starts[-1] != positions.numel() or bool((starts[1:] < starts[:-1]).any()):
            raise source.fail(f"indptr must increase from 0 to {positions.numel()}")


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Return the memory of a contiguous CPU tensor."""
    if not tensor.numel():
        return memoryview(bytearray())  # torch has no byte view of an empty tensor
    return tensor.reshape(-1).view(torch.uint8).numpy().data


# ---- writing ----


def write(
    path: str | os.PathLike[str], records: Sequence[Record], names: Sequence[str] = (), np_shape: bool = False
) -> None:
    """Write arrays, with or without names, as MXNet 1.9 does; with `np_shape` as a program in numpy mode does.

    The write is atomic: the file gets its name only after all data is on disk.
    """
    if names and len(names) != len(records):
        raise MXNetError(f"cannot write {os.fspath(path)}: {len(names)} names for {len(records)} arrays")
    with replacing(path) as file:
        for part in _parts(records, names, np_shape):
            file.write(part)


def encode(records: Sequence[Record], names: Sequence[str] = ()) -> bytes:
    """Return the bytes that `write` would write to a file."""
    return b"".join(_parts(records, names, np_shape=False))


def encode_array(record: Record) -> bytes:
    """Return the bytes of a single array, for `read_array`."""
    return b"".join(_array_parts(record, np_shape=False))


def _parts(records: Sequence[Record], names: Sequence[str], np_shape: bool) -> Iterator[bytes | memoryview]:
    yield struct.pack("<QQQ", _LIST_MAGIC, 0, len(records))
    for record in records:
        yield from _array_parts(record, np_shape)
    yield struct.pack("<Q", len(names))
    for name in names:
        encoded = name.encode()
        yield struct.pack("<Q", len(encoded)) + encoded


def _array_parts(record: Record, np_shape: bool) -> Iterator[bytes | memoryview]:
    storage, shape = 0, tuple(record.data.shape)
    indices: tuple[torch.Tensor, ...] = ()
    if isinstance(record, Sparse):
        storage, shape, indices = _STORAGE_NUMBERS[record.storage], record.shape, record.indices
        if np_shape:
            raise MXNetError("cannot save sparse arrays while np_shape is active: that format has none. Use tostype")
    yield struct.pack("<Ii", _V3 if np_shape or not shape else _V2, storage)
    if storage:
        yield _shape_bytes(record.data.shape)
    yield _shape_bytes(shape)
    yield struct.pack("<iii", *record.device, FLAG_OF_TORCH[record.data.dtype])
    for index in indices:
        yield struct.pack("<i", FLAG_OF_TORCH[index.dtype]) + _shape_bytes(index.shape)
    for tensor in (record.data, *indices):
        yield _bytes_of(tensor.detach().cpu().contiguous())


def _shape_bytes(shape: Iterable[int]) -> bytes:
    dims = tuple(shape)
    return struct.pack(f"<I{len(dims)}q", len(dims), *dims)
