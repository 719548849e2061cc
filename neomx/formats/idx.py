"""IDX files, the format of MNIST: a magic number, dimensions, then the elements, big-endian."""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib

import numpy as np

from ..base import MXNetError
from .atomic import replacing

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file, gzipped or not."""
    try:
        with open(path, "rb") as file:
            data = file.read()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise MXNetError(f"cannot read {os.fspath(path)}: {error}") from error
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _DTYPES:
        raise MXNetError(f"{os.fspath(path)} is not an IDX file: it begins with {data[:4]!r}")
    dtype, ndim = np.dtype(_DTYPES[data[2]]), data[3]
    start = 4 + 4 * ndim
    shape = struct.unpack_from(f">{ndim}I", data, 4) if len(data) >= start else ()
    expected = start + math.prod(shape) * dtype.itemsize
    if len(data) != expected:
        raise MXNetError(
            f"{os.fspath(path)} has {len(data)} bytes where its header promises {expected}: cut or damaged"
        )
    return np.frombuffer(data, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


def write(path: str | os.PathLike[str], values: np.ndarray) -> None:
    """Write bytes as an IDX file, which is whole or not there."""
    if values.dtype != np.uint8:
        raise MXNetError(f"cannot write {os.fspath(path)}: expected an array of uint8, received {values.dtype}")
    with replacing(path) as file:
        file.write(struct.pack(f">4B{values.ndim}I", 0, 0, 0x08, values.ndim, *values.shape))
        file.write(np.ascontiguousarray(values).tobytes())
