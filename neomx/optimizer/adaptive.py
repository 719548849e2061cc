"""Adaptive optimizers, which scale the step of each element by its past gradients: Adam, RMSProp, AdaGrad, FTRL."""

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
    """Return the initial averages, zeros, of a dense weight's gradient and of its square."""
    mean, var = (Moment(zeros_of(weight)._data, weight.context) for _ in range(2))
    return mean, var


@register
class Adam(Optimizer):
    """Adam: running averages of the gradient and of its square, with bias correction.

    With `lazy_update`, a row_sparse gradient updates only the rows that it contains.
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
        """Return (the average of the gradient, the average of its square)."""
        stype = weight.stype if self.lazy_update else "default"
        if stype == "default":
            return moments_of(weight)
        return zeros_of(weight, stype), zeros_of(weight, stype)

    def _corrected(self, lr: float, count: int) -> float:
        return lr * math.sqrt(1 - self.beta2**count) / (1 - self.beta1**count)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
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
    """Return an update count that disables torch's bias correction: the rate already includes it."""
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
    """Run a step with one of torch's Adam kernels. Moments are stored divided by the scale of the gradients."""
    means, variances = zip(*states, strict=True)
    moments = kept(means, scale), kept(variances, scale * scale)
    counts = [count] * len(weights)
    kernel(weights, grads, *moments, [], counts, eps=eps / scale, amsgrad=False, maximize=False, **settings)


