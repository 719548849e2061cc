"""How far a program's training loops have come, told by its loaders and trainers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

RATE_OVER = 5.0  # seconds over which the rate is taken


@dataclass(eq=False)
class Loop:
    """A pass over a loader, as far as it has come; the outermost one is the program itself, which has no loader."""

    started: float
    loader: Any = None
    number: int | None = None  # of the epoch, as the program counts: from 0, and only those in which it trains
    told: int | None = None  # of the pass, as the loader counts
    steps: int | None = None
    epochs: int | None = None  # that there will be, if the program tells
    trains: bool = False  # a Trainer has stepped in it
    alone: bool = False  # other workers train models of their own: their samples do not count
    seen: int = 0  # batches, also those before the first step
    done: int = 0
    done_samples: float = 0
    recent: deque[tuple[float, int, float]] = field(default_factory=deque)  # when, batches and samples done by then

    def add(self, now: float, samples: float) -> None:
        """A batch is done."""
        self.done += 1
        self.done_samples += samples
        self.recent.append((now, self.done, self.done_samples))
        while len(self.recent) > 2 and now - self.recent[1][0] >= RATE_OVER:
            self.recent.popleft()

    def fraction(self) -> float | None:
        """How much of it is done, if that is known."""
        return min(self.done / self.steps, 1.0) if self.steps else None

    def is_cut_short(self) -> bool:
        """Whether it has given fewer batches than there were."""
        return self.steps is not None and self.seen < self.steps

    def rate(self) -> float:
        """Samples per second lately."""
        return self._lately()[1]

    def left(self, others: int = 0) -> float | None:
        """Seconds until it is over, and as many `others` after it, if that is known.

        It is not after the first batch, which often has much to prepare.
        """
        if not self.steps or len(self.recent) < 2:
            return None
        return max(self.steps * (1 + others) - self.done, 0) / self._lately()[0]

    def _lately(self) -> tuple[float, float]:
        """Batches and samples per second. The first batch often has much to prepare: it counts while it is alone."""
        first = self.recent[0] if len(self.recent) > 1 else (self.started, 0, 0.0)
        seconds, batches, samples = (b - a for a, b in zip(first, self.recent[-1], strict=True))
        return batches / max(seconds, 1e-9), samples / max(seconds, 1e-9)


class Loops:
    """The loops that are running, one inside the other.

    A loop over a loader counts its batches once a Trainer has stepped in it: evaluations do not count, however many
    Trainers step with a batch it counts once, and so it does if its gradients are kept for a later step. Steps outside
    of any loader count themselves.
    """

    def __init__(self, clock: Callable[[], float], workers: int = 1):
        self._clock, self._workers = clock, workers
        self.running = [Loop(clock())]
        self.trained = 0.0  # samples so far
        self._reduced = -1.0  # samples of all workers in the step whose batch is not done yet, if known
        self._next: dict[int, tuple[int | None, int]] = {}  # by loader's id: the coming pass, and its epoch

    def name(self, loader: Any, number: int, told: int | None = None, **_: Any) -> None:
        """The program calls the next pass over a loader, if that is pass `told`, epoch `number`."""
        self._next[id(loader)] = (told, number)

    def begin(self, loader: Any, number: int, steps: int | None, epochs: int | None = None, **_: Any) -> None:
        """A loader is iterated."""
        told, epoch = self._next.get(id(loader), (number, number))
        epoch = epoch if told in (None, number) else number
        self.running.append(Loop(self._clock(), loader, epoch, number, steps, epochs))

    def end(self, loader: Any, **_: Any) -> Loop | None:
        """That is over; the loop it was."""
        loop = self._of(loader)
        if loop is not None:
            self.running.remove(loop)
            assert loop.told is not None and loop.number is not None
            self.name(loader, loop.number + loop.trains, loop.told + 1)
        return loop

    def batch(self, loader: Any, batch: Any, **_: Any) -> Loop | None:
        """The program is done with a batch; the loop, if it counts."""
        loop = self._of(loader)
        if loop is None:
            return None
        loop.seen += 1
        reduced, self._reduced = self._reduced, -1.0
        if not loop.trains:
            return None
        if loop.alone:
            return self._add(loop, batch.samples or 0)
        if batch.total is not None:
            return self._add(loop, batch.total)
        return self._add(loop, reduced if reduced >= 0 else (batch.samples or 0) * self._workers)

    def reduce(self, samples: float, **_: Any) -> None:
        """Gradients of so many samples were summed over the workers; below 0 if nobody knows."""
        self._reduced = samples

    def step(self, samples: float, alone: bool = False, **_: Any) -> Loop | None:
        """A Trainer has stepped; the loop, if steps are what it counts."""
        loop = self.running[-1]
        loop.trains, loop.alone = True, alone
        return self._add(loop, samples if alone else samples * self._workers) if loop.loader is None else None

    def _add(self, loop: Loop, samples: float) -> Loop:
        loop.add(self._clock(), samples)
        self.trained += samples
        return loop

    def _of(self, loader: Any) -> Loop | None:
        return next((loop for loop in self.running[:0:-1] if loop.loader is loader), None)
