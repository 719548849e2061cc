"""The interface of a transport: collectives on flat tensors, and areas in which buckets of gradients are summed.

`memory` implements it for processes of one host, `network` for all others, `Alone` for a group of one; a `Group`
chooses among them. Members are numbered from 0 within a transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch

from ..base import MXNetError

OPS = ("sum", "mean", "min", "max", "prod")
NOTE = 256  # bytes of the note with which a member describes its call

Late = Callable[[], list[int]]  # returns the members that have not arrived yet
Check = Callable[[Late], None]  # raises if one of those is gone; must read which are gone before calling its argument


class Absent(MXNetError):
    """Timed out waiting for these members; an empty list if the transport cannot tell which."""

    def __init__(self, ranks: list[int], seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s waiting for ranks {ranks}")
        self.ranks, self.seconds = ranks, seconds


class Mismatch(MXNetError):
    """The members made different calls: `notes` contains the call of each."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__("; ".join(f"rank {rank} called {note}" for rank, note in enumerate(notes)))
        self.notes = notes


def same_notes(notes: Sequence[bytes]) -> None:
    """Raise Mismatch unless all members sent the same note."""
    if any(note != notes[0] for note in notes):
        raise Mismatch([note.decode(errors="replace").rstrip() for note in notes])


def divide_(total: torch.Tensor, number: int) -> None:
    """Divide a sum by `number`, in place. Integers are truncated."""
    total.div_(number, rounding_mode=None if total.is_floating_point() or total.is_complex() else "trunc")


class Transport(ABC):
    """Collectives on flat, contiguous tensors. Use it in one thread at a time.

    If a note is given, all members must send the same one; otherwise Mismatch is raised.
    """

    @abstractmethod
    def barrier(self, note: bytes = b"") -> None:
        """Wait for all members."""

    @abstractmethod
    def all_gather_small(self, tensor: torch.Tensor, note: bytes = b"") -> torch.Tensor:
        """Stack the CPU tensors of all members, of one shape and at most a megabyte."""

    @abstractmethod
    def all_reduce_(self, flat: torch.Tensor, op: str, note: bytes = b"") -> None:
        """Reduce over all members (sum, mean, min, max, prod), in place."""

    @abstractmethod
    def broadcast_(self, flat: torch.Tensor, root: int, note: bytes = b"") -> None:
        """Copy the values of `root` to all members, in place."""

    @abstractmethod
    def all_gather(self, outs: Sequence[torch.Tensor], note: bytes = b"") -> None:
        """Send each member's `outs[rank]` to all others. Sizes may differ; all members know them."""

    @abstractmethod
    def reduce_scatter(self, parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, note: bytes = b"") -> None:
        """Reduce over all members their part for this one, and write it to `out`. All parts have one size."""

    @abstractmethod
    def all_to_all(
        self, parts: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], longest: int, note: bytes = b""
    ) -> None:
        """Send `parts[q]` to member q and receive `outs[p]` from p. No part is larger than `longest` bytes."""


class StagingArea(ABC):
    """Memory in which one bucket is summed repeatedly. Fill `local`, call `reduce()`, read `result`."""

    local: torch.Tensor
    result: torch.Tensor  # may be the same memory

    @property
    def waited(self) -> float:
        """Total seconds spent waiting for other members of this host."""
        return 0.0

    @abstractmethod
    def reduce(self) -> torch.Tensor:
        """Sum the `local` of all members into `result`. Waits for them."""


class Alone(Transport):
    """The transport of a group of one."""

    def barrier(self, note: bytes = b"") -> None:
        """Return immediately."""

    def all_gather_small(self, tensor: torch.Tensor, note: bytes = b"") -> torch.Tensor:
        """Return a stacked copy of the tensor."""
        return tensor.clone().unsqueeze(0)

    def all_reduce_(self, flat: torch.Tensor, op: str, note: bytes = b"") -> None:
        """Do nothing."""

    def broadcast_(self, flat: torch.Tensor, root: int, note: bytes = b"") -> None:
        """Do nothing."""

    def all_gather(self, outs: Sequence[torch.Tensor], note: bytes = b"") -> None:
        """Do nothing."""

    def reduce_scatter(self, parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, note: bytes = b"") -> None:
        """Copy the only part."""
        out.copy_(parts[0])

    def all_to_all(
        self, parts: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], longest: int, note: bytes = b""
    ) -> None:
        """Copy the only part."""
        outs[0].copy_(parts[0])
