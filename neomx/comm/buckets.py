"""Sums gradients over workers in buckets while backward computes the rest.

Parameters are packed in the order in which their gradients become ready; large parameters have their own bucket. A full
bucket is sent immediately, in the same order on every worker. A bucket is sent again at the end if the program changed
or recomputed one of its gradients afterwards.
"""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from .session import end_with_process

LIMIT = 4 << 20  # bytes in a bucket: small enough to be sent early, large enough to amortize a message
_ALIGNED = 64
Result = TypeVar("Result")


class Courier:
    """A thread that runs calls one after the other."""

    def __init__(self, name: str):
        self._errands: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._thread.start()

    def send(self, errand: Callable[[], Result]) -> Future[Result]:
        """Run the call after all earlier ones. Return its future."""
        future: Future[Result] = Future()
        self._errands.put((future, errand))
        return future

    def close(self) -> None:
        """Accept no more calls."""
        self._errands.put(None)

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for the last call to end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while (item := self._errands.get()) is not None:
            future, errand = item
            try:
                future.set_result(errand())
            except BaseException as error:
                future.set_exception(error)


class Reducer(Protocol):
    """Memory of a bucket that is summed over workers repeatedly, such as the `Staging` of a Group."""

    @property
    def local(self) -> torch.Tensor:
        """Flat tensor to write the addends of this worker to."""

    @property
    def result(self) -> torch.Tensor:
        """Flat tensor with the sums, after `reduce`."""

    def reduce(self, what: str) -> object:
        """Sum over all workers, in the thread of the buckets. `what` describes the bucket in errors."""


@dataclass(frozen=True)
class Span:
    """A parameter's elements in the flat memory of a bucket."""

    member: int
    start: int
    count: int


RowGradient = tuple[torch.Tensor, torch.Tensor]  # a row-sparse gradient: values, and their row indices
Gradient = torch.Tensor | RowGradient
MakeReducer = Callable[[Sequence[Span], int, torch.Tensor], Reducer]  # spans, size, a tensor with the dtype and device
SumRows = Callable[[RowGradient, str], RowGradient]


class Stamp(NamedTuple):
    """Detects writes to a gradient: the tensor that contains it, and its version counters."""

    holder: torch.Tensor | None
    writes: tuple[int, int]

    def is_same(self, other: Stamp) -> bool:
        """Whether no write happened between the two stamps."""
        return self.holder is other.holder and self.writes == other.writes


class _Bucket(ABC):
    """Parameters whose gradients are sent together."""

    def __init__(self, number: int, members: list[int], names: Sequence[str]):
        self.number, self.members = number, members
        self.what = _listed([names[i] for i in members])
        self.waiting = set(members)
        self.travel: Future[None] | None = None

    @abstractmethod
    def pack(self, i: int, gradient: Gradient | None) -> None:
        """Copy a gradient into the bucket; None counts as zero."""

    @abstractmethod
    def reduce(self) -> None:
        """Sum it over the workers."""


