"""IDX files, the format of MNIST: a magic number, the dimensions, then the elements, big-endian."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from typing import BinaryIO, cast

import numpy as np

from ..base import MXNetError
from .atomic import replacing

_BLOCK = 1 << 20
_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read(path: str | os.PathLike[str]) -> np.ndarray:
    """Return the array in an IDX file, gzipped or not."""
    try:
        with open(path, "rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            with gzip.open(file) if packed else file as content:
                data = _read_promised(cast(BinaryIO, content))
    except (OSError, EOFError, zlib.error) as error:
        raise MXNetError(f"cannot read {os.fspath(path)}: {error}") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _DTYPES:
        raise MXNetError(f"{os.fspath(path)} is not an IDX file: it begins with {data[:4]!r}")
    dtype, ndim = np.dtype(_DTYPES[data[2]]), data[3]
    start = 4 + 4 * ndim
    shape = struct.unpack_from(f">{ndim}I", data, 4) if len(data) >= start else ()
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        more = " or more" if len(data) > expected else ""
        raise MXNetError(
            f"{os.fspath(path)} has {len(data)}{more} bytes, but its header declares {expected}: truncated or damaged"
        )
    try:
        return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))
    except ValueError as error:
        raise MXNetError(f"{os.fspath(path)} declares an array of {ndim} dimensions, {shape}: {error}") from error


def _read_promised(file: BinaryIO) -> bytes:
    """Read the header and the data it declares, plus at most one byte: a small file may unpack to a huge one."""
    head = file.read(4)
    if len(head) < 4 or head[2] not in _DTYPES:
        return head
    head += file.read(4 * head[3])
    shape = struct.unpack_from(f">{head[3]}I", head, 4) if len(head) == 4 + 4 * head[3] else (0,)
    parts, left = [head], math.prod(shape) * np.dtype(_DTYPES[head[2]]).itemsize + 1
    while left > 0 and (part := file.read(min(left, _BLOCK))):  # a wrong header allocates no memory
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def write(path: str | os.PathLike[str], values: np.ndarray) -> None:
    """Write a uint8 array as an IDX file, atomically."""
    if values.dtype != np.uint8:
        raise MXNetError(f"cannot write {os.fspath(path)}: expected an array of uint8, received {values.dtype}")
    with replacing(path) as file:
        file.write(struct.pack(f">4B{values.ndim}I", 0, 0, 0x08, values.ndim, *values.shape))
        file.write(np.ascontiguousarray(values).tobytes())
