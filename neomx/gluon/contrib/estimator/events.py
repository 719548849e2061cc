"""The base classes of event handlers, one for each event of a training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimator import Estimator


class EventHandler:
    """The base of all handlers. Handlers with a lower `priority` (default 0) are called first."""


class TrainBegin(EventHandler):
    """Called when `fit` begins."""

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """Handle the event. Override this method."""


class TrainEnd(EventHandler):
    """Called when `fit` ends."""

    def train_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """Handle the event. Override this method."""


class EpochBegin(EventHandler):
    """Called before each pass over the data."""

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """Handle the event. Override this method."""


class EpochEnd(EventHandler):
    """Called after each pass over the data. A true result ends the training."""

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """Handle the event. Override this method."""


class BatchBegin(EventHandler):
    """Called before each batch, with `batch`."""

    def batch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """Handle the event. Override this method."""


class BatchEnd(EventHandler):
    """Called after each batch, with `batch`, `pred`, `label` and `loss`. A true result ends the epoch."""

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """Handle the event. Override this method."""


def _check_event_handlers(handlers: Any) -> list[EventHandler]:
    """Return one or several handlers as a new list."""
    if isinstance(handlers, EventHandler):
        return [handlers]
    listed = list(handlers or []) if isinstance(handlers, (list, tuple, type(None))) else [handlers]
    if not all(isinstance(handler, EventHandler) for handler in listed):
        raise ValueError(f"handlers must be an EventHandler or a list of EventHandler, got: {handlers}")
    return listed
