"""Metrics for probabilities, losses and regression."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

from ..base import _as_list
from .evalmetric import (
    Averaged,
    EvalMetric,
    Names,
    Tensor,
    alias,
    check_label_shapes,
    pairs,
    register,
    tensor_of,
)


@register
class Perplexity(EvalMetric):
    """exp of the mean negative log-probability of the labels, except those equal to `ignore_label`."""

    def __init__(
        self,
        ignore_label: int | None,
        axis: int = -1,
        name: str = "perplexity",
        output_names: Names = None,
        label_names: Names = None,
    ):
        super().__init__(name, output_names, label_names, ignore_label=ignore_label, has_global_stats=True)
        self.ignore_label = ignore_label
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of class indices and of probabilities."""
        if len(labels) != len(preds):
            raise AssertionError(f"expected as many labels as predictions, received {len(labels)} and {len(preds)}")
        for label, pred in pairs(labels, preds):
            if not -pred.dim() <= self.axis < pred.dim():
                raise AssertionError(f"expected scores along axis {self.axis}, received shape {tuple(pred.shape)}")
            scores = pred.movedim(self.axis, -1)
            if label.numel() * scores.shape[-1] != scores.numel():
                raise AssertionError(f"labels of shape {tuple(label.shape)} do not fit predictions {tuple(pred.shape)}")
            classes = label.flatten().long()
            index = classes.clamp(0, scores.shape[-1] - 1).unsqueeze(1)
            chosen = scores.reshape(len(classes), -1).gather(1, index).squeeze(1)
            count = len(classes)
            if self.ignore_label is not None:
                kept = classes != self.ignore_label
                chosen, count = chosen * kept + ~kept, int(kept.sum())  # keeps NaN even for ignored labels
            self._add(float(-chosen.clamp(min=1e-10).log().sum()), count)

    def _value(self, total: float, count: float) -> float:
        return math.exp(total / count) if count else math.nan


class _Likelihood(EvalMetric):
    """The mean negative log-probability of the labels."""

    def __init__(self, eps: float, name: str, output_names: Names, label_names: Names):
        super().__init__(name, output_names, label_names, eps=eps, has_global_stats=True)
        self.eps = eps

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of class indices and of probabilities."""
        for label, pred in pairs(labels, preds):
            classes = label.flatten().long()
            if len(classes) != len(pred):
                raise AssertionError(f"expected as many labels as predictions, received {len(classes)} and {len(pred)}")
            probabilities = pred[torch.arange(len(classes), device=pred.device), classes]
            self._add(float(-(probabilities + self.eps).log().sum()), len(classes))


@alias("ce")
@register
class CrossEntropy(_Likelihood):
    """The mean of -log(probability of the label + eps)."""

    def __init__(
        self,
        eps: float = 1e-12,
        name: str = "cross-entropy",
        output_names: Names = None,
        label_names: Names = None,
    ):
        super().__init__(eps, name, output_names, label_names)


@alias("nll_loss")
@register
class NegativeLogLikelihood(_Likelihood):
    """The same as CrossEntropy, under another name."""

    def __init__(
        self, eps: float = 1e-12, name: str = "nll-loss", output_names: Names = None, label_names: Names = None
    ):
        super().__init__(eps, name, output_names, label_names)


@register
class Loss(EvalMetric):
    """The mean of the outputs of a network that computes losses. Labels are ignored."""

    def __init__(self, name: str = "loss", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, _: Any, preds: Any) -> None:
        """Add a batch of losses."""
        for pred in _as_list(preds):
            losses = tensor_of(pred)
            half = losses.is_floating_point() and losses.itemsize < 4
            self._add(float(losses.sum(dtype=torch.float32 if half else None)), losses.numel())


@register
class Torch(Loss):
    """Alias of Loss with the name `torch`."""

    def __init__(self, name: str = "torch", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names)


@register
class Caffe(Loss):
    """Alias of Loss with the name `caffe`."""

    def __init__(self, name: str = "caffe", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names)


class _Distance(EvalMetric):
    """The mean over batches of a distance between labels and predictions."""

    def __init__(self, name: str, output_names: Names, label_names: Names):
        super().__init__(name, output_names, label_names, has_global_stats=True)

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of labels and of predictions with the same shape. (n,) and (n, 1) count as the same."""
        for label, pred in pairs(labels, preds):
            self._add(float(self._distance(_difference(label, pred))), 1)

    def _distance(self, difference: Tensor) -> Tensor:
        raise NotImplementedError


def _difference(label: Tensor, pred: Tensor) -> Tensor:
    columns = [t.unsqueeze(1) if t.dim() == 1 else t for t in (label, pred)]
    a, b = (t if t.is_floating_point() else t.double() for t in columns)
    try:
        return a - b
    except RuntimeError:
        raise ValueError(f"labels {tuple(label.shape)} do not fit predictions {tuple(pred.shape)}") from None


@register
class MAE(_Distance):
    """The mean absolute error."""

    def __init__(self, name: str = "mae", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names)

    def _distance(self, difference: Tensor) -> Tensor:
        return difference.abs().mean()


@register
class MSE(_Distance):
    """The mean squared error."""

    def __init__(self, name: str = "mse", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names)

    def _distance(self, difference: Tensor) -> Tensor:
        return difference.square().mean()


@register
class RMSE(_Distance):
    """The root mean squared error of each batch, averaged over batches."""

    def __init__(self, name: str = "rmse", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names)

    def _distance(self, difference: Tensor) -> Tensor:
        return difference.square().mean().sqrt()


class _Moments:
    """Running means, and variances and covariance (times the count), of pairs of values."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.count = 0
        self.mean = numpy.zeros(2)
        self.products = numpy.zeros((2, 2))

    def add(self, label: Tensor, pred: Tensor) -> None:
        """Add two flat tensors of values."""
        both = torch.stack([label, pred])
        count, mean = both.shape[1], both.mean(1, keepdim=True)
        centered = both - mean
        total, shift = self.count + count, mean.flatten().cpu().numpy() - self.mean
        self.products += (centered @ centered.T).cpu().numpy() + numpy.outer(shift, shift) * self.count * count / total
        self.mean = self.mean + shift * count / total
        self.count = total

    def correlation(self) -> float:
        spread = math.sqrt(self.products[0, 0] * self.products[1, 1])
        return float(self.products[0, 1]) / spread if spread else math.nan


@alias("pearsonr")
@register
class PearsonCorrelation(Averaged):
    """The Pearson correlation of labels and predictions: averaged over batches (macro), or of all values (micro)."""

    def __init__(
        self,
        name: str = "pearsonr",
        output_names: Names = None,
        label_names: Names = None,
        average: str = "macro",
    ):
        super().__init__(_Moments, _Moments.correlation, average, name, output_names, label_names)

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of labels and of predictions with the same shape."""
        for label, pred in pairs(labels, preds):
            check_label_shapes(label, pred, shape=True)
            self._collect(label.flatten().double(), pred.flatten().double())
            self._settle()
