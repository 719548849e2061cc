"""The default and the optional event handlers of the Estimator."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ....metric import EvalMetric, Loss
from .checkpoint import CheckpointHandler
from .events import (
    BatchBegin,
    BatchEnd,
    EpochBegin,
    EpochEnd,
    EventHandler,
    TrainBegin,
    TrainEnd,
    _check_event_handlers,
)
from .improvement import operator_for, warn_of_nan, worst
from .utils import _check_metrics

if TYPE_CHECKING:
    from .estimator import Estimator

__all__ = [
    "BatchBegin",
    "BatchEnd",
    "CheckpointHandler",
    "EarlyStoppingHandler",
    "EpochBegin",
    "EpochEnd",
    "EventHandler",
    "GradientUpdateHandler",
    "LoggingHandler",
    "MetricHandler",
    "StoppingHandler",
    "TrainBegin",
    "TrainEnd",
    "ValidationHandler",
    "_check_event_handlers",
]


class StoppingHandler(TrainBegin, BatchEnd, EpochEnd):
    """Ends the training after the number of epochs or batches that `fit` was called with."""

    def __init__(self, max_epoch: int | None = None, max_batch: int | None = None):
        self.max_epoch = max_epoch
        self.max_batch = max_batch
        self.current_batch = self.current_epoch = 0
        self.stop_training = False

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Copy the number of epochs and batches from the estimator."""
        self.max_epoch, self.max_batch = estimator.max_epoch, estimator.max_batch
        self.current_batch = self.current_epoch = 0
        self.stop_training = False

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool:
        """Return True after the last batch."""
        self.current_batch += 1
        if self.current_batch == self.max_batch:
            self.stop_training = True
        return self.stop_training

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool:
        """Return True after the last epoch."""
        self.current_epoch += 1
        if self.current_epoch == self.max_epoch:
            self.stop_training = True
        return self.stop_training


class MetricHandler(EpochBegin, BatchEnd):
    """Resets metrics when an epoch begins and updates them after each batch: Loss by losses, others by predictions."""

    def __init__(self, metrics: Any, priority: float = -1000):
        self.metrics = _check_metrics(metrics)
        self.priority = priority

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Reset the metrics."""
        for metric in self.metrics:
            metric.reset()

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Update the metrics."""
        for metric in self.metrics:
            if isinstance(metric, Loss):
                metric.update(0, kwargs["loss"])
            else:
                metric.update(kwargs["label"], kwargs["pred"])


