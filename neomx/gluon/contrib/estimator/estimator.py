"""Estimator: a training loop for a network, a loss and a Trainer, which calls event handlers."""

from __future__ import annotations

import copy
import itertools
import logging
import sys
import warnings
from typing import Any

from ....base import numeric_types
from ....context import Context, cpu, gpu, num_gpus
from ....events import emit, heard
from ....metric import EvalMetric, Loss
from ... import loss as gluon_loss
from ...data import DataLoader
from ...trainer import Trainer
from .batch_processor import BatchProcessor, Shards
from .event_handler import (
    BatchBegin,
    BatchEnd,
    EpochBegin,
    EpochEnd,
    EventHandler,
    GradientUpdateHandler,
    LoggingHandler,
    MetricHandler,
    StoppingHandler,
    TrainBegin,
    TrainEnd,
    ValidationHandler,
    _check_event_handlers,
)
from .progress import progress_line
from .utils import _check_handler_metric_ref, _check_metrics, _suggest_metric_for_loss

__all__ = ["Estimator"]

EVENTS = {
    "train_begin": TrainBegin,
    "epoch_begin": EpochBegin,
    "batch_begin": BatchBegin,
    "batch_end": BatchEnd,
    "epoch_end": EpochEnd,
    "train_end": TrainEnd,
}


