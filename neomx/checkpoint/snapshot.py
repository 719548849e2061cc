"""A worker's part of a training's state in memory: exactly the bytes of the file that it writes.

Parameters are copied when the snapshot is taken. Optimizer states change only in an update, so the background thread
copies them, and the next update waits for it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..formats import safetensors
from . import regions
from .manifest import BLOCK, BlockThreads
from .regions import Region

_CHUNK = 1 << 23  # bytes that a thread copies at a time
_WORTH_THREADS = 1 << 24


@dataclass(frozen=True)
class Fragment:
    """Elements of a tensor that this worker has: all of them without a `region`."""

    name: str
    tensor: torch.Tensor
    shape: tuple[int, ...]  # of the whole tensor
    region: Region | None = None
    is_shared: bool = False  # whether other workers have the same elements under this name, so that one writes them
    is_lent: bool = False  # whether it changes only in an update, so that a thread may copy it

    @property
    def place(self) -> Region:
        """The elements of the whole tensor."""
        return regions.whole(self.shape) if self.region is None else self.region


def fragment(name: str, tensor: torch.Tensor, **more: Any) -> Fragment:
    """Return a fragment with all elements of a tensor."""
    return Fragment(name, tensor, tuple(tensor.shape), **more)


@dataclass
class Snapshot:
    """A copy of this worker's part of the state."""

    step: int
    rank: int
    content: torch.Tensor  # the bytes of the file
    table: dict[str, Any]  # of the tensors, as in a manifest
    facts: str  # JSON: the same on all workers, or what this worker adds under a layout
    metric: float | None = None
    _left: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)
    _ready: threading.Event = field(default_factory=threading.Event)

    @property
    def size(self) -> int:
        """The size of the file."""
        return self.content.numel()

    def finish(self) -> None:
        """Copy what was lent. Called by the background thread."""
        try:
            copy_all(self._left)
        finally:
            self._left = []
            self._ready.set()

    def wait(self) -> None:
        """Wait until nothing is read from the training any more."""
        self._ready.wait()

    def blocks(self) -> Iterator[memoryview]:
        """Yield the bytes of each block of the file."""
        memory = safetensors.bytes_of(self.content)
        for begin in range(0, self.size, BLOCK):
            yield memory[begin : begin + BLOCK]


def take(
    step: int,
    rank: int,
    fragments: Sequence[Fragment],
    said: Mapping[str, Any],
    facts: dict[str, Any],
    memory: Callable[[int], torch.Tensor],
    metric: float | None = None,
) -> Snapshot:
    """Copy fragments of the state into the memory that `memory(size)` returns. The file also has `said`, as JSON."""
    table: dict[str, Any] = {
        each.name: {
            "dtype": safetensors.name_of(each.tensor.dtype),
            "shape": list(each.shape),
            "slices": [[rank, [list(cut) for cut in each.place]]],
        }
        for each in fragments
    }
    metadata = {name: json.dumps(value) for name, value in {"tensors": table, **said}.items()}
    header, entries = safetensors.make_header(
        {each.name: (each.tensor.dtype, tuple(each.tensor.shape)) for each in fragments}, metadata
    )
    content = memory(max((entry.end for entry in entries.values()), default=len(header)))
    content[: len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
    targets = views(content, entries)
    copy_all((targets[each.name], each.tensor) for each in fragments if not each.is_lent)
    later = [(targets[each.name], each.tensor) for each in fragments if each.is_lent]
    return Snapshot(step, rank, content, table, json.dumps(facts), metric, later)


def views(content: torch.Tensor, entries: Mapping[str, safetensors.Location]) -> dict[str, torch.Tensor]:
    """Return the arrays of a file whose bytes are in memory. They share it: headers end at a multiple of 8 bytes."""
    return {
        name: content[entry.begin : entry.end].view(entry.dtype).view(entry.shape) for name, entry in entries.items()
    }


def copy_all(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copy tensors into others, in several threads if they are large."""
    pairs = [(target, source.detach()) for target, source in pairs]
    if sum(target.nbytes for target, _ in pairs) < _WORTH_THREADS:
        for target, source in pairs:
            target.copy_(source)
        return
    with BlockThreads() as pool:
        for done in [pool.submit(target.copy_, source) for pair in pairs for target, source in _chunks(*pair)]:
            done.result()


def _chunks(target: torch.Tensor, source: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Split a large copy, so that all threads have as much to do."""
    if source.device.type != "cpu" or not source.is_contiguous():
        yield target, source
        return
    length = max(_CHUNK // target.itemsize, 1)
    yield from zip(target.view(-1).split(length), source.view(-1).split(length), strict=True)
