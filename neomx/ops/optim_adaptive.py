"""Optimizer update ops that adapt to the past gradients of each element: Adam, LAMB, RMSProp, AdaGrad, FTRL, FTML.

They follow the conventions of `optim.py`.
"""

from __future__ import annotations

import math

import torch

from ..base import MXNetError
from .optim import clipped, each, groups, raw, single
from .table import Floats, Shape, op, typed

Tensor = torch.Tensor


def _moments(grad: Tensor, mean: Tensor, var: Tensor, beta1: float, beta2: float) -> None:
    """Update the running averages of the gradient and of its square in place."""
    beta1, beta2 = single(beta1), single(beta2)
    mean.lerp_(grad, 1 - beta1)
    var.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)


def _decayed(grad: Tensor, weight: Tensor, rescale: float, clip: float, wd: float) -> Tensor:
    """Return the rescaled gradient plus wd * weight, clipped, as a new tensor."""
    if rescale == 1:
        g = torch.add(grad, weight, alpha=wd)
    else:
        g = torch.mul(grad, rescale).add_(weight, alpha=wd)
    return g.clamp_(-clip, clip) if clip >= 0 else g


# ---- Adam ----


@op("adam_update", same_dtype=True, mutates=("mean", "var"))
def adam_update(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """weight - lr * mean / (sqrt(var) + epsilon), with running averages of grad + wd * weight and of its square."""
    weight, grad, mean, var = raw(weight, grad, mean, var)
    grad = _decayed(grad, weight, rescale_grad, clip_gradient, wd)
    _moments(grad, mean, var, beta1, beta2)
    return torch.addcdiv(weight, mean, torch.sqrt(var, out=grad).add_(epsilon), value=-lr)


def _adamw(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    rescale: float,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    wd: float,
    eta: float,
    clip: float,
    out: Tensor | None = None,
) -> Tensor:
    """Return the weight after an AdamW step, unchanged if `rescale` is 0, infinite or NaN: loss scaling overflowed."""
    if rescale == 0 or not math.isfinite(rescale):
        return weight.clone() if out is None else out
    grad = clipped(grad, weight, rescale, clip)
    _moments(grad, mean, var, beta1, beta2)
    denominator = torch.sqrt(var, out=grad).add_(epsilon)
    return torch.mul(weight, 1 - eta * wd, out=out).addcdiv_(mean, denominator, value=-eta * lr)


@op("_adamw_update", mutates=("mean", "var"))
def adamw_update(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    rescale_grad: Tensor,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0.0,
    eta: float,
    clip_gradient: float = -1.0,
) -> Tensor:
    """weight - eta * (lr * mean / (sqrt(var) + epsilon) + wd * weight), unless rescale_grad is 0, infinite or NaN."""
    weight, grad, mean, var = raw(weight, grad, mean, var)
    settings = (_number(rescale_grad), lr, beta1, beta2, epsilon, wd, eta, clip_gradient)
    return _adamw(weight, grad, mean, var, *settings)


@op("_mp_adamw_update", mutates=("mean", "var", "weight32"))
def mp_adamw_update(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    weight32: Tensor,
    rescale_grad: Tensor,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wd: float = 0.0,
    eta: float,
    clip_gradient: float = -1.0,
) -> Tensor:
    """_adamw_update of the master copy weight32. Returns it in the dtype of weight."""
    master, grad, mean, var = raw(weight32, grad, mean, var)
    settings = (_number(rescale_grad), lr, beta1, beta2, epsilon, wd, eta, clip_gradient)
    return _adamw(master, grad, mean, var, *settings, out=master).to(weight.dtype)


def _number(rescale_grad: Tensor) -> float:
    if rescale_grad.numel() != 1:
        raise MXNetError(f"expected rescale_grad to be an array of one element, got shape {tuple(rescale_grad.shape)}")
    return rescale_grad.item()


@op("_multi_adamw_update", mutates=("data",), outputs=lambda a: a["num_weights"])
def multi_adamw_update(
    *data: Tensor,
    lrs: Floats,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wds: Floats,
    etas: Floats,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """_adamw_update of several weights. The arrays are weight, grad, mean and var of each, and rescale_grad."""
    rows = groups(data[:-1], 4, num_weights)
    each(num_weights, lrs=lrs, wds=wds, etas=etas)
    rescale = _number(data[-1])
    return [
        _adamw(weight, grad, mean, var, rescale, lr, beta1, beta2, epsilon, wd, eta, clip_gradient)
        for (weight, grad, mean, var), lr, wd, eta in zip(rows, lrs, wds, etas, strict=True)
    ]


@op("_multi_mp_adamw_update", mutates=("data",), outputs=lambda a: a["num_weights"])
def multi_mp_adamw_update(
    *data: Tensor,
    lrs: Floats,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    wds: Floats,
    etas: Floats,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """_mp_adamw_update of several weights. The arrays are weight, grad, mean, var, weight32 each, and rescale_grad."""
    rows = groups(data[:-1], 5, num_weights)
    each(num_weights, lrs=lrs, wds=wds, etas=etas)
    rescale = _number(data[-1])
    return [
        _adamw(master, grad, mean, var, rescale, lr, beta1, beta2, epsilon, wd, eta, clip_gradient, out=master).to(
            weight.dtype
        )
        for (weight, grad, mean, var, master), lr, wd, eta in zip(rows, lrs, wds, etas, strict=True)
    ]


# ---- LAMB ----


def _lamb_direction(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    t: int,
    bias_correction: bool,
    wd: float,
    rescale: float,
    clip: float,
) -> Tensor:
    grad = clipped(grad, weight, rescale, clip)
    _moments(grad, mean, var, beta1, beta2)
    if bias_correction:
        mean_weight, var_weight = 1 - single(beta1) ** t, 1 - single(beta2) ** t
        denominator = torch.div(var, var_weight, out=grad).sqrt_().add_(epsilon)
        direction = denominator.reciprocal_().mul_(mean).mul_(1 / mean_weight)
    else:
        direction = torch.sqrt(var, out=grad).add_(epsilon).reciprocal_().mul_(mean)
    return direction.add_(weight, alpha=wd) if wd else direction


def _lamb_step(
    weight: Tensor,
    direction: Tensor,
    r1: Tensor,
    r2: Tensor,
    lr: float,
    lower: float,
    upper: float,
    out: Tensor | None = None,
) -> Tensor:
    """Return weight - lr * r1 / r2 * direction: r1 is |weight| within bounds, r2 |direction|; a 0 makes the ratio 1."""
    norm = r1.clamp(lower if lower > 0 else None, upper if upper > 0 else None) if lower > 0 or upper > 0 else r1
    ratio = torch.where((norm == 0) | (r2 == 0), 1.0, norm / r2)
    return torch.addcmul(weight, direction, ratio, value=-lr, out=out)


@op("lamb_update_phase1", same_dtype=True, mutates=("mean", "var"))
def lamb_update_phase1(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    t: int,
    bias_correction: bool = True,
    wd: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """The direction of a LAMB step: mean / (sqrt(var) + epsilon) + wd * weight."""
    weight, grad, mean, var = raw(weight, grad, mean, var)
    settings = (beta1, beta2, epsilon, t, bias_correction, wd, rescale_grad, clip_gradient)
    return _lamb_direction(weight, grad, mean, var, *settings)


@op("lamb_update_phase2")
def lamb_update_phase2(
    weight: Tensor,
    g: Tensor,
    r1: Tensor,
    r2: Tensor,
    *,
    lr: float,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
) -> Tensor:
    """The LAMB step along the direction g, given the norms r1 of weight and r2 of g."""
    weight, g = raw(weight, g)
    return _lamb_step(weight, g, r1.data, r2.data, lr, lower_bound, upper_bound)


@op("mp_lamb_update_phase1", mutates=("mean", "var"), types=typed([torch.float32]))
def mp_lamb_update_phase1(
    weight: Tensor,
    grad: Tensor,
    mean: Tensor,
    var: Tensor,
    weight32: Tensor,
    *,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    t: int,
    bias_correction: bool = True,
    wd: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """lamb_update_phase1 of the master copy weight32, in its precision."""
    master, grad, mean, var = raw(weight32, grad, mean, var)
    settings = (beta1, beta2, epsilon, t, bias_correction, wd, rescale_grad, clip_gradient)
    return _lamb_direction(master, grad, mean, var, *settings)


@op("mp_lamb_update_phase2", mutates=("weight32",))
def mp_lamb_update_phase2(
    weight: Tensor,
    g: Tensor,
    r1: Tensor,
    r2: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
) -> Tensor:
    """lamb_update_phase2 of the master copy weight32. Returns it in the dtype of weight."""
    master, g = raw(weight32, g)
    return _lamb_step(master, g, r1.data, r2.data, lr, lower_bound, upper_bound, out=master).to(weight.dtype)


@op("_multi_lamb_update", same_dtype=True, mutates=("data",), outputs=lambda a: a["num_tensors"])
def multi_lamb_update(
    *data: Tensor,
    learning_rates: Floats,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    wds: Floats,
    rescale_grad: float = 1.0,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    clip_gradient: float = -1.0,
    bias_correction: bool = True,
    step_count: Shape,
    num_tensors: int = 1,
) -> list[Tensor]:
    """LAMB step of several weights. The arrays are weight, grad, mean and var of each."""
    rows = groups(data, 4, num_tensors)
    each(num_tensors, learning_rates=learning_rates, wds=wds, step_count=step_count)
    results = []
    for (weight, grad, mean, var), lr, wd, t in zip(rows, learning_rates, wds, step_count, strict=True):
        settings = (beta1, beta2, epsilon, t, bias_correction, wd, rescale_grad, clip_gradient)
        g = _lamb_direction(weight, grad, mean, var, *settings)
        results.append(_lamb_step(weight, g, weight.norm(), g.norm(), lr, lower_bound, upper_bound))
    return results


@op("_multi_mp_lamb_update", mutates=("data",), outputs=lambda a: a["num_tensors"])
def multi_mp_lamb_update(
    *data: Tensor,
    learning_rates: Floats,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-6,
    wds: Floats,
    rescale_grad: float = 1.0,
    lower_bound: float = -1.0,
    upper_bound: float = -1.0,
    clip_gradient: float = -1.0,
    bias_correction: bool = True,
    step_count: Shape,
    num_tensors: int = 1,
) -> list[Tensor]:
    """LAMB step of several master copies. The arrays are weight, grad, mean, var and weight32 of each."""
    rows = groups(data, 5, num_tensors)
    each(num_tensors, learning_rates=learning_rates, wds=wds, step_count=step_count)
    results = []
    for (weight, grad, mean, var, master), lr, wd, t in zip(rows, learning_rates, wds, step_count, strict=True):
        settings = (beta1, beta2, epsilon, t, bias_correction, wd, rescale_grad, clip_gradient)
        g = _lamb_direction(master, grad, mean, var, *settings)
        r1 = weight.square().sum(dtype=master.dtype).sqrt_()  # MXNet uses the norm of the weight, not the master copy
        _lamb_step(master, g, r1, g.norm(), lr, lower_bound, upper_bound, out=master)
        results.append(master.to(weight.dtype))
    return results


# ---- RMSProp ----


@op("rmsprop_update", same_dtype=True, mutates=("n",))
def rmsprop_update(
    weight: Tensor,
    grad: Tensor,
    n: Tensor,
    *,
    lr: float,
    gamma1: float = 0.95,
    epsilon: float = 1e-8,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
) -> Tensor:
    """weight - lr * grad / sqrt(n + epsilon), where n is the running average of the squared gradient."""
    weight, grad, n = raw(weight, grad, n)
    grad = _decayed(grad, weight, rescale_grad, clip_gradient, wd)
    gamma1 = single(gamma1)
    n.mul_(gamma1).addcmul_(grad, grad, value=1 - gamma1)
    result = grad.div_(torch.add(n, epsilon).sqrt_()).mul_(-lr).add_(weight)
    return result.clamp_(-clip_weights, clip_weights) if clip_weights >= 0 else result


@op("rmspropalex_update", same_dtype=True, mutates=("n", "g", "delta"))
def rmspropalex_update(
    weight: Tensor,
    grad: Tensor,
    n: Tensor,
    g: Tensor,
    delta: Tensor,
    *,
    lr: float,
    gamma1: float = 0.95,
    gamma2: float = 0.9,
    epsilon: float = 1e-8,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    clip_weights: float = -1.0,
) -> Tensor:
    """RMSProp with momentum delta and the gradient's variance n - g * g instead of its mean square."""
    weight, grad, n, g, delta = raw(weight, grad, n, g, delta)
    grad = _decayed(grad, weight, rescale_grad, clip_gradient, wd)
    gamma1 = single(gamma1)
    n.mul_(gamma1).addcmul_(grad, grad, value=1 - gamma1)
    g.lerp_(grad, 1 - gamma1)
    deviation = torch.addcmul(n, g, g, value=-1).add_(epsilon).sqrt_()
    delta.mul_(gamma2).addcdiv_(grad, deviation, value=-lr)
    result = weight + delta
    return result.clamp_(-clip_weights, clip_weights) if clip_weights >= 0 else result


# ---- AdaGrad ----


@op("_sparse_adagrad_update", same_dtype=True, mutates=("history",))
def adagrad_update(
    weight: Tensor,
    grad: Tensor,
    history: Tensor,
    *,
    lr: float,
    epsilon: float = 1e-7,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """weight - lr * (grad / sqrt(history + epsilon) + wd * weight), where history is the sum of squared gradients."""
    weight, grad, history = raw(weight, grad, history)
    grad = clipped(grad, weight, rescale_grad, clip_gradient)
    history.addcmul_(grad, grad)
    return grad.div_(torch.add(history, epsilon).sqrt_()).mul_(-lr).add_(weight, alpha=1 - lr * wd)


@op("_contrib_group_adagrad_update", same_dtype=True, mutates=("history",))
def group_adagrad_update(
    weight: Tensor,
    grad: Tensor,
    history: Tensor,
    *,
    lr: float,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    epsilon: float = 1e-5,
) -> Tensor:
    """AdaGrad with one history value per row: the sum of the row's mean squared gradients."""
    (weight, grad), history = raw(weight, grad), history.data
    if history.shape != (weight.shape[0], *[1] * (weight.dim() - 1)):
        raise MXNetError("expected a history with the dimensions of weight and one element for each row")
    grad = clipped(grad, weight, rescale_grad, clip_gradient)
    history.add_(grad.square().mean(dim=tuple(range(1, grad.dim())), keepdim=True))
    return grad.div_(torch.add(history, epsilon).sqrt_()).mul_(-lr).add_(weight)


# ---- FTRL and FTML (follow the regularized or moving leader) ----


def _over(numerator: float, lr: float) -> float:
    """Return numerator / lr. It is infinite if lr is 0, which makes the weight NaN as in MXNet."""
    return numerator / lr if lr else math.inf


@op("ftrl_update", same_dtype=True, mutates=("z", "n"))
def ftrl_update(
    weight: Tensor,
    grad: Tensor,
    z: Tensor,
    n: Tensor,
    *,
    lr: float,
    lamda1: float = 0.01,
    beta: float = 1.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """FTRL-proximal: 0 where |z| <= lamda1, else (sign(z) * lamda1 - z) / ((beta + sqrt(n)) / lr + wd)."""
    weight, grad, z, n = raw(weight, grad, z, n)
    grad = clipped(grad, weight, rescale_grad, clip_gradient)
    before = n.sqrt()
    n.addcmul_(grad, grad)
    root = n.sqrt()
    z.add_(grad).addcmul_(torch.sub(root, before, out=before), weight, value=-_over(1, lr))
    return torch.nn.functional.softshrink(z, lamda1).div_(root.add_(beta).div_(-lr).sub_(wd))


@op("ftml_update", same_dtype=True, mutates=("d", "v", "z"))
def ftml_update(
    weight: Tensor,
    grad: Tensor,
    d: Tensor,
    v: Tensor,
    z: Tensor,
    *,
    lr: float,
    beta1: float = 0.6,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    t: int,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_grad: float = -1.0,
) -> Tensor:
    """FTML: -z / d, where d is derived from the averaged squared gradient v, and z accumulates the gradients."""
    weight, grad, d, v, z = raw(weight, grad, d, v, z)
    grad = _decayed(grad, weight, rescale_grad, clip_grad, wd)
    beta1, beta2 = single(beta1), single(beta2)
    v.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    new = torch.div(v, 1 - beta2**t).sqrt_().add_(epsilon).mul_(_over(1 - beta1**t, lr))
    sigma = torch.sub(new, d, alpha=beta1, out=d)
    z.mul_(beta1).add_(grad, alpha=1 - beta1).addcmul_(sigma, weight, value=-1)
    d.copy_(new)
    return torch.div(z, new, out=grad).neg_()