class ValidationHandler(TrainBegin, BatchEnd, EpochEnd):
    """Calls `eval_fn(val_data=..., batch_axis=..., event_handlers=...)` every few epochs or batches."""

    def __init__(
        self,
        val_data: Any,
        eval_fn: Callable[..., Any],
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        priority: float = -1000,
        event_handlers: Any = None,
    ):
        self.val_data = val_data
        self.eval_fn = eval_fn
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.current_batch = self.current_epoch = 0
        self.priority = priority
        self.event_handlers = event_handlers

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Reset the counters."""
        self.current_batch = self.current_epoch = 0

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Validate at the end of a period of batches."""
        self.current_batch += 1
        if self.batch_period and self.current_batch % self.batch_period == 0:
            self._validate(estimator)

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Validate at the end of a period of epochs."""
        self.current_epoch += 1
        if self.epoch_period and self.current_epoch % self.epoch_period == 0:
            self._validate(estimator)

    def _validate(self, estimator: Estimator) -> None:
        self.eval_fn(val_data=self.val_data, batch_axis=estimator.batch_axis, event_handlers=self.event_handlers)


class LoggingHandler(TrainBegin, TrainEnd, EpochBegin, EpochEnd, BatchBegin, BatchEnd):
    """Logs the progress of the training: after each epoch, or also every `log_interval` batches."""

    def __init__(self, log_interval: int | str = "epoch", metrics: Any = None, priority: float = np.inf):
        if log_interval != "epoch" and (not isinstance(log_interval, int) or log_interval < 1):
            raise ValueError(f"log_interval must be either an integer above 0 or string 'epoch', got {log_interval!r}")
        self.metrics = _check_metrics(metrics)
        self.batch_index = 0
        self.current_epoch = 0
        self.processed_samples = 0
        self.priority = priority
        self.log_interval = log_interval
        self.log_interval_time = 0.0

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Log the optimizer and the number of epochs or batches."""
        self.train_start = time.time()
        self.batch_index = self.current_epoch = self.processed_samples = 0
        self.log_interval_time = 0.0
        optimizer = type(estimator.trainer.optimizer).__name__
        estimator.logger.info(
            "Training begin: using optimizer %s with current learning rate %.4f ",
            *(optimizer, estimator.trainer.learning_rate),
        )
        if estimator.max_epoch:
            estimator.logger.info("Train for %d epochs.", estimator.max_epoch)
        else:
            estimator.logger.info("Train for %d batches.", estimator.max_batch)

    def train_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Log the total time and the final metrics."""
        seconds = time.time() - self.train_start
        line = f"Train finished using total {int(seconds)}s with {self.current_epoch} epochs. {self._values()}"
        estimator.logger.info("%s", line.rstrip())

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Log the start of an epoch or of a validation."""
        self.epoch_start = time.time()
        if any("training" in metric.name for metric in self.metrics):
            rate = estimator.trainer.learning_rate
            estimator.logger.info("[Epoch %d] Begin, current learning rate: %.4f", self.current_epoch, rate)
        else:
            estimator.logger.info("Validation Begin")

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Log the time and the metrics of the epoch."""
        seconds = time.time() - self.epoch_start
        line = f"[Epoch {self.current_epoch}] Finished in {seconds:.3f}s, {self._values()}"
        estimator.logger.info("%s", line.rstrip(", "))
        self.current_epoch += 1
        self.batch_index = 0

    def batch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Record the start time of the batch."""
        self.batch_start = time.time()

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Log the current metrics at the end of an interval."""
        if isinstance(self.log_interval, int):
            self.log_interval_time += time.time() - self.batch_start
            self.processed_samples += kwargs["batch"][0].shape[0]
            if self.batch_index % self.log_interval == 0:
                where = f"[Epoch {self.current_epoch}][Batch {self.batch_index}][Samples {self.processed_samples}]"
                line = f"{where} time/interval: {self.log_interval_time:.3f}s {self._values()}"
                estimator.logger.info("%s", line.rstrip())
                self.log_interval_time = 0.0
        self.batch_index += 1

    def _values(self) -> str:
        pairs = [pair for metric in self.metrics for pair in metric.get_name_value()]
        return ", ".join(f"{name}: {value:.4f}" for name, value in pairs)


class EarlyStoppingHandler(TrainBegin, EpochEnd, TrainEnd):
    """Ends the training if `monitor` has not improved by `min_delta` for `patience` epochs. NaN is no improvement."""

    def __init__(
        self,
        monitor: EvalMetric,
        min_delta: float = 0,
        patience: int = 0,
        mode: str = "auto",
        baseline: float | None = None,
    ):
        if not isinstance(monitor, EvalMetric):
            raise ValueError(
                "Please provide one of the metric objects from estimator.train_metrics and estimator.val_metrics as "
                f"monitor, received {monitor!r}."
            )
        self.monitor = monitor
        self.baseline = baseline
        self.patience = patience
        self.monitor_op = operator_for(monitor, mode)
        self.min_delta = -min_delta if self.monitor_op is np.less else min_delta
        self._restart()

    def _restart(self) -> None:
        self.wait = self.stopped_epoch = self.current_epoch = 0
        self.stop_training = False
        self.best = worst(self.monitor_op) if self.baseline is None else self.baseline

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Reset the state of earlier trainings."""
        self._restart()

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool:
        """Return True if the training should end."""
        value = self.monitor.get()[1]
        if np.isnan(value):
            self._no_value()
        elif self.monitor_op(value - self.min_delta, self.best):
            self.best = value
            self.wait = 0
        else:
            self._no_improvement()
        self.current_epoch += 1
        return self.stop_training

    def _no_value(self) -> None:
        if self.monitor.num_inst > 0:
            warn_of_nan(self.monitor, self.current_epoch, "EarlyStoppingHandler counts this epoch as no improvement")
            self._no_improvement()
        else:
            warn_of_nan(self.monitor, self.current_epoch, "EarlyStoppingHandler does not count this epoch")

    def _no_improvement(self) -> None:
        self.wait += 1
        if self.wait >= self.patience:
            self.stopped_epoch = self.current_epoch
            self.stop_training = True

    def train_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Log if the training ended early."""
        if self.stop_training:
            estimator.logger.info(
                "[Epoch %d] EarlyStoppingHanlder: early stopping due to %s not improving",
                *(self.stopped_epoch, self.monitor.get()[0]),
            )


class GradientUpdateHandler(BatchEnd):
    """Applies the gradients after each batch, divided by the number of losses. Its low `priority` makes it first."""

    def __init__(self, priority: float = -2000):
        self.priority = priority

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Call `Trainer.step`."""
        loss = kwargs["loss"]
        losses = loss if isinstance(loss, (list, tuple)) else [loss]
        estimator.trainer.step(sum(len(part) for part in losses))
