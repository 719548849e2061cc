"""The manifest of a checkpoint: its step, its contents, and the sizes and checksums of its files.

It is written last, so a folder with a manifest is complete. It lists for each tensor its dtype, its shape, and which
file has which slices of it. It is not trusted: all values are checked when it is read.

Files have a checksum for each block of 16 MiB, so that several threads compute them, and a reader of a few slices reads
and verifies only the blocks with these.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import os
import queue
import re
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from ..base import MXNetError
from ..formats import safetensors
from . import regions
from .regions import Region

if TYPE_CHECKING:
    from .storage import Storage

NAME = "manifest.json"
FORMAT = "neomx checkpoint"
VERSION = 1
BLOCK = 1 << 24  # bytes with a checksum of their own
_MOST = 1 << 30  # bytes of a manifest; more means that it is damaged
_PART = re.compile(r"part-([0-9]{5})-of-([0-9]{5})-([0-9a-f]{12}-[0-9]{1,9})\.safetensors")
_TOKEN = re.compile(r"[0-9a-f]{12}-[0-9]{1,9}")
_HASH = re.compile(r"[0-9a-f]{64}")
_T = TypeVar("_T")


class CheckpointError(MXNetError):
    """A checkpoint cannot be written or used."""


class DamagedError(CheckpointError):
    """A checkpoint is incomplete or damaged. An older one may be whole."""


@dataclass(frozen=True)
class File:
    """The size of a file, and the SHA-256 checksum of each of its blocks."""

    bytes: int
    sha256: tuple[str, ...]


@dataclass(frozen=True)
class Slice:
    """The elements of a tensor that the file of one worker has."""

    rank: int
    region: Region


@dataclass(frozen=True)
class Stored:
    """A tensor of a checkpoint: dtype, shape, and who has which elements. The slices cover it without overlap."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    slices: tuple[Slice, ...]

    @property
    def bytes(self) -> int:
        """The size of the whole tensor."""
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint."""

    step: int
    workers: int  # how many wrote it
    token: str  # in the names of its files: different for each attempt to write a checkpoint
    files: dict[str, File]
    tensors: dict[str, Stored] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)  # everything that is not a tensor (state.py)
    metric: float | None = None
    created: str = ""
    layout: str = ""  # that of the workers, or '' without one

    @property
    def size(self) -> int:
        """The bytes of all files but the manifest."""
        return sum(file.bytes for file in self.files.values())

    def part(self, rank: int) -> str:
        """Return the name of the file that a worker has written."""
        return part_name(rank, self.workers, self.token)

    def encoded(self) -> bytes:
        """Return the contents of the file."""
        tensors = {
            name: {
                "dtype": safetensors.name_of(each.dtype),
                "shape": each.shape,
                "slices": [[cut.rank, cut.region] for cut in each.slices],
            }
            for name, each in self.tensors.items()
        }
        files = {name: {"bytes": each.bytes, "sha256": each.sha256} for name, each in self.files.items()}
        head = {"format": FORMAT, "version": VERSION, "step": self.step, "workers": self.workers, "token": self.token}
        metric = self.metric if self.metric is not None and math.isfinite(self.metric) else None
        rest = {"created": self.created, "layout": self.layout, "metric": metric, "block": BLOCK}
        return json.dumps({**head, **rest, "files": files, "tensors": tensors, "facts": self.facts}).encode()

    def verify(self, storage: Storage, folder: str, rank: int = 0, of: int = 1) -> None:
        """Raise DamagedError if a file of the checkpoint is missing or has changed.

        Of several workers, each verifies some of the files.
        """
        mine = dict(list(self.files.items())[rank::of])
        for name, file in mine.items():
            check_size(storage, f"{folder}/{name}", file)
        blocks = [(f"{folder}/{name}", file, at) for name, file in mine.items() for at in range(len(file.sha256))]
        with BlockThreads() as pool:
            for done in [pool.submit(_verify, storage, *block, pool) for block in blocks]:
                done.result()


def part_name(rank: int, workers: int, token: str) -> str:
    """Return the name of the file that a worker writes."""
    return f"part-{rank:05d}-of-{workers:05d}-{token}.safetensors"


def is_part(name: str) -> bool:
    """Whether a file has the name of a part of some checkpoint."""
    return _PART.fullmatch(name) is not None


# ---- checksums ----


def check_size(storage: Storage, path: str, expected: File) -> None:
    """Raise DamagedError if a file is missing or has another size."""
    size = storage.size(path)
    if size != expected.bytes:
        found = "is missing" if size is None else f"has {size} bytes"
        raise DamagedError(f"{storage.shown(path)} {found}, expected {expected.bytes} bytes")


def read_block(storage: Storage, path: str, file: File, number: int, buffer: memoryview) -> memoryview:
    """Read a block of a file into a buffer, verify its checksum, and return it."""
    begin = number * BLOCK
    block = buffer[: min(BLOCK, file.bytes - begin)]
    storage.read(path, begin, block)
    if hashlib.sha256(block).hexdigest() != file.sha256[number]:
        raise DamagedError(
            f"{storage.shown(path)} has changed since it was written: the checksum of its bytes from {begin} differs "
            "from the manifest"
        )
    return block


def _verify(storage: Storage, path: str, file: File, number: int, pool: BlockThreads) -> None:
    read_block(storage, path, file, number, pool.buffer())


class BlockThreads:
    """A few threads that copy, hash or read blocks, each with a buffer for one block.

    Unlike those of an executor, they also run while the interpreter waits for other threads at its end, as it does for
    the one that writes the last checkpoint of a program.
    """

    def __init__(self) -> None:
        self.count = max(1, min(4, os.cpu_count() or 1))
        self._buffers = threading.local()
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> BlockThreads:
        return self

    def __exit__(self, *error: object) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def submit(self, call: Callable[..., _T], *arguments: Any) -> Future[_T]:
        """Call a function in one of the threads."""
        done: Future[_T] = Future()
        self._jobs.put((done, functools.partial(call, *arguments)))
        if len(self._threads) < self.count:
            self._threads.append(threading.Thread(target=self._work, name="checkpoint blocks"))
            self._threads[-1].start()
        return done

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            done, call = job
            try:
                done.set_result(call())
            except BaseException as error:
                done.set_exception(error)

    def buffer(self) -> memoryview:
        """Return the buffer of the current thread."""
        if not hasattr(self._buffers, "block"):
            self._buffers.block = memoryview(bytearray(BLOCK))
        found: memoryview = self._buffers.block
        return found


# ---- reading, which trusts nothing ----


def read(storage: Storage, folder: str) -> Manifest:
    """Read and check the manifest of a checkpoint."""
    path = storage.shown(f"{folder}/{NAME}")
    text = storage.get(f"{folder}/{NAME}", _MOST)
    if text is None:
        raise DamagedError(f"{storage.shown(folder)} has no {NAME}: it is not a checkpoint, or its writer was killed")
    try:
        content = json.loads(text)
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
    try:
        return _checked(content)
    except DamagedError as error:
        raise DamagedError(f"{path}: {error}") from None


def _checked(content: dict[str, Any]) -> Manifest:
    step: Any = content.get("step")
    workers: Any = content.get("workers")
    facts, metric, token, layout = (content.get(name) for name in ("facts", "metric", "token", "layout"))
    if not _is_count(step) or not _is_count(workers) or not 1 <= workers <= 1 << 16:
        raise DamagedError(f"expected integers step and workers, received {step!r:.80} and {workers!r:.80}")
    if not isinstance(facts, dict):
        raise DamagedError("expected an object facts")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token) or not isinstance(layout, str):
        raise DamagedError(f"expected texts token and layout, received {token!r:.80} and {layout!r:.80}")
    if metric is not None and (isinstance(metric, bool) or not isinstance(metric, (int, float))):
        raise DamagedError(f"the metric must be a number, received {metric!r:.80}")
    if content.get("block") != BLOCK:
        raise DamagedError(f"expected checksums of blocks of {BLOCK} bytes, received {content.get('block')!r:.80}")
    return Manifest(
        step,
        workers,
        token,
        _files(content.get("files"), workers, token),
        _tensors(content.get("tensors"), workers),
        facts,
        None if metric is None or math.isnan(metric) else float(metric),
        str(content.get("created", ""))[:64],
        layout[:1000],
    )


def _files(listed: Any, workers: int, token: str) -> dict[str, File]:
    names = [part_name(rank, workers, token) for rank in range(workers)]
    if not isinstance(listed, dict) or listed.keys() != set(names):
        raise DamagedError(f"expected one file for each of {workers} workers, received {listed!r:.200}")
    for name, file in listed.items():
        if not isinstance(file, dict) or not _is_count(file.get("bytes")):
            raise DamagedError(f"{name} must have bytes and sha256, received {file!r:.100}")
        sums = file.get("sha256")
        if not isinstance(sums, list) or not all(isinstance(each, str) and _HASH.fullmatch(each) for each in sums):
            raise DamagedError(f"{name} must have checksums, received {sums!r:.100}")
        if len(sums) != -(-file["bytes"] // BLOCK):
            raise DamagedError(f"{name} of {file['bytes']} bytes has {len(sums)} checksums")
    return {name: File(listed[name]["bytes"], tuple(listed[name]["sha256"])) for name in names}


def _tensors(listed: Any, workers: int) -> dict[str, Stored]:
    if not isinstance(listed, dict):
        raise DamagedError(f"expected an object tensors, received {listed!r:.80}")
    return {name: stored(name, facts, workers) for name, facts in listed.items()}


def stored(name: str, facts: Any, workers: int) -> Stored:
    """Return the description of a tensor from the JSON of a manifest, which is not trusted."""
    facts = facts if isinstance(facts, dict) else {}
    dtype, shape, slices = safetensors.dtype_of(facts.get("dtype")), facts.get("shape"), facts.get("slices")
    if dtype is None or not _is_counts(shape) or not isinstance(slices, list):
        raise DamagedError(f"{name!r:.200} must have a dtype, a shape and slices, received {facts!r:.200}")
    if len(shape) > 64 or math.prod(size or 1 for size in shape) * dtype.itemsize >= 2**63:
        raise DamagedError(f"{name!r:.200} has shape {shape!r:.200}, which is too large")
    found = []
    for each in slices:
        if not (isinstance(each, list) and len(each) == 2 and _is_count(each[0]) and each[0] < workers):
            raise DamagedError(f"{name!r:.200} has the slice {each!r:.100}, expected the number of a file and a region")
        if not (isinstance(each[1], list) and all(_is_counts(cut) and len(cut) == 2 for cut in each[1])):
            raise DamagedError(f"{name!r:.200} has the region {each[1]!r:.100}, expected pairs of integers")
        found.append(Slice(each[0], tuple((start, stop) for start, stop in each[1])))
    made = Stored(dtype, tuple(shape), tuple(found))
    empty = 0 in shape
    problem = "" if empty and len(found) == 1 else regions.gap(shape, [each.region for each in found])
    if problem or empty and found[0].region != regions.whole(shape):
        raise DamagedError(f"{name!r:.200} of shape {shape!r:.100}: {problem or 'it has no elements'}")
    return made


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _is_counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_count, value))
