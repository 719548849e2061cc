"""The manifest of a checkpoint: its step, its contents, and the sizes and checksums of its files.

It is written last, so a folder with a manifest is complete. It is not trusted: all values are checked when it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
from dataclasses import asdict, dataclass, field
from typing import Any

from ..base import MXNetError
from ..formats.atomic import replacing

NAME = "manifest.json"
FORMAT = "neomx checkpoint"
VERSION = 1
_MOST = 1 << 28  # bytes of a manifest; more means that it is damaged
_PART = re.compile(r"part-[0-9]{5}-of-[0-9]{5}\.safetensors")
_BLOCK = 1 << 20


class CheckpointError(MXNetError):
    """A checkpoint cannot be written or used."""


class DamagedError(CheckpointError):
    """A checkpoint is incomplete or damaged. An older one may be whole."""


@dataclass(frozen=True)
class File:
    """The size and the checksum of a file."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint."""

    step: int
    workers: int  # how many wrote it
    files: dict[str, File]
    facts: dict[str, Any] = field(default_factory=dict)  # everything that is not a tensor (state.py)
    metric: float | None = None
    created: str = ""

    @property
    def bytes(self) -> int:
        """The size of all files but the manifest."""
        return sum(file.bytes for file in self.files.values())

    def write(self, folder: str) -> None:
        """Write the manifest to the folder of its checkpoint."""
        text = json.dumps({"format": FORMAT, "version": VERSION, **asdict(self)}, allow_nan=True)
        with replacing(os.path.join(folder, NAME)) as file:
            file.write(text.encode())

    def verify(self, folder: str) -> None:
        """Raise DamagedError if a file of the checkpoint is missing or has changed."""
        for name, expected in self.files.items():
            path = os.path.join(folder, name)
            size = _size_of(path)
            if size != expected.bytes:
                found = "is missing" if size is None else f"has {size} bytes"
                raise DamagedError(f"{path} {found}, expected {expected.bytes} bytes")
            if checksum(path) != expected.sha256:
                raise DamagedError(f"{path} has changed since it was written: its checksum differs from the manifest")


def part_name(rank: int, workers: int) -> str:
    """Return the name of the file that a worker writes."""
    return f"part-{rank:05d}-of-{workers:05d}.safetensors"


def describe(path: str) -> File:
    """Return the size and the checksum of a file."""
    return File(os.path.getsize(path), checksum(path))


def checksum(path: str) -> str:
    """Return the SHA-256 of a file."""
    found = hashlib.sha256()
    try:
        with open(path, "rb", buffering=0) as file:
            while block := file.read(_BLOCK):
                found.update(block)
    except OSError as error:
        raise DamagedError(f"cannot read {path}: {error.strerror or error}") from error
    return found.hexdigest()


def read(folder: str) -> Manifest:
    """Read and check the manifest of a checkpoint."""
    path = os.path.join(folder, NAME)
    size = _size_of(path)
    if size is None:
        raise DamagedError(f"{folder} has no {NAME}: it is not a checkpoint, or its writer was killed")
    if size > _MOST:
        raise DamagedError(f"{path} has {size} bytes, expected at most {_MOST}: it is damaged")
    try:
        with open(path, "rb") as file:
            content = json.load(file)
    except OSError as error:
        raise DamagedError(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is not JSON: {error!s:.200}") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DamagedError(f"{path} is not the manifest of a checkpoint: expected the format {FORMAT!r}")
    version: Any = content.get("version")
    if not _is_count(version):
        raise DamagedError(f"{path}: the version must be an integer, received {version!r:.80}")
    if version > VERSION:
        raise CheckpointError(
            f"{path} has version {version} of the format, but this version of neomx reads up to {VERSION}. Use the "
            "version of neomx that wrote it, or a newer one"
        )
    return _checked(content, path)


def _checked(content: dict[str, Any], path: str) -> Manifest:
    step: Any = content.get("step")
    workers: Any = content.get("workers")
    files = content.get("files")
    facts, metric = content.get("facts"), content.get("metric")
    if not _is_count(step) or not _is_count(workers) or not 1 <= workers <= 1 << 16:
        raise DamagedError(f"{path}: expected integers step and workers, received {step!r:.80} and {workers!r:.80}")
    if not isinstance(files, dict) or not isinstance(facts, dict):
        raise DamagedError(f"{path}: expected objects files and facts")
    names = {part_name(rank, workers) for rank in range(workers)}
    for name, file in files.items():
        if not _PART.fullmatch(name) or name not in names:
            raise DamagedError(f"{path}: {name!r:.200} is not the name of a file of a checkpoint by {workers} workers")
        if not isinstance(file, dict) or not _is_count(file.get("bytes")) or not isinstance(file.get("sha256"), str):
            raise DamagedError(f"{path}: {name} must have bytes and sha256, received {file!r:.100}")
    if files.keys() != names:
        raise DamagedError(f"{path}: it lists {len(files)} files, expected one for each of {workers} workers")
    if metric is not None and (isinstance(metric, bool) or not isinstance(metric, (int, float))):
        raise DamagedError(f"{path}: the metric must be a number, received {metric!r:.80}")
    return Manifest(
        step,
        workers,
        {name: File(file["bytes"], file["sha256"]) for name, file in files.items()},
        facts,
        None if metric is None or math.isnan(metric) else float(metric),
        str(content.get("created", ""))[:64],
    )


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _size_of(path: str) -> int | None:
    """The size of a regular file, or None. A symbolic link or a pipe does not count."""
    try:
        info = os.lstat(path)
    except OSError:
        return None
    return info.st_size if stat.S_ISREG(info.st_mode) else None
