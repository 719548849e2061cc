"""BatchProcessor: forward and backward for one batch. Subclass it to customize the training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import autograd
from ....ndarray import NDArray
from ...utils import split_and_load

if TYPE_CHECKING:
    from .estimator import Estimator

Shards = list[NDArray]
__all__ = ["BatchProcessor"]


class BatchProcessor:
    """Trains and evaluates on a batch of (data, label). Subclasses may override either method."""

    def _get_data_and_label(self, batch: Any, ctx: list[Any], batch_axis: int = 0) -> tuple[Shards, Shards]:
        """Split the data and the labels of a batch into one part per context."""
        if not isinstance(batch, (list, tuple)) or len(batch) < 2:
            raise ValueError(
                "a batch must be a list of data and label, received "
                f"{_described(batch)}. For other batches, override fit_batch and evaluate_batch of BatchProcessor"
            )
        data, label = batch[0], batch[1]
        size = data.shape[batch_axis]
        if size < len(ctx):
            raise ValueError(
                f"a batch of {size} samples cannot be split over {len(ctx)} contexts: one of them would have no data. "
                "Create the DataLoader with a larger batch_size, or with last_batch='discard' or 'rollover'"
            )
        return (
            split_and_load(data, ctx, batch_axis, even_split=False),
            split_and_load(label, ctx, batch_axis, even_split=False),
        )

    def evaluate_batch(
        self, estimator: Estimator, val_batch: Any, batch_axis: int = 0
    ) -> tuple[Shards, Shards, Shards, Shards]:
        """Return the data, labels, predictions of `val_net` and values of `val_loss`, each as a list by context."""
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(x) for x in data]
        loss = [estimator.val_loss(y_hat, y) for y_hat, y in zip(pred, label, strict=True)]
        return data, label, pred, loss

    def fit_batch(
        self, estimator: Estimator, train_batch: Any, batch_axis: int = 0
    ) -> tuple[Shards, Shards, Shards, Shards]:
        """Run forward and backward. Return the data, labels, predictions and losses, each as a list by context.

        A GradientUpdateHandler updates the weights at the end of the batch.
        """
        data, label = self._get_data_and_label(train_batch, estimator.context, batch_axis)
        with autograd.record():
            pred = [estimator.net(x) for x in data]
            loss = [estimator.loss(y_hat, y) for y_hat, y in zip(pred, label, strict=True)]
        autograd.backward(loss)
        return data, label, pred, loss


def _described(batch: Any) -> str:
    if isinstance(batch, (list, tuple)):
        return f"{type(batch).__name__} of {len(batch)}"
    return f"{type(batch).__name__} of shape {batch.shape}" if hasattr(batch, "shape") else type(batch).__name__
