"""Shared memory of the processes of one host, and collectives over it.

gloo sends every byte through the kernel's TCP stack, even on one host. Here a process writes to memory that the other
processes have mapped too, and signals completion with a counter, so a sum costs only the reading and adding.

All collectives follow one protocol. Each rank owns a step counter in the region. A rank writes its data of step k, sets
its counter to k, and waits until all counters have reached k. Then it may read the data of the others (`Meeting.meet`).
"""

from __future__ import annotations

import mmap
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol, TypeVar

import torch

from .transport import NOTE, Absent, Check, StagingArea, Transport, divide_, same_notes

LINE = 64  # bytes of a cache line; no two ranks write to the same line
CHUNK = 1 << 20  # bytes that a rank transfers in one step
IN_CACHE = 1 << 15  # elements of a sum over many parts that stay in the cache
FEW = 1 << 14  # up to this many bytes every rank sums everything, which is cheaper than a second step
PAGE = 4096
SPIN = 2e-5  # seconds of busy waiting: the typical delay of an equally fast process
CHECK_EVERY = 0.005

_COMBINE: dict[str, Callable[..., torch.Tensor]] = {
    "sum": torch.add,
    "mean": torch.add,
    "min": torch.minimum,
    "max": torch.maximum,
    "prod": torch.mul,
}
_SUMMED_IN = {torch.float16: torch.float32, torch.bfloat16: torch.float32}
Cross = Callable[[torch.Tensor], None]  # sums a slice, in place, with those of the same rank on other hosts
T = TypeVar("T")


class Board(Protocol):
    """A key-value store shared by the ranks; `get` waits for a value."""

    def set(self, key: str, value: bytes | str) -> None:
        """Set a value."""

    def get(self, key: str) -> bytes:
        """Wait for a value and return it."""


