"""The optimizers of `mx.optimizer.contrib`."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from .. import ndarray as nd
from ..ndarray import NDArray
from .base import Index, Optimizer, register
from .part import Part, Steps, in_step
from .whole import by_row

__all__ = ["GroupAdaGrad"]


@register
class GroupAdaGrad(Optimizer):
    """AdaGrad with one sum of squares for each row of a weight. It does not support weight decay."""

    needs_whole_weights: ClassVar[bool] = True
    updates_apart = True

    def __init__(self, eps: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return one value for each row."""
        if weight.ndim != 2:
            raise AssertionError(f"GroupAdaGrad requires weights with two dimensions, received {weight.shape}")
        if isinstance(weight, Part):
            return by_row(torch.zeros(weight.whole_shape[0], 1, device=weight._data.device), weight)
        return nd.zeros((weight.shape[0], 1), ctx=weight.context, stype=weight.stype)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
        in_step([self._steps(index, weight, grad, state)])

    def _steps(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> Steps:
        lr, wd = self._begin(index)
        if wd:
            raise AssertionError(f"GroupAdaGrad does not support weight decay, received wd={wd}")
        if not isinstance(weight, Part) or weight.split[1] == slice(None):
            settings = dict(self._scaling(), lr=lr, epsilon=self.float_stable_eps)
            nd.contrib.group_adagrad_update(weight, grad, state, out=weight, **settings)  # type: ignore[attr-defined]
            return
        grad, rows = self._scaled(grad), weight.split[0]
        squares = torch.zeros(weight.whole_shape[0], device=grad._data.device)
        squares[rows] = grad._data.square().sum(1)
        (sums,) = yield [(weight, squares)]
        state += NDArray(sums[rows, None] / weight.whole_shape[1], weight.context)
        weight[:] -= lr * grad / (state + self.float_stable_eps).sqrt()
