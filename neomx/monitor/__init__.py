"""What the user sees of a training: a progress bar, TensorBoard's files, and `mx.mon.Monitor`, which prints arrays.

The bar and TensorBoard are sinks: they learn all they show from events (`neomx.events`). A sink of your own derives
from `Sink` and is registered with `register_sink`. The events:

=============  ==========================================================  ====================================
event          fields                                                      emitted by
=============  ==========================================================  ====================================
`fit_epoch`    loader, number (from 0)                                     `Estimator.fit`, before each epoch: its own
                                                                           number of the next pass over the loader
`epoch`        loader, number (from 0), steps, samples over all workers    a DataLoader that is iterated; steps
               (None where they are unknown), epochs in all if known       counts the longest worker's batches
`batch`        loader, batch (gluon.data.place.Batch)                      the same, when the program is done with it
`epoch_end`    loader, number                                              the same, at its end or a `break`
`forward`      seconds                                                     `autograd.record()`, at the block's end
`backward`     seconds                                                     `autograd.backward`
`reduce`       waiting (for all workers to come), seconds (with it),       `Trainer.step`, when gradients are
               samples (of all, -1 if unknown)                             summed over workers
`step`         samples (the batch_size it was given), seconds, trainer     `Trainer.step` and `update`, at their ends
`metrics`      values: {name: number or array}                             `mx.monitor.report`, `Module.fit` and
                                                                           `Estimator.fit` after each batch
`hvd`          call, waiting (for all workers to come), seconds (with it)  each collective call of `neomx.horovod`
=============  ==========================================================  ====================================
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import process
from ..comm.world import discover
from ..events import emit, heard
from .console import Progress
from .sinks import Sink, register_sink, start, start_from_environment
from .tensorboard import TensorBoard

if TYPE_CHECKING:
    from .arrays import Monitor

__all__ = [
    "Monitor",
    "Progress",
    "Sink",
    "TensorBoard",
    "progress",
    "register_sink",
    "report",
    "start",
    "start_from_environment",
]


def __getattr__(name: str) -> object:
    if name != "Monitor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .arrays import Monitor  # it needs torch, which the launcher does without

    globals()[name] = Monitor
    return Monitor


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


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


def progress(epochs: int | None = None, **options: Any) -> Progress:
    """Show a bar, or lines where there is no terminal, on worker 0, instead of the one shown before.

    Knowing the number of `epochs` it says how long the whole training will take. Options are those of `Progress`.
    """
    world = discover()
    options.setdefault("workers", world.size)
    if world.rank != 0:
        options["stream"] = None
    return process.start("sink progress", lambda: Progress(epochs=epochs, **options))
