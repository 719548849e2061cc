"""Optimizers that adapt the rate of each element to its past gradients: Adam and its kin, RMSProp, AdaGrad, FTRL."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from .. import ndarray as nd
from ..ndarray import NDArray
from ..ops.optim import single
from .base import Index, Optimizer, register
from .fused import Tensors, clamp_, clipped, kept, rule
from .moment import Moment
from .sgd import zeros_of


def moments_of(weight: NDArray) -> tuple[Moment, Moment]:
    """The averages, still zero, of a dense weight's gradient and of its square."""
    mean, var = (Moment(zeros_of(weight)._data, weight.context) for _ in range(2))
    return mean, var


@register
class Adam(Optimizer):
    """Running averages of the gradient and of its square, the rate corrected for their start at zero.

    With `lazy_update` a row_sparse gradient changes only the rows that it has.
    """

    updates_apart = True

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        lazy_update: bool = True,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.lazy_update = lazy_update

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(the average of the gradient, the average of its square)."""
        stype = weight.stype if self.lazy_update else "default"
        if stype == "default":
            return moments_of(weight)
        return zeros_of(weight, stype), zeros_of(weight, stype)

    def _corrected(self, lr: float, count: int) -> float:
        return lr * math.sqrt(1 - self.beta2**count) / (1 - self.beta1**count)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        lr, wd = self._begin(index)
        nd.adam_update(
            weight,
            grad,
            *state,
            out=weight,
            lr=self._corrected(lr, self._index_update_count[index]),
            wd=wd,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            lazy_update=self.lazy_update,
            **self._scaling(),
        )


@functools.cache
def long_ago(device: torch.device) -> torch.Tensor:
    """A count of updates at which torch's kernel corrects nothing: the correction is in the rate already."""
    return torch.tensor(math.inf, device=device)


def run_kernel(
    kernel: Any,
    weights: Tensors,
    grads: Tensors,
    states: list[Any],
    scale: float,
    count: torch.Tensor,
    eps: float,
    **settings: float,
) -> None:
    """A step by one of torch's kernels of Adam; moments are kept divided by the scale of the gradients."""
    means, variances = zip(*states, strict=True)
    moments = kept(means, scale), kept(variances, scale * scale)
    counts = [count] * len(weights)
    kernel(weights, grads, *moments, [], counts, eps=eps / scale, amsgrad=False, maximize=False, **settings)


