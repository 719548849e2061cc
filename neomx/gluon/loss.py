"""`mx.gluon.loss`: loss functions, which return one value per example."""

from __future__ import annotations

import math
from typing import Any

from ..base import numeric_types
from ..ndarray.invoke import apply
from ..ops.cross_entropy import CROSS_ENTROPY
from .block import HybridBlock
from .kinds import is_eager, is_np

__all__ = [
    "CTCLoss",
    "CosineEmbeddingLoss",
    "HingeLoss",
    "HuberLoss",
    "KLDivLoss",
    "L1Loss",
    "L2Loss",
    "LogisticLoss",
    "Loss",
    "PoissonNLLLoss",
    "SDMLLoss",
    "SigmoidBCELoss",
    "SigmoidBinaryCrossEntropyLoss",
    "SoftmaxCELoss",
    "SoftmaxCrossEntropyLoss",
    "SquaredHingeLoss",
    "TripletLoss",
]


def _apply_weighting(F: Any, loss: Any, weight: float | None = None, sample_weight: Any = None) -> Any:
    """Multiply `loss` by an array that broadcasts to it and by a number. None means no factor."""
    if sample_weight is not None:
        loss = loss * sample_weight if is_np(F) else F.broadcast_mul(loss, sample_weight)
    if weight is not None:
        if not isinstance(weight, numeric_types):
            raise AssertionError(f"weight must be a number, received {weight!r:.80}")
        loss = loss * weight
    return loss


def _reshape_like(F: Any, x: Any, y: Any) -> Any:
    """`x` in the shape of `y`."""
    if not is_eager(F):
        return F.reshape_like(x, y)
    if x.shape == y.shape:
        return x
    if x.size != y.size:
        raise ValueError(f"expected as many labels as predictions, received shapes {x.shape} and {y.shape}")
    return x.reshape(y.shape)


def _softplus_of_minus_abs(F: Any, x: Any) -> Any:
    """log(1 + exp(-|x|)): the term in the cross-entropy of logits that cannot overflow."""
    return F.Activation(-F.abs(x), act_type="softrelu")