class _DenseBucket(_Bucket):
    def __init__(
        self, number: int, members: list[int], names: Sequence[str], leaves: Sequence[torch.Tensor], make: MakeReducer
    ):
        super().__init__(number, members, names)
        first = leaves[members[0]]
        step = _ALIGNED // first.element_size()
        spans, size = [], 0
        for i in members:
            spans.append(Span(i, size, leaves[i].numel()))
            size += -(-leaves[i].numel() // step) * step
        self._reducer = make(spans, size, first)
        self._reducer.local.zero_()
        self._slots = {s.member: _like(self._reducer.local, s.start, leaves[s.member]) for s in spans}
        self.sums = {s.member: _like(self._reducer.result, s.start, leaves[s.member]) for s in spans}

    def pack(self, i: int, gradient: Gradient | None) -> None:
        if gradient is None:
            self._slots[i].zero_()
        else:
            assert isinstance(gradient, torch.Tensor)
            self._slots[i].copy_(gradient)

    def reduce(self) -> None:
        self._reducer.reduce(self.what)


class _RowBucket(_Bucket):
    """One parameter with a row-sparse gradient: every worker's rows are sent to all workers."""

    def __init__(self, number: int, member: int, names: Sequence[str], leaf: torch.Tensor, sum_rows: SumRows):
        super().__init__(number, [member], names)
        self._none = leaf.detach().new_empty(0, *leaf.shape[1:]), torch.empty(0, dtype=torch.int64, device=leaf.device)
        self._mine: RowGradient = self._none
        self._sum_rows = sum_rows
        self.total: RowGradient = self._none

    def pack(self, i: int, gradient: Gradient | None) -> None:
        if gradient is None:
            self._mine = self._none
        else:
            values, numbers = gradient
            self._mine = values.clone(), numbers.clone()

    def reduce(self) -> None:
        self.total = self._sum_rows(self._mine, self.what)


def _like(flat: torch.Tensor, at: int, leaf: torch.Tensor) -> torch.Tensor:
    """Return a view of flat memory with the shape and the memory order of a tensor."""
    part = flat[at : at + leaf.numel()]
    dense = torch.empty_like(leaf, device="meta")  # torch keeps the memory order of dense tensors
    return part.as_strided(leaf.shape, dense.stride(), part.storage_offset())


class Buckets:
    """The buckets of all trained parameters. `sums[i]` is the summed gradient of parameter i after a round.

    Parameters in `sparse` have row-sparse gradients, whose sums are in `rows(i)`. `fetch(i)` returns the gradient of a
    parameter, `stamp(i)` its current stamp. `make` and `sum_rows` perform the sums.
    """

    def __init__(
        self,
        leaves: Sequence[torch.Tensor],
        names: Sequence[str],
        order: Sequence[int],
        late: Iterable[int],
        sparse: Iterable[int],
        fetch: Callable[[int], Gradient],
        stamp: Callable[[int], Stamp],
        make: MakeReducer,
        sum_rows: SumRows,
    ):
        self._courier = Courier("gradients")
        end_with_process(self)
        self._fetch, self._stamp = fetch, stamp
        self.late = set(late)  # parameters that are sent only at the end of a round
        self.order = [i for i in order if i not in self.late] + [i for i in order if i in self.late]
        self._buckets: list[_Bucket] = []
        rows = set(sparse)
        for members in _packed(self.order, leaves, self.late, rows):
            number, first = len(self._buckets), members[0]
            self._buckets.append(
                _RowBucket(number, first, names, leaves[first], sum_rows)
                if first in rows
                else _DenseBucket(number, members, names, leaves, make)
            )
        self._of = {i: bucket for bucket in self._buckets for i in bucket.members}
        dense = [bucket for bucket in self._buckets if isinstance(bucket, _DenseBucket)]
        self.sums = {i: bucket.sums[i] for bucket in dense for i in bucket.members}
        self._early = sum(1 for bucket in self._buckets if bucket.members[0] not in self.late)
        self._next = 0
        self._packed: dict[int, Stamp] = {}
        self._spoiled: set[int] = set()
        self.readiness: list[int] = []  # parameters in the order in which their gradients became ready in this round

    def __len__(self) -> int:
        return len(self._buckets)

    def members(self, number: int) -> list[int]:
        """Return the parameters of a bucket."""
        return self._buckets[number].members

    def rows(self, i: int) -> RowGradient:
        """Return the summed rows of a parameter with a row-sparse gradient."""
        bucket = self._of[i]
        assert isinstance(bucket, _RowBucket)
        return bucket.total

    def stage(self, i: int) -> None:
        """Pack a gradient that is ready, and send its bucket if the bucket is complete."""
        self._pack(i, True)
        self.readiness.append(i)
        self._send(self._early)

    def _pack(self, i: int, made: bool) -> None:
        bucket = self._of[i]
        if bucket.travel is not None:
            self._spoiled.add(bucket.number)
            return
        bucket.pack(i, self._fetch(i) if made else None)
        if made:
            self._packed[i] = self._stamp(i)
        bucket.waiting.discard(i)

    def _send(self, end: int) -> None:
        while self._next < end and not self._buckets[self._next].waiting:
            bucket = self._buckets[self._next]
            bucket.travel = self._courier.send(bucket.reduce)
            self._next += 1

    def send_rest(self, made: Collection[int]) -> set[int]:
        """Send all remaining buckets, with zeros for missing gradients. Return the numbers of buckets to send again."""
        with torch.no_grad():
            for i in self.order:
                packed = self._packed.get(i)
                if packed is None or i not in made or not packed.is_same(self._stamp(i)):
                    self._pack(i, i in made)
        self._send(len(self._buckets))
        return self._spoiled

    def has_sent(self) -> bool:
        """Whether a bucket was sent in this round."""
        return self._next > 0

    def arrivals(self) -> Iterator[list[int]]:
        """Yield the numbers of buckets as their sums arrive: first those already there, then more after each wait."""
        waiting = deque(bucket for bucket in self._buckets if bucket.travel is not None)
        while waiting:
            _result(waiting[0])
            here = []
            while waiting and _has_arrived(waiting[0]):
                _result(waiting[0])
                here.append(waiting.popleft().number)
            yield here

    def wait(self) -> None:
        """Wait until all buckets have been summed."""
        for _ in self.arrivals():
            pass

    def send_again(self, numbers: Iterable[int], made: Collection[int]) -> None:
        """Sum these buckets again, and send their parameters at the end of a round from now on."""
        for bucket in (self._buckets[number] for number in sorted(numbers)):
            bucket.travel = None
            with torch.no_grad():
                for i in bucket.members:
                    self._pack(i, i in made)
            self.late.update(bucket.members)
            self._courier.send(bucket.reduce).result()

    def end_round(self) -> None:
        """Prepare for the next round."""
        for bucket in self._buckets:
            bucket.travel = None
            bucket.waiting = set(bucket.members)
        self._next = 0
        self._packed.clear()
        self._spoiled = set()
        self.readiness = []

    def halt(self) -> None:
        """Wait until all sums have ended, successfully or not, and forget their errors."""
        self._courier.send(lambda: None).result()
        for bucket in self._buckets:
            bucket.travel = None  # an error's traceback refers to the bucket, and would keep its memory

    def close(self) -> None:
        """End the thread after it has summed all buckets that were sent."""
        self._courier.close()

    def end(self, seconds: float) -> None:
        """End the thread and wait up to `seconds` for it."""
        self._courier.close()
        self._courier.wait(seconds)


def _result(bucket: _Bucket) -> None:
    assert bucket.travel is not None
    bucket.travel.result()


def _has_arrived(bucket: _Bucket) -> bool:
    return bucket.travel is not None and bucket.travel.done()


def _packed(order: Sequence[int], leaves: Sequence[torch.Tensor], late: set[int], alone: set[int]) -> list[list[int]]:
    """Divide parameters into buckets of one dtype and device.

    Late ones are separate; each of `alone` has its own bucket.
    """
    packs: list[list[int]] = []
    kind: tuple[torch.dtype, torch.device, bool, int] | None = None
    size = 0
    for i in order:
        leaf = leaves[i]
        nbytes = leaf.numel() * leaf.element_size()
        same = (leaf.dtype, leaf.device, i in late, i if i in alone else -1)
        if not packs or same != kind or size >= LIMIT:  # keeps a bias with the weight that follows it
            packs.append([])
            kind, size = same, 0
        packs[-1].append(i)
        size += nbytes
    return packs


def _listed(names: Sequence[str]) -> str:
    """Name some parameters, for an error message."""
    return f"the gradients of {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
