"""WAV files: PCM of 8, 16, 24 and 32 bits, and floats of 32 and 64 bits, of any number of channels."""

from __future__ import annotations

import io
import os
import stat
import struct
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from ..base import MXNetError
from .atomic import replacing

_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_STREAMED = 0xFFFFFFFF  # the size of data that was written before its end was known
_CHUNKS = 1000  # the most chunks before the data; real files have a handful
_BLOCK = 1 << 20  # samples converted at a time, so that only the result needs memory in proportion to the file

# By name: the format tag, the bytes of a sample, and the value of full scale.
ENCODINGS = {
    "uint8": (_PCM, 1, 1 << 7),
    "int16": (_PCM, 2, 1 << 15),
    "int24": (_PCM, 3, 1 << 23),
    "int32": (_PCM, 4, 1 << 31),
    "float32": (_FLOAT, 4, 1),
    "float64": (_FLOAT, 8, 1),
}
_BY_TAG = {(tag, size): name for name, (tag, size, _) in ENCODINGS.items()}


class Header(NamedTuple):
    """What a file declares: its encoding, and where its samples are."""

    encoding: str
    channels: int
    rate: int
    frames: int  # samples of each channel
    start: int  # offset of the first one in the file


def read(
    source: str | os.PathLike[str] | bytes, start: int = 0, count: int | None = None, dtype: Any = "float32"
) -> tuple[np.ndarray, int]:
    """Return the samples of a file, or of its content as bytes, as (frames, channels), and the sampling rate.

    PCM is scaled to the range from -1 to 1. `start` and `count` select frames; others are not read.
    """
    name = "WAV data" if isinstance(source, bytes) else os.fspath(source)
    if start < 0 or (count is not None and count < 0):
        raise MXNetError(f"cannot read {name}: expected start and count of at least 0, received {start} and {count}")
    try:
        with io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb") as file:
            header = _header(file, name)
            start = min(start, header.frames)
            left = header.frames - start
            wanted = left if count is None else min(left, count)
            _, size, _ = ENCODINGS[header.encoding]
            file.seek(header.start + start * header.channels * size)
            values = _samples(file, name, header, wanted * header.channels, np.dtype(dtype))
    except OSError as error:
        raise MXNetError(f"cannot read {name}: {error.strerror or error}") from error
    return values.reshape(wanted, header.channels), header.rate


def header(path: str | os.PathLike[str]) -> Header:
    """Return what a file declares, without reading its samples."""
    try:
        with open(path, "rb") as file:
            return _header(file, os.fspath(path))
    except OSError as error:
        raise MXNetError(f"cannot read {os.fspath(path)}: {error.strerror or error}") from error


def write(path: str | os.PathLike[str], samples: np.ndarray, rate: int, encoding: str = "int16") -> None:
    """Write samples (frames, channels) of -1 to 1 atomically. PCM is rounded, and values beyond the range are clipped.

    `encoding` is uint8, int16, int24, int32, float32 or float64.
    """
    name = os.fspath(path)
    if encoding not in ENCODINGS:
        raise MXNetError(f"cannot write {name}: encoding {encoding!r} is not one of {', '.join(ENCODINGS)}")
    tag, size, _ = ENCODINGS[encoding]
    if samples.ndim != 2 or not np.issubdtype(samples.dtype, np.floating):
        raise MXNetError(
            f"cannot write {name}: expected floating-point samples of shape (frames, channels), received "
            f"{samples.dtype} of shape {samples.shape}"
        )
    frames, channels = samples.shape
    if not 1 <= channels <= 0xFFFF or not 1 <= rate <= 0xFFFFFFFF // (channels * size):
        raise MXNetError(
            f"cannot write {name}: a WAV file cannot have {channels} channels at {rate} samples per second"
        )
    total = samples.size * size
    if total > 0xFFFFFFFF - 100:
        raise MXNetError(f"cannot write {name}: {total} bytes of samples; a WAV file holds less than 4 GiB")
    form = struct.pack("<HHIIHH", tag, channels, rate, rate * channels * size, channels * size, 8 * size)
    chunks = _chunk(b"fmt ", form)
    if tag == _FLOAT:  # required for everything but PCM
        chunks += _chunk(b"fact", struct.pack("<I", frames))
    flat = samples.reshape(-1)
    with replacing(path) as file:
        file.write(b"RIFF" + struct.pack("<I", 4 + len(chunks) + 8 + total + total % 2) + b"WAVE" + chunks)
        file.write(b"data" + struct.pack("<I", total))
        for at in range(0, flat.size, _BLOCK):
            file.write(_encoded(flat[at : at + _BLOCK], encoding, name))
        file.write(bytes(total % 2))  # chunks begin at even offsets


def _chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data


