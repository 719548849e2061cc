"""Optimizer update ops. Each returns the new weight, which the front end writes to `out=weight`, and updates states.

An update rule is a private function. `weight` is its starting point and `out` receives the new weight (None: a new
tensor). There is an op for the rule itself, for a half precision weight with a float32 master copy (mp_), and for
several weights (multi_). Gradients are rescaled, then clipped if clip_gradient >= 0.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from ..base import MXNetError
from .table import Floats, op

Tensor = torch.Tensor


def raw(weight: Tensor, *others: Tensor) -> list[Tensor]:
    """Return a weight and arrays of its shape as tensors that autograd does not track."""
    for other in others:
        if other.shape != weight.shape:
            raise MXNetError(
                f"expected gradient and states with the weight's shape {tuple(weight.shape)}, got {tuple(other.shape)}"
            )
    return [weight.data, *[other.data for other in others]]


def single(number: float) -> float:
    """Round to single precision, as MXNet does for attributes: 1 - beta2 differs in the fifth digit."""
    return ctypes.c_float(number).value


def _scaled(grad: Tensor, weight: Tensor, rescale: float, clip: float) -> tuple[Tensor, float]:
    """Return a tensor and a factor whose product is the rescaled, clipped gradient. It copies only to clip."""
    if clip < 0:
        return grad, rescale
    return clipped(grad, weight, rescale, clip), 1.0


def clipped(grad: Tensor, weight: Tensor, rescale: float, clip: float) -> Tensor:
    """Return the rescaled, clipped gradient as a new tensor in the precision of the weight."""
    g = grad * rescale if grad.dtype is weight.dtype else grad.to(weight.dtype).mul_(rescale)
    return g.clamp_(-clip, clip) if clip >= 0 else g


def groups(data: Sequence[Tensor], size: int, count: int) -> list[list[Tensor]]:
    """Split the arrays of a multi_ op into `count` groups of `size` tensors."""
    if len(data) != size * count:
        raise MXNetError(
            f"expected {size} arrays for each of {count} weights, {size * count} in total, got {len(data)}"
        )
    return [raw(*data[i : i + size]) for i in range(0, len(data), size)]


def each(count: int, **lists: Sequence[float]) -> None:
    """Raise unless each of `lists` has one value for each of `count` weights."""
    for name, values in lists.items():
        if len(values) != count:
            raise MXNetError(f"expected {count} {name}, one for each weight, got {len(values)}")


# ---- SGD ----


def _sgd(
    weight: Tensor, grad: Tensor, lr: float, wd: float, rescale: float, clip: float, out: Tensor | None = None
) -> Tensor:
    grad, factor = _scaled(grad, weight, rescale, clip)
    if wd:
        return torch.mul(weight, 1 - lr * wd, out=out).add_(grad, alpha=-lr * factor)
    return torch.add(weight, grad, alpha=-lr * factor, out=out)


def _sgd_mom(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    lr: float,
    momentum: float,
    wd: float,
    rescale: float,
    clip: float,
    out: Tensor | None = None,
) -> Tensor:
    grad, factor = _scaled(grad, weight, rescale, clip)
    mom.mul_(momentum).add_(grad, alpha=-lr * factor)
    if wd:
        mom.add_(weight, alpha=-lr * wd)
    return torch.add(weight, mom, out=out)


@op("sgd_update", same_dtype=True)
def sgd_update(
    weight: Tensor,
    grad: Tensor,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """weight - lr * (grad + wd * weight)."""
    weight, grad = raw(weight, grad)
    return _sgd(weight, grad, lr, wd, rescale_grad, clip_gradient)


@op("sgd_mom_update", same_dtype=True, mutates=("mom",))
def sgd_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """mom = momentum * mom - lr * (grad + wd * weight); weight + mom."""
    weight, grad, mom = raw(weight, grad, mom)
    return _sgd_mom(weight, grad, mom, lr, momentum, wd, rescale_grad, clip_gradient)


@op("mp_sgd_update", mutates=("weight32",))
def mp_sgd_update(
    weight: Tensor,
    grad: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """sgd_update of the master copy weight32. Returns it in the dtype of weight."""
    master, grad = raw(weight32, grad)
    return _sgd(master, grad, lr, wd, rescale_grad, clip_gradient, out=master).to(weight.dtype)


@op("mp_sgd_mom_update", mutates=("mom", "weight32"))
def mp_sgd_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    lazy_update: bool = True,
) -> Tensor:
    """sgd_mom_update of the master copy weight32. Returns it in the dtype of weight."""
    master, grad, mom = raw(weight32, grad, mom)
    return _sgd_mom(master, grad, mom, lr, momentum, wd, rescale_grad, clip_gradient, out=master).to(weight.dtype)


@op("multi_sgd_update", same_dtype=True, outputs=lambda a: a["num_weights"])
def multi_sgd_update(
    *data: Tensor,
    lrs: Floats,
    wds: Floats,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """sgd_update of several weights. The arrays are weight and grad of each."""
    rows = groups(data, 2, num_weights)
    each(num_weights, lrs=lrs, wds=wds)
    return [
        _sgd(weight, grad, lr, wd, rescale_grad, clip_gradient)
        for (weight, grad), lr, wd in zip(rows, lrs, wds, strict=True)
    ]


@op("multi_sgd_mom_update", same_dtype=True, mutates=("data",), outputs=lambda a: a["num_weights"])
def multi_sgd_mom_update(
    *data: Tensor,
    lrs: Floats,
    wds: Floats,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """sgd_mom_update of several weights. The arrays are weight, grad and mom of each."""
    rows = groups(data, 3, num_weights)
    each(num_weights, lrs=lrs, wds=wds)
    return [
        _sgd_mom(weight, grad, mom, lr, momentum, wd, rescale_grad, clip_gradient)
        for (weight, grad, mom), lr, wd in zip(rows, lrs, wds, strict=True)
    ]


@op("multi_mp_sgd_update", mutates=("data",), outputs=lambda a: a["num_weights"])
def multi_mp_sgd_update(
    *data: Tensor,
    lrs: Floats,
    wds: Floats,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """mp_sgd_update of several weights. The arrays are weight, grad and weight32 of each."""
    rows = groups(data, 3, num_weights)
    each(num_weights, lrs=lrs, wds=wds)
    return [
        _sgd(master, grad, lr, wd, rescale_grad, clip_gradient, out=master).to(weight.dtype)
        for (weight, grad, master), lr, wd in zip(rows, lrs, wds, strict=True)
    ]


@op("multi_mp_sgd_mom_update", mutates=("data",), outputs=lambda a: a["num_weights"])
def multi_mp_sgd_mom_update(
    *data: Tensor,
    lrs: Floats,
    wds: Floats,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """mp_sgd_mom_update of several weights. The arrays are weight, grad, mom and weight32 of each."""
    rows = groups(data, 4, num_weights)
    each(num_weights, lrs=lrs, wds=wds)
    return [
        _sgd_mom(master, grad, mom, lr, momentum, wd, rescale_grad, clip_gradient, out=master).to(weight.dtype)
        for (weight, grad, mom, master), lr, wd in zip(rows, lrs, wds, strict=True)
    ]


def _preloaded(data: Sequence[Tensor]) -> tuple[Sequence[Tensor], tuple[float, ...], tuple[float, ...]]:
    """Return the arrays of a preloaded_ op, and the learning rates and weight decays in the last two arrays."""
    if len(data) < 2:
        raise MXNetError("expected two arrays after those of the weights: the learning rates and the weight decays")
    return data[:-2], tuple(data[-2].tolist()), tuple(data[-1].tolist())


@op("preloaded_multi_sgd_update", outputs=lambda a: a["num_weights"])
def preloaded_multi_sgd_update(
    *data: Tensor, rescale_grad: float = 1.0, clip_gradient: float = -1.0, num_weights: int = 1
) -> list[Tensor]:
    """multi_sgd_update with the learning rates and weight decays in two more arrays."""
    arrays, lrs, wds = _preloaded(data)
    return multi_sgd_update(
        *arrays, lrs=lrs, wds=wds, rescale_grad=rescale_grad, clip_gradient=clip_gradient, num_weights=num_weights
    )


@op("preloaded_multi_sgd_mom_update", mutates=("data",), outputs=lambda a: a["num_weights"])
def preloaded_multi_sgd_mom_update(
    *data: Tensor,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """multi_sgd_mom_update with the learning rates and weight decays in two more arrays."""
    arrays, lrs, wds = _preloaded(data)
    return multi_sgd_mom_update(
        *arrays,
        lrs=lrs,
        wds=wds,
        momentum=momentum,
        rescale_grad=rescale_grad,
        clip_gradient=clip_gradient,
        num_weights=num_weights,
    )


@op("preloaded_multi_mp_sgd_update", mutates=("data",), outputs=lambda a: a["num_weights"])
def preloaded_multi_mp_sgd_update(
    *data: Tensor, rescale_grad: float = 1.0, clip_gradient: float = -1.0, num_weights: int = 1
) -> list[Tensor]:
    """multi_mp_sgd_update with the learning rates and weight decays in two more arrays."""
    arrays, lrs, wds = _preloaded(data)
    return multi_mp_sgd_update(
        *arrays, lrs=lrs, wds=wds, rescale_grad=rescale_grad, clip_gradient=clip_gradient, num_weights=num_weights
    )


@op("preloaded_multi_mp_sgd_mom_update", mutates=("data",), outputs=lambda a: a["num_weights"])
def preloaded_multi_mp_sgd_mom_update(
    *data: Tensor,
    momentum: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    num_weights: int = 1,
) -> list[Tensor]:
    """multi_mp_sgd_mom_update with the learning rates and weight decays in two more arrays."""
    arrays, lrs, wds = _preloaded(data)
    return multi_mp_sgd_mom_update(
        *arrays,
        lrs=lrs,
        wds=wds,
        momentum=momentum,
        rescale_grad=rescale_grad,
        clip_gradient=clip_gradient,
        num_weights=num_weights,
    )


# ---- Nesterov momentum ----


def _nag_mom(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    lr: float,
    momentum: float,
    wd: float,
    rescale: float,
    clip: float,
) -> Tensor:
    """Return the change of the weight. As in MXNet with `out=weight`, the new momentum decays with the new weight."""
    step = clipped(grad, weight, -lr * rescale, abs(lr) * clip)
    if wd:
        step.add_(weight, alpha=-lr * wd)
    mom.mul_(momentum).add_(step)
    step.add_(mom, alpha=momentum)
    if wd:
        mom.add_(step, alpha=-lr * wd)
    return step


@op("nag_mom_update", same_dtype=True, mutates=("mom",))
def nag_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """step = -lr * (grad + wd * weight); mom = momentum * mom + step; weight + momentum * mom + step."""
    weight, grad, mom = raw(weight, grad, mom)
    return _nag_mom(weight, grad, mom, lr, momentum, wd, rescale_grad, clip_gradient).add_(weight)


@op("mp_nag_mom_update", mutates=("mom", "weight32"))
def mp_nag_mom_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    weight32: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """nag_mom_update of the master copy weight32. Returns it in the dtype of weight."""
    master, grad, mom = raw(weight32, grad, mom)
    move = _nag_mom(master, grad, mom, lr, momentum, wd, rescale_grad, clip_gradient)
    return master.add_(move).to(weight.dtype)


# ---- sign of the gradient ----


@op("signsgd_update", same_dtype=True)
def signsgd_update(
    weight: Tensor,
    grad: Tensor,
    *,
    lr: float,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
) -> Tensor:
    """weight - lr * (sign(grad) + wd * weight)."""
    weight, grad = raw(weight, grad)
    return clipped(grad, weight, rescale_grad, -1.0).sign_().mul_(-lr).add_(weight, alpha=1 - lr * wd)


@op("signum_update", same_dtype=True, mutates=("mom",))
def signum_update(
    weight: Tensor,
    grad: Tensor,
    mom: Tensor,
    *,
    lr: float,
    momentum: float = 0.0,
    wd: float = 0.0,
    rescale_grad: float = 1.0,
    clip_gradient: float = -1.0,
    wd_lh: float = 0.0,
) -> Tensor:
    """mom = momentum * mom - (1 - momentum) * (grad + wd * weight); weight * (1 - lr * wd_lh) + lr * sign(mom)."""
    weight, grad, mom = raw(weight, grad, mom)
    grad, factor = _scaled(grad, weight, rescale_grad, clip_gradient)
    rest = 1 - momentum
    mom.mul_(momentum).add_(grad, alpha=-rest * factor)
    if wd:
        mom.add_(weight, alpha=-rest * wd)
    return torch.sign(mom).mul_(lr).add_(weight, alpha=1 - lr * wd_lh)


# ---- layer-wise learning rates ----


@op("multi_lars", same_dtype=True, infer="same")
def multi_lars(
    lrs: Tensor,
    weights_sum_sq: Tensor,
    grads_sum_sq: Tensor,
    wds: Tensor,
    *,
    eta: float,
    eps: float,
    rescale_grad: float = 1.0,
) -> Tensor:
    """Learning rates multiplied by eta * |weight| / (|grad| + wd * |weight| + eps) where both norms are positive."""
    lrs, weights, grads, wds = raw(lrs, weights_sum_sq, grads_sum_sq, wds)
    norm = weights.sqrt()
    ratio = norm * eta / (grads.sqrt().mul_(rescale_grad).addcmul_(wds, norm).add_(eps))
    return lrs * ratio.masked_fill_((weights <= 0) | (grads <= 0), 1.0)
