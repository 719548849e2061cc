"""Optimizers for large batches, with a separate learning rate for each weight: LARS, LBSGD, LAMB."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from .. import ndarray as nd
from ..ndarray import NDArray
from ..ops.optim import single
from .adaptive import long_ago, moments_of, run_kernel
from .base import Index, Optimizer, register
from .fused import Sums, Tensors, clipped, rule
from .part import Part, Steps, in_step, square
from .sgd import MasterLast, OfLists, aggregation, sgd_step, zeros_of


@register
class LARS(MasterLast):
    """LARS: SGD with the rate of each weight scaled by eta * |weight| / (|grad| + wd * |weight| + eps).

    The rate of parameters named *gamma, *beta or *bias is not scaled. With `momentum_correction`, the momentum is
    scaled when the rate changes.
    """

    needs_whole_weights: ClassVar[bool] = True

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
        """Return the momentum, or None if it is 0."""
        if self.momentum == 0.0:
            return None
        return zeros_of(weight, weight.stype if self.lazy_update else "default")

    def _get_lrs(self, indices: Any) -> list[float]:
        lr = self.current_rate
        self.last_lr = lr if self.cur_lr is None else self.cur_lr
        self.cur_lr = lr
        return [lr * each for each in self._multipliers(indices, "lr_mult")]

    def _momentum(self) -> dict[str, float]:
        told = super()._momentum()
        if told and self.momentum_correction and self.last_lr:
            told["momentum"] *= self.cur_lr / self.last_lr  # type: ignore[operator]
        return told

    def _update_each(self, index: list, weight: list, grad: list, state: list, masters: bool) -> None:
        in_step([self._steps(index, weight, grad, state, masters)])

    def _steps(self, index: list, weight: list, grad: list, state: list, masters: bool) -> Steps:
        lrs, wds = self._get_lrs(index), self._get_wds(index)
        settings = {**self._scaling(), **self._momentum(), "lazy_update": self.lazy_update}
        sums = yield [pair for w, g in zip(weight, grad, strict=True) for pair in ((w, square(w)), (w, square(g)))]
        norms = torch.stack(sums).sqrt().reshape(-1, 2).tolist()
        for i, w, g, s, lr, wd, (of_w, of_g) in zip(index, weight, grad, state, lrs, wds, norms, strict=True):
            inner, master = s if masters else (s, None)
            sgd_step(w, g, inner, master, dict(settings, lr=lr * self._trust(i, of_w, of_g, wd), wd=wd))

    def _trust(self, index: Index, of_weight: float, of_grad: float, wd: float) -> float:
        """Return the factor of the rate for a weight and a gradient with these norms."""
        of_grad *= self.rescale_grad
        if of_weight <= 0 or of_grad <= 0 or str(self.idx2name.get(index, index)).endswith(("gamma", "beta", "bias")):
            return 1.0
        return self.eta * of_weight / (of_grad + wd * of_weight + self.eps)


@register
class LBSGD(Optimizer):
    """SGD for large batches accumulated from `batch_scale` small ones, with a warmup of the rate, or LARS.

    `warmup_strategy` is 'linear', 'power2' or 'sqrt', to increase the rate to `batch_scale` times its value during
    `warmup_epochs`, or 'lars'.
    """

    needs_whole_weights: ClassVar[bool] = True
    _arrays_by_index: ClassVar[tuple[str, ...]] = ("cumgrads",)

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
        """Return the momentum, or None if it is 0."""
        return zeros_of(weight, weight.stype) if self.momentum != 0.0 else None

    def begin_updates(self, indices: Sequence[Index]) -> float:
        """Count an update of each parameter and return the rate before it, as in MXNet."""
        lr = self.current_rate
        self._update_count(indices)
        return lr

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Accumulate the gradient. After `batch_scale` gradients, update the weight and its state in place."""
        in_step([self._steps(index, weight, grad, state)])

    def _steps(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> Steps:
        lr = self.begin_updates([index]) * self._multipliers([index], "lr_mult")[0]
        wd = self._get_wd(index)
        gathered = self.cumgrads.setdefault(index, {"cum_grad": 0, "num_cums": self.init_updates})
        gathered["cum_grad"] = gathered["cum_grad"] + grad
        gathered["num_cums"] = count = gathered["num_cums"] + 1
        if count % self.batch_scale:
            return
        grad = gathered["cum_grad"] / self.batch_scale
        gathered["cum_grad"] = 0
        if self.warmup_strategy == "lars":
            sums = yield [(weight, square(weight)), (weight, square(grad))]
            of_weight, of_grad = torch.stack(sums).tolist()
            lr *= self._lars(of_weight, of_grad, wd)
        else:
            lr *= self._warmup(count)
        settings = dict(self._scaling(), lr=lr, wd=wd, momentum=self.momentum)
        sgd_step(weight, grad, state, None, settings)

    def _warmup(self, count: int) -> float:
        """Return the factor of the rate after a number of batches."""
        whole = self.warmup_epochs * self.updates_per_epoch
        if count >= whole:
            return float(self.batch_scale)
        part = count / whole
        grown = {"linear": part, "power2": part * part, "sqrt": math.sqrt(part)}.get(self.warmup_strategy, 0.0)
        return 1.0 + (self.batch_scale - 1) * grown if whole > 1 else 1.0

    def _lars(self, of_weight: float, of_grad: float, wd: float) -> float:
        """Return the factor of the rate for a weight and a gradient with these squared norms."""
        return min(max(math.sqrt(of_weight / (of_grad + wd * of_weight + 1e-18)), 0.01), 100.0)


@register
class LAMB(OfLists):
    """LAMB: Adam's step, scaled to the norm of the weight (clipped to `lower_bound` and `upper_bound`)."""

    needs_whole_weights: ClassVar[bool] = True
    updates_apart = True

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
        """Return (the average of the gradient, the average of its square)."""
        return moments_of(weight)

    def _split_state(self, weight: NDArray, state: Any) -> tuple[NDArray | None, Any]:
        """Return no float32 copy, so that ops update half precision: MXNet uses the norm of the weight itself."""
        return None, state

    def _update_each(self, index: list, weight: list, grad: list, state: list, masters: bool) -> None:
        if any(isinstance(each, Part) for each in weight):
            in_step([self._steps(index, weight, grad, state, masters)])
            return
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
            **self._settings(),
            **self._bounds(),
        )

    def _settings(self) -> dict[str, Any]:
        betas = {"beta1": self.beta1, "beta2": self.beta2, "epsilon": self.epsilon}
        return {**self._scaling(), **betas, "bias_correction": self.bias_correction}

    def _bounds(self) -> dict[str, float]:
        return {"lower_bound": self.lower_bound or -1.0, "upper_bound": self.upper_bound or -1.0}

    def _steps(self, index: list, weight: list, grad: list, state: list, masters: bool) -> Steps:
        """Run the update in two phases: all directions first, then all steps with the norms of whole weights."""
        rates, prefix = zip(self._get_lrs(index), self._get_wds(index), strict=True), "mp_" if masters else ""
        rows = []
        for i, w, g, s, (lr, wd) in zip(index, weight, grad, state, rates, strict=True):
            copies, (mean, var) = ([s[0]], s[1]) if masters else ([], s)
            settings = dict(self._settings(), wd=wd, t=self._index_update_count[i])
            direction = getattr(nd, f"{prefix}lamb_update_phase1")(w, g, mean, var, *copies, **settings)
            rows.append((w, direction, copies, lr))
        sums = yield [pair for w, d, *_ in rows for pair in ((w, _measured(w, masters)), (w, square(d)))]
        for (w, direction, copies, lr), *squares in zip(rows, sums[::2], sums[1::2], strict=True):
            norms = [NDArray(each.sqrt().to(direction._data.dtype), w.context) for each in squares]
            getattr(nd, f"{prefix}lamb_update_phase2")(w, direction, *norms, *copies, out=w, lr=lr, **self._bounds())


