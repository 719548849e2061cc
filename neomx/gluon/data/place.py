"""Where a program is in its data: which batch a loader gave it last, and how many samples that has."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sized
from typing import Any

from ...events import emit
from ...process import Batch, state


def current_batch() -> Batch | None:
    """The batch that a DataLoader gave last; None before its first one, and when its epoch is over."""
    return state.batch


class Pass(Iterator[Any]):
    """One pass over lists of indices, and then over the batches made of them, which may come much later."""

    def __init__(self, lists: Iterator[Any], number: int, steps: int | None = None, samples: int | None = None):
        self.number, self.steps, self.samples = number, steps, samples
        self._lists = lists
        self._sizes: deque[int | None] = deque()  # of the batches that are being made

    def __next__(self) -> Any:
        indices = next(self._lists)
        self._sizes.append(len(indices) if isinstance(indices, Sized) else None)
        return indices

    def follow(self, batches: Iterator[Any], loader: Any) -> Iterator[Any]:
        """Hand on the batches; meanwhile `current_batch` tells which one the program has."""
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
        """The program asks for the first batch."""

    def _at(self, step: int, samples: int | None) -> Batch:
        """The program is given a batch."""
        return Batch(self.number, step, self.steps, samples, None)

    def _finish(self) -> None:
        """The program had the last batch."""
