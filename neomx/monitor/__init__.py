"""What the user sees of a training: a progress bar, TensorBoard's files, and `mx.mon.Monitor`, which prints arrays.

They learn all they show from events (`neomx.events`), so any other program can show them elsewhere:

=============  ==========================================================  ====================================
event          fields                                                      emitted by
=============  ==========================================================  ====================================
`epoch`        loader, number (from 0), steps, samples over all workers    a DataLoader that is iterated; steps
               (None where they are unknown)                               counts the longest worker's batches
`batch`        loader, batch (gluon.data.place.Batch)                      the same, when the program is done with it
`epoch_end`    loader, number                                              the same, at its end or a `break`
`forward`      seconds                                                     `autograd.record()`, at the block's end
`backward`     seconds                                                     `autograd.backward`
`reduce`       waiting (for all workers to come), seconds (with it),       `Trainer.step`, when gradients are
               samples (of all, -1 if unknown)                             summed over workers
`step`         samples (the batch_size it was given), seconds, trainer     `Trainer.step` and `update`, at their ends
`metrics`      values: {name: number or array}                             `mx.monitor.report`
=============  ==========================================================  ====================================
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
from typing import Any

from ..comm.world import discover
from ..events import emit, heard
from .arrays import Monitor
from .console import Progress
from .tensorboard import TensorBoard

__all__ = ["Monitor", "Progress", "TensorBoard", "progress", "report", "start_from_environment"]


def report(*metrics: Any, **values: Any) -> None:
    """Show numbers, or the means of arrays, wherever training is watched: `report(metric, loss=loss)`.

    `metrics` are EvalMetrics. The numbers are this worker's. While nobody watches, nothing is computed.
    """
    if not heard("metrics"):
        return
    for metric in metrics:
        values.update(metric.get_name_value())
    emit("metrics", values={name: _detached(name, value) for name, value in values.items()})


def _detached(name: str, value: Any) -> Any:
    """The value without the graph that it was computed by, which would stay in memory with it."""
    if hasattr(value, "detach"):
        return value.detach()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"report shows numbers and arrays, received {name}={value!r:.80}") from None


_shown: Progress | None = None


def progress(epochs: int | None = None, **options: Any) -> Progress:
    """Show a bar, or lines where there is no terminal, on worker 0, instead of the one shown before.

    Knowing the number of `epochs` it says how long the whole training will take. Options are those of `Progress`.
    """
    global _shown
    if _shown is not None:
        _shown.close()
    world = discover()
    options.setdefault("workers", world.size)
    if world.rank != 0:
        options["stream"] = None
    _shown = _kept(Progress(epochs=epochs, **options))
    return _shown


def start_from_environment() -> None:
    """Start what a launcher asked for: NEOMX_PROGRESS=1 shows a bar, NEOMX_TENSORBOARD names a directory."""
    bar, directory = os.environ.get("NEOMX_PROGRESS", "") not in ("", "0"), os.environ.get("NEOMX_TENSORBOARD")
    if not bar and not directory or multiprocessing.parent_process():  # which a loader's process has
        return
    world = discover()
    if world.role != "worker":
        return
    if bar and world.rank == 0:
        progress()
    if directory:
        _kept(TensorBoard(directory, max(world.rank, 0)))


def _kept(sink: Any) -> Any:
    atexit.register(sink.close)
    return sink
