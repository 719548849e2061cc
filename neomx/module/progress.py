"""Emit the progress events of training with a Module: the same events as those of DataLoader and Trainer."""

from __future__ import annotations

from typing import Any

from ..events import emit, heard
from ..gluon.data.place import Batch


class EpochEvents:
    """One epoch over an iterator: `with EpochEvents(...) as epoch:`, and `epoch.done(batch)` after each batch."""

    def __init__(self, loader: Any, number: int, epochs: int):
        """`epochs` is the end of the range of epoch numbers."""
        self._loader, self._number, self._epochs, self._step = loader, number, epochs, 0
        self._steps = _steps(loader)

    def __enter__(self) -> EpochEvents:
        fields = {"number": self._number, "steps": self._steps, "samples": None, "epochs": self._epochs}
        emit("epoch", loader=self._loader, **fields)
        return self

    def done(self, batch: Any, metric: Any) -> None:
        """Report that a batch is done. The event contains the metric of the whole epoch, even if callbacks reset it."""
        if heard("metrics"):
            emit("metrics", values=dict(metric.get_global_name_value()))
        if heard("batch"):
            here = Batch(self._number, self._step, self._steps, samples_of(batch), None)
            emit("batch", loader=self._loader, batch=here)
        self._step += 1

    def __exit__(self, *_: Any) -> None:
        emit("epoch_end", loader=self._loader, number=self._number)


def samples_of(batch: Any) -> int | None:
    """Return the number of samples in a batch, without padding, or None if unknown."""
    batches = batch if isinstance(batch, list) else [batch]
    if not all(getattr(each, "data", None) for each in batches):
        return None
    return sum(each.data[0].shape[0] - (getattr(each, "pad", None) or 0) for each in batches)


def _steps(loader: Any) -> int | None:
    """Return the number of batches of an iterator per epoch, or None if unknown."""
    samples, size = getattr(loader, "num_data", None), getattr(loader, "batch_size", None)
    if not isinstance(samples, int) or not size:
        return None
    return -(-samples // size) if getattr(loader, "last_batch_handle", "pad") == "pad" else samples // size
