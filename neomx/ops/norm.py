"""Normalization layers: batch, layer, group and instance normalization, L2 normalization and LRN."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.compiler import is_compiling

from ..base import Backward, MXNetError, modes
from ..process import state
from .table import Types, by_data, op

Tensor = torch.Tensor

# ---- batch normalization ----


class _BatchNorm(torch.autograd.Function):
    """Batch norm of (N, C, ...). Backward updates the moving averages, as in MXNet.

    Return the output, and the mean and 1 / standard deviation it was computed with. `autograd.backward` normalizes by
    the batch if it runs in train mode, regardless of forward. A backward pass run by torch does the same as forward.
    """

    @staticmethod
    def forward(ctx, data, gamma, beta, moving_mean, moving_var, eps, momentum, fix_gamma, use_global, by_batch):
        if by_batch:
            out, mean, inverse = torch.native_batch_norm(data, gamma, beta, None, None, True, 0.0, eps)
        else:
            out = torch.native_batch_norm(data, gamma, beta, moving_mean, moving_var, False, 0.0, eps)[0]
            mean, inverse = moving_mean.clone(), torch.rsqrt(moving_var + eps)
        ctx.save_for_backward(data, gamma, mean, inverse)
        ctx.moving = moving_mean.data, moving_var.data
        ctx.options = eps, momentum, fix_gamma, use_global, by_batch
        return out, mean, inverse

    @staticmethod
    def backward(ctx, grad, *_):
        data, gamma, mean, inverse = ctx.saved_tensors
        mean, inverse = mean.detach(), inverse.detach()  # the kernel's derivative includes their dependence on data
        eps, momentum, fix_gamma, use_global, by_batch = ctx.options
        backward_by_batch = by_batch if Backward.train_mode is None else Backward.train_mode and not use_global
        needed = list(ctx.needs_input_grad[:3])
        moving = (None, None) if backward_by_batch else ctx.moving
        grads = torch.ops.aten.native_batch_norm_backward(
            grad, data, gamma, *moving, mean, inverse, backward_by_batch, eps, needed
        )
        if by_batch and backward_by_batch and not Backward.again:
            ctx.moving[0].lerp_(mean, 1 - momentum)
            ctx.moving[1].lerp_(inverse.pow(-2).sub_(eps), 1 - momentum)
        d_data, d_gamma, d_beta = (g if n else None for g, n in zip(grads, needed, strict=True))
        if fix_gamma and needed[1]:
            d_gamma = torch.zeros_like(gamma)
        return d_data, d_gamma, d_beta, *(None,) * 7


def _batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    eps: float,
    momentum: float,
    fix_gamma: bool,
    use_global_stats: bool,
    axis: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the output, and the mean and 1 / standard deviation it was computed with."""
    rank = data.dim()
    if not -rank <= axis < rank:
        raise MXNetError(f"expected an axis from {-rank} to {rank - 1}, got {axis}")
    channels = data.shape[axis]
    for name, each in (("gamma", gamma), ("beta", beta), ("moving_mean", moving_mean), ("moving_var", moving_var)):
        if each.dim() != 1 or each.shape[0] != channels:
            raise MXNetError(f"expected {name} of shape ({channels},), one for each channel, got {tuple(each.shape)}")
    if data.is_meta:  # only shapes are needed; torch would import all of its decompositions
        return torch.empty_like(data), torch.empty_like(moving_mean), torch.empty_like(moving_mean)
    by_batch = modes.training and not use_global_stats
    if fix_gamma:
        gamma = gamma * 0 + 1 if is_compiling() else _filled_with_one(gamma)
    shape = data.shape
    axis %= rank
    if axis == rank - 1 != 1:
        data = data.reshape(-1, channels)  # the kernel is fast for contiguous (N, C)
    elif axis != 1:
        data = data.movedim(axis, 1) if rank > 1 else data.reshape(1, -1)
    if is_compiling():
        out, mean, inverse = _traceable(data, gamma, beta, moving_mean, moving_var, eps, momentum, by_batch)
    else:
        out, mean, inverse = _BatchNorm.apply(
            data, gamma, beta, moving_mean, moving_var, eps, momentum, fix_gamma, use_global_stats, by_batch
        )
    if axis == rank - 1 != 1:
        out = out.view(shape)
    elif axis != 1:
        out = out.movedim(1, axis)
    return out, mean, inverse


