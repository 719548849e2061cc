"""Early stopping on which all workers agree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..comm.session import session
from ..gluon.contrib.estimator import EarlyStoppingHandler
from ..metric import CompositeEvalMetric, EvalMetric
from ..metric.evalmetric import Averaged

if TYPE_CHECKING:
    from ..gluon.contrib.estimator import Estimator


class EarlyStopping(EarlyStoppingHandler):
    """Ends the training on all workers if a metric has not improved by `min_delta` for `patience` epochs.

    Each worker updates `monitor` with its part of the validation data. The metric is that of all parts: sums and
    counts are added over the workers, as for Accuracy or Loss. `mode` is 'min' or 'max'. In your own loop, call
    `should_stop` after each epoch, on all workers; for an Estimator, pass it as an event handler. `best` is the best
    value, and `improved` whether the last epoch reached it.
    """

    def __init__(
        self,
        monitor: EvalMetric,
        patience: int,
        mode: str,
        min_delta: float = 0,
        baseline: float | None = None,
    ):
        if mode not in ("min", "max"):
            raise ValueError(f"mode must be 'min' for a loss or 'max' for an accuracy, received {mode!r}")
        if not isinstance(patience, int) or isinstance(patience, bool) or patience < 1:
            raise ValueError(f"patience must be a positive number of epochs, received {patience!r}")
        if not min_delta >= 0:
            raise ValueError(f"min_delta must not be negative, received {min_delta!r}")
        if isinstance(monitor, Averaged | CompositeEvalMetric):
            raise ValueError(
                f"{type(monitor).__name__} is not a mean over samples, so workers cannot combine their values. Monitor "
                "a metric such as Accuracy or Loss"
            )
        super().__init__(monitor, min_delta, patience, mode, baseline)
        self.improved = False

    def should_stop(self) -> bool:
        """Compare the metric of all workers with the best one. Return the same decision on all workers."""
        monitor, best = self.monitor, self.best
        mine = monitor.sum_metric, monitor.num_inst
        sums = torch.tensor([float(each) for each in mine], dtype=torch.float64)
        monitor.sum_metric, monitor.num_inst = session().group.all_reduce_(sums, what="early stopping").tolist()
        try:
            super().epoch_end(None)  # type: ignore[arg-type]  # it does not use the estimator
        finally:
            monitor.sum_metric, monitor.num_inst = mine
        self.improved = self.best != best
        return self.stop_training

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> bool:
        """Return True if the training should end."""
        return self.should_stop()