def _header(file: BinaryIO, name: str) -> Header:
    """Read all chunks up to the data. Nothing that a chunk declares is allocated before it is checked."""
    length = _length(file, name)
    head = file.read(12)
    if len(head) < 12 or head[:4] != b"RIFF" or head[8:] != b"WAVE":
        more = f": {head[:4].decode()} files are not supported" if head[:4] in (b"RIFX", b"RF64") else ""
        raise MXNetError(f"{name} is not a WAV file{more}: it begins with {head!r}")
    form = None
    for _ in range(_CHUNKS):
        kind_and_size = file.read(8)
        if len(kind_and_size) < 8:
            break
        kind, size = struct.unpack("<4sI", kind_and_size)
        here = file.tell()
        if kind == b"data":
            if form is None:
                raise MXNetError(f"{name} has no format before its samples: damaged")
            return _located(form, here, length - here if size == _STREAMED else size, length, name)
        if here + size > length:
            raise MXNetError(
                f"{name}: chunk {kind!r} at byte {here - 8} declares {size} bytes, but {length - here} follow: "
                "truncated or damaged"
            )
        if kind == b"fmt ":
            form = _format(file.read(min(size, 40)), name)
        file.seek(here + size + size % 2)
    raise MXNetError(f"{name} has no samples: truncated or damaged")


def _length(file: BinaryIO, name: str) -> int:
    if isinstance(file, io.BytesIO):
        return file.getbuffer().nbytes
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise MXNetError(f"cannot read {name}: not a regular file")
    return status.st_size


def _format(form: bytes, name: str) -> tuple[str, int, int]:
    """Return the encoding, the number of channels and the sampling rate."""
    if len(form) < 16:
        raise MXNetError(f"{name} has a format of {len(form)} bytes, expected 16 or more: damaged")
    tag, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if tag == _EXTENSIBLE and len(form) >= 40:
        (tag,) = struct.unpack_from("<H", form, 24)
    encoding = _BY_TAG.get((tag, (bits + 7) // 8))
    if encoding is None:
        raise MXNetError(
            f"{name} has format {tag} with {bits} bits per sample. Supported are PCM (format 1) with 8 to 32 bits and "
            "floats (format 3) with 32 or 64 bits: convert the file"
        )
    if channels < 1 or rate < 1 or frame != channels * ENCODINGS[encoding][1]:
        raise MXNetError(
            f"{name} declares {channels} channels of {bits} bits at {rate} samples per second in frames of {frame} "
            "bytes: damaged"
        )
    return encoding, channels, rate


def _located(form: tuple[str, int, int], start: int, size: int, length: int, name: str) -> Header:
    encoding, channels, rate = form
    if start + size > length:
        raise MXNetError(
            f"{name} declares {size} bytes of samples, but {length - start} follow its header: truncated or damaged"
        )
    return Header(encoding, channels, rate, size // (channels * ENCODINGS[encoding][1]), start)


def _samples(file: BinaryIO, name: str, header: Header, count: int, dtype: np.dtype) -> np.ndarray:
    _, size, _ = ENCODINGS[header.encoding]
    values = np.empty(count, dtype)
    for at in range(0, count, _BLOCK):
        part = values[at : at + _BLOCK]
        data = file.read(part.size * size)
        if len(data) < part.size * size:  # the file became shorter meanwhile
            raise MXNetError(f"{name} ends within its samples: truncated")
        with np.errstate(over="ignore", invalid="ignore"):  # float64 may be beyond the range of float32
            part[:] = _decoded(data, header.encoding)
    return values


def _decoded(data: bytes, encoding: str) -> np.ndarray:
    if encoding.startswith("float"):
        return np.frombuffer(data, "<f4" if encoding == "float32" else "<f8")
    _, _, scale = ENCODINGS[encoding]
    if encoding == "uint8":
        return (np.frombuffer(data, np.uint8) - 128.0) / scale
    if encoding == "int24":  # the upper bytes of 32 bits, so that the sign is in its place
        wide = np.zeros((len(data) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)
        return wide.view("<i4")[:, 0] / float(scale << 8)
    return np.frombuffer(data, "<i2" if encoding == "int16" else "<i4") / float(scale)


def _encoded(samples: np.ndarray, encoding: str, name: str) -> bytes:
    if encoding.startswith("float"):
        return samples.astype("<f4" if encoding == "float32" else "<f8").tobytes()
    if not np.isfinite(samples).all():
        raise MXNetError(f"cannot write {name}: a sample is not finite")
    _, _, scale = ENCODINGS[encoding]
    values = np.rint(np.clip(samples, -1, 1).astype(np.float64) * scale).clip(max=scale - 1).astype("<i4")
    if encoding == "uint8":
        return (values + 128).astype(np.uint8).tobytes()
    if encoding == "int24":
        return values.view(np.uint8).reshape(-1, 4)[:, :3].tobytes()
    return values.astype("<i2" if encoding == "int16" else "<i4").tobytes()
