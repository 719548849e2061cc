"""Gradients summed over workers in buckets, while backward still makes the rest.

Parameters are packed in the order in which their gradients become ready; large ones have a bucket of their own. A full
bucket leaves at once, in the same order on every worker. What is known only later (a gradient that the program changed,
or computed again, after it had left) is sent again at the end.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import torch

LIMIT = 4 << 20  # bytes in a bucket: small enough to leave early, large enough to be worth a message
_ALIGNED = 64


class Courier:
    """A thread that carries out one errand after the other."""

    def __init__(self, name: str):
        self._errands: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)
        self._thread.start()

    def send(self, errand: Callable[[], Any]) -> Future[Any]:
        """Have it done after all that was sent before."""
        future: Future[Any] = Future()
        self._errands.put((future, errand))
        return future

    def close(self) -> None:
        """No more errands."""
        self._errands.put(None)

    def wait(self, seconds: float) -> None:
        """Wait for the end of the last errand, for at most so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        while (item := self._errands.get()) is not None:
            future, errand = item
            try:
                future.set_result(errand())
            except BaseException as error:
                future.set_exception(error)


class _Bucket:
    """Some parameters whose gradients travel together."""

    def __init__(self, number: int, members: list[int], leaves: Sequence[torch.Tensor], what: str, group: Any):
        self.number, self.members, self.what = number, members, what
        first = leaves[members[0]]
        step = _ALIGNED // first.element_size()
        offsets, size = [], 0
        for i in members:
            offsets.append(size)
            size += -(-leaves[i].numel() // step) * step
        self.staging = group.staging(size, first.dtype, first.device)
        self.staging.local.zero_()
        self.slots = {i: _like(self.staging.local, at, leaves[i]) for i, at in zip(members, offsets, strict=True)}
        self.sums = {i: _like(self.staging.result, at, leaves[i]) for i, at in zip(members, offsets, strict=True)}
        self.waiting = set(members)
        self.travel: Future[Any] | None = None

    def reduce(self) -> None:
        """Sum it over the workers."""
        self.staging.reduce(self.what)


def _like(flat: torch.Tensor, at: int, leaf: torch.Tensor) -> torch.Tensor:
    """A part of flat memory with a tensor's shape, and its order in memory."""
    part = flat[at : at + leaf.numel()]
    dense = torch.empty_like(leaf, device="meta")  # torch keeps the order of dense tensors
    return part.as_strided(leaf.shape, dense.stride(), part.storage_offset())


class Buckets:
    """The buckets of a Trainer's parameters. `sums[i]` is parameter i's summed gradient after a round."""

    def __init__(
        self,
        group: Any,
        leaves: Sequence[torch.Tensor],
        names: Sequence[str],
        order: Sequence[int],
        late: Iterable[int],
        version: Callable[[torch.Tensor], Any],
    ):
        self._courier = Courier("gradients")
        _open.add(self)
        self._version = version  # changes when a gradient does
        self.late = set(late)  # those that leave only at the end of a round
        self.order = [i for i in order if i not in self.late] + [i for i in order if i in self.late]
        self._buckets = [
            _Bucket(number, members, leaves, _listed([names[i] for i in members]), group)
            for number, members in enumerate(_packed(self.order, leaves, self.late))
        ]
        self._of = {i: bucket for bucket in self._buckets for i in bucket.members}
        self.sums = {i: bucket.sums[i] for bucket in self._buckets for i in bucket.members}
        self._early = sum(1 for bucket in self._buckets if bucket.members[0] not in self.late)
        self._next = 0
        self._staged: dict[int, tuple[torch.Tensor, Any]] = {}
        self._spoiled: set[int] = set()
        self.readiness: list[int] = []  # the order of this round

    def __len__(self) -> int:
        return len(self._buckets)

    def stage(self, i: int, gradient: torch.Tensor) -> None:
        """A gradient is ready: pack it, and send its bucket if that was the last one."""
        self._pack(i, gradient)
        self.readiness.append(i)
        self._send(self._early)

    def _pack(self, i: int, gradient: torch.Tensor | None) -> None:
        bucket = self._of[i]
        if bucket.travel is not None:
            self._spoiled.add(bucket.number)
            return
        slot = bucket.slots[i]
        if gradient is None:
            slot.zero_()
        else:
            slot.copy_(gradient)
            self._staged[i] = gradient, self._version(gradient)
        bucket.waiting.discard(i)

    def _send(self, end: int) -> None:
        while self._next < end and not self._buckets[self._next].waiting:
            bucket = self._buckets[self._next]
            bucket.travel = self._courier.send(bucket.reduce)
            self._next += 1

    def send_rest(self, gradients: Callable[[int], torch.Tensor | None]) -> set[int]:
        """Send all that has not left, zeros for gradients that are None. The numbers of buckets that must go again."""
        with torch.no_grad():
            for i in self.order:
                gradient = gradients(i)
                staged = self._staged.get(i)
                if staged is None or gradient is not staged[0] or self._version(gradient) != staged[1]:
                    self._pack(i, gradient)
        self._send(len(self._buckets))
        return self._spoiled

    def has_sent(self) -> bool:
        """Whether a bucket has left in this round."""
        return self._next > 0

    def wait(self) -> None:
        """Wait until all buckets have been summed."""
        for bucket in self._buckets:
            if bucket.travel is not None:
                bucket.travel.result()

    def send_again(self, numbers: Iterable[int], gradients: Callable[[int], torch.Tensor | None]) -> None:
        """Sum these buckets anew, and have their parameters leave late from now on."""
        for bucket in (self._buckets[number] for number in sorted(numbers)):
            bucket.travel = None
            with torch.no_grad():
                for i in bucket.members:
                    self._pack(i, gradients(i))
            self.late.update(bucket.members)
            self._courier.send(bucket.reduce).result()

    def end_round(self) -> None:
        """Be ready for the next."""
        for bucket in self._buckets:
            bucket.travel = None
            bucket.waiting = set(bucket.members)
        self._next = 0
        self._staged.clear()
        self._spoiled = set()
        self.readiness = []

    def close(self) -> None:
        """End the thread."""
        self._courier.close()


_open: weakref.WeakSet[Buckets] = weakref.WeakSet()


def end_all(seconds: float = 1.0) -> None:
    """End the threads of all buckets, as far as they do in so long.

    A thread that is inside torch when the interpreter goes away ends the process by a crash.
    """
    limit = time.monotonic() + seconds
    for buckets in list(_open):
        buckets.close()
        buckets._courier.wait(max(0.0, limit - time.monotonic()))


def _packed(order: Sequence[int], leaves: Sequence[torch.Tensor], late: set[int]) -> list[list[int]]:
    """The parameters in buckets of one type and device, the late ones apart."""
    packs: list[list[int]] = []
    kind: Any = None
    size = 0
    for i in order:
        leaf = leaves[i]
        nbytes = leaf.numel() * leaf.element_size()
        same = (leaf.dtype, leaf.device, i in late)
        if not packs or same != kind or size >= LIMIT:  # a bias goes with the weight that follows it
            packs.append([])
            kind, size = same, 0
        packs[-1].append(i)
        size += nbytes
    return packs


def _listed(names: Sequence[str]) -> str:
    """Some names, for an error message."""
    return f"the gradients of {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
