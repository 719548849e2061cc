"""Emit the progress events of training with a Module: the same events as those of DataLoader and Trainer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..events import emit, heard
from ..gluon.data.place import Batch


@dataclass
class Fit:
    """A call of `fit`. Listeners of the event `fit`, such as a checkpoint, may change where it starts."""

    module: Any
    data: Any
    epoch: int  # the first
    epochs: int  # the end of the range of epoch numbers
    resets: bool = True  # whether it resets the data after the callbacks of an epoch
    batches: int = 0  # those of the first epoch that were trained before

    def __post_init__(self) -> None:
        emit("fit", run=self)

    def begin(self, number: int) -> EpochEvents:
        """Return the events of an epoch."""
        return EpochEvents(self, number, self.batches if number == self.epoch else 0)


class EpochEvents:
    """One epoch over an iterator.

    `with run.begin(number) as epoch:`, then `epoch.trained()` after each step and `epoch.done(batch)` after each batch.
    """

    def __init__(self, run: Fit, number: int, batches: int):
        self._run, self._loader, self._number = run, run.data, number
        self._steps = _steps(run.data)
        self.batches = batches  # those that were trained

    def __enter__(self) -> EpochEvents:
        fields = {"number": self._number, "steps": self._steps, "samples": None, "epochs": self._run.epochs}
        emit("epoch", loader=self._loader, **fields)
        return self

    def trained(self) -> None:
        """Report that a batch is trained, before the next one is read."""
        self.batches += 1
        emit("trained", run=self._run, number=self._number, batches=self.batches)

    def done(self, batch: Any, metric: Any) -> None:
        """Report that a batch is done. The event contains the metric of the whole epoch, even if callbacks reset it."""
        if heard("metrics"):
            emit("metrics", values=dict(metric.get_global_name_value()))
        if heard("batch"):
            here = Batch(self._number, self.batches - 1, self._steps, samples_of(batch), None)
            emit("batch", loader=self._loader, batch=here)

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
