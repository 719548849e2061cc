"""The events of a training, each a class to inherit from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .estimator import Estimator


class EventHandler:
    """The base of all handlers. Those with a lower `priority` (0 if they have none) are called first."""


class TrainBegin(EventHandler):
    """Called as `fit` begins."""

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """To override."""


class TrainEnd(EventHandler):
    """Called as `fit` ends."""

    def train_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """To override."""


class EpochBegin(EventHandler):
    """Called before each pass over the data."""

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """To override."""


class EpochEnd(EventHandler):
    """Called after each pass over the data; a true result ends the training."""

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """To override."""


class BatchBegin(EventHandler):
    """Called before each batch, with `batch`."""

    def batch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """To override."""


class BatchEnd(EventHandler):
    """Called after each batch, with `batch`, `pred`, `label` and `loss`; a true result ends the epoch."""

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> Any:
        """To override."""


def _check_event_handlers(handlers: Any) -> list[EventHandler]:
    """One handler, or several, as a new list."""
    if isinstance(handlers, EventHandler):
        return [handlers]
    listed = list(handlers or []) if isinstance(handlers, (list, tuple, type(None))) else [handlers]
    if not all(isinstance(handler, EventHandler) for handler in listed):
        raise ValueError(f"handlers must be an EventHandler or a list of EventHandler, got: {handlers}")
    return listed