def _measured(weight: NDArray, has_master: bool) -> torch.Tensor:
    """Return this rank's share of a weight's squared norm. With a float32 copy, squares are in half precision."""
    return weight._data.detach().square().sum(dtype=torch.float32).double() if has_master else square(weight)


@rule(LAMB, moments=True)
def lamb(
    optimizer: LAMB, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> Sums:
    """Update many weights by LAMB.

    torch's Adam with rate 1, starting from -wd * weight, computes the negative directions, divided by `factor`.
    """
    scale = optimizer.rescale_grad
    if optimizer.clip_gradient:
        grads, scale = clipped(optimizer, grads), 1.0
    betas = {"beta1": single(optimizer.beta1), "beta2": single(optimizer.beta2)}
    of_mean, of_var = (1 - beta**count for beta in betas.values()) if optimizer.bias_correction else (1.0, 1.0)
    factor = math.sqrt(of_var) / of_mean
    opposites = list(torch._foreach_mul(weights, -wd / factor))
    settings = dict(betas, lr=1.0, weight_decay=0.0, eps=optimizer.epsilon * math.sqrt(of_var))
    run_kernel(torch._fused_adam_, opposites, grads, states, scale, long_ago(weights[0].device), **settings)
    norms = torch.stack([torch.stack(torch._foreach_norm(each)) for each in (weights, opposites)], 1)
    squares = yield norms.double().square()
    lengths, of_opposites = squares.sqrt().unbind(1)
    lower, upper = optimizer._bounds().values()
    if lower > 0 or upper > 0:
        lengths = lengths.clamp(lower if lower > 0 else None, upper if upper > 0 else None)
    ratios = torch.where((lengths == 0) | (of_opposites == 0), factor, lengths / of_opposites)
    for weight, opposite, ratio in zip(weights, opposites, ratios.tolist(), strict=True):
        weight.add_(opposite, alpha=lr * ratio)