class Region:
    """A block of memory shared by all processes that have opened it: a part of a file in memory."""

    def __init__(self, fd: int, nbytes: int, offset: int = 0) -> None:
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)  # fault in all pages now, not in the first step
        more: dict[str, bool] = {"trackfd": False} if sys.version_info >= (3, 13) else {}  # keep no descriptor open
        self.memory = mmap.mmap(fd, nbytes, flags, offset=offset, **more)
        self.nbytes = nbytes

    def tensor(self, offset: int, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a flat tensor in this memory. The tensor keeps the memory alive."""
        if not count:
            return torch.empty(0, dtype=dtype)
        return torch.frombuffer(self.memory, dtype=dtype, count=count, offset=offset)


class Stock:
    """Memory that this process creates ahead of time, because others would have to wait for it later.

    The system clears memory when it is first used. For processes that map it afterwards, this takes a fraction of the
    time.
    """

    def __init__(self, nbytes: int) -> None:
        self._left, self._size = 0, -(-nbytes // PAGE) * PAGE
        self._fd, self._name = _memfd()
        try:
            os.posix_fallocate(self._fd, 0, self._size)
            Region(self._fd, self._size)
        except (OSError, ValueError):
            os.close(self._fd)
            raise

    def take(self, nbytes: int) -> tuple[Region, str] | None:
        """Return a part that was not taken before, and where other processes find it; None if too little is left."""
        start, end = self._left, self._left + nbytes
        if end > self._size:
            return None
        self._left = end
        return Region(self._fd, nbytes, start), _place(self._fd, self._name, start)

    def close(self) -> None:
        """Release what was not taken. Called when all other processes have mapped the rest."""
        os.ftruncate(self._fd, self._left)
        os.close(self._fd)


@dataclass(frozen=True)
class Creator:
    """The rank of a host that creates the memory of all ranks, and what it has created before."""

    rank: int = 0
    stock: Stock | None = None

    def create(self, nbytes: int, until_all_have_it: ExitStack) -> tuple[Region, str]:
        """Create memory. Return it and where processes of this user find it until the descriptor is closed."""
        if self.stock is not None and (found := self.stock.take(nbytes)) is not None:
            return found
        fd, name = _memfd()
        until_all_have_it.callback(os.close, fd)
        # Allocate now: accessing memory that turns out not to be available kills the process with SIGBUS.
        os.posix_fallocate(fd, 0, nbytes)
        return Region(fd, nbytes), _place(fd, name)


FIRST = Creator()


def share(
    nbytes: int, rank: int, size: int, board: Board, key: str, creator: Creator = FIRST
) -> tuple[Region | None, str]:
    """Create memory shared by all `size` ranks of this host. Return it, or None and the reason on all ranks.

    One rank creates a memfd, an in-memory file without a path: it needs no cleanup after a crash and no mount limits
    its size. The other ranks get its location from `board` and open it through /proc.
    """
    nbytes = -(-nbytes // PAGE) * PAGE
    if rank != creator.rank:
        region, why = _try(lambda: _attach(board.get(f"{key}/place"), nbytes))
        board.set(f"{key}/{rank}", why)
        why = board.get(f"{key}/verdict").decode()
        return (None if why else region), why
    with ExitStack() as until_all_have_it:
        made, why = _try(lambda: creator.create(nbytes, until_all_have_it))
        region, place = made or (None, f"!{why}")
        board.set(f"{key}/place", place)
        said = [why] + [board.get(f"{key}/{other}").decode() for other in range(size) if other != rank]
        why = next(filter(None, said), "")
        board.set(f"{key}/verdict", why)
    return (None if why else region), why


def _memfd() -> tuple[int, str]:
    """Create an in-memory file. Return its descriptor and its name."""
    if not hasattr(os, "memfd_create"):
        raise OSError("this system does not have memfd_create")
    name = f"neomx-{secrets.token_hex(16)}"
    return os.memfd_create(name), name


def _place(fd: int, name: str, offset: int = 0) -> str:
    """Return where other processes find memory that this one has created."""
    return f"/proc/{os.getpid()}/fd/{fd} {name} {offset}"


def _attach(place: bytes, nbytes: int) -> Region:
    """Map the memory that another process created."""
    said = place.decode()
    if said.startswith("!"):
        raise OSError(said[1:])
    path, name, offset = said.split(" ")
    # In another container the same path may be any other file.
    if not os.readlink(path).startswith(f"/memfd:{name} "):
        raise OSError(f"{path} is not the memory of this job: are the workers in different containers?")
    fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        return Region(fd, nbytes, int(offset))
    finally:
        os.close(fd)


def _try(action: Callable[[], T]) -> tuple[T | None, str]:
    try:
        return action(), ""
    except (OSError, ValueError) as error:  # mmap raises ValueError if the file is too small
        return None, str(error) or type(error).__name__


class Meeting:
    """Synchronizes the ranks, with one counter each in a region. Use it in one thread at a time.

    `check(late)` is called every few milliseconds of waiting, and raises if one of the ranks returned by `late()` is
    gone. It must read which ranks are gone before it calls `late`, so that a rank that arrived and then left is not
    reported.
    """

    def __init__(self, region: Region, rank: int, size: int, timeout: float, check: Check) -> None:
        self.rank, self.size, self.timeout, self.check = rank, size, timeout, check
        self.step = 0
        self.waited = 0.0  # total seconds
        self._memory = region.memory
        self._counters = memoryview(region.memory).cast("q")
        self._lock = threading.Lock()

    @staticmethod
    def nbytes(size: int) -> int:
        """The number of bytes that `size` ranks need."""
        return -(-size * (LINE + 2 * NOTE) // PAGE) * PAGE

    def meet(self, note: bytes = b"") -> None:
        """Wait for all ranks. Data written before is then visible to all of them.

        If `note` is given, it must be the same on all ranks.
        """
        self.step += 1
        if note:
            note = note[:NOTE].ljust(NOTE)
            start = self._note_at(self.rank)
            self._memory[start : start + NOTE] = note
        self._fence()
        self._counters[self.rank * LINE // 8] = self.step
        self._wait()
        self._fence()
        if note:
            self._compare()

    def _note_at(self, rank: int) -> int:
        """The offset of a rank's note. Two buffers alternate: all ranks have read a note before it is overwritten."""
        return self.size * LINE + (2 * rank + self.step % 2) * NOTE

    def _compare(self) -> None:
        starts = [self._note_at(rank) for rank in range(self.size)]
        same_notes([self._memory[start : start + NOTE] for start in starts])

    def _fence(self) -> None:
        """Memory fence: writes before it are visible to other processes before writes after it.

        x86 keeps the order of stores and of loads by itself. ARM and POWER do not; there, releasing a lock and then
        acquiring one does: no access before the release may move after it, no access after the acquire may move before
        it, and the two keep their order. A counter is eight aligned bytes, written and read by one instruction.
        """
        with self._lock:
            pass
        with self._lock:
            pass

    def late(self) -> list[int]:
        """Return the ranks that have not arrived yet."""
        return [rank for rank in range(self.size) if self._counters[rank * LINE // 8] < self.step]

    def _wait(self) -> None:
        if not self.late():
            return
        start = checked = now = time.perf_counter()
        while now - start < SPIN:
            if not self.late():
                return
            now = time.perf_counter()
        try:
            while self.late():
                # Sleep an eighth of the time waited so far: fast after short waits, cheap in long ones.
                time.sleep(min(max((now - start) / 8, 2e-5), 2e-3))
                now = time.perf_counter()
                if now - checked > CHECK_EVERY:
                    checked = now
                    self.check(self.late)
                if now - start > self.timeout and (late := self.late()):
                    raise Absent(late, self.timeout)
        finally:
            self.waited += now - start


def combine(parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, among: int | None = None) -> None:
    """Combine `parts` in order (sum, mean, min, max, prod) and write the result to `out`, bitwise reproducible.

    Half precision is added in single precision. `out` must not be one of the parts. A mean divides by `among`, by
    default the number of parts.
    """
    function, wide = _COMBINE[op], _SUMMED_IN.get(out.dtype)
    whole = len(parts) <= 2 and wide is None and op != "mean"
    step = out.numel() if whole else IN_CACHE
    for start in range(0, out.numel(), step or 1):
        first, *rest = (part[start : start + step] for part in parts)
        piece = out[start : start + step]
        total = first.to(wide) if wide else piece
        if not rest:
            total.copy_(first)
        for number, part in enumerate(rest):
            function(total if number or wide else first, part, out=total)
        if op == "mean":
            divide_(total, among or len(parts))
        if wide:
            piece.copy_(total)


def _chunks(flat: torch.Tensor, count: int) -> Sequence[torch.Tensor]:
    """Split into parts of at most `count` elements; at least one part, which may be empty."""
    if flat.numel() <= count:
        return (flat,)
    return [flat[start : start + count] for start in range(0, flat.numel(), count)]


def slice_of(count: int, rank: int, size: int) -> slice:
    """Return the part of `count` elements that `rank` sums. All but the last part are whole cache lines."""
    width = -(-count // size)
    width = -(-width // LINE) * LINE
    return slice(min(rank * width, count), min((rank + 1) * width, count))


class SharedArea(StagingArea):
    """Memory for one bucket of gradients: each rank's own part, and one for the sum.

    Fill `local`, call `reduce()`, read `result`. After `reduce`, `local` may be overwritten immediately, because all
    ranks have summed. `result` is valid until this rank's next `reduce`: the next sum is written only after all ranks,
    including this one, have called `reduce` again.
    """

    def __init__(
        self, region: Region, meeting: Meeting, count: int, dtype: torch.dtype, cross: Cross | None = None
    ) -> None:
        """`cross(slice)` sums this rank's slice in place with those of the same rank on other hosts."""
        self._meeting, self._cross = meeting, cross
        start, stride = Meeting.nbytes(meeting.size), self._part(count, dtype)
        *self._parts, self.result = (
            region.tensor(start + part * stride, count, dtype) for part in range(meeting.size + 1)
        )
        self.local = self._parts[meeting.rank]
        mine = slice_of(count, meeting.rank, meeting.size)
        self._to_sum = [part[mine] for part in self._parts]
        self._sum = self.result[mine]

    @property
    def waited(self) -> float:
        """Total seconds spent waiting for other ranks."""
        return self._meeting.waited

    @staticmethod
    def _part(count: int, dtype: torch.dtype) -> int:
        return -(-count * dtype.itemsize // PAGE) * PAGE

    @classmethod
    def nbytes(cls, count: int, dtype: torch.dtype, size: int) -> int:
        """The number of bytes that `size` ranks need."""
        return Meeting.nbytes(size) + (size + 1) * cls._part(count, dtype)

    def reduce(self) -> torch.Tensor:
        """Sum the `local` of all ranks into `result`. Waits for them."""
        self._meeting.meet()
        combine(self._to_sum, "sum", self._sum)
        if self._cross:
            self._cross(self._sum)
        self._meeting.meet()
        return self.result


class Channel(Transport):
    """Collectives on flat, contiguous CPU tensors of any size, transferred in chunks through a fixed region.

    Two sets of buffers alternate. The data of a step is overwritten two steps later, after this rank has synchronized
    with all others in the step in between, which they enter only after reading.
    """

    def __init__(self, region: Region, meeting: Meeting) -> None:
        self.meeting, self.rank, self.size = meeting, meeting.rank, meeting.size
        self._memory, self._start, parts = region.memory, Meeting.nbytes(self.size), 2 * self.size + 1
        *buffers, self._total = region.tensor(self._start, parts * CHUNK, torch.uint8).view(parts, CHUNK)
        self._buffers = [buffers[: self.size], buffers[self.size :]]

    @staticmethod
    def nbytes(size: int) -> int:
        """The number of bytes that `size` ranks need."""
        return Meeting.nbytes(size) + (2 * size + 1) * CHUNK

    def _next(self) -> list[torch.Tensor]:
        """Return the buffers of all ranks for the next step."""
        return self._buffers[(self.meeting.step + 1) % 2]

    def barrier(self, note: bytes = b"") -> None:
        """Wait for all ranks."""
        self.meeting.meet(note)

    def all_gather_small(self, tensor: torch.Tensor, note: bytes = b"") -> torch.Tensor:
        """Stack the tensors of all ranks, which have one shape and fit into one chunk."""
        mine = tensor.numpy().tobytes()  # plain bytes take a fifth of the time of small tensors
        start = self._start + (self.meeting.step + 1) % 2 * self.size * CHUNK
        starts = [start + rank * CHUNK for rank in range(self.size)]
        self._memory[starts[self.rank] : starts[self.rank] + len(mine)] = mine
        self.meeting.meet(note)
        rows = bytearray().join(self._memory[at : at + len(mine)] for at in starts)
        return torch.frombuffer(rows, dtype=tensor.dtype).view(self.size, *tensor.shape)

    def all_reduce_(self, flat: torch.Tensor, op: str, note: bytes = b"") -> None:
        """Reduce over all ranks (sum, mean, min, max, prod), in place."""
        for piece in _chunks(flat, CHUNK // flat.itemsize):
            nbytes = piece.numel() * piece.itemsize
            parts = [buffer[:nbytes].view(piece.dtype) for buffer in self._next()]
            parts[self.rank].copy_(piece)
            self.meeting.meet(note)
            if self.size == 2 or nbytes <= FEW:
                combine(parts, op, piece)
            else:
                self._combine_by_slices(parts, op, piece)
            note = b""

    def _combine_by_slices(self, parts: list[torch.Tensor], op: str, out: torch.Tensor) -> None:
        """Each rank combines one slice and then reads those of the others."""
        total = self._total[: out.numel() * out.itemsize].view(out.dtype)
        mine = slice_of(out.numel(), self.rank, self.size)
        combine([part[mine] for part in parts], op, total[mine])
        self.meeting.meet()
        out.copy_(total)

    def broadcast_(self, flat: torch.Tensor, root: int, note: bytes = b"") -> None:
        """Copy the values of `root` to all ranks, in place."""
        for piece in _chunks(flat.view(torch.uint8), CHUNK):
            buffer = self._next()[root][: piece.numel()]
            if self.rank == root:
                buffer.copy_(piece)
            self.meeting.meet(note)
            if self.rank != root:
                piece.copy_(buffer)
            note = b""

    def all_gather(self, outs: Sequence[torch.Tensor], note: bytes = b"") -> None:
        """Send each rank's `outs[rank]` to all others. Sizes may differ; all ranks know them."""
        pieces = [out.view(torch.uint8) for out in outs]
        self._pass(
            max(piece.numel() for piece in pieces), CHUNK, lambda start, stop: self._gather(pieces, start, stop), note
        )

    def _gather(self, pieces: Sequence[torch.Tensor], start: int, stop: int) -> Callable[[], None]:
        buffers = self._next()
        mine = pieces[self.rank][start:stop]
        buffers[self.rank][: mine.numel()].copy_(mine)

        def read() -> None:
            for rank, piece in enumerate(pieces):
                if rank != self.rank:
                    piece[start:stop].copy_(buffers[rank][: piece[start:stop].numel()])

        return read

    def reduce_scatter(self, parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, note: bytes = b"") -> None:
        """Reduce over all ranks their part for this rank, and write it to `out`. Parts may differ in size."""
        width = CHUNK // self.size // LINE * LINE // out.itemsize

        def write(start: int, stop: int) -> Callable[[], None]:
            rooms = [buffer.view(torch.uint8)[: self.size * width * out.itemsize] for buffer in self._next()]
            rows = [room.view(out.dtype).view(self.size, width) for room in rooms]
            for row, part in zip(rows[self.rank], parts, strict=True):
                row[: part[start:stop].numel()].copy_(part[start:stop])
            mine = out[start:stop]
            return lambda: combine([row[self.rank][: mine.numel()] for row in rows], op, mine)

        self._pass(max(part.numel() for part in parts), width, write, note)

    def all_to_all(
        self, parts: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], longest: int, note: bytes = b""
    ) -> None:
        """Send `parts[q]` to rank q and receive `outs[p]` from rank p.

        `longest` is the maximum number of bytes of a part.
        """
        parts, outs = ([tensor.view(torch.uint8) for tensor in tensors] for tensors in (parts, outs))
        width = CHUNK // self.size // LINE * LINE

        def write(start: int, stop: int) -> Callable[[], None]:
            rows = [buffer[: self.size * width].view(self.size, width) for buffer in self._next()]
            for row, part in zip(rows[self.rank], parts, strict=True):
                row[: part[start:stop].numel()].copy_(part[start:stop])

            def read() -> None:
                for row, out in zip(rows, outs, strict=True):
                    out[start:stop].copy_(row[self.rank][: out[start:stop].numel()])

            return read

        self._pass(longest, width, write, note)

    def _pass(
        self, longest: int, width: int, write: Callable[[int, int], Callable[[], None]], note: bytes = b""
    ) -> None:
        """Write, synchronize and read, `width` at a time, until `longest` is reached."""
        for start in range(0, max(longest, 1), width):
            read = write(start, start + width)
            self.meeting.meet(note)
            read()
            note = b""


def open_area(
    count: int,
    dtype: torch.dtype,
    rank: int,
    size: int,
    board: Board,
    key: str,
    timeout: float,
    check: Check,
    cross: Cross | None = None,
    creator: Creator = FIRST,
) -> tuple[SharedArea | None, str]:
    """Open a staging area on all ranks of this host. Return it, or None and the reason on all of them."""
    region, why = share(SharedArea.nbytes(count, dtype, size), rank, size, board, key, creator)
    if region is None:
        return None, why
    return SharedArea(region, Meeting(region, rank, size, timeout, check), count, dtype, cross), ""


def open_channel(
    rank: int, size: int, board: Board, key: str, timeout: float, check: Check, creator: Creator = FIRST
) -> tuple[Channel | None, str]:
    """Open a Channel on all ranks of this host. Return it, or None and the reason on all of them."""
    region, why = share(Channel.nbytes(size), rank, size, board, key, creator)
    if region is None:
        return None, why
    return Channel(region, Meeting(region, rank, size, timeout, check)), ""
