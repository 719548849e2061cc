"""Slots: segments of keys on a server, with the gradients that workers push to them."""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from .arena import view
from .messages import KeySpec, Segment, Settings, SparseRows

Gradient = torch.Tensor | SparseRows
Pushed = Gradient | None  # gradient of a slot pushed by a worker; None counts as zero
_AT_ONCE = 1 << 22  # bytes of weights to update before waiting workers are notified


@dataclass(frozen=True)
class Offer:
    """Gradients that take effect if the workers decide that a step of the training counts (`elastic_shard`)."""

    step: int
    gradient: Pushed
    operation: int  # the number of the operation that brought it


class Slot:
    """A segment of a key: its weight, and the gradients pushed in the current round."""

    def __init__(
        self,
        number: int,
        spec: KeySpec,
        segment: Segment,
        chunk: int,
        offset: int,
        weight: torch.Tensor,
        sums: Callable[[int], torch.Tensor] | None = None,
    ):
        """`sums` returns the memory for the sum of a chunk's gradients; private memory by default."""
        self.number, self.spec, self.segment, self.chunk, self.offset = number, spec, segment, chunk, offset
        self.weight, self._sums = weight, sums
        self.nbytes = weight.numel() * weight.element_size()
        self.round = 0  # number of rounds applied
        self.commits: dict[int, int] = defaultdict(int)  # by rank
        self.operation = 0  # number of the last operation that changed it
        self.operations: dict[int, int] = defaultdict(int)  # of each rank, without rounds
        self.buffered = 0  # number of the last operation whose gradient is in the buffer
        self.offers: dict[int | None, Offer] = {}  # by rank, or with None, of a round
        self.lock = threading.Lock()
        self._buffer: torch.Tensor | None = None
        self.reset()

    def reset(self) -> None:
        """Start a new round."""
        self.parts: dict[int, Pushed] = {}
        self.committed: set[int] = set()
        self.sum: Pushed = None
        self.summed = 0
        self.taken = False  # whether a thread is applying the round
        self.settings: Settings | None = None  # of the active worker with the lowest rank
        self.teller = sys.maxsize
        self.step = 0  # of the training, in an elastic job

    def take(self, rank: int, part: Pushed) -> None:
        """Store a pushed gradient. If it replaces an earlier push, the sum starts again."""
        with self.lock:
            if rank in self.parts:
                self.sum, self.summed = None, 0
            self.parts[rank] = part

    def advance(self, workers: Sequence[int]) -> None:
        """Sum the gradients of these workers received so far, in this order up to the first missing one."""
        with self.lock:
            while self.summed < len(workers) and workers[self.summed] in self.parts:
                self.sum = self._add(self.sum, self.parts[workers[self.summed]])
                self.summed += 1

    def _add(self, one: Pushed, other: Pushed) -> Pushed:
        if one is None or other is None:
            return other if one is None else one
        if isinstance(one, SparseRows) and isinstance(other, SparseRows):
            return merged(one, other)
        if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
            return torch.add(one, other, out=self.buffer)
        if isinstance(one, SparseRows):
            one, other = other, one
        assert isinstance(one, torch.Tensor) and isinstance(other, SparseRows)
        return self._in_buffer(one).index_add_(0, other.indices, other.values)

    @property
    def buffer(self) -> torch.Tensor:
        """The memory for the sum of gradients."""
        if self._buffer is None:
            like = self.weight
            if self._sums is None:
                self._buffer = torch.empty_like(like)
            else:
                self._buffer = view(self._sums(self.chunk), self.offset, like.shape, like.dtype)
        return self._buffer

    def _in_buffer(self, gradient: torch.Tensor) -> torch.Tensor:
        return self.buffer if gradient is self._buffer else self.buffer.copy_(gradient)

    def lasting(self, gradient: Pushed, operation: int) -> Pushed:
        """Return the gradient of an operation in memory that no worker writes to: an array in the buffer, or rows."""
        if not isinstance(gradient, torch.Tensor):
            return gradient
        self.buffered = operation
        return self._in_buffer(gradient)


def merged(one: SparseRows, other: SparseRows) -> SparseRows:
    """Return the sum of two sets of rows."""
    indices, places = torch.unique(torch.cat([one.indices, other.indices]), return_inverse=True)
    values = torch.zeros(len(indices), *one.values.shape[1:], dtype=one.values.dtype)
    return SparseRows(indices, values.index_add_(0, places, torch.cat([one.values, other.values])))


def store(weight: torch.Tensor, gradient: torch.Tensor | SparseRows) -> None:
    """Without a rule, store the pushed value."""
    if isinstance(gradient, SparseRows):
        weight.zero_().index_copy_(0, *gradient)
    else:
        weight.copy_(gradient)


def groups(slots: Sequence[Slot]) -> Iterator[list[Slot]]:
    """Group adjacent slots with the same settings, a few megabytes at a time."""
    group: list[Slot] = []
    size = 0
    for slot in slots:
        if group and (size >= _AT_ONCE or slot.settings is not group[0].settings):
            yield group
            group, size = [], 0
        group.append(slot)
        size += slot.nbytes
    if group:
        yield group
