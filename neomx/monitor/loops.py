"""The progress of a program's training loops, from events of its loaders and trainers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

RATE_OVER = 5.0  # window in seconds for computing the rate


@dataclass(eq=False)
class Loop:
    """A pass over a loader and its progress. The outermost loop is the program itself, without a loader."""

    started: float
    loader: Any = None
    number: int | None = None  # of the epoch, as counted by the program: from 0, training epochs only
    told: int | None = None  # of the pass, as counted by the loader
    steps: int | None = None
    epochs: int | None = None  # total number of epochs, if known
    trains: bool = False  # whether a Trainer has stepped in it
    alone: bool = False  # whether other workers train separate models, whose samples do not count
    seen: int = 0  # batches, including those before the first step
    done: int = 0
    done_samples: float = 0
    recent: deque[tuple[float, int, float]] = field(default_factory=deque)  # time, and batches and samples done by then

    def add(self, now: float, samples: float) -> None:
        """Record a completed batch."""
        self.done += 1
        self.done_samples += samples
        self.recent.append((now, self.done, self.done_samples))
        while len(self.recent) > 2 and now - self.recent[1][0] >= RATE_OVER:
            self.recent.popleft()

    def fraction(self) -> float | None:
        """The completed fraction, if known."""
        return min(self.done / self.steps, 1.0) if self.steps else None

    def is_cut_short(self) -> bool:
        """Whether it ended before all batches."""
        return self.steps is not None and self.seen < self.steps

    def rate(self) -> float:
        """The recent number of samples per second."""
        return self._lately()[1]

    def left(self, others: int = 0) -> float | None:
        """The estimated seconds until it and `others` equally long ones after it are over, or None if unknown.

        It is unknown after the first batch, which often includes initialization.
        """
        if not self.steps or len(self.recent) < 2:
            return None
        return max(self.steps * (1 + others) - self.done, 0) / self._lately()[0]

    def _lately(self) -> tuple[float, float]:
        """The recent batches and samples per second.

        The first batch, which often is slow, counts only while it is alone.
        """
        first = self.recent[0] if len(self.recent) > 1 else (self.started, 0, 0.0)
        seconds, batches, samples = (b - a for a, b in zip(first, self.recent[-1], strict=True))
        return batches / max(seconds, 1e-9), samples / max(seconds, 1e-9)


class Loops:
    """The nested loops that are running.

    A loop over a loader counts batches once a Trainer has stepped in it, so evaluation loops do not count. A batch
    counts once, even if several Trainers step with it or its gradients are accumulated for a later step. Steps outside
    of any loader are counted themselves.
    """

    def __init__(self, clock: Callable[[], float], workers: int = 1):
        self._clock, self._workers = clock, workers
        self.running = [Loop(clock())]
        self.trained = 0.0  # samples so far
        self._reduced = -1.0  # total samples of all workers in the step of the current batch, if known
        self._next: dict[int, tuple[int | None, int]] = {}  # by loader ID: the next pass, and its epoch

    def name(self, loader: Any, number: int, told: int | None = None, **_: Any) -> None:
        """Set the epoch number of the next pass over a loader, if that is pass `told`."""
        self._next[id(loader)] = (told, number)

    def begin(self, loader: Any, number: int, steps: int | None, epochs: int | None = None, **_: Any) -> None:
        """Start a loop over a loader."""
        told, epoch = self._next.get(id(loader), (number, number))
        epoch = epoch if told in (None, number) else number
        self.running.append(Loop(self._clock(), loader, epoch, number, steps, epochs))

    def end(self, loader: Any, **_: Any) -> Loop | None:
        """End a loop over a loader and return it."""
        loop = self._of(loader)
        if loop is not None:
            self.running.remove(loop)
            assert loop.told is not None and loop.number is not None
            self.name(loader, loop.number + loop.trains, loop.told + 1)
        return loop

    def batch(self, loader: Any, batch: Any, **_: Any) -> Loop | None:
        """Record that the program is done with a batch. Return the loop if it counts."""
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
        """Record that gradients of `samples` samples were summed over the workers; negative if unknown."""
        self._reduced = samples

    def step(self, samples: float, alone: bool = False, **_: Any) -> Loop | None:
        """Record a step of a Trainer. Return the loop if it counts steps."""
        loop = self.running[-1]
        loop.trains, loop.alone = True, alone
        return self._add(loop, samples if alone else samples * self._workers) if loop.loader is None else None

    def _add(self, loop: Loop, samples: float) -> Loop:
        loop.add(self._clock(), samples)
        self.trained += samples
        return loop

    def _of(self, loader: Any) -> Loop | None:
        return next((loop for loop in self.running[:0:-1] if loop.loader is loader), None)
