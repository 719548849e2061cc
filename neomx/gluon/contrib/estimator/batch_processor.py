"""What is done with one batch: override it to train in another way."""

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
    """Trains and evaluates on a batch of (data, label). A subclass may do either differently."""

    def _get_data_and_label(self, batch: Any, ctx: list[Any], batch_axis: int = 0) -> tuple[Shards, Shards]:
        """The data and the labels of a batch, each in as many parts as there are contexts."""
        if not isinstance(batch, (list, tuple)) or len(batch) < 2:
            raise ValueError(
                "a batch must be a list of data and label, received "
                f"{_described(batch)}. Other batches need a BatchProcessor with fit_batch and evaluate_batch of its own"
            )
        data, label = batch[0], batch[1]
        size = data.shape[batch_axis]
        if size < len(ctx):
            raise ValueError(
                f"a batch of {size} samples cannot be shared by {len(ctx)} contexts: one of them would have no data. "
                "Make the DataLoader with a larger batch_size, or with last_batch='discard' or 'rollover'"
            )
        return (
            split_and_load(data, ctx, batch_axis, even_split=False),
            split_and_load(label, ctx, batch_axis, even_split=False),
        )

    def evaluate_batch(
        self, estimator: Estimator, val_batch: Any, batch_axis: int = 0
    ) -> tuple[Shards, Shards, Shards, Shards]:
        """Data, labels, predictions of `val_net` and values of `val_loss`, each a list by context."""
        data, label = self._get_data_and_label(val_batch, estimator.context, batch_axis)
        pred = [estimator.val_net(x) for x in data]
        loss = [estimator.val_loss(y_hat, y) for y_hat, y in zip(pred, label, strict=True)]
        return data, label, pred, loss

    def fit_batch(
        self, estimator: Estimator, train_batch: Any, batch_axis: int = 0
    ) -> tuple[Shards, Shards, Shards, Shards]:
        """Run forward and backward; data, labels, predictions and losses, each a list by context.

        The weights are updated by a GradientUpdateHandler, at the end of the batch.
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