@rule(Adam, moments=True)
def adam(
    optimizer: Adam, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> None:
    """Adam's step of many weights."""
    scale = optimizer.rescale_grad
    if optimizer.clip_gradient:
        grads, scale, wd = _decayed(optimizer, weights, grads, wd), 1.0, 0.0
    run_kernel(
        torch._fused_adam_,
        weights,
        grads,
        states,
        scale,
        long_ago(weights[0].device),
        lr=optimizer._corrected(lr, count),
        beta1=single(optimizer.beta1),
        beta2=single(optimizer.beta2),
        weight_decay=wd / scale,
        eps=optimizer.epsilon,
    )


@register
class AdamW(Adam):
    """Adam whose decay does not go through the averages: the weight shrinks by lr * wd, as in `torch.optim.AdamW`."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        **kwargs: Any,
    ):
        super().__init__(learning_rate, beta1, beta2, epsilon, lazy_update=False, **kwargs)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        lr, wd = self._begin(index)
        count = self._index_update_count[index]
        # The op averages with betas of single precision; corrected with the same, their rounding cancels out.
        of_mean, of_var = 1 - single(self.beta1) ** count, math.sqrt(1 - single(self.beta2) ** count)
        nd.contrib.adamw_update(
            weight,
            grad,
            *state,
            out=weight,
            lr=lr * of_var / of_mean,
            eta=1.0,
            wd=lr * wd,
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon * of_var,
            **self._scaling(),
        )


@rule(AdamW, moments=True)
def adamw(
    optimizer: AdamW, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> None:
    """AdamW's step of many weights."""
    scale = optimizer.rescale_grad
    if optimizer.clip_gradient:
        grads, scale = clipped(optimizer, grads), 1.0
    run_kernel(
        torch._fused_adamw_,
        weights,
        grads,
        states,
        scale,
        torch.tensor(float(count), device=weights[0].device),
        lr=lr,
        beta1=optimizer.beta1,
        beta2=optimizer.beta2,
        weight_decay=wd,
        eps=optimizer.epsilon,
    )


def _decayed(optimizer: Optimizer, weights: Tensors, grads: Tensors, wd: float) -> Tensors:
    """New gradients, rescaled, with decay, and then clipped."""
    result = list(torch._foreach_mul(grads, optimizer.rescale_grad))
    if wd:
        torch._foreach_add_(result, weights, alpha=wd)
    return clamp_(result, optimizer.clip_gradient)


@register
class Adamax(Optimizer):
    """Adam with the largest gradient so far, which fades, in place of the root of the average square."""

    updates_apart = True

    def __init__(self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(the average of the gradient, the largest)."""
        return zeros_of(weight), zeros_of(weight)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        lr, wd = self._begin(index)
        grad = self._clipped(grad * self.rescale_grad + wd * weight)
        mean, largest = state
        mean[:] = self.beta1 * mean + (1 - self.beta1) * grad
        largest[:] = nd.maximum(self.beta2 * largest, grad.abs())
        step = mean / (largest + (largest == 0))  # no step where all gradients were 0, of which MXNet makes NaN
        weight[:] -= lr / (1 - self.beta1 ** self._index_update_count[index]) * step


@register
class Nadam(Optimizer):
    """Adam with Nesterov's momentum, which follows a schedule shared by all weights."""

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        schedule_decay: float = 0.004,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon
        self.schedule_decay = schedule_decay
        self.m_schedule = 1.0

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(the average of the gradient, the average of its square)."""
        return zeros_of(weight), zeros_of(weight)

    def _momentum_at(self, count: int) -> float:
        return self.beta1 * (1 - 0.5 * 0.96 ** (count * self.schedule_decay))

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        lr, wd = self._begin(index)
        count = self._index_update_count[index]
        grad = self._clipped(grad * self.rescale_grad + wd * weight)
        now, after = self._momentum_at(count), self._momentum_at(count + 1)
        self.m_schedule *= now
        mean, var = state
        mean[:] = self.beta1 * mean + (1 - self.beta1) * grad
        var[:] = self.beta2 * var + (1 - self.beta2) * grad * grad
        ahead = (1 - now) / (1 - self.m_schedule) * grad + after / (1 - self.m_schedule * after) * mean
        weight[:] -= lr * ahead / ((var / (1 - self.beta2**count)).sqrt() + self.epsilon)


@register
class FTML(Optimizer):
    """Follow the moving leader."""

    updates_apart = True

    def __init__(self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any):
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(d, v, z) of the op `ftml_update`."""
        return zeros_of(weight), zeros_of(weight), zeros_of(weight)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        lr, wd = self._begin(index)
        nd.ftml_update(
            weight,
            grad,
            *state,
            out=weight,
            lr=lr,
            wd=wd,
            t=self._index_update_count[index],
            beta1=self.beta1,
            beta2=self.beta2,
            epsilon=self.epsilon,
            rescale_grad=self.rescale_grad,
            clip_grad=self.clip_gradient or -1.0,
        )


@register
class Ftrl(Optimizer):
    """Follow the regularized leader: weights whose gradients do not reach `lamda1` stay zero."""

    updates_apart = True

    def __init__(self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.lr = learning_rate  # a schedule keeps its own base_lr here, as in MXNet, and in no other optimizer
        self.lamda1 = lamda1
        self.beta = beta

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(z, n) of the op `ftrl_update`."""
        return zeros_of(weight, weight.stype, "float32"), zeros_of(weight, weight.stype, "float32")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        lr, wd = self._begin(index)
        settings = dict(self._scaling(), lamda1=self.lamda1, beta=self.beta)
        nd.ftrl_update(weight, grad, *state, out=weight, lr=lr, wd=wd, **settings)


@register
class AdaGrad(Optimizer):
    """Divides the gradient by the root of the sum of all its squares so far."""

    updates_apart = True

    def __init__(self, eps: float = 1e-7, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """The sum of squared gradients."""
        return zeros_of(weight, weight.stype, "float32")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place; of a row_sparse gradient only the rows it has."""
        lr, wd = self._begin(index)
        settings = dict(self._scaling(), lr=lr, wd=wd, epsilon=self.float_stable_eps)
        nd.sparse.adagrad_update(weight, grad, state, out=weight, **settings)  # type: ignore[attr-defined]


@rule(AdaGrad)
def adagrad(
    optimizer: AdaGrad, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> None:
    """AdaGrad's step of many weights."""
    sums, grads = [state._data for state in states], clipped(optimizer, grads)
    torch._foreach_addcmul_(sums, grads, grads)
    if wd:
        torch._foreach_mul_(weights, 1 - lr * wd)
    torch._foreach_addcdiv_(weights, grads, _root(sums, optimizer.float_stable_eps), -lr)


def _root(squares: Tensors, epsilon: float) -> Tensors:
    """New tensors, the roots of squares + epsilon."""
    roots = list(torch._foreach_add(squares, epsilon))
    torch._foreach_sqrt_(roots)
    return roots


@register
class AdaDelta(Optimizer):
    """Steps in proportion to the average size of past steps over that of past gradients; has no learning rate."""

    updates_apart = True

    def __init__(self, rho: float = 0.9, epsilon: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(the average of the squared gradient, the average of the squared step)."""
        return zeros_of(weight, dtype="float32"), zeros_of(weight, dtype="float32")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        _, wd = self._begin(index)
        grad = self._scaled(grad)
        of_grads, of_steps = state
        of_grads[:] = self.rho * of_grads + (1 - self.rho) * grad * grad
        step = (of_steps + self.epsilon).sqrt() / (of_grads + self.epsilon).sqrt() * grad
        of_steps[:] = self.rho * of_steps + (1 - self.rho) * step * step
        weight[:] -= step + wd * weight


@register
class RMSProp(Optimizer):
    """Divides the gradient by the root of its average square; `centered`, by its deviation, and with momentum."""

    updates_apart = True

    def __init__(
        self,
        learning_rate: float = 0.001,
        gamma1: float = 0.9,
        gamma2: float = 0.9,
        epsilon: float = 1e-8,
        centered: bool = False,
        clip_weights: float | None = None,
        **kwargs: Any,
    ):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.gamma1 = gamma1
        self.gamma2 = gamma2
        self.centered = centered
        self.epsilon = epsilon
        self.clip_weights = clip_weights

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """(the average square,), or if centered (the average square, the average, the momentum)."""
        return tuple(zeros_of(weight, weight.stype, "float32") for _ in range(3 if self.centered else 1))

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Change a weight and its state in place."""
        lr, wd = self._begin(index)
        settings = dict(self._scaling(), lr=lr, wd=wd, gamma1=self.gamma1, epsilon=self.epsilon)
        if self.clip_weights:
            settings["clip_weights"] = self.clip_weights
        if self.centered:
            nd.rmspropalex_update(weight, grad, *state, out=weight, gamma2=self.gamma2, **settings)
        else:
            nd.rmsprop_update(weight, grad, *state, out=weight, **settings)


@rule(RMSProp)
def rmsprop(
    optimizer: RMSProp, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> None:
    """RMSProp's step of many weights."""
    squares = [state[0]._data for state in states]
    grads, gamma1 = _decayed(optimizer, weights, grads, wd), single(optimizer.gamma1)
    torch._foreach_mul_(squares, gamma1)
    torch._foreach_addcmul_(squares, grads, grads, 1 - gamma1)
    if optimizer.centered:
        means, momenta = [state[1]._data for state in states], [state[2]._data for state in states]
        torch._foreach_lerp_(means, grads, 1 - gamma1)
        deviations = list(torch._foreach_add(squares, optimizer.epsilon))
        torch._foreach_addcmul_(deviations, means, means, -1)
        torch._foreach_sqrt_(deviations)
        torch._foreach_mul_(momenta, optimizer.gamma2)
        torch._foreach_addcdiv_(momenta, grads, deviations, -lr)
        torch._foreach_add_(weights, momenta)
    else:
        torch._foreach_addcdiv_(weights, grads, _root(squares, optimizer.epsilon), -lr)
    if optimizer.clip_weights:
        clamp_(weights, optimizer.clip_weights)
