"""Pooling: the maximum, mean, sum or p-norm over windows of an image."""

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
    """Return the output names, with a second one where MXNet stores the index of the maximum."""
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
    """The maximum, mean, sum or p-norm of each window, in 1, 2 or 3 dimensions.

    The convention determines the number of windows: 'valid' counts those that fit, 'full' also a partial one at the
    end, and 'same' one per stride.
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
        pad = ()  # MXNet itself requires three zeros for one dimension
    flat = data.dim() == 3
    if flat:  # use torch's 2-D kernels for 1-D data
        data, kernel, stride, pad = data.unsqueeze(2), (1, *kernel), stride and (1, *stride), pad and (0, *pad)
    if global_pool:
        result = _pool_all(data, pool_type, p_value)
    else:
        # torch.compile cannot trace through a cache, and computes this only once anyway.
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
    """The positions of pooling windows, and the arguments for pooling them with torch."""

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
        self.ceil = False  # whether torch must round up to produce the same windows
        self.native = True  # whether torch can produce the same windows
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
                found -= 1  # torch omits a window that lies in the padding
            # torch's 3-D mean, unlike the other kernels, requires the kernel to fit into the data without padding.
            self.native = self.native and 2 * p <= k and found == count and (rank < 3 or k <= n)

    def padded(self, data: Tensor, value: float) -> Tensor:
        """Return data padded to the extent of all windows."""
        amounts: list[int] = []
        for n, k, s, p, c in zip(self.lengths, self.kernel, self.stride, self.pad, self.counts, strict=True):
            amounts[:0] = (p, max(0, (c - 1) * s + k - n - p))
        return F.pad(data, amounts, value=value) if any(amounts) else data

    def max(self, data: Tensor) -> Tensor:
        """Return the maximum of each window."""
        pool = F.max_pool2d if len(self.kernel) == 2 else F.max_pool3d
        if self.native:
            return pool(data, self.kernel, self.stride, self.pad, 1, self.ceil)
        # For a window of only padding, MXNet returns the lowest finite value.
        return pool(self.padded(data, torch.finfo(data.dtype).min), self.kernel, self.stride)

    def mean(self, data: Tensor, count_include_pad: bool) -> Tensor:
        """Return the mean of each window."""
        if self.native:
            return self.average(data, self.pad, self.ceil, count_include_pad)
        return self.sum(data) / self.sizes(data, count_include_pad)

    def sum(self, data: Tensor) -> Tensor:
        """Return the sum of each window."""
        if torch.compiler.is_exporting():  # ONNX has no divisor, and torch.onnx silently drops divisor_override
            return self.average(self.padded(data, 0)) * math.prod(self.kernel)
        if self.native:
            return self.average(data, self.pad, self.ceil, divisor_override=1)
        return self.average(self.padded(data, 0), divisor_override=1)

    def average(self, data: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Call torch's average pooling for the number of dimensions."""
        if len(self.kernel) == 2:
            return F.avg_pool2d(data, self.kernel, self.stride, *args, **kwargs)
        # torch's CPU kernel does not support float16.
        work = data.float() if data.dtype is torch.float16 and not data.is_cuda else data
        return F.avg_pool3d(work, self.kernel, self.stride, *args, **kwargs).to(data.dtype)

    def sizes(self, data: Tensor, count_include_pad: bool) -> Tensor:
        """Return the number of values that the mean of each window counts."""
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
    """Pool the whole image in one window."""
    axes = tuple(range(2, data.dim()))
    if pool_type == "avg":
        if data.dim() == 4 and data.is_contiguous(memory_format=torch.channels_last):
            return F.avg_pool2d(data, data.shape[2:])  # its gradient is also channels_last; twice as fast
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
    """Return the p-th root, which keeps the sign and has a gradient of 0 at 0."""
    if p == 1:
        return sums
    zero = sums == 0
    sums = sums.masked_fill(zero, 1)
    root = sums.sqrt() if p == 2 else sums.sign() * sums.abs().pow(1 / 3)
    return root.masked_fill(zero, 0)


# ---- Pooling_v1 ----


class _TiedMax(torch.autograd.Function):
    """The maximum over the last dimensions. All elements equal to it receive the full gradient."""

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
    """The former Pooling. Padding counts as zeros even for the maximum, and means are over whole kernels."""
    _check_floats(data)
    if global_pool:
        kernel, stride, pad = tuple(data.shape[2:]), (), ()
    check_layout(data, kernel, None)
    if len(kernel) != 2:
        raise MXNetError(f"expected a kernel of 2 integers, got {kernel}")
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
    """Means over windows chosen so that the output has size `output_size`: (), n or (height, width)."""
    _check_floats(data)
    if data.dim() != 4:
        raise MXNetError("expected images of shape (batch, channel, height, width)")
    if len(output_size) > 2:
        raise MXNetError(f"expected an output_size of at most 2 integers, got {output_size}")
    height, width = output_size * 2 if len(output_size) == 1 else output_size or (1, 1)
    return F.adaptive_avg_pool2d(data, (height, width))
