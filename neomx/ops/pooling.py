"""Pooling: the maximum, mean, sum or p-norm of the windows of an image."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal

import torch
import torch.nn.functional as F

from ..base import MXNetError
from .conv import check_layout, per_axis
from .table import Shape, op

Tensor = torch.Tensor
Pool = Literal["avg", "lp", "max", "sum"]
Convention = Literal["full", "same", "valid"]


def _output_names(attrs: dict[str, Any]) -> tuple[str, ...]:
    """Where MXNet keeps which element was the largest, it has an output for that."""
    keeps = attrs["pool_type"] == "max" and attrs["kernel"] and not (attrs["layout"] or "").endswith("C")
    return ("output", "workspace") if keeps else ("output",)


@op("Pooling", "_npx_pooling", outputs=_output_names, visible=1)
def pooling(
    data: Tensor,
    *,
    kernel: Shape = (),
    pool_type: Pool = "max",
    global_pool: bool = False,
    cudnn_off: bool = False,
    pooling_convention: Convention = "valid",
    stride: Shape = (),
    pad: Shape = (),
    p_value: int | None = None,
    count_include_pad: bool | None = None,
    layout: Literal["NCDHW", "NCHW", "NCW", "NDHWC", "NHWC", "NWC"] | None = None,
) -> Tensor:
    """Each window's maximum, mean, sum or p-norm, in 1, 2 or 3 dimensions.

    How many windows: 'valid' all that fit, 'full' one more where some is left over, 'same' one per stride.
    """
    _check_floats(data)
    if global_pool:
        kernel = (1,) * (data.dim() - 2)
    channels_last = check_layout(data, kernel, layout)
    if channels_last:
        data = data.movedim(-1, 1)
    if pooling_convention == "same":
        if any(pad):
            raise MXNetError(f"expected no pad with pooling_convention='same', got {pad}")
        pad = ()  # MXNet itself demands three zeros for one dimension
    flat = data.dim() == 3
    if flat:  # torch's kernels for two dimensions serve one as well
        data, kernel, stride, pad = data.unsqueeze(2), (1, *kernel), stride and (1, *stride), pad and (0, *pad)
    if global_pool:
        result = _pool_all(data, pool_type, p_value)
    else:
        # torch.compile cannot see into a cache, and computes this once anyway.
        make = _Windows if torch.compiler.is_compiling() else _windows
        windows = make(data.shape[2:], kernel, stride, pad, pooling_convention)
        if pool_type == "max":
            result = windows.max(data)
        elif pool_type == "avg":
            result = windows.mean(data, count_include_pad is not False)
        elif pool_type == "sum":
            result = windows.sum(data)
        else:
            result = _root(windows.sum(_power(data, p_value)), p_value)
    if flat:
        result = result.squeeze(2)
    return result.movedim(1, -1) if channels_last else result


def _check_floats(data: Tensor) -> None:
    if not data.is_floating_point():
        raise MXNetError("expected an array of floats. Use astype")


class _Windows:
    """Where the windows of a pooling lie, and what torch needs to know to pool them."""

    def __init__(
        self,
        lengths: tuple[int, ...],
        kernel: tuple[int, ...],
        stride: tuple[int, ...],
        pad: tuple[int, ...],
        convention: str,
    ):
        rank = len(kernel)
        self.lengths, self.kernel = lengths, kernel
        self.stride = per_axis("stride", stride, rank, 1, 1)
        self.pad = per_axis("pad", pad, rank, 0, 0)
        self.counts = []
        self.ceil = False  # whether torch must round up to find the same windows
        self.native = True  # whether torch finds the same windows at all
        axes = tuple(zip(lengths, kernel, self.stride, self.pad, strict=True))
        for n, k, s, p in axes:
            if k > n + 2 * p:
                raise MXNetError(f"expected a kernel within the padded data, got {kernel} for {tuple(lengths)}")
            room = n + 2 * p - k
            fit = room // s + 1
            count = -(-n // s) if convention == "same" else -(-room // s) + 1 if convention == "full" else fit
            self.counts.append(count)
            self.ceil = self.ceil or count != fit
        for (n, k, s, p), count in zip(axes, self.counts, strict=True):
            found = (n + 2 * p - k + (s - 1 if self.ceil else 0)) // s + 1
            if self.ceil and (found - 1) * s >= n + p:
                found -= 1  # torch leaves out a window that lies in the padding
            # The mean of volumes, alone in torch, demands that the kernel fit into the data without its padding.
            self.native = self.native and 2 * p <= k and found == count and (rank < 3 or k <= n)

    def padded(self, data: Tensor, value: float) -> Tensor:
        """Data with all that the windows reach into."""
        amounts: list[int] = []
        for n, k, s, p, c in zip(self.lengths, self.kernel, self.stride, self.pad, self.counts, strict=True):
            amounts[:0] = (p, max(0, (c - 1) * s + k - n - p))
        return F.pad(data, amounts, value=value) if any(amounts) else data

    def max(self, data: Tensor) -> Tensor:
        pool = F.max_pool2d if len(self.kernel) == 2 else F.max_pool3d
        if self.native:
            return pool(data, self.kernel, self.stride, self.pad, 1, self.ceil)
        # MXNet shows the least number there is where a window has nothing but padding.
        return pool(self.padded(data, torch.finfo(data.dtype).min), self.kernel, self.stride)

    def mean(self, data: Tensor, count_include_pad: bool) -> Tensor:
        if self.native:
            return self.average(data, self.pad, self.ceil, count_include_pad)
        return self.sum(data) / self.sizes(data, count_include_pad)

    def sum(self, data: Tensor) -> Tensor:
        if torch.compiler.is_exporting():  # ONNX has no divisor, and torch.onnx forgets ours without a word
            return self.average(self.padded(data, 0)) * math.prod(self.kernel)
        if self.native:
            return self.average(data, self.pad, self.ceil, divisor_override=1)
        return self.average(self.padded(data, 0), divisor_override=1)

    def average(self, data: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if len(self.kernel) == 2:
            return F.avg_pool2d(data, self.kernel, self.stride, *args, **kwargs)
        # torch's kernel for CPUs knows no float16.
        work = data.float() if data.dtype is torch.float16 and not data.is_cuda else data
        return F.avg_pool3d(work, self.kernel, self.stride, *args, **kwargs).to(data.dtype)

    def sizes(self, data: Tensor, count_include_pad: bool) -> Tensor:
        """How many values the mean of each window is over."""
        result = torch.ones((), dtype=data.dtype, device=data.device)
        for n, k, s, p, c in zip(self.lengths, self.kernel, self.stride, self.pad, self.counts, strict=True):
            start = torch.arange(c, device=data.device) * s - p
            if count_include_pad:
                size = (start + k).clamp(max=n + p) - start
            else:
                size = (start + k).clamp(max=n) - start.clamp(min=0)
            result = result.unsqueeze(-1) * size.clamp(min=1)
        return result


_windows = functools.lru_cache(maxsize=256)(_Windows)


def _pool_all(data: Tensor, pool_type: str, p_value: int | None) -> Tensor:
    """One window over the whole image."""
    axes = tuple(range(2, data.dim()))
    if pool_type == "avg":
        if data.dim() == 4 and data.is_contiguous(memory_format=torch.channels_last):
            return F.avg_pool2d(data, data.shape[2:])  # whose gradient is channels_last too; twice as fast
        return data.mean(axes, keepdim=True)
    if pool_type == "max":
        pool = F.max_pool2d if data.dim() == 4 else F.max_pool3d
        return pool(data, data.shape[2:])
    if pool_type == "sum":
        return data.sum(axes, keepdim=True)
    return _root(_power(data, p_value).sum(axes, keepdim=True), p_value)


def _power(data: Tensor, p: int | None) -> Tensor:
    if p not in (1, 2, 3):
        raise MXNetError(f"expected a p_value of 1, 2 or 3 for pool_type='lp', got {p}")
    return data if p == 1 else data.pow(p)


def _root(sums: Tensor, p: int | None) -> Tensor:
    """The p-th root, with the sign kept and with gradient 0 at 0."""
    if p == 1:
        return sums
    zero = sums == 0
    sums = sums.masked_fill(zero, 1)
    root = sums.sqrt() if p == 2 else sums.sign() * sums.abs().pow(1 / 3)
    return root.masked_fill(zero, 0)


# ---- the former pooling ----


class _TiedMax(torch.autograd.Function):
    """The maximum over the last dimensions; all that are equal to it get its whole gradient."""

    @staticmethod
    def forward(ctx, windows, axes):
        result = windows.amax(axes, keepdim=True)
        ctx.save_for_backward(windows, result)
        ctx.axes = axes
        return result.squeeze(axes)

    @staticmethod
    def backward(ctx, grad):
        windows, result = ctx.saved_tensors
        return grad.reshape(result.shape) * (windows == result), None


@op("Pooling_v1")
def pooling_v1(
    data: Tensor,
    *,
    kernel: Shape = (),
    pool_type: Literal["avg", "max", "sum"] = "max",
    global_pool: bool = False,
    pooling_convention: Literal["full", "valid"] = "valid",
    stride: Shape = (),
    pad: Shape = (),
) -> Tensor:
    """The former Pooling: padding counts as zeros, also for the maximum, and means are over whole kernels."""
    _check_floats(data)
    if global_pool:
        kernel, stride, pad = tuple(data.shape[2:]), (), ()
    check_layout(data, kernel, None)
    if len(kernel) != 2:
        raise MXNetError(f"expected a kernel of 2 numbers, got {kernel}")
    windows = _Windows(data.shape[2:], kernel, stride, pad, pooling_convention)
    if pool_type != "max":
        sums = windows.sum(data)
        return sums if pool_type == "sum" else sums / math.prod(kernel)
    amounts = [p for p in reversed(windows.pad) for _ in range(2)]
    windows = _Windows(
        tuple(n + 2 * p for n, p in zip(data.shape[2:], windows.pad, strict=True)),
        kernel,
        stride,
        (),
        pooling_convention,
    )
    data = windows.padded(F.pad(data, amounts), -math.inf)
    for axis, (k, s) in enumerate(zip(kernel, windows.stride, strict=True), start=2):
        data = data.unfold(axis, k, s)
    return _TiedMax.apply(data, (-2, -1))


@op("_contrib_AdaptiveAvgPooling2D")
def adaptive_average_pooling(data: Tensor, *, output_size: Shape = ()) -> Tensor:
    """Means over windows laid out so that the output has `output_size`: (), n or (height, width)."""
    _check_floats(data)
    if data.dim() != 4:
        raise MXNetError("expected images of shape (batch, channel, height, width)")
    if len(output_size) > 2:
        raise MXNetError(f"expected an output_size of at most 2 numbers, got {output_size}")
    height, width = output_size * 2 if len(output_size) == 1 else output_size or (1, 1)
    return F.adaptive_avg_pool2d(data, (height, width))
