"""Checks of the metrics that are passed to an Estimator and its handlers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....metric import Accuracy, CompositeEvalMetric, EvalMetric
from ...loss import SoftmaxCrossEntropyLoss


def _check_metrics(metrics: Any) -> list[EvalMetric]:
    """Return one metric, a composite or a list of metrics as a list."""
    if isinstance(metrics, CompositeEvalMetric):
        return [one for metric in metrics.metrics for one in _check_metrics(metric)]
    if isinstance(metrics, EvalMetric):
        return [metrics]
    if not isinstance(metrics, (list, tuple)) and metrics:
        raise ValueError(f"metrics must be a Metric or a list of Metric, refer to mx.metric.EvalMetric: {metrics!r}")
    listed = list(metrics or [])
    if not all(isinstance(metric, EvalMetric) for metric in listed):
        raise ValueError(f"metrics must be a Metric or a list of Metric, refer to mx.metric.EvalMetric: {listed}")
    return listed


def _check_handler_metric_ref(handler: Any, known_metrics: Sequence[EvalMetric]) -> None:
    """Raise if a handler has metrics that do not belong to the estimator, which would never update them."""
    for name, value in vars(handler).items():
        if "metric" in name:
            for metric in value if isinstance(value, (list, tuple)) else [value]:
                _check_metric_known(handler, metric, known_metrics)


def _check_metric_known(handler: Any, metric: Any, known_metrics: Sequence[EvalMetric]) -> None:
    if isinstance(metric, EvalMetric) and not any(metric is known for known in known_metrics):
        raise ValueError(
            f"Event handler {type(handler).__name__} refers to a metric instance {metric} outside of the known "
            "training and validation metrics. Please use the metrics from estimator.train_metrics "
            "and estimator.val_metrics instead."
        )


def _suggest_metric_for_loss(loss: Any) -> EvalMetric | None:
    """Return a metric that suits this loss, or None."""
    return Accuracy() if isinstance(loss, SoftmaxCrossEntropyLoss) else None