class Estimator:
    """Trains `net` with `fit` and evaluates it with `evaluate`. Event handlers customize both.

    Metrics are renamed "training ..." and "validation ...". The default `trainer` is SGD with learning rate 0.001. The
    default `context` is the first GPU, or the CPU if there is none.
    """

    logger: logging.Logger = None  # type: ignore[assignment]
    max_epoch: int | None
    max_batch: int | None
    batch_axis: int

    def __init__(
        self,
        net: Any,
        loss: gluon_loss.Loss,
        train_metrics: Any = None,
        val_metrics: Any = None,
        initializer: Any = None,
        trainer: Trainer | None = None,
        context: Any = None,
        val_net: Any = None,
        val_loss: gluon_loss.Loss | None = None,
        batch_processor: Any = None,
    ):
        self.net = net
        self.loss = self._check_loss(loss)
        self._train_metrics = _check_metrics(train_metrics)
        self._val_metrics = _check_metrics(val_metrics)
        self._add_default_training_metrics()
        self._add_validation_metrics()
        self.val_loss = self.loss if val_loss is None else self._check_loss(val_loss)
        self.val_net = net if val_net is None else val_net
        self.logger = logging.Logger(name="Estimator", level=logging.INFO)
        self.logger.addHandler(logging.StreamHandler(sys.stdout))
        self.context = self._check_context(context)
        self.batch_processor = self._check_batch_processor(batch_processor)
        self._initialize(initializer)
        self.trainer = self._check_trainer(trainer)

    # ---- components ----

    def _check_loss(self, loss: Any) -> gluon_loss.Loss:
        if not isinstance(loss, gluon_loss.Loss):
            raise ValueError(f"loss must be a Loss, refer to gluon.loss.Loss: {loss!r}")
        return loss

    def _check_context(self, context: Any) -> list[Context]:
        if context is None:
            return [gpu(0)] if num_gpus() > 0 else [cpu()]
        listed = [context] if isinstance(context, Context) else context
        if not isinstance(listed, list) or not listed or not all(isinstance(ctx, Context) for ctx in listed):
            raise ValueError(
                "context must be a Context or a list of Context, for example mx.cpu() or [mx.gpu(0), mx.gpu(1)], refer "
                f"to mx.Context: {context!r}"
            )
        for ctx in listed:
            if ctx.device_type == "gpu" and ctx.device_id >= num_gpus():
                known = ", ".join(["mx.cpu()", *(f"mx.gpu({i})" for i in range(num_gpus()))])
                raise AssertionError(f"{ctx} is not available, please make sure your context is in one of: {known}")
        return listed

    def _check_batch_processor(self, batch_processor: Any) -> Any:
        if batch_processor is None:
            return BatchProcessor()
        if not all(callable(getattr(batch_processor, name, None)) for name in ("fit_batch", "evaluate_batch")):
            raise ValueError(
                "Customized Batch Processor must contain fit_batch() and evaluate_batch() methods, received "
                f"{batch_processor!r}"
            )
        return batch_processor

    def _initialize(self, initializer: Any) -> None:
        """Initialize uninitialized parameters and keep the others."""
        if not self._is_initialized():
            self.net.initialize(init=initializer, ctx=self.context)
        elif initializer:
            warnings.warn(
                "Network already fully initialized, skipping initialization. You don't need to pass initializer if you "
                "already initialized your net. You can use net.initialize(init=your_initializer, force_reinit=True) to "
                "force re-initialize.",
                stacklevel=3,
            )

    def _is_initialized(self) -> bool:
        try:
            for param in self.net.collect_params().values():
                param.list_ctx()
        except RuntimeError:
            return False
        return True

    def _check_trainer(self, trainer: Any) -> Trainer:
        if trainer is None:
            warnings.warn("No trainer specified, default SGD optimizer with learning rate 0.001 is used.", stacklevel=3)
            return Trainer(self.net.collect_params(), "sgd", {"learning_rate": 0.001})
        if not isinstance(trainer, Trainer):
            raise ValueError(f"Trainer must be a Gluon Trainer instance, refer to gluon.Trainer: {trainer!r}")
        return trainer

    def _add_default_training_metrics(self) -> None:
        if not self._train_metrics:
            suggested = _suggest_metric_for_loss(self.loss)
            self._train_metrics = [suggested] if suggested else []
            self._train_metrics.append(Loss(self.loss.name.rstrip("0123456789")))
        for metric in self._train_metrics:
            metric.name = f"training {metric.name}"

    def _add_validation_metrics(self) -> None:
        if not self._val_metrics:
            self._val_metrics = copy.deepcopy(self._train_metrics)
        for metric in self._val_metrics:
            if "training" in metric.name:
                metric.name = metric.name.replace("training", "validation")
            else:
                metric.name = f"validation {metric.name}"

    @property
    def train_metrics(self) -> list[EvalMetric]:
        """The metrics of the training data."""
        return self._train_metrics

    @property
    def val_metrics(self) -> list[EvalMetric]:
        """The metrics of the validation data."""
        return self._val_metrics

    def _get_data_and_label(self, batch: Any, ctx: list[Context], batch_axis: int = 0) -> tuple[Shards, Shards]:
        return BatchProcessor()._get_data_and_label(batch, ctx, batch_axis)

    # ---- training and evaluation ----

    def evaluate(self, val_data: Any, batch_axis: int = 0, event_handlers: Any = None) -> None:
        """Run over `val_data` once in inference mode. The results are in `val_metrics`."""
        _check_loader(val_data)
        handlers = self._prepare_default_validation_handlers(event_handlers)
        called = self._called(handlers + progress_line("Validation", val_data))
        self._tell(called, "epoch_begin")
        for batch in val_data:
            self._tell(called, "batch_begin", batch=batch)
            _, label, pred, loss = self.batch_processor.evaluate_batch(self, batch, batch_axis)
            self._tell(called, "batch_end", batch=batch, pred=pred, label=label, loss=loss)
        self._tell(called, "epoch_end")

    def fit(
        self,
        train_data: Any,
        val_data: Any = None,
        epochs: int | None = None,
        event_handlers: Any = None,
        batches: int | None = None,
        batch_axis: int = 0,
    ) -> None:
        """Train for a number of epochs or a number of batches. Missing default handlers are added.

        The defaults are StoppingHandler, GradientUpdateHandler, MetricHandler, LoggingHandler and, with `val_data`,
        ValidationHandler.
        """
        _check_loader(train_data)
        if bool(epochs) == bool(batches):
            raise ValueError(
                "Fit only support exactly one type of iteration, train by number of epochs or number of batches. "
                f"Please specify one and only one of: epochs or batches, received epochs={epochs}, batches={batches}."
            )
        self.max_epoch, self.max_batch = _count("epochs", epochs), _count("batches", batches)
        self.batch_axis = batch_axis
        handlers = self._prepare_default_handlers(val_data, event_handlers)
        called = self._called(handlers + progress_line("Training", train_data))
        self._tell(called, "train_begin")
        for number in itertools.count():
            emit("fit_epoch", loader=train_data, number=number)
            if self._fit_epoch(called, train_data, batch_axis):
                break
        self._tell(called, "train_end")

    def _fit_epoch(self, called: dict[str, list[Any]], train_data: Any, batch_axis: int) -> bool:
        """Train for one epoch. Return whether to stop."""
        batch = None
        self._tell(called, "epoch_begin")
        for batch in train_data:
            self._tell(called, "batch_begin", batch=batch)
            _, label, pred, loss = self.batch_processor.fit_batch(self, batch, batch_axis)
            stops = self._tell(called, "batch_end", batch=batch, pred=pred, label=label, loss=loss)
            if heard("metrics"):
                emit("metrics", values=dict(pair for metric in self.train_metrics for pair in metric.get_name_value()))
            if stops:
                break
        if batch is None:
            raise ValueError("train_data has no batches: its dataset is empty, or smaller than one batch and discarded")
        return self._tell(called, "epoch_end")

    def _tell(self, called: dict[str, list[Any]], event: str, **kwargs: Any) -> bool:
        """Call all handlers of an event. Return whether any of them requested to stop."""
        return any([getattr(handler, event)(self, **kwargs) for handler in called[event]])

    # ---- handlers ----

    def _prepare_default_handlers(self, val_data: Any, event_handlers: Any) -> list[EventHandler]:
        given = _check_event_handlers(event_handlers)
        defaults: list[EventHandler] = [
            StoppingHandler(self.max_epoch, self.max_batch),
            GradientUpdateHandler(),
            MetricHandler(self.train_metrics),
        ]
        if val_data is not None:
            _check_loader(val_data)
            defaults.append(ValidationHandler(val_data, self.evaluate))
        defaults.append(LoggingHandler(metrics=self.train_metrics))
        return _completed(given, defaults, self.train_metrics + self.val_metrics)

    def _prepare_default_validation_handlers(self, event_handlers: Any) -> list[EventHandler]:
        given = _check_event_handlers(event_handlers)
        defaults: list[EventHandler] = [MetricHandler(self.val_metrics), LoggingHandler(metrics=self.val_metrics)]
        return _completed(given, defaults, self.val_metrics)

    def _categorize_handlers(self, event_handlers: list[Any]) -> tuple[list[Any], ...]:
        """Return the handlers of each of the six events, sorted by ascending priority."""
        ordered = _by_priority(event_handlers)
        return tuple([h for h in ordered if isinstance(h, kind)] for kind in EVENTS.values())

    def _called(self, event_handlers: list[Any]) -> dict[str, list[Any]]:
        """Return the handlers by event."""
        return dict(zip(EVENTS, self._categorize_handlers(event_handlers), strict=True))


def _by_priority(handlers: list[Any]) -> list[Any]:
    return sorted(handlers, key=lambda handler: getattr(handler, "priority", 0))


def _completed(given: list[EventHandler], defaults: list[EventHandler], known: list[EvalMetric]) -> list[EventHandler]:
    """Add default handlers for the types that are missing in `given`, and sort all by priority."""
    handlers = given + [own for own in defaults if not any(isinstance(h, type(own)) for h in given)]
    for handler in handlers:
        _check_handler_metric_ref(handler, known)
    return _by_priority(handlers)


def _check_loader(data: Any) -> None:
    if not isinstance(data, DataLoader):
        raise ValueError(
            "Estimator only support input as Gluon DataLoader. Alternatively, you can transform your DataIter or any "
            f"NDArray into Gluon DataLoader. Refer to gluon.data.DataLoader. Received {type(data).__name__}"
        )


def _count(name: str, value: Any) -> int | None:
    if value is not None and not (isinstance(value, numeric_types) and value == int(value) >= 0):
        raise ValueError(f"{name} must be an integer that is not negative, received {value!r}")
    return int(value) if value else None
