"""Label smoothing: a cross-entropy that leaves some probability to the other classes."""

from __future__ import annotations

from typing import Any

from ..gluon.loss import SoftmaxCrossEntropyLoss, _reshape_like


class SmoothedCrossEntropyLoss(SoftmaxCrossEntropyLoss):
    """SoftmaxCrossEntropyLoss with smoothed labels: (1 - smoothing) * label + smoothing / classes.

    The network is then not rewarded for ever larger scores. All other arguments are those of SoftmaxCrossEntropyLoss.
    """

    def __init__(self, smoothing: float = 0.1, **kwargs: Any):
        if not isinstance(smoothing, int | float) or isinstance(smoothing, bool) or not 0 <= smoothing < 1:
            raise ValueError(f"smoothing must be a number of at least 0 and below 1, received {smoothing!r}")
        super().__init__(**kwargs)
        self._smoothing = float(smoothing)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            of_label = F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            of_label = F.sum(pred * _reshape_like(F, label, pred), axis=self._axis, keepdims=True)
        of_all = F.mean(pred, axis=self._axis, keepdims=True)
        loss = -(1 - self._smoothing) * of_label - self._smoothing * of_all
        return self._weighted_mean(F, loss, sample_weight)
