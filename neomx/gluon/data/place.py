"""The program's position in its data: the current batch of a loader and its number of samples."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sized
from typing import Any

from ...events import emit
from ...process import Batch, state


def current_batch() -> Batch | None:
    """Return the batch that a DataLoader yielded last, or None before the first batch and after the last."""
    return state.batch


class Pass(Iterator[Any]):
    """One pass over lists of indices and the batches created from them, which may be created ahead of time."""

    def __init__(self, lists: Iterator[Any], number: int, steps: int | None = None, samples: int | None = None):
        self.number, self.steps, self.samples = number, steps, samples
        self._lists = lists
        self._sizes: deque[int | None] = deque()  # of the batches in preparation

    def __next__(self) -> Any:
        indices = next(self._lists)
        self._sizes.append(len(indices) if isinstance(indices, Sized) else None)
        return indices

    def follow(self, batches: Iterator[Any], loader: Any) -> Iterator[Any]:
        """Yield the batches and keep `current_batch` up to date."""
        before = state.batch
        self._begin()
        emit("epoch", loader=loader, number=self.number, steps=self.steps, samples=self.samples)
        try:
            for step, batch in enumerate(batches):
                state.batch = here = self._at(step, self._sizes.popleft())
                yield batch
                emit("batch", loader=loader, batch=here)
            self._finish()
        finally:
            state.batch = before
            emit("epoch_end", loader=loader, number=self.number)

    def _begin(self) -> None:
        """Called when the program requests the first batch."""

    def _at(self, step: int, samples: int | None) -> Batch:
        """Called when the program receives a batch. Return its description."""
        return Batch(self.number, step, self.steps, samples, None)

    def _finish(self) -> None:
        """Called after the last batch."""
