"""Masked modelling: predict the hidden tokens of a text, or the hidden patches of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import dist
from ..base import MXNetError
from ..gluon.kinds import front_of
from ..gluon.loss import Loss, SoftmaxCrossEntropyLoss
from ..ndarray import NDArray
from ..ops.random import rng

# ---- tokens ----


class MaskedTokenLoss(Loss):
    """Cross-entropy of the masked tokens; one loss per sample, the sum over its masked tokens.

    `pred` has the shape (samples, tokens, vocabulary). `label` and `mask` have the shape (samples, tokens). The mask is
    1 for tokens to predict and 0 for others, whose labels do not matter. Samples may have different numbers of masked
    tokens, so call `trainer.step(count_masked(mask))`, which divides by the number of all workers.
    """

    def __init__(self, weight: float | None = None, **kwargs: Any):
        super().__init__(weight, 0, **kwargs)
        self._of_tokens = SoftmaxCrossEntropyLoss()

    def hybrid_forward(self, F: Any, pred: Any, label: Any, mask: Any) -> Any:
        losses = self._of_tokens(F.reshape(pred, shape=(-3, 0)), F.reshape(label, shape=(-3,)))
        losses = F.reshape_like(losses, mask)
        return self._weigh(F, F.sum(F.where(mask, losses, F.zeros_like(losses)), axis=1))


def count_masked(mask: NDArray) -> int:
    """Return the number of ones in the masks of all workers, at least 1. All workers must call it."""
    return max(int(dist.all_reduce(mask.astype("float64").sum()).asnumpy().sum()), 1)


# ---- pictures ----


def to_patches(x: NDArray, size: int) -> NDArray:
    """Return pictures (samples, channels, height, width) as patches (samples, patches, channels * size * size)."""
    if x.ndim != 4 or size < 1 or x.shape[2] % size or x.shape[3] % size:
        raise MXNetError(
            f"to_patches expects (samples, channels, height, width), with height and width multiples of {size}, "
            f"received the shape {x.shape}"
        )
    samples, channels, height, width = x.shape
    grid = x.reshape((samples, channels, height // size, size, width // size, size)).transpose((0, 2, 4, 1, 3, 5))
    return grid.reshape((samples, -1, channels * size * size))


def from_patches(x: NDArray, shape: tuple[int, int, int]) -> NDArray:
    """Return patches as pictures of a shape (channels, height, width). This is the inverse of `to_patches`."""
    channels, height, width = shape
    size = round((channels * height * width / max(x.shape[1] * channels, 1)) ** 0.5) if x.ndim == 3 else 0
    if not size or x.shape[1:] != (height // size * (width // size), channels * size * size):
        raise MXNetError(
            f"from_patches expects square patches (samples, patches, values) of pictures {tuple(shape)}, received the "
            f"shape {x.shape}"
        )
    grid = x.reshape((-1, height // size, width // size, channels, size, size)).transpose((0, 3, 1, 4, 2, 5))
    return grid.reshape((-1, channels, height, width))


def patch_mask(count: int, ratio: float = 0.75) -> np.ndarray:
    """Return a random mask of `count` patches as floats: 1 for the share `ratio` of them to hide, 0 for the others.

    It is drawn from `mx.random.rng()`. A transform of a dataset that calls it therefore hides the same patches of a
    sample for any number of workers.
    """
    hidden = round(ratio * count)
    if not 0 < hidden < count:
        raise ValueError(f"ratio must hide at least one of {count} patches and leave at least one, received {ratio}")
    mask = np.zeros(count, "float32")
    mask[rng().choice(count, hidden, replace=False)] = 1
    return mask


class MaskedPatchLoss(Loss):
    """The mean squared error of the hidden patches, one loss per sample.

    `pred` and `target` have the shape (samples, patches, values), and `mask` has the shape (samples, patches): 1 for
    hidden patches. With `normalize`, each patch of the target is first normalized to mean 0 and variance 1.
    """

    def __init__(self, normalize: bool = False, weight: float | None = None, **kwargs: Any):
        super().__init__(weight, 0, **kwargs)
        self._normalize = normalize

    def hybrid_forward(self, F: Any, pred: Any, target: Any, mask: Any) -> Any:
        if self._normalize:
            centered = F.broadcast_sub(target, F.mean(target, axis=2, keepdims=True))
            variance = F.mean(F.square(centered), axis=2, keepdims=True)
            target = F.broadcast_mul(centered, F.rsqrt(variance + 1e-6))
        errors = F.mean(F.square(pred - target), axis=2)
        return self._weigh(F, F.sum(errors * mask, axis=1) / F.sum(mask, axis=1))


def hide_patches(x: NDArray, mask: NDArray) -> NDArray:
    """Return patches (samples, patches, values) with zeros in the hidden ones."""
    if x.shape[:2] != mask.shape:
        raise MXNetError(
            f"hide_patches expects a mask of shape {x.shape[:2]} for patches of shape {x.shape}, received {mask.shape}"
        )
    F = front_of(x)
    return F.broadcast_mul(x, F.expand_dims(1 - mask, axis=2))
