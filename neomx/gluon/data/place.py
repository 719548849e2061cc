"""The program's position in its data: the current batch of a loader and its number of samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence, Sized
from typing import Any, NamedTuple

from ...events import emit
from ...ops.random import new_seed
from ...process import Batch, state


def current_batch() -> Batch | None:
    """Return the batch that a DataLoader yielded last, or None before the first batch and after the last."""
    return state.batch


Position = dict[str, Any]
"""A position in the data of a loader, as plain JSON values. Loaders write it and read it (`DataLoader.state`)."""


class Seeds(NamedTuple):
    """What the random numbers of the samples in a batch depend on."""

    base: tuple[int, ...]  # of the pass
    start: int | None = None  # the position of the first sample in the pass; None: samples are known by their index

    def keyed(self, indices: Any) -> Iterator[tuple[tuple[int, ...], Any]]:
        """Yield (key, index) for each index of the batch."""
        for position, index in enumerate(indices):
            yield (*self.base, int(index) if self.start is None else self.start + position), index


class Pass(Iterator[Any]):
    """One pass over lists of indices and the batches created from them, which may be created ahead of time."""

    is_dealt = False  # whether its samples are those of all workers, so that `deal_again` can divide them again

    def __init__(self, lists: Iterator[Any], number: int, steps: int | None = None, samples: int | None = None):
        self.number, self.steps, self.samples = number, steps, samples
        self.delivered = 0  # batches that the program has received since the lists began
        self.deals = 0  # how often the lists were replaced; batches of earlier ones must not reach the program
        self.ended = False
        self._lists = lists
        self._sizes: deque[int] = deque()  # of the batches in preparation
        self._seen = 0
        self._seed: int | None = None

    def __next__(self) -> Any:
        indices = next(self._lists)
        if not isinstance(indices, Sized):
            indices = list(indices)
        self._sizes.append(len(indices))
        self._seen += len(indices)
        return indices

    def seeds(self, indices: Any) -> Seeds:
        """Return the seeds of the batch that `__next__` returned last."""
        if self._seed is None:
            self._seed = new_seed()
        return Seeds((self._seed,), self._seen - len(indices))

    def has_ended(self) -> bool:
        """Whether there are no batches, in a pass that begins at a saved position."""
        return False

    def follow(self, batches: Callable[[], Iterator[Any]], loader: Any, reports: bool = True) -> Iterator[Any]:
        """Yield the batches and keep `current_batch` up to date.

        `batches` returns those that have not been delivered yet. Without `reports`, progress is reported by another
        object that owns the loop, such as a Module.
        """
        before = state.batch
        self._begin()
        if reports:
            emit("epoch", loader=loader, number=self.number, steps=self.steps, samples=self.samples)
        emit("pass_begin", loader=loader)
        try:
            while True:
                for batch in batches():
                    self.delivered += 1
                    state.batch = here = self._at(self.delivered - 1, self._sizes.popleft())
                    emit("batch_begin", loader=loader, batch=here)
                    yield batch
                    if reports:
                        emit("batch", loader=loader, batch=here)
                    emit("batch_end", loader=loader)
                if not self._finish():
                    break
        finally:
            self.ended = True
            state.batch = before
            if reports:
                emit("epoch_end", loader=loader, number=self.number)
            emit("pass_end", loader=loader)

    def position(self) -> Position:
        """Return the position after the batches that the program has received. Prefetched batches do not count."""
        raise NotImplementedError

    @property
    def index(self) -> int:
        """The number of samples of all workers up to the last batch that the program has received; -1 if unknown."""
        return -1

    def commit(self, index: int) -> None:
        """Note that the first `index` samples of all workers are trained."""

    def deal_again(self) -> None:
        """Divide what is not trained yet among the current workers."""

    def deal_from(self, index: int) -> None:
        """Divide what follows the first `index` samples of all workers among the current workers."""

    def inherit(self, members: Sequence[Sequence[int]], me: int, anew: bool = False) -> None:
        """Process a part of what lost workers should have processed, in a pass in which nothing is trained.

        `members` are the numbers of the workers when the pass began and after each change since, and `me` is this
        worker. With `anew`, this worker has not processed anything yet.
        """

    def _begin(self) -> None:
        """Called when the program requests the first batch."""

    def _at(self, step: int, samples: int | None) -> Batch:
        """Called when the program receives a batch. Return its description."""
        return Batch(self.number, step, self.steps, samples, None)

    def _finish(self) -> bool:
        """Called after the last batch. Return whether there are more batches now."""
        return False
