"""SVRGModule: a Module that trains with stochastic variance reduced gradients (SVRG)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from ...base import MXNetError
from ...module import Module
from ...ndarray import NDArray

__all__ = ["SVRGModule"]

ContextArrays = list[list[NDArray | None]]  # for each parameter, an array per context


class SVRGModule(Module):
    """A Module that trains with stochastic variance reduced gradients.

    Every `update_freq` epochs `fit` saves a copy of the weights and computes their gradient over all training data. A
    step uses the gradient of the batch, minus the gradient of the saved weights for the same batch, plus the full
    gradient. With several workers, each does this for its own data, and the resulting gradients are summed as usual.
    """

    def __init__(
        self,
        symbol: Any,
        data_names: Sequence[str] | None = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: dict[str, Any] | None = None,
        update_freq: int | None = None,
    ):
        what = "to represent the frequency for calculating full gradients"
        if not isinstance(update_freq, int):
            raise TypeError(f"update_freq in SVRGModule must be an integer {what}, received {update_freq!r}")
        if update_freq <= 0:
            raise ValueError(f"update_freq in SVRGModule must be a positive integer {what}, received {update_freq}")
        named = (symbol, data_names, label_names, logger, context, work_load_list, fixed_param_names, state_names)
        super().__init__(*named, group2ctxs, compression_params)
        self.update_freq = update_freq
        self._kept = Module(*named, group2ctxs)  # the saved weights
        self._full_grads: ContextArrays | None = None

    def whole(self) -> Module:
        """Raise an error: a checkpoint would lack the saved weights and their gradient."""
        raise MXNetError("checkpoints of an SVRGModule are not supported: it has other state than a Module")

    def bind(self, data_shapes: Any, label_shapes: Any = None, *args: Any, **kwargs: Any) -> None:
        """Create executors for data and labels of these shapes, for both sets of weights."""
        bound = self.binded and not (kwargs.get("force_rebind") or (len(args) > 2 and args[2]))
        super().bind(data_shapes, label_shapes, *args, **kwargs)
        if self.for_training and not bound:
            self._kept.bind(data_shapes, label_shapes, *args, **kwargs)

    def reshape(self, data_shapes: Any, label_shapes: Any = None) -> None:
        """Change the shapes of the data and labels."""
        super().reshape(data_shapes, label_shapes)
        if self._kept.binded:
            self._kept.reshape(data_shapes, label_shapes)

    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Compute the outputs; in training also those of the saved weights."""
        super().forward(data_batch, is_train)
        if self._trains(is_train):
            self._kept.forward(data_batch, is_train)

    def _trains(self, is_train: bool | None) -> bool:
        return self._full_grads is not None and (self.for_training if is_train is None else is_train)

    def backward(self, out_grads: Any = None) -> None:
        """Compute the gradients of both sets of weights."""
        super().backward(out_grads)
        if self._full_grads is not None:
            self._kept.backward(out_grads)

    def update(self) -> None:
        """Update the parameters by the variance-reduced gradients."""
        if self._full_grads is None:
            raise MXNetError("SVRGModule.update: the full gradients are missing. Call update_full_grads first")
        own, kept = self._exec_group.grad_arrays, self._kept._exec_group.grad_arrays
        for row, old_row, full_row in zip(own, kept, self._full_grads, strict=True):
            for gradient, old, full in zip(row, old_row, full_row, strict=True):
                if gradient is not None:
                    gradient += full - old
        super().update()

    def update_full_grads(self, train_data: Any) -> None:
        """Save the current weights, and compute their mean gradient per batch over all data of an iterator.

        As in MXNet, the sum starts with the gradient of the previous call, and padding samples do not count as data.
        """
        arg_params, aux_params = self.get_params()
        self._kept.init_params(arg_params=arg_params, aux_params=aux_params, force_init=True)
        totals: ContextArrays = self._full_grads or [
            [None if each is None else each.zeros_like() for each in row] for row in self._kept._exec_group.grad_arrays
        ]
        count = 0.0
        train_data.reset()
        for batch in train_data:
            self._kept.forward(batch, is_train=True)
            self._kept.backward()
            count += 1 - (batch.pad or 0) / train_data.batch_size
            for row, gradients in zip(totals, self._kept._exec_group.grad_arrays, strict=True):
                for total, gradient in zip(row, gradients, strict=True):
                    if total is not None:
                        total += gradient
        train_data.reset()
        if count <= 0:
            raise MXNetError("SVRGModule.update_full_grads: expected an iterator with batches, received an empty one")
        self._full_grads = [[None if total is None else total / count for total in row] for row in totals]

    def _begin_epoch(self, epoch: int, train_data: Any) -> None:
        if epoch % self.update_freq == 0 or self._full_grads is None:
            self.update_full_grads(train_data)
