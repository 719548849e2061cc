"""Classification metrics."""

from __future__ import annotations

import math
from typing import Any

import numpy
import torch

from ..base import MXNetError
from .evalmetric import Averaged, EvalMetric, Names, Tensor, alias, check_label_shapes, pairs, register


def _classes(label: Tensor, pred: Tensor, axis: int = 1) -> tuple[Tensor, Tensor]:
    """Return flat class indices. Predictions in the shape of the labels are indices, others are scores per class."""
    if pred.shape != label.shape:
        pred = _best(pred, axis)
    label, pred = label.flatten().to(torch.int32), pred.flatten().to(torch.int32)
    check_label_shapes(label, pred)
    return label, pred


def _best(scores: Tensor, axis: int) -> Tensor:
    """Return the class with the highest score. Of equal scores, the first one wins."""
    if not -scores.dim() <= axis < scores.dim():
        raise MXNetError(f"expected scores of classes along axis {axis}, received shape {tuple(scores.shape)}")
    return scores.argmax(axis)


@alias("acc")
@register
class Accuracy(EvalMetric):
    """The fraction of correct predictions. `axis` is the axis of the classes."""

    def __init__(self, axis: int = 1, name: str = "accuracy", output_names: Names = None, label_names: Names = None):
        super().__init__(name, output_names, label_names, axis=axis, has_global_stats=True)
        self.axis = axis

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of class indices and of scores (or class indices)."""
        for label, pred in pairs(labels, preds):
            label, pred = _classes(label, pred, self.axis)
            self._add(float((label == pred).sum()), len(label))


@alias("top_k_accuracy", "top_k_acc")
@register
class TopKAccuracy(EvalMetric):
    """The fraction of labels that are among the `top_k` highest scores."""

    def __init__(
        self, top_k: int = 1, name: str = "top_k_accuracy", output_names: Names = None, label_names: Names = None
    ):
        if top_k <= 1:
            raise AssertionError(f"top_k must be above 1, received {top_k}. For top_k=1, use Accuracy")
        super().__init__(f"{name}_{top_k}", output_names, label_names, top_k=top_k, has_global_stats=True)
        self.top_k = top_k

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of class indices and of scores with shape (batch, classes)."""
        for label, pred in pairs(labels, preds):
            if pred.dim() > 2:
                raise AssertionError(f"expected scores of shape (batch, classes), received {tuple(pred.shape)}")
            if pred.dim() < 2 or pred.shape[1] < self.top_k:
                raise ValueError(f"expected at least {self.top_k} classes, received scores {tuple(pred.shape)}")
            check_label_shapes(label, pred)
            best = pred.to(torch.float32).topk(self.top_k, dim=1, sorted=False).indices
            self._add(float((best == label.to(torch.int32).reshape(-1, 1)).sum()), len(pred))


class _Confusion:
    """The confusion matrix of two classes."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.true_positives = self.false_positives = self.false_negatives = self.true_negatives = 0

    def add(self, label: Tensor, pred: Tensor) -> None:
        """Add boolean tensors: whether labels and predictions are positive."""
        both, actual, predicted = int((label & pred).sum()), int(label.sum()), int(pred.sum())
        self.true_positives += both
        self.false_positives += predicted - both
        self.false_negatives += actual - both
        self.true_negatives += len(label) - actual - predicted + both

    @property
    def count(self) -> int:
        return self.true_positives + self.false_positives + self.false_negatives + self.true_negatives

    def fscore(self) -> float:
        wrong = self.false_positives + self.false_negatives
        return 2 * self.true_positives / (2 * self.true_positives + wrong) if self.true_positives else 0.0

    def matthewscc(self) -> float:
        """The correlation of labels and predictions. Zero factors in the root (missing classes) are omitted."""
        tp, fp, fn, tn = self.true_positives, self.false_positives, self.false_negatives, self.true_negatives
        sums = (tp + fp, tp + fn, tn + fp, tn + fn)
        return (tp * tn - fp * fn) / math.sqrt(math.prod(each for each in sums if each))


class _Binary(Averaged):
    """The base of binary classification metrics."""

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of labels, where 1 is positive, and of scores with shape (batch, 2, ...)."""
        for label, pred in pairs(labels, preds):
            self._collect(*_positives(label, pred))
        self._settle()


def _positives(label: Tensor, pred: Tensor) -> tuple[Tensor, Tensor]:
    """Return which labels and which predictions are 1."""
    if pred.dim() < 2:
        raise ValueError(f"expected scores of shape (batch, 2, ...), received {tuple(pred.shape)}")
    label, pred = label.flatten().to(torch.int32), pred.argmax(1).flatten()
    check_label_shapes(label, pred)
    lowest, highest = label.aminmax() if len(label) else (label, label)
    if bool(((label != lowest) & (label != highest)).any()):
        raise ValueError(f"expected two classes, received the labels {label.unique().tolist()[:5]}")
    return label == 1, pred == 1


@register
class F1(_Binary):
    """The harmonic mean of precision and recall, for binary classification."""

    def __init__(self, name: str = "f1", output_names: Names = None, label_names: Names = None, average: str = "macro"):
        super().__init__(_Confusion, _Confusion.fscore, average, name, output_names, label_names)


@register
class MCC(_Binary):
    """Matthews correlation coefficient, for binary classification."""

    def __init__(
        self, name: str = "mcc", output_names: Names = None, label_names: Names = None, average: str = "macro"
    ):
        super().__init__(_Confusion, _Confusion.matthewscc, average, name, output_names, label_names)


class _Counts:
    """A confusion matrix that grows with the number of classes."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.table = numpy.zeros((0, 0))
        self.count = 0

    def add(self, label: Tensor, pred: Tensor) -> None:
        """Add class indices."""
        size = max(len(self.table), 1 + int(torch.maximum(label.max(), pred.max())))
        added = torch.bincount(pred.long() * size + label, minlength=size * size).reshape(size, size)
        grown = size - len(self.table)
        self.table = numpy.pad(self.table, (0, grown)) + added.cpu().numpy()
        self.count += len(label)

    def correlation(self) -> float:
        predicted, actual = self.table.sum(axis=1), self.table.sum(axis=0)
        spread = math.sqrt((predicted * (self.count - predicted)).sum() * (actual * (self.count - actual)).sum())
        shared = float(self.table.trace() * self.count - (predicted * actual).sum())
        return shared / spread if spread else math.nan


@register
class PCC(Averaged):
    """Matthews correlation coefficient for any number of classes, which need not be known in advance."""

    def __init__(
        self,
        name: str = "pcc",
        output_names: Names = None,
        label_names: Names = None,
        has_global_stats: bool = True,
    ):
        super().__init__(_Counts, _Counts.correlation, "micro", name, output_names, label_names, has_global_stats)

    def update(self, labels: Any, preds: Any) -> None:
        """Add a batch of class indices, starting from 0, and of scores (or class indices)."""
        for label, pred in pairs(labels, preds):
            label, pred = _classes(label, pred)
            lowest = int(torch.minimum(label.min(), pred.min()))
            if lowest < 0:
                raise ValueError(f"expected class indices of at least 0, received {lowest}")
            self._collect(label, pred)
        self._settle()