@rule(Adam, moments=True)
def adam(
    optimizer: Adam, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> None:
    """Update many weights by Adam."""
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
    """Adam with decoupled weight decay: the weight shrinks by lr * wd, as in `torch.optim.AdamW`."""

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
        """Update a weight and its state in place."""
        lr, wd = self._begin(index)
        count = self._index_update_count[index]
        # The op averages with single precision betas. Using them for the correction too cancels their rounding errors.
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
    """Update many weights by AdamW."""
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
    """Return new gradients, rescaled, with weight decay, and then clipped."""
    result = list(torch._foreach_mul(grads, optimizer.rescale_grad))
    if wd:
        torch._foreach_add_(result, weights, alpha=wd)
    return clamp_(result, optimizer.clip_gradient)


@register
class Adamax(Optimizer):
    """Adam with a decaying maximum of past gradients instead of the root of the average square."""

    updates_apart = True

    def __init__(self, learning_rate: float = 0.002, beta1: float = 0.9, beta2: float = 0.999, **kwargs: Any):
        super().__init__(learning_rate=learning_rate, **kwargs)
        self.beta1 = beta1
        self.beta2 = beta2

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return (the average of the gradient, the largest gradient)."""
        return zeros_of(weight), zeros_of(weight)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
        lr, wd = self._begin(index)
        grad = self._clipped(grad * self.rescale_grad + wd * weight)
        mean, largest = state
        mean[:] = self.beta1 * mean + (1 - self.beta1) * grad
        largest[:] = nd.maximum(self.beta2 * largest, grad.abs())
        step = mean / (largest + (largest == 0))  # no step where all gradients were 0, where MXNet returns NaN
        weight[:] -= lr / (1 - self.beta1 ** self._index_update_count[index]) * step


@register
class Nadam(Optimizer):
    """Adam with Nesterov momentum, on a schedule that all weights share."""

    updates_alike = False  # the schedule advances with each replica

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
        """Return (the average of the gradient, the average of its square)."""
        return zeros_of(weight), zeros_of(weight)

    def _momentum_at(self, count: int) -> float:
        return self.beta1 * (1 - 0.5 * 0.96 ** (count * self.schedule_decay))

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
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
    """FTML: follow the moving leader."""

    updates_apart = True

    def __init__(self, beta1: float = 0.6, beta2: float = 0.999, epsilon: float = 1e-8, **kwargs: Any):
        super().__init__(**kwargs)
        self.beta1 = beta1
        self.beta2 = beta2
        self.epsilon = epsilon

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return (d, v, z) of the op `ftml_update`."""
        return zeros_of(weight), zeros_of(weight), zeros_of(weight)

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
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
    """FTRL: follow the regularized leader. Weights with accumulated gradients below `lamda1` stay zero."""

    updates_apart = True

    def __init__(self, lamda1: float = 0.01, learning_rate: float = 0.1, beta: float = 1, **kwargs: Any):
        super().__init__(**kwargs)
        self.lr = learning_rate  # unlike in the other optimizers, a schedule keeps its base_lr, as in MXNet
        self.lamda1 = lamda1
        self.beta = beta

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return (z, n) of the op `ftrl_update`."""
        return zeros_of(weight, weight.stype, "float32"), zeros_of(weight, weight.stype, "float32")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
        lr, wd = self._begin(index)
        settings = dict(self._scaling(), lamda1=self.lamda1, beta=self.beta)
        nd.ftrl_update(weight, grad, *state, out=weight, lr=lr, wd=wd, **settings)


@register
class AdaGrad(Optimizer):
    """AdaGrad: divides the gradient by the root of the sum of its past squares."""

    updates_apart = True

    def __init__(self, eps: float = 1e-7, **kwargs: Any):
        super().__init__(**kwargs)
        self.float_stable_eps = eps

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return the sum of squared gradients."""
        return zeros_of(weight, weight.stype, "float32")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place. A row_sparse gradient updates only the rows that it contains."""
        lr, wd = self._begin(index)
        settings = dict(self._scaling(), lr=lr, wd=wd, epsilon=self.float_stable_eps)
        nd.sparse.adagrad_update(weight, grad, state, out=weight, **settings)  # type: ignore[attr-defined]


@rule(AdaGrad)
def adagrad(
    optimizer: AdaGrad, weights: Tensors, grads: Tensors, states: list[Any], lr: float, wd: float, count: int
) -> None:
    """Update many weights by AdaGrad."""
    sums, grads = [state._data for state in states], clipped(optimizer, grads)
    torch._foreach_addcmul_(sums, grads, grads)
    if wd:
        torch._foreach_mul_(weights, 1 - lr * wd)
    torch._foreach_addcdiv_(weights, grads, _root(sums, optimizer.float_stable_eps), -lr)


def _root(squares: Tensors, epsilon: float) -> Tensors:
    """Return the square roots of squares + epsilon as new tensors."""
    roots = list(torch._foreach_add(squares, epsilon))
    torch._foreach_sqrt_(roots)
    return roots


@register
class AdaDelta(Optimizer):
    """AdaDelta: steps proportional to the ratio of past steps to past gradients, without a learning rate."""

    updates_apart = True

    def __init__(self, rho: float = 0.9, epsilon: float = 1e-5, **kwargs: Any):
        super().__init__(**kwargs)
        self.rho = rho
        self.epsilon = epsilon

    def create_state(self, index: Index, weight: NDArray) -> Any:
        """Return (the average of the squared gradient, the average of the squared step)."""
        return zeros_of(weight, dtype="float32"), zeros_of(weight, dtype="float32")

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
        _, wd = self._begin(index)
        grad = self._scaled(grad)
        of_grads, of_steps = state
        of_grads[:] = self.rho * of_grads + (1 - self.rho) * grad * grad
        step = (of_steps + self.epsilon).sqrt() / (of_grads + self.epsilon).sqrt() * grad
        of_steps[:] = self.rho * of_steps + (1 - self.rho) * step * step
        weight[:] -= step + wd * weight


@register
class RMSProp(Optimizer):
    """RMSProp: divides the gradient by its root mean square or, if `centered`, by its deviation with momentum."""

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
        """Return (the average square,), or if centered (the average square, the average, the momentum)."""
        return tuple(zeros_of(weight, weight.stype, "float32") for _ in range(3 if self.centered else 1))

    def update(self, index: Index, weight: NDArray, grad: NDArray, state: Any) -> None:
        """Update a weight and its state in place."""
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
    """Update many weights by RMSProp."""
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
