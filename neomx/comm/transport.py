"""The contract of a transport: collectives on flat tensors, and areas in which buckets of gradients are summed.

`memory` implements it for processes of one host, `network` for all others, `Alone` for a group of one; a `Group`
chooses among them. Members are numbered from 0 within a transport.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch

from ..base import MXNetError

OPS = ("sum", "mean", "min", "max", "prod")
NOTE = 256  # bytes of the note in which a member says what it calls

Late = Callable[[], list[int]]  # the members that have not come yet
Check = Callable[[Late], None]  # raises if one of those is gone; reads who is gone before it calls its argument


class Absent(MXNetError):
    """These members did not come in time; an empty list if the transport cannot tell who."""

    def __init__(self, ranks: list[int], seconds: float) -> None:
        super().__init__(f"timed out after {seconds:g} s waiting for ranks {ranks}")
        self.ranks, self.seconds = ranks, seconds


class Mismatch(MXNetError):
    """The members made different calls: `notes` holds what each one called."""

    def __init__(self, notes: list[str]) -> None:
        super().__init__("; ".join(f"rank {rank} called {note}" for rank, note in enumerate(notes)))
        self.notes = notes


def same_notes(notes: Sequence[bytes]) -> None:
    """Raise Mismatch unless all members, in their order, sent the same note."""
    if any(note != notes[0] for note in notes):
        raise Mismatch([note.decode(errors="replace").rstrip() for note in notes])


def divide_(total: torch.Tensor, number: int) -> None:
    """Turn a sum into a mean, in place; integers are truncated."""
    total.div_(number, rounding_mode=None if total.is_floating_point() or total.is_complex() else "trunc")


class Transport(ABC):
    """Collectives on flat, contiguous tensors. For one thread at a time.

    With a note, all members must send the same one; else Mismatch is raised.
    """

    @abstractmethod
    def barrier(self, note: bytes = b"") -> None:
        """Wait until all members have come."""

    @abstractmethod
    def all_gather_small(self, tensor: torch.Tensor, note: bytes = b"") -> torch.Tensor:
        """All members' CPU tensors, of one shape and at most a megabyte, stacked."""

    @abstractmethod
    def all_reduce_(self, flat: torch.Tensor, op: str, note: bytes = b"") -> None:
        """The sum (mean, min, max, prod) over all members, in place."""

    @abstractmethod
    def broadcast_(self, flat: torch.Tensor, root: int, note: bytes = b"") -> None:
        """The values of `root` on all members, in place."""

    @abstractmethod
    def all_gather(self, outs: Sequence[torch.Tensor], note: bytes = b"") -> None:
        """Send each member's own `outs[rank]` to all others; lengths may differ, and all members know them."""

    @abstractmethod
    def reduce_scatter(self, parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, note: bytes = b"") -> None:
        """Write into `out` the sum (...) over all members of their part for this one; all parts have one length."""

    @abstractmethod
    def all_to_all(
        self, parts: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], longest: int, note: bytes = b""
    ) -> None:
        """Send `parts[q]` to member q, receive `outs[p]` from p; no member's part is longer than `longest` bytes."""


class StagingArea(ABC):
    """Memory in which one bucket is summed again and again. Fill `local`, call `reduce()`, read `result`."""

    local: torch.Tensor
    result: torch.Tensor  # may be the same memory

    @property
    def waited(self) -> float:
        """Total seconds spent waiting for other members of this host."""
        return 0.0

    @abstractmethod
    def reduce(self) -> torch.Tensor:
        """Sum what all members have in `local` into `result`. Waits for them."""


class Alone(Transport):
    """The transport of a group of one."""

    def barrier(self, note: bytes = b"") -> None:
        """Return at once."""

    def all_gather_small(self, tensor: torch.Tensor, note: bytes = b"") -> torch.Tensor:
        """The tensor itself, copied and stacked."""
        return tensor.clone().unsqueeze(0)

    def all_reduce_(self, flat: torch.Tensor, op: str, note: bytes = b"") -> None:
        """Leave it as it is."""

    def broadcast_(self, flat: torch.Tensor, root: int, note: bytes = b"") -> None:
        """Leave it as it is."""

    def all_gather(self, outs: Sequence[torch.Tensor], note: bytes = b"") -> None:
        """Leave it as it is."""

    def reduce_scatter(self, parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, note: bytes = b"") -> None:
        """Copy the only part."""
        out.copy_(parts[0])

    def all_to_all(
        self, parts: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], longest: int, note: bytes = b""
    ) -> None:
        """Copy the only part."""
        outs[0].copy_(parts[0])
