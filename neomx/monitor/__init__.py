"""Displays of training progress: a progress bar, TensorBoard files, and `mx.mon.Monitor`, which prints arrays.

The progress bar and TensorBoard are sinks, which get their data from events (`neomx.events`). To add a sink, derive a
class from `Sink` and register it with `register_sink`. The events:

=============  ==========================================================  ====================================
event          fields                                                      emitted by
=============  ==========================================================  ====================================
`fit_epoch`    loader, number (from 0)                                     `Estimator.fit`, before each epoch: the
                                                                           epoch number of the next pass
`pass`         loader                                                      a DataLoader, before it starts a pass
`epoch`        loader, number (from 0), steps, samples over all workers    a DataLoader that is iterated; steps is
               (None if unknown), total epochs if known                    the maximum over workers
`batch_begin`  loader, batch (gluon.data.place.Batch)                      a DataLoader, before it yields the batch
`pass_begin`   loader                                                      a DataLoader, as `epoch`, also if another
                                                                           object reports the progress: a Module
`batch_end`    loader                                                      the same, as `batch`
`pass_end`     loader                                                      the same, as `epoch_end`
`batch`        loader, batch                                               a DataLoader, when the batch is done
`epoch_end`    loader, number                                              a DataLoader, at its end or a `break`
`forward`      seconds                                                     `autograd.record()`, at the block's end
`backward`     seconds                                                     `autograd.backward`
`reduce`       waiting (for all workers), seconds (including waiting),     `Trainer.step`, when gradients are
               samples (of all workers, -1 if unknown)                     summed over workers
`trainer`      trainer                                                     a Trainer, when it is created, and
                                                                           `Module.init_optimizer`
`fit`          run (module.progress.Fit)                                   `Module.fit` and `FeedForward.fit`, before
                                                                           the first epoch
`trained`      run, number (of the epoch), batches (trained so far)        the same, after a step, before the next
                                                                           batch is read
`layout`       trainer                                                     `train_step`, after it has applied a layout
                                                                           in its first step
`step`         samples (the batch_size argument), seconds, trainer         `Trainer.step` and `update`, at their ends
`generation`   number, members, lost, joined, seconds                      an elastic job, when its workers have
                                                                           changed
`layout_begin` trainer                                                     `train_step`, before it applies a layout
`metrics`      values: {name: number or array}                             `mx.monitor.report`, `Module.fit` and
                                                                           `Estimator.fit` after each batch
`hvd`          call, waiting (for all workers), seconds (including it)     each collective call of `neomx.horovod`
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
    from .arrays import Monitor  # it needs torch, which launchers do not import

    globals()[name] = Monitor
    return Monitor


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def report(*metrics: Any, **values: Any) -> None:
    """Report numbers, or the means of arrays, to all sinks: `report(metric, loss=loss)`.

    `metrics` are EvalMetrics. The values are those of this worker. Without a listening sink nothing is computed.
    """
    if not heard("metrics"):
        return
    for metric in metrics:
        values.update(metric.get_name_value())
    emit("metrics", values={name: _detached(name, value) for name, value in values.items()})


def _detached(name: str, value: Any) -> Any:
    """Detach the value from its graph, which it would keep in memory."""
    if hasattr(value, "detach"):
        return value.detach()
    try:
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"report expects numbers and arrays, received {name}={value!r:.80}") from None


def progress(epochs: int | None = None, **options: Any) -> Progress:
    """Show a progress bar on worker 0, or lines without a terminal. Replaces the current one.

    If the number of `epochs` is known, it shows the remaining time of the whole training. Options are those of
    `Progress`.
    """
    world = discover()
    options.setdefault("workers", world.size)
    if world.rank != 0:
        options["stream"] = None
    return process.start("sink progress", lambda: Progress(epochs=epochs, **options))