class Loss(HybridBlock):
    """The base class of losses.

    `weight` scales the whole loss. The mean is taken over all axes except `batch_axis`, the axis of examples.
    """

    def __init__(self, weight: float | None, batch_axis: int, **kwargs: Any):
        super().__init__(**kwargs)
        self._weight = weight
        self._batch_axis = batch_axis

    def __repr__(self) -> str:
        return f"{type(self).__name__}(batch_axis={self._batch_axis}, w={self._weight})"

    def hybrid_forward(self, F: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the loss with `F`. Subclasses must override this method."""
        raise NotImplementedError(f"{type(self).__name__} must define hybrid_forward(self, F, ...)")

    def _weigh(self, F: Any, loss: Any, sample_weight: Any = None) -> Any:
        return _apply_weighting(F, loss, self._weight, sample_weight)

    def _weighted_mean(self, F: Any, loss: Any, sample_weight: Any) -> Any:
        """The weighted mean of the loss for each example."""
        return F.mean(self._weigh(F, loss, sample_weight), axis=self._batch_axis, exclude=True)


class L2Loss(Loss):
    """weight / 2 * (label - pred)^2."""

    def __init__(self, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not isinstance(self._weight, numeric_types):
            raise TypeError(f"weight of L2Loss must be a number, received {self._weight!r:.80}")
        loss = F.square(_reshape_like(F, label, pred) - pred)
        loss = _apply_weighting(F, loss, self._weight / 2, sample_weight)
        return F.mean(loss, axis=self._batch_axis, exclude=True)


class L1Loss(Loss):
    """|label - pred|."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.abs(_reshape_like(F, label, pred) - pred)
        return self._weighted_mean(F, loss, sample_weight)


class SigmoidBinaryCrossEntropyLoss(Loss):
    """Binary cross-entropy of logits, or of probabilities if `from_sigmoid`.

    `pos_weight` weights the positive examples: values above 1 increase recall, values below 1 increase precision.
    """

    def __init__(self, from_sigmoid: bool = False, weight: float | None = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._from_sigmoid = from_sigmoid

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None, pos_weight: Any = None) -> Any:
        of = self._of_probabilities if self._from_sigmoid else self._of_logits
        loss = of(F, pred, _reshape_like(F, label, pred), pos_weight)
        return self._weighted_mean(F, loss, sample_weight)

    def _of_logits(self, F: Any, pred: Any, label: Any, pos_weight: Any) -> Any:
        if pos_weight is None:
            return F.relu(pred) - pred * label + _softplus_of_minus_abs(F, pred)
        factor = 1 + F.broadcast_mul(pos_weight - 1, label)
        return pred - pred * label + factor * (_softplus_of_minus_abs(F, pred) + F.relu(-pred))

    def _of_probabilities(self, F: Any, pred: Any, label: Any, pos_weight: Any) -> Any:
        eps = 1e-12
        positive = F.log(pred + eps) * label
        if pos_weight is not None:
            positive = F.broadcast_mul(positive, pos_weight)
        return -(positive + F.log(1.0 - pred + eps) * (1.0 - label))


SigmoidBCELoss = SigmoidBinaryCrossEntropyLoss


class SoftmaxCrossEntropyLoss(Loss):
    """Cross-entropy of classes along `axis`: of logits, or of log-probabilities if `from_logits`.

    Labels are class indices if `sparse_label`, otherwise distributions with the same shape as `pred`.
    """

    def __init__(
        self,
        axis: int = -1,
        sparse_label: bool = True,
        from_logits: bool = False,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._axis, self._sparse_label, self._from_logits = axis, sparse_label, from_logits

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if is_eager(F) and self._sparse_label and not self._from_logits and self._axis == -1:
            plain = self._weight is None and sample_weight is None and self._batch_axis == 0
            loss = apply(CROSS_ENTROPY, (pred, label), {"by_example": plain}, None, pred._kind)
            return loss if plain else self._weighted_mean(F, loss, sample_weight)
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        if self._sparse_label:
            loss = -F.pick(pred, label, axis=self._axis, keepdims=True)
        else:
            loss = -F.sum(pred * _reshape_like(F, label, pred), axis=self._axis, keepdims=True)
        return self._weighted_mean(F, loss, sample_weight)


SoftmaxCELoss = SoftmaxCrossEntropyLoss


class KLDivLoss(Loss):
    """Kullback-Leibler divergence of `label` from `pred`: log-probabilities if `from_logits`, else logits."""

    def __init__(
        self,
        from_logits: bool = True,
        axis: int = -1,
        weight: float | None = None,
        batch_axis: int = 0,
        **kwargs: Any,
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits, self._axis = from_logits, axis

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        if not self._from_logits:
            pred = F.log_softmax(pred, axis=self._axis)
        loss = self._weigh(F, label * (F.log(label + 1e-12) - pred), sample_weight)
        return F.sum(loss, axis=self._batch_axis, exclude=True)


class CTCLoss(Loss):
    """Connectionist temporal classification: the negative log-likelihood of a label sequence over all alignments.

    The last class is the blank. Labels are padded with -1 unless `label_lengths` are given.
    """

    def __init__(self, layout: str = "NTC", label_layout: str = "NT", weight: float | None = None, **kwargs: Any):
        for name, value, choices in (("layout", layout, ("NTC", "TNC")), ("label_layout", label_layout, ("NT", "TN"))):
            if value not in choices:
                raise AssertionError(f"{name} must be {choices[0]!r} or {choices[1]!r}, received {value!r}")
        super().__init__(weight, label_layout.find("N"), **kwargs)
        self._layout, self._label_layout = layout, label_layout

    def hybrid_forward(
        self,
        F: Any,
        pred: Any,
        label: Any,
        pred_lengths: Any = None,
        label_lengths: Any = None,
        sample_weight: Any = None,
    ) -> Any:
        if self._layout == "NTC":
            pred = F.swapaxes(pred, dim1=0, dim2=1)
        if self._batch_axis == 1:
            label = F.swapaxes(label, dim1=0, dim2=1)
        lengths = {"data_lengths": pred_lengths, "label_lengths": label_lengths}
        loss = F.CTCLoss(
            pred,
            label,
            **{name: value for name, value in lengths.items() if value is not None},
            use_data_lengths=pred_lengths is not None,
            use_label_lengths=label_lengths is not None,
            blank_label="last",
        )
        return self._weigh(F, loss, sample_weight)


class HuberLoss(Loss):
    """|label - pred| - rho / 2 where |label - pred| > rho, otherwise (label - pred)^2 / (2 rho)."""

    def __init__(self, rho: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._rho = rho

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        error = F.abs(_reshape_like(F, label, pred) - pred)
        loss = F.where(error > self._rho, error - 0.5 * self._rho, (0.5 / self._rho) * F.square(error))
        return self._weighted_mean(F, loss, sample_weight)


class HingeLoss(Loss):
    """max(0, margin - pred * label), with labels -1 and 1."""

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.relu(self._margin - pred * _reshape_like(F, label, pred))
        return self._weighted_mean(F, loss, sample_weight)


class SquaredHingeLoss(Loss):
    """max(0, margin - pred * label)^2, with labels -1 and 1."""

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        loss = F.square(F.relu(self._margin - pred * _reshape_like(F, label, pred)))
        return self._weighted_mean(F, loss, sample_weight)


class LogisticLoss(Loss):
    """log(1 + exp(-pred * label)), with labels -1 and 1 ('signed') or 0 and 1 ('binary')."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, label_format: str = "signed", **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        if label_format not in ("signed", "binary"):
            raise ValueError(f"label_format must be 'signed' or 'binary', received {label_format!r}")
        self._label_format = label_format

    def hybrid_forward(self, F: Any, pred: Any, label: Any, sample_weight: Any = None) -> Any:
        label = _reshape_like(F, label, pred)
        if self._label_format == "signed":
            label = (label + 1.0) / 2.0
        loss = F.relu(pred) - pred * label + _softplus_of_minus_abs(F, pred)
        return self._weighted_mean(F, loss, sample_weight)


class TripletLoss(Loss):
    """max(0, |positive - pred|^2 - |negative - pred|^2 + margin)."""

    def __init__(self, margin: float = 1, weight: float | None = None, batch_axis: int = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, pred: Any, positive: Any, negative: Any) -> Any:
        positive, negative = _reshape_like(F, positive, pred), _reshape_like(F, negative, pred)
        excess = F.square(positive - pred) - F.square(negative - pred)
        loss = F.relu(F.sum(excess, axis=self._batch_axis, exclude=True) + self._margin)
        return self._weigh(F, loss)


class PoissonNLLLoss(Loss):
    """Negative log-likelihood of counts under a Poisson distribution, averaged over all elements.

    `pred` is the logarithm of the rate if `from_logits`, otherwise the rate. `compute_full` adds the term that does not
    depend on `pred`: Stirling's approximation of log(target!), for targets above 1.
    """

    def __init__(
        self,
        weight: float | None = None,
        from_logits: bool = True,
        batch_axis: int = 0,
        compute_full: bool = False,
        **kwargs: Any,
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self._from_logits, self._compute_full = from_logits, compute_full

    def hybrid_forward(self, F: Any, pred: Any, target: Any, sample_weight: Any = None, epsilon: float = 1e-08) -> Any:
        target = _reshape_like(F, target, pred)
        if self._from_logits:
            loss = F.exp(pred) - target * pred
        else:
            loss = pred - target * F.log(pred + epsilon)
        if self._compute_full:
            stirling = target * F.log(target) - target + 0.5 * F.log(2 * target * math.pi)
            loss = loss + stirling * (target > 1)
        return self._weigh(F, loss, sample_weight).mean()


class CosineEmbeddingLoss(Loss):
    """1 - cos(input1, input2) for pairs labeled 1, max(0, cos - margin) for pairs labeled -1."""

    def __init__(self, weight: float | None = None, batch_axis: int = 0, margin: float = 0, **kwargs: Any):
        super().__init__(weight, batch_axis, **kwargs)
        self._margin = margin

    def hybrid_forward(self, F: Any, input1: Any, input2: Any, label: Any, sample_weight: Any = None) -> Any:
        input1 = _reshape_like(F, input1, input2)
        label = label.reshape((-1, 1))
        cosine = self._cosine_similarity(F, input1, input2)
        loss = (1 - cosine) * (label == 1) + F.relu((label == -1) * (cosine - self._margin))
        return self._weigh(F, loss, sample_weight)

    def _cosine_similarity(self, F: Any, x: Any, y: Any, axis: int = -1) -> Any:
        x_norm = F.norm(x, axis=axis).reshape((-1, 1))
        y_norm = F.norm(y, axis=axis).reshape((-1, 1))
        product = F.sum(x * y, axis=axis).reshape((-1, 1))
        return product / F.maximum(x_norm * y_norm, 1e-12)


class SDMLLoss(Loss):
    """Smoothed deep metric learning: each row of `x1` should be closest to the same row of `x2` within the batch.

    The distance is the squared Euclidean distance. The target is the matching row, smoothed over the other rows by
    `smoothing_parameter`. `weight` is accepted but not used, as in MXNet.
    """

    def __init__(
        self, smoothing_parameter: float = 0.3, weight: float | None = 1.0, batch_axis: int = 0, **kwargs: Any
    ):
        super().__init__(weight, batch_axis, **kwargs)
        self.kl_loss = KLDivLoss(from_logits=True)
        self.smoothing_parameter = smoothing_parameter

    def hybrid_forward(self, F: Any, x1: Any, x2: Any) -> Any:
        if is_eager(F) and x1.shape != x2.shape:
            raise AssertionError(f"SDMLLoss expects two arrays of the same shape, received {x1.shape} and {x2.shape}")
        distances = F.sum(F.square(F.broadcast_sub(F.expand_dims(x1, axis=1), F.expand_dims(x2, axis=0))), axis=2)
        return self.kl_loss(F.log_softmax(-distances, axis=1), self._labels(F, distances))

    def _labels(self, F: Any, distances: Any) -> Any:
        own = F.diag(F.ones_like(F.diag(distances)))
        others = 1 - own
        shared = F.broadcast_div(others, F.sum(others, axis=1, keepdims=True))
        return own * (1 - self.smoothing_parameter) + shared * self.smoothing_parameter
