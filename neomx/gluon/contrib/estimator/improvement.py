"""Checks whether the metric that a handler monitors has improved."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from ....metric import EvalMetric

OPERATORS: dict[str, Callable[..., Any]] = {"min": np.less, "max": np.greater}


def operator_for(monitor: EvalMetric, mode: str) -> Callable[..., Any]:
    """Return np.less or np.greater. Mode 'auto' means np.greater, with a warning because it is wrong for losses."""
    if mode not in (*OPERATORS, "auto"):
        warnings.warn(
            f"mode must be 'auto', 'min' or 'max', received {mode!r}. Using 'auto'",
            RuntimeWarning,
            stacklevel=3,
        )
    if mode not in OPERATORS:
        warnings.warn(
            f"`greater` operator will be used to determine if {monitor.get()[0]} has improved. Please specify "
            "`mode='min'` to use the `less` operator. Specify `mode='max' to disable this warning.`",
            stacklevel=3,
        )
    return OPERATORS.get(mode, np.greater)


def worst(operator: Callable[..., Any]) -> float:
    """Return the initial value, on which every other value improves."""
    return math.inf if operator is np.less else -math.inf


def is_nan(monitor: EvalMetric) -> bool:
    """Return whether a metric is NaN although it was updated, because the training has diverged."""
    return bool(np.isnan(monitor.get()[1])) and monitor.num_inst > 0


def warn_of_nan(monitor: EvalMetric, epoch: int, consequence: str) -> None:
    """Warn that there is no value to compare, with the reason and the consequence."""
    name = monitor.get()[0]
    if is_nan(monitor):
        reason = f"{name} is nan: the training has diverged (a lower learning rate or clipped gradients may help)"
    else:
        reason = (
            f"{name} is not updated, make sure you pass one of the metric objects from estimator.train_metrics and "
            "estimator.val_metrics as monitor, and that validation has run"
        )
    warnings.warn(f"[Epoch {epoch}] {reason}. {consequence}", RuntimeWarning, stacklevel=4)
