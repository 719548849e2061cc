"""A server as a worker sees it: its slots, and the connection to the process that leads it.

Another process may take the lead. Slots keep their numbers and places, and gradients stay in this worker's memory until
the server has used them, so that they can be pushed again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any, NamedTuple

import torch

from ..buckets import Courier
from ..wire import Closed, Connection, WireError
from . import messages as m
from .arena import Chunk, attach, view
from .messages import KeySpec, Segment, Settings

_GRACE = 10.0  # seconds for the last frames of a connection


class Push(NamedTuple):
    """A pushed gradient that is not in the memory of its slot: the frame that contains it."""

    kind: int
    meta: dict[str, Any]
    buffers: tuple[torch.Tensor, ...]


class Commit(NamedTuple):
    """A commit: the optimizer's settings, or whether it takes part in a step of others, whose settings apply.

    `step` is the number of the step in an elastic job.
    """

    settings: Settings
    follows: bool
    step: int = 0


class RemoteSlot:
    """One segment of a key: its slot on a server, and its memory on this worker."""

    def __init__(self, spec: KeySpec, segment: Segment, server: Server, number: int, chunk: int, offset: int):
        self.spec, self.segment, self.server = spec, segment, server
        self.number, self.chunk, self.offset = number, chunk, offset
        self.gradient = view(server.gradients[chunk].bytes, offset, spec.shape_of(segment), spec.dtype)
        self.map()
        self.nbytes = self.weight.numel() * self.weight.element_size()
        self.pending = False  # whether the server may not have read the gradient yet
        self.open = False  # whether a push was not committed yet
        # What is repeated if another process takes the lead.
        self.commits = 0
        self.pushed: Push | bool = False  # the last push; True if it is in `gradient`
        self.commit = Commit({}, False)

    def map(self) -> None:
        """Use the weights of the current connection."""
        weights = self.server.link.weights[self.chunk]
        self.weight = view(weights, self.offset, self.spec.shape_of(self.segment), self.spec.dtype)

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this segment's elements of a tensor that contains the whole array, in its shape or flat."""
        if len(self.spec.segments) == 1:
            return whole
        if whole.shape == self.spec.shape:
            return whole[self.spec.rows_of(self.segment)]
        return whole[self.segment.start : self.segment.stop]

    def copy(self, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (target, source) for copying the weight into a tensor of the whole array, in its shape or flat."""
        part = self.part(whole)
        return part, self.weight if self.weight.shape == part.shape else self.weight.view(part.shape)

    def push(self, pushed: Push | bool) -> None:
        """Note a push, or with False a commit without one."""
        self.pushed = pushed
        self.pending, self.open = True, True

    def begin_again(self, commits: int) -> None:
        """Forget what was pushed, as a member of a new generation."""
        self.commits, self.pushed, self.pending, self.open = commits, False, False, False

    def close(self, commit: Commit) -> None:
        """Note the commit of what was pushed."""
        if not self.open:
            self.pushed = False
        self.commits, self.commit = self.commits + 1, commit
        self.pending, self.open = True, False


class Link:
    """The connection to a process, and the memory shared with it."""

    def __init__(self, process: str, connection: Connection, is_near: bool):
        self.process, self.connection, self.is_near = process, connection, is_near
        self._courier = None if is_near else Courier(f"to {process}")
        self._sent: Future[None] | None = None
        self._is_closed = False
        self.weights: dict[int, torch.Tensor] = {}
        self.writes: set[int] = set()  # chunks whose gradients the server can read directly
        self.reads: set[int] = set()  # chunks whose weights this worker can read directly
        self.told: Settings = {}  # settings that the server has

    def send(self, kind: int, meta: Any, *buffers: Any) -> None:
        """Send a frame. To another host it is sent in a thread, in order, so that backward continues meanwhile."""
        if self._is_closed:
            raise Closed(f"the connection to {self.process} is closed")
        if self._courier is None:
            self.connection.send(kind, meta, *buffers)
            return
        if self._sent is not None and self._sent.done():
            self._sent.result()
        self._sent = self._courier.send(lambda: self.connection.send(kind, meta, *buffers))

    def attach(self, chunk: int, nbytes: int, name: str) -> None:
        """Map the weights of a chunk if both are on one host and have enough memory."""
        weights = attach(name, nbytes) if name and self.is_near else None
        if weights is not None:
            self.reads.add(chunk)
        self.weights[chunk] = torch.zeros(nbytes, dtype=torch.uint8) if weights is None else weights

    def close(self) -> None:
        """Disconnect after all pending frames are sent."""
        with contextlib.suppress(WireError, TimeoutError):
            self.send(m.BYE, None)
            if self._sent is not None:
                self._sent.result(_GRACE)
        self.drop()

    def drop(self) -> None:
        """Disconnect immediately."""
        self._is_closed = True
        self.connection.close()
        if self._courier is not None:
            self._courier.close()

    def news(self, settings: Settings) -> dict[str, Any]:
        """Return the fields that tell the server about changed settings."""
        changed = m.news(self.told, settings)
        return {"s": changed} if changed else {}


class Server:
    """One server: its slots, and the connection to the process that leads it."""

    def __init__(self, number: int, link: Link):
        self.number, self.link = number, link
        self.slots: dict[int, RemoteSlot] = {}  # by number
        self.gradients: dict[int, Chunk] = {}
        self.turns = 0  # new connections since it last replied
        self.settled: tuple[int, Settings] | None = None  # the last step that was settled, in an elastic job

    @property
    def name(self) -> str:
        """The name of the process in the roll call."""
        return self.link.process


def runs_of(slots: Iterable[RemoteSlot]) -> list[list[RemoteSlot]]:
    """Group slots that are adjacent in memory."""
    runs: list[list[RemoteSlot]] = []
    for slot in sorted(slots, key=lambda slot: (slot.chunk, slot.offset)):
        last = runs[-1][-1] if runs else None
        if last is not None and last.chunk == slot.chunk and slot.offset - last.offset - last.nbytes < 64:
            runs[-1].append(slot)
        else:
            runs.append([slot])
    return runs


def memory_of(run: list[RemoteSlot]) -> torch.Tensor:
    """Return the gradients of adjacent slots as one block."""
    memory = run[0].server.gradients[run[0].chunk].bytes
    return memory[run[0].offset : run[-1].offset + run[-1].nbytes]
