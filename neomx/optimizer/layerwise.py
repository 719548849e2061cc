"""Optimizers for large batches, with a learning rate of its own for each weight: LARS, LBSGD, LAMB."""

from __future__ import annotations

import math
from typing import Any, ClassVar

from .. import ndarray as nd
from ..ndarray import NDArray
from .base import Index, Optimizer, register
from .sgd import MasterLast, OfLists, aggregation, sgd_step, zeros_of


@register
class LARS(MasterLast):
    """SGD whose rate for a weight is scaled by eta * |weight| / (|grad| + wd * |weight| + eps).

    Parameters called *gamma, *beta or *bias keep the plain rate. With `momentum_correction` the momentum follows a
    change of the rate.
    """

    _decaying: ClassVar[tuple[str, ...]] = ("_weight",)

    def __init__(
        self,
        momentum: float = 0.0,
        lazy_update: bool = True,
        eta: float = 0.001,
        eps: float = 0,
        momentum_correction: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.momentum = momentum
        self.momentum_correction = momentum_correction
        self.lazy_update = lazy_update
        self.aggregate_num = aggregation()
        self.eta = eta
        self.eps = eps
        self.skip = 0
        self.last_lr: float | None = None
        self.cur_lr: float | None = None

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """The momentum, if there is any."""
        if self.momentum == 0.0:
            return None
        return zeros_of(weight, weight.stype if self.lazy_update else "default")

    def _get_lrs(self, indices: Any) -> list[float]:
        lr = self.learning_rate
        self.last_lr = lr if self.cur_lr is None else self.cur_lr
        self.cur_lr = lr
        return [lr * each for each in self._multipliers(indices, "lr_mult")]

    def _momentum(self) -> dict[str, float]:
        told = super()._momentum()
        if told and self.momentum_correction and self.last_lr:
            told["momentum"] *= self.cur_lr / self.last_lr  # type: ignore[operator]
        return told

    def _update_one(
        self, index: Index, weight: NDArray, grad: NDArray, state: Any, master: Any, settings: dict[str, Any]
    ) -> None:
        lr = settings["lr"] * self._trust(index, weight, grad, settings["wd"])
        sgd_step(weight, grad, state, master, dict(settings, lr=lr, lazy_update=self.lazy_update))

    def _trust(self, index: Index, weight: NDArray, grad: NDArray, wd: float) -> float:
        """What the weight's rate is multiplied by."""
        if str(self.idx2name.get(index, index)).endswith(("gamma", "beta", "bias")):
            return 1.0
        of_weight, of_grad = l2norm(weight), l2norm(grad) * self.rescale_grad
        if of_weight <= 0 or of_grad <= 0:
            return 1.0
        return self.eta * of_weight / (of_grad + wd * of_weight + self.eps)


def l2norm(array: NDArray) -> float:
    """The root of the sum of squares, in float32."""
    return float(array.astype("float32").norm().asscalar())


@register
class LBSGD(Optimizer):
    """SGD for large batches put together of `batch_scale` small ones, with a warmup of the rate, or LARS.

    `warmup_strategy` is 'linear', 'power2' or 'sqrt', by which the rate grows to `batch_scale` times itself during
    `warmup_epochs`, or 'lars'.
    """

    def __init__(
        self,
        momentum: float = 0.0,
        multi_precision: bool = False,
        warmup_strategy: str = "linear",
        warmup_epochs: int = 5,
        batch_scale: float = 1,
        updates_per_epoch: int = 32,
        begin_epoch: int = 0,
        num_epochs: int = 60,
        **kwargs: Any,
    ):
        super().__init__(multi_precision=multi_precision, **kwargs)
        self.momentum = momentum
        self.warmup_strategy = warmup_strategy
        self.warmup_epochs = warmup_epochs
        self.batch_scale = batch_scale
        self.updates_per_epoch = updates_per_epoch
        self.init_updates = begin_epoch * updates_per_epoch
        self.num_epochs = num_epochs
        self.cumgrads: dict[Index, dict[str, Any]] = {}

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """The momentum, if there is any."""
        return zeros_of(weight, weight.stype) if self.momentum != 0.0 else None

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Add the gradient to those gathered; when `batch_scale` are, change the weight and its state."""
        lr, wd = self._get_lr(index), self._get_wd(index)
        self._update_count(index)
        gathered = self.cumgrads.setdefault(index, {"cum_grad": 0, "num_cums": self.init_updates})
        gathered["cum_grad"] = gathered["cum_grad"] + grad
        gathered["num_cums"] = count = gathered["num_cums"] + 1
        if count % self.batch_scale:
            return
        grad = gathered["cum_grad"] / self.batch_scale
        gathered["cum_grad"] = 0
        lr *= self._lars(weight, grad, wd) if self.warmup_strategy == "lars" else self._warmup(count)
        settings = dict(self._scaling(), lr=lr, wd=wd, momentum=self.momentum)
        sgd_step(weight, grad, state, None, settings)

    def _warmup(self, count: int) -> float:
        """What the rate is multiplied by after so many batches."""
        whole = self.warmup_epochs * self.updates_per_epoch
        if count >= whole:
            return float(self.batch_scale)
        part = count / whole
        grown = {"linear": part, "power2": part * part, "sqrt": math.sqrt(part)}.get(self.warmup_strategy, 0.0)
        return 1.0 + (self.batch_scale - 1) * grown if whole > 1 else 1.0

    def _lars(self, weight: NDArray, grad: NDArray, wd: float) -> float:
        of_weight, of_grad = l2norm(weight) ** 2, l2norm(grad) ** 2
        return min(max(math.sqrt(of_weight / (of_grad + wd * of_weight + 1e-18)), 0.01), 100.0)


@register
class LAMB(OfLists):
    """Adam's direction with decay, its length scaled to the weight's (within `lower_bound` and `upper_bound`)."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-6,
        lower_bound: float | None = None,
        upper_bound: float | None = None,
        bias_correction: bool = True,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lower_bound = lower_bound
        self.upper_bound = upper_bound
        self.bias_correction = bias_correction
        self.aggregate_num = 45

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(the average of the gradient, the average of its square)."""
        return zeros_of(weight), zeros_of(weight)

    def _update_each(self, index: list, weight: list, grad: list, state: list, masters: bool) -> None:
        copies = []
        if masters:
            copies, state = [[each[0] for each in state]], [each[1] for each in state]
        step = nd.contrib.multi_mp_lamb_update if masters else nd.contrib.multi_lamb_update
        step(
            weight,
            grad,
            [mean for mean, _ in state],
            [var for _, var in state],
            *copies,
            out=weight,
            step_count=[self._index_update_count[i] for i in index],
            lrs=self._get_lrs(index),
            wds=self._get_wds(index),
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            bias_correction=self.bias_correction,
            lower_bound=self.lower_bound or -1.0,
            upper_bound=self.upper_bound or -1.0,
            **self._scaling(),
        )