def _filled_with_one(gamma: Tensor) -> Tensor:
    gamma.data.fill_(1)
    return gamma


def _traceable(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    eps: float,
    momentum: float,
    by_batch: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Batch norm that torch.compile can trace. The moving averages are updated in a recorded forward pass."""
    if not by_batch:
        out = torch.batch_norm(data, gamma, beta, moving_mean, moving_var, False, 0.0, eps, False)
        return out, moving_mean.clone(), torch.rsqrt(moving_var + eps)
    out, mean, inverse = torch.native_batch_norm(data, gamma, beta, None, None, True, 0.0, eps)
    if torch.is_grad_enabled():
        with torch.no_grad():
            moving_mean.lerp_(mean, 1 - momentum)
            moving_var.lerp_(_variance(inverse, eps), 1 - momentum)
    return out, mean, inverse


def _variance(inverse: Tensor, eps: float) -> Tensor:
    return inverse.pow(-2) - eps


@by_data
def _channel_shapes(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [(data[attrs.get("axis", 1)],)] * 4


@by_data
def _group_shapes(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [(attrs["num_groups"],)] * 2


def _batch_norm_types(types: Types, attrs: dict[str, Any]) -> tuple[Types, Types]:
    """Return float32 for the statistics of half precision data."""
    statistics = torch.float32 if types[0] in (torch.float16, torch.bfloat16) else types[0]
    known = [types[0], *(t or statistics for t in types[1:])]
    return known, [types[0], *[statistics] * 2][: _with_statistics(attrs)]


def _with_statistics(attrs: dict[str, Any]) -> int:
    """Return the number of visible outputs."""
    return 3 if attrs["output_mean_var"] else 1


batch_norm_op = partial(
    op,
    mutates=("moving_mean", "moving_var"),
    starts={"moving_mean": '["zero", {}]', "moving_var": '["one", {}]'},
    outputs=("output", "mean", "var"),
    visible=_with_statistics,
    infer=_channel_shapes,
    types=_batch_norm_types,
)


@batch_norm_op("BatchNorm", "_npx_batch_norm")
def batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.0010000000474974513,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> Any:
    """Normalize each channel to mean 0 and variance 1, then multiply by gamma and add beta.

    Uses the mean and variance of the batch in training, else the moving averages. With `fix_gamma`, gamma is set to 1.
    """
    results = _batch_norm(data, gamma, beta, moving_mean, moving_var, eps, momentum, fix_gamma, use_global_stats, axis)
    return results if output_mean_var else results[0]


@batch_norm_op("_contrib_BatchNormWithReLU", outputs=("output", "mean", "var", "mask"))
def batch_norm_with_relu(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.0010000000474974513,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    axis: int = 1,
    cudnn_off: bool = False,
    min_calib_range: float | None = None,
    max_calib_range: float | None = None,
) -> Any:
    """max(BatchNorm, 0)."""
    out, mean, inverse = _batch_norm(
        data, gamma, beta, moving_mean, moving_var, eps, momentum, fix_gamma, use_global_stats, axis
    )
    return (torch.relu(out), mean, inverse) if output_mean_var else torch.relu(out)


@batch_norm_op("BatchNorm_v1")
def batch_norm_v1(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
) -> Any:
    """The former BatchNorm. With `output_mean_var`, it returns the variance instead of 1 / standard deviation."""
    out, mean, inverse = _batch_norm(
        data, gamma, beta, moving_mean, moving_var, eps, momentum, fix_gamma, use_global_stats
    )
    return (out, mean, _variance(inverse, eps)) if output_mean_var else out


@batch_norm_op("_contrib_SyncBatchNorm")
def sync_batch_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    moving_mean: Tensor,
    moving_var: Tensor,
    *,
    eps: float = 0.001,
    momentum: float = 0.9,
    fix_gamma: bool = True,
    use_global_stats: bool = False,
    output_mean_var: bool = False,
    ndev: int = 1,
    key: str,
) -> Any:
    """BatchNorm over the batches of all workers. With `output_mean_var`, it also returns the mean and the variance."""
    if state.norm_total is None or use_global_stats or not modes.training or data.is_meta:
        out, mean, inverse = _batch_norm(
            data, gamma, beta, moving_mean, moving_var, eps, momentum, fix_gamma, use_global_stats
        )
        return (out, mean, _variance(inverse, eps)) if output_mean_var else out
    if fix_gamma:
        gamma = torch.ones_like(gamma)
    out, mean, variance = _OverWorkers.apply(
        data, gamma, beta, eps, (moving_mean.data, moving_var.data, 1 - momentum), state.norm_total
    )
    return (out, mean, variance) if output_mean_var else out


class _OverWorkers(torch.autograd.Function):
    """Normalizes by the mean and variance of the batches of all workers, which may have different sizes.

    Backward updates the moving averages, as in BatchNorm.
    """

    @staticmethod
    def forward(ctx, data, gamma, beta, eps, moving, total):
        axes = [axis for axis in range(data.dim()) if axis != 1]
        shape = [1, -1, *[1] * (data.dim() - 2)]
        statistics = gamma.dtype
        count = gamma.new_full((1,), data.numel() // max(data.shape[1], 1))
        summed = total(torch.cat([data.to(statistics).sum(axes), count]))
        samples = summed[-1]
        mean = summed[:-1] / samples
        centred = data.to(statistics) - mean.view(shape)
        variance = total(centred.square().sum(axes)) / samples
        inverse = torch.rsqrt(variance + eps)
        normal = centred * inverse.view(shape)
        ctx.save_for_backward(normal, gamma, inverse, samples)
        ctx.axes, ctx.shape, ctx.total, ctx.moving, ctx.found = axes, shape, total, moving, (mean, variance)
        ctx.mark_non_differentiable(mean, variance)
        return (normal * gamma.view(shape) + beta.view(shape)).to(data.dtype), mean, variance

    @staticmethod
    def backward(ctx, grad, *_):
        normal, gamma, inverse, samples = ctx.saved_tensors
        slope = grad.to(normal.dtype)
        of_beta, of_gamma = slope.sum(ctx.axes), (slope * normal).sum(ctx.axes)
        both = ctx.total(torch.cat([of_beta, of_gamma])) / samples
        level, tilt = (part.view(ctx.shape) for part in both.chunk(2))
        of_data = (slope - level - normal * tilt) * (gamma * inverse).view(ctx.shape)
        *averages, weight = ctx.moving
        for average, found in () if Backward.again else zip(averages, ctx.found, strict=True):
            average.lerp_(found, weight)
        return of_data.to(grad.dtype), of_gamma, of_beta, None, None, None


# ---- layer, group and instance normalization ----


class _ByProduct(torch.autograd.Function):
    """A statistic of data that is part of its graph but passes no gradient, as in MXNet."""

    @staticmethod
    def forward(ctx, statistic, data):
        return statistic.to(data.dtype)

    @staticmethod
    def backward(ctx, grad):
        return None, None


@op(
    "LayerNorm",
    "_npx_layer_norm",
    same_dtype=True,
    outputs=("output", "mean", "std"),
    visible=_with_statistics,
    infer=_channel_shapes,
)
def layer_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    axis: int = -1,
    eps: float = 1e-5,
    output_mean_var: bool = False,
) -> Any:
    """Normalize along an axis to mean 0 and variance 1, then multiply by gamma and add beta.

    With `output_mean_var`, also returns the mean and the standard deviation.
    """
    last = axis in (-1, data.dim() - 1)
    moved = data if last else data.movedim(axis, -1)
    if not output_mean_var:
        out = F.layer_norm(moved, moved.shape[-1:], gamma, beta, eps)
        return out if last else out.movedim(-1, axis)
    out, mean, inverse = torch.native_layer_norm(moved, moved.shape[-1:], gamma, beta, eps)
    results = out, _ByProduct.apply(mean, data), _ByProduct.apply(1 / inverse.detach(), data)
    return results if last else tuple(each.movedim(-1, axis) for each in results)


@op(
    "GroupNorm",
    same_dtype=True,
    outputs=("output", "mean", "std"),
    visible=_with_statistics,
    infer=_group_shapes,
)
def group_norm(
    data: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    num_groups: int = 1,
    eps: float = 1e-5,
    output_mean_var: bool = False,
) -> Any:
    """Normalize each group of channels to mean 0 and variance 1, then multiply by its gamma and add its beta.

    With `output_mean_var`, also returns the mean and the standard deviation of each group.
    """
    if data.dim() < 3:
        raise MXNetError(f"expected data of at least 3 dimensions, got {data.dim()}")
    if num_groups < 1 or data.shape[1] % num_groups:
        raise MXNetError(f"expected num_groups to divide the {data.shape[1]} channels, got {num_groups}")
    if gamma.shape != (num_groups,) or beta.shape != (num_groups,):
        raise MXNetError(
            f"expected gamma and beta of shape ({num_groups},), one for each group, "
            f"got {tuple(gamma.shape)} and {tuple(beta.shape)}"
        )
    batch, channels = data.shape[:2]
    gamma, beta = (each.repeat_interleave(channels // num_groups) for each in (gamma, beta))
    if not output_mean_var:
        return torch.group_norm(data, num_groups, gamma, beta, eps)  # torch.nn.functional rejects groups of one value
    size = data[0, 0].numel()
    out, mean, inverse = torch.native_group_norm(data.contiguous(), gamma, beta, batch, channels, size, num_groups, eps)
    return out, _ByProduct.apply(mean, data), _ByProduct.apply(1 / inverse.detach(), data)


@op("InstanceNorm", same_dtype=True, outputs=("output", "mean", "var"), visible=1, infer=_channel_shapes)
def instance_norm(data: Tensor, gamma: Tensor, beta: Tensor, *, eps: float = 0.001) -> Tensor:
    """Normalize each channel of each example to mean 0 and variance 1, then multiply by gamma and add beta."""
    if data.dim() < 3:
        raise MXNetError(f"expected data of at least 3 dimensions, got {data.dim()}")
    return torch.group_norm(data, data.shape[1], gamma, beta, eps)


# ---- L2 normalization and local response normalization ----


@op("L2Normalization", outputs=("output", "norm"), visible=1, infer="same")
def l2_normalization(
    data: Tensor, *, eps: float = 1e-10, mode: Literal["channel", "instance", "spatial"] = "instance"
) -> Tensor:
    """x / sqrt(sum(x * x) + eps), summed over each example, over the channels, or over the pixels of each channel."""
    if mode != "instance" and data.dim() < 3:
        raise MXNetError(f"expected data of at least 3 dimensions in mode {mode!r}, got {data.dim()}")
    axes = {"instance": range(1, data.dim()), "channel": (1,), "spatial": range(2, data.dim())}[mode]
    squares = data * data
    # Without axes, torch would sum over everything; an example of one value is its own sum.
    total = squares.sum(tuple(axes), keepdim=True) if axes else squares
    return data * torch.rsqrt(total + eps)


@op("LRN", outputs=("output", "tmp_norm"), visible=1, infer="same")
def lrn(data: Tensor, *, alpha: float = 1e-4, beta: float = 0.75, knorm: float = 2.0, nsize: int) -> Tensor:
    """x / (knorm + alpha * mean of x * x over nsize adjacent channels) ** beta."""
    if nsize < 1:
        raise MXNetError("expected nsize to be at least 1")
    if data.dim() == 2:
        return F.local_response_norm(data.unsqueeze(2), nsize, alpha, beta, knorm).squeeze(2)
    return F.local_response_norm(data, nsize, alpha, beta, knorm)
