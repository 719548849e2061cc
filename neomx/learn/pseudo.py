"""Semi-supervised learning: the confident predictions of a network are labels for samples without one."""

from __future__ import annotations

from typing import Any

from ..gluon.kinds import front_of
from ..gluon.loss import Loss, SoftmaxCrossEntropyLoss
from ..ndarray import NDArray


def confident(pred: NDArray, threshold: float = 0.95) -> tuple[NDArray, NDArray]:
    """Return the most likely class of each row of logits, and 1 where its probability reaches `threshold`, else 0."""
    _check_threshold(threshold)
    if not isinstance(pred, NDArray) or pred.ndim != 2:
        raise ValueError(
            f"confident expects logits of shape (samples, classes), received {getattr(pred, 'shape', pred)}"
        )
    return _labels(front_of(pred), pred, threshold)


def _labels(F: Any, pred: Any, threshold: float) -> tuple[Any, Any]:
    best = F.max(F.softmax(pred, axis=-1), axis=-1)
    return F.argmax(pred, axis=-1), F.BlockGrad(best >= threshold)


def _check_threshold(threshold: float) -> None:
    if not 0 <= threshold <= 1:
        raise ValueError(f"threshold must be a probability from 0 to 1, received {threshold!r}")


class PseudoLabelLoss(Loss):
    """Cross-entropy with the classes that the network itself predicts confidently; one loss per sample.

    `pred` are logits to train, of shape (samples, classes). The labels come from `guide`, logits of the same samples,
    or from `pred` if it is not given. No gradient flows into `guide`. Where the probability of the predicted class is
    below `threshold`, the loss is 0.
    """

    def __init__(self, threshold: float = 0.95, weight: float | None = None, **kwargs: Any):
        _check_threshold(threshold)
        super().__init__(weight, 0, **kwargs)
        self._threshold = threshold
        self._of_labels = SoftmaxCrossEntropyLoss()

    def hybrid_forward(self, F: Any, pred: Any, guide: Any = None) -> Any:
        labels, counts = _labels(F, F.BlockGrad(pred if guide is None else guide), self._threshold)
        return self._weigh(F, self._of_labels(pred, labels) * counts)


class FixMatchLoss(Loss):
    """FixMatch: cross-entropy of labeled samples, and of strong views with the labels that weak views predict.

    Call it with the logits and labels of the labeled samples, and the logits of the weak and of the strong views of the
    unlabeled samples. The result has one loss for each labeled sample, followed by one for each unlabeled sample. The
    latter are multiplied by `unlabeled_weight / ratio`, where `ratio` is the number of unlabeled samples for each
    labeled one. `trainer.step(labeled samples of all workers)` therefore minimizes the mean loss of labeled samples
    plus `unlabeled_weight` times the mean loss of unlabeled samples.
    """

    def __init__(
        self,
        threshold: float = 0.95,
        unlabeled_weight: float = 1.0,
        ratio: float = 1.0,
        weight: float | None = None,
        **kwargs: Any,
    ):
        if not ratio > 0:
            raise ValueError(f"ratio must be the number of unlabeled samples for each labeled one, received {ratio!r}")
        super().__init__(weight, 0, **kwargs)
        self._supervised = SoftmaxCrossEntropyLoss()
        self._unsupervised = PseudoLabelLoss(threshold, weight=unlabeled_weight / ratio)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, weak: Any, strong: Any) -> Any:
        losses = F.concat(self._supervised(pred, label), self._unsupervised(strong, weak), dim=0)
        return self._weigh(F, losses)
