"""Layers with a weight: fully connected, convolution, deconvolution, deformable convolution; and correlation.

Layouts that end in C have the channels last in data and weight, as in MXNet on a GPU: data (N, ..., C), weight
(O, ..., I).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch.compiler import is_compiling, is_exporting

from ..base import MXNetError
from .shapes import UNKNOWN, is_known
from .spatial import bilinear
from .table import Shape, Shapes, by_data, op

Tensor = torch.Tensor
Layout = Literal["NCW", "NCHW", "NCDHW", "NWC", "NHWC", "NDHWC"]
Tune = Literal["fastest", "limited_workspace", "off"]


def check_shape(name: str, tensor: Tensor, *expected: int) -> None:
    """Raise unless `tensor` has the expected shape."""
    if tensor.shape != expected:
        raise MXNetError(f"expected {name} of shape {expected}, got {tuple(tensor.shape)}")


def check_bias(bias: Tensor | None, no_bias: bool, length: int) -> None:
    """Raise unless a bias is given if and only if `no_bias` is false."""
    if bias is None:
        if not no_bias:
            raise MXNetError("expected a bias, got none; pass no_bias=True to omit it")
    elif no_bias:
        raise MXNetError("expected no bias with no_bias=True, got one")
    elif bias.shape != (length,):
        check_shape("bias", bias, length)


def per_axis(name: str, value: tuple[int, ...], rank: int, default: int, least: int) -> tuple[int, ...]:
    """Return one value for each spatial axis: `value` after a check, or `default` for all axes if it is empty."""
    if not value:
        return (default,) * rank
    if len(value) != rank or min(value) < least:
        raise MXNetError(f"expected {name} to be {rank} integer(s) of at least {least}, got {value}")
    return value


def check_layout(data: Tensor, kernel: tuple[int, ...], layout: str | None) -> bool:
    """Return whether the channels come last, after checking that data, kernel and layout have the same rank."""
    rank = data.dim() - 2
    if not 1 <= len(kernel) <= 3 or len(kernel) != rank:
        raise MXNetError(f"expected a kernel of 1 to 3 integers and data with 2 more dimensions, got kernel {kernel}")
    if min(kernel) < 1:
        raise MXNetError(f"expected kernel sizes of at least 1, got {kernel}")
    if layout is None:
        return False
    if len(layout) != rank + 2:
        raise MXNetError(f"expected a layout for {rank} spatial dimension(s), got {layout}")
    return layout[-1] == "C"


# oneDNN computes on channels_last directly, but copies other layouts to a blocked one and back in every call.
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
_ONEDNN = (torch.float32, torch.bfloat16)


def _fast_format(data: Tensor) -> Tensor:
    memory_format = None if is_exporting() else _FORMATS.get(data.dim())  # an exported file must run elsewhere too
    if memory_format is None or data.dtype not in _ONEDNN or data.device.type != "cpu":
        return data
    return data.contiguous(memory_format=memory_format)


# With up to this many channels, oneDNN 3.12 writes past its workspace in the gradient of a strided 1x1 weight
# (channels_last, float32), which ends the process. The bound is 7 with AVX2 and 15 with AVX-512.
_UNSAFE_CHANNELS = 15


def _without_stride(
    data: Tensor, kernel: tuple[int, ...], stride: tuple[int, ...], pad: tuple[int, ...]
) -> tuple[Tensor, tuple[int, ...]]:
    """Return data and stride of an equivalent 1x1 convolution on only the pixels it reads, where oneDNN is unsafe."""
    is_unsafe = data.shape[1] <= _UNSAFE_CHANNELS and not is_exporting()
    if kernel == (1, 1) and pad == (0, 0) and stride != (1, 1) and is_unsafe:
        return data[:, :, :: stride[0], :: stride[1]], (1, 1)
    return data, stride


def _is_fast_format(data: Tensor) -> bool:
    is_cpu = data.device.type == "cpu" and not is_exporting()
    return is_cpu and data.is_contiguous(memory_format=torch.channels_last)


# ---- fully connected ----


def _dense_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer weight and bias from the data, and an unknown batch size from the output."""
    data = shapes[0]
    if data is None:
        return shapes
    if outputs[0] and data and data[0] == UNKNOWN:
        data = (outputs[0][0], *data[1:])
    row = data[1:] if attrs["flatten"] else data[-1:]
    length = math.prod(row) if is_known(row) else UNKNOWN
    return [data, (attrs["num_hidden"], length), (attrs["num_hidden"],)][: len(shapes)]


@op(
    "FullyConnected",
    "_npx_fully_connected",
    same_dtype=True,
    takes={"bias": lambda a: not a["no_bias"]},
    infer=_dense_shapes,
)
def fully_connected(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    num_hidden: int,
    no_bias: bool = False,
    flatten: bool = True,
) -> Tensor:
    """data · weightᵀ + bias over the last dimension or, if `flatten`, over all dimensions but the first."""
    if flatten and data.dim() != 2:
        data = data.flatten(1) if data.dim() > 2 else data.unsqueeze(1)
    if weight.shape != (num_hidden, data.shape[-1]):
        check_shape("weight", weight, num_hidden, data.shape[-1])
    if bias is not None and bias.shape == (num_hidden, 1):
        bias = bias.squeeze(1)
    check_bias(bias, no_bias, num_hidden)
    if data.is_meta:  # only the shape is needed, and torch would import its compiler for it
        return data.new_empty(*data.shape[:-1], num_hidden)
    return F.linear(data, weight, bias)


# ---- convolution ----

_CONV: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}

# The columns of im2col for a one-channel image may have up to this many values; beyond, they take too much memory.
_MOST_COLUMNS = 1 << 24


def _per_group(name: str, count: int, num_group: int) -> int:
    if num_group < 1 or count % num_group:
        raise MXNetError(f"expected num_group to divide {name} {count}, got {num_group}")
    return count // num_group


def _is_plane(data: Tensor, weight: Tensor, dilate: tuple[int, ...]) -> bool:
    """Return whether `_conv_plane` is faster: data has one channel, which oneDNN would pad to 8, and no gradient."""
    return (
        not is_compiling()
        and not (data.requires_grad and torch.is_grad_enabled())
        and data.dim() == 4
        and data.shape[1] == 1
        and dilate == (1, 1)
        and data.device.type == "cpu"
        and data.numel() * weight[0].numel() < _MOST_COLUMNS
    )


def _conv_plane(
    data: Tensor, weight: Tensor, bias: Tensor | None, stride: tuple[int, ...], pad: tuple[int, ...]
) -> Tensor:
    """Compute the convolution of one channel as a single product of its patches, in channels_last format."""
    if any(pad):
        data = F.pad(data, (pad[1], pad[1], pad[0], pad[0]))
    patches = data[:, 0].unfold(1, weight.shape[2], stride[0]).unfold(2, weight.shape[3], stride[1])
    return F.linear(patches.flatten(3), weight.flatten(1), bias).permute(0, 3, 1, 2)


# With this many channels or more, and this many pixels or fewer, one product takes down to half the time of oneDNN's
# gradient of the weight.
_DEEP_CHANNELS, _DEEP_PIXELS = 128, 2048


def _is_deep(data: Tensor, weight: Tensor, stride: tuple[int, ...], dilate: tuple[int, ...], num_group: int) -> bool:
    """Return whether `_DeepConvolution` is faster: many channels, few pixels, and a weight that needs a gradient."""
    return (
        weight.requires_grad
        and data.dim() == 4
        and min(weight.shape[:2]) >= _DEEP_CHANNELS
        and weight.shape[2:] != (1, 1)
        and data.shape[0] * data.shape[2] * data.shape[3] <= _DEEP_PIXELS * math.prod(stride)
        and num_group == 1
        and dilate == (1, 1)
        and data.dtype == weight.dtype == torch.float32
        and data.device.type == "cpu"
        and torch.is_grad_enabled()
        and not is_compiling()
    )


def _conv_sizes(sizes: Any, kernel: Any, stride: Any, dilate: Any, pad: Any) -> list[int]:
    """Return the size of a convolution's output in each dimension. Asking torch would import much of torch."""
    result = [
        (size + 2 * p - d * (k - 1) - 1) // s + 1
        for size, k, s, d, p in zip(sizes, kernel, stride, dilate, pad, strict=True)
    ]
    if min(result) < 1:
        raise MXNetError(f"expected a kernel within the padded data, got kernel {kernel} for {tuple(sizes)}")
    return result


class _DeepConvolution(torch.autograd.Function):
    """A 2-D convolution that computes the weight's gradient as a product of the output gradient and the patches."""

    @staticmethod
    def forward(ctx, data, weight, bias, stride, pad):
        ctx.save_for_backward(data, weight)
        ctx.stride, ctx.pad = stride, pad
        return F.conv2d(data, weight, bias, stride, pad)

    @staticmethod
    def backward(ctx, grad):
        data, weight = ctx.saved_tensors
        wants_data, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        d_data = d_weight = None
        if wants_data:
            d_data = torch.ops.aten.convolution_backward(
                grad, data, weight, None, ctx.stride, ctx.pad, (1, 1), False, (0, 0), 1, (True, False, False)
            )[0]
        rows = grad.permute(0, 2, 3, 1).flatten(0, 2)
        if wants_weight:
            down, across = ctx.pad
            padded = F.pad(data, (across, across, down, down)).permute(0, 2, 3, 1)
            patches = padded.unfold(1, weight.shape[2], ctx.stride[0]).unfold(2, weight.shape[3], ctx.stride[1])
            patches = patches.permute(0, 1, 2, 4, 5, 3).reshape(len(rows), -1)
            d_weight = (rows.t() @ patches).view(weight.shape[0], *weight.shape[2:], -1).permute(0, 3, 1, 2)
        return d_data, d_weight, rows.sum(0) if wants_bias else None, None, None


@by_data
def _filter_shapes(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    filters, kernel = attrs["num_filter"], attrs["kernel"]
    channels_last = (attrs["layout"] or "").endswith("C")
    channels = data[-1] if channels_last else data[1]
    channels = UNKNOWN if channels == UNKNOWN else channels // attrs["num_group"]
    return [(filters, *kernel, channels) if channels_last else (filters, channels, *kernel), (filters,)]


def _weight_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer weight and bias from the data, and unknown sizes of the data from the output if there are no strides."""
    data, *weights = _filter_shapes(shapes, outputs, attrs)
    out, rank = outputs[0], len(attrs["kernel"])
    if data is None or out is None or not len(data) == len(out) == rank + 2:
        return [data, *weights]
    stride, dilate = attrs["stride"] or (1,) * rank, attrs["dilate"] or (1,) * rank
    pad, first = attrs["pad"] or (0,) * rank, 1 if (attrs["layout"] or "").endswith("C") else 2
    known = [out[0] if data[0] == UNKNOWN else data[0], *data[1:]]
    for i, kernel in enumerate(attrs["kernel"]):
        if UNKNOWN == known[first + i] != out[first + i] and stride[i] == 1:
            known[first + i] = out[first + i] + dilate[i] * (kernel - 1) - 2 * pad[i]
    return [tuple(known), *weights]


@op(
    "Convolution_v1", same_dtype=True, takes={"bias": lambda a: not a["no_bias"]}, infer=_weight_shapes
)  # the former name, used by old symbol files
@op(
    "Convolution", "_npx_convolution", same_dtype=True, takes={"bias": lambda a: not a["no_bias"]}, infer=_weight_shapes
)
def convolution(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    cudnn_tune: Tune | None = None,
    cudnn_off: bool = False,
    layout: Layout | None = None,
) -> Tensor:
    """Convolution in 1, 2 or 3 dimensions, plus bias."""
    channels_last = check_layout(data, kernel, layout)
    if channels_last:
        data, weight = data.movedim(-1, 1), weight.movedim(-1, 1)
    rank = len(kernel)
    stride = per_axis("stride", stride, rank, 1, 1)
    dilate = per_axis("dilate", dilate, rank, 1, 1)
    pad = per_axis("pad", pad, rank, 0, 0)
    channels = _per_group("data's channels", data.shape[1], num_group)
    _per_group("num_filter", num_filter, num_group)
    if weight.shape != (num_filter, channels, *kernel):
        check_shape("weight (channels first)", weight, num_filter, channels, *kernel)
    check_bias(bias, no_bias, num_filter)
    data, stride = _without_stride(data, kernel, stride, pad)
    if data.is_meta:
        result = data.new_empty(data.shape[0], num_filter, *_conv_sizes(data.shape[2:], kernel, stride, dilate, pad))
    elif _is_plane(data, weight, dilate):
        result = _conv_plane(data, weight, bias, stride, pad)
    else:
        data = _fast_format(data)
        if kernel == stride == (1, 1) and pad == (0, 0) and num_group == 1 and _is_fast_format(data):
            # A 1x1 convolution is one matrix product over the pixels, which is faster than oneDNN's convolution.
            result = F.linear(data.permute(0, 2, 3, 1), weight.flatten(1), bias).permute(0, 3, 1, 2)
        elif _is_deep(data, weight, stride, dilate, num_group):
            result = _DeepConvolution.apply(data, weight, bias, stride, pad)
        else:
            result = _CONV[rank](data, weight, bias, stride, pad, dilate, num_group)
    return result.movedim(1, -1) if channels_last else result


@by_data
def _transposed_shapes(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    filters = attrs["num_filter"] // attrs["num_group"]
    if (attrs["layout"] or "").endswith("C"):
        return [(data[-1], *attrs["kernel"], filters), (attrs["num_filter"],)]
    return [(data[1], filters, *attrs["kernel"]), (attrs["num_filter"],)]


@op(
    "Deconvolution",
    "_npx_deconvolution",
    same_dtype=True,
    takes={"bias": lambda a: not a["no_bias"]},
    infer=_transposed_shapes,
)
def deconvolution(
    data: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    adj: Shape = (),
    target_shape: Shape = (),
    num_filter: int,
    num_group: int = 1,
    workspace: int = 512,
    no_bias: bool = True,
    cudnn_tune: Tune | None = None,
    cudnn_off: bool = False,
    layout: Layout | None = None,
) -> Tensor:
    """The gradient of a convolution with respect to its data (transposed convolution), plus bias.

    `target_shape`, if given, determines pad and adj.
    """
    channels_last = check_layout(data, kernel, layout)
    if channels_last:
        data, weight = data.movedim(-1, 1), weight.movedim(-1, 1)
    rank = len(kernel)
    stride = per_axis("stride", stride, rank, 1, 1)
    dilate = per_axis("dilate", dilate, rank, 1, 1)
    if any(target_shape):
        target_shape = per_axis("target_shape", target_shape, rank, 1, 1)
        surplus = _surplus(data.shape[2:], kernel, stride, dilate, target_shape)
        pad, adj = tuple((s + 1) // 2 for s in surplus), tuple(s % 2 for s in surplus)
    else:
        pad = per_axis("pad", pad, rank, 0, 0)
        adj = per_axis("adj", adj, rank, 0, 0)
    if any(a >= s for a, s in zip(adj, stride, strict=True)):
        raise MXNetError(f"expected adj (given or implied by target_shape) to be less than stride {stride}, got {adj}")
    channels = data.shape[1]
    _per_group("data's channels", channels, num_group)
    filters = _per_group("num_filter", num_filter, num_group)
    if weight.shape != (channels, filters, *kernel):
        check_shape("weight (channels first)", weight, channels, filters, *kernel)
    check_bias(bias, no_bias, num_filter)
    result = _TRANSPOSED[rank](_fast_format(data), weight, bias, stride, pad, adj, num_group, dilate)
    return result.movedim(1, -1) if channels_last else result


def _surplus(
    lengths: torch.Size,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilate: tuple[int, ...],
    target: tuple[int, ...],
) -> list[int]:
    """Return by how much the output of a deconvolution without padding exceeds the target shape."""
    full = [(n - 1) * s + (k - 1) * d + 1 for n, k, s, d in zip(lengths, kernel, stride, dilate, strict=True)]
    surplus = [f - t for f, t in zip(full, target, strict=True)]
    if min(surplus) < 0:
        raise MXNetError(f"expected a target_shape of at most {tuple(full)}, got {target}")
    return surplus


# ---- deformable convolution ----


def _deformable_shapes(shapes: Shapes, outputs: Shapes, attrs: dict[str, Any]) -> Shapes:
    """Infer weight and bias, which come last, from the data."""
    first = len(shapes) - (1 if attrs["no_bias"] else 2)
    known = _weight_shapes([shapes[0], *shapes[first:]], outputs, attrs)
    return [*shapes[:first], *known[1:]]


@op(
    "_contrib_DeformableConvolution",
    same_dtype=True,
    takes={"bias": lambda a: not a["no_bias"]},
    infer=_deformable_shapes,
)
def deformable_convolution(
    data: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    num_deformable_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    layout: Literal["NCDHW", "NCHW", "NCW"] | None = None,
) -> Tensor:
    """2-D convolution whose sampling points are shifted by `offset` (N, groups * kernel * (y, x), H, W)."""
    columns = _deformed(data, offset, None, kernel, stride, dilate, pad, num_deformable_group, layout)
    return _multiply_columns(columns, weight, bias, kernel, data.shape[1], num_filter, num_group, no_bias)


@op(
    "_contrib_ModulatedDeformableConvolution",
    same_dtype=True,
    takes={"bias": lambda a: not a["no_bias"]},
    infer=_deformable_shapes,
)
def modulated_deformable_convolution(
    data: Tensor,
    offset: Tensor,
    mask: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    kernel: Shape,
    stride: Shape = (),
    dilate: Shape = (),
    pad: Shape = (),
    num_filter: int,
    num_group: int = 1,
    num_deformable_group: int = 1,
    workspace: int = 1024,
    no_bias: bool = False,
    im2col_step: int = 64,
    layout: Literal["NCDHW", "NCHW", "NCW"] | None = None,
) -> Tensor:
    """DeformableConvolution with a `mask` (N, groups * kernel, H, W) of weights for the sampled points."""
    columns = _deformed(data, offset, mask, kernel, stride, dilate, pad, num_deformable_group, layout)
    return _multiply_columns(columns, weight, bias, kernel, data.shape[1], num_filter, num_group, no_bias)


def _deformed(
    data: Tensor,
    offset: Tensor,
    mask: Tensor | None,
    kernel: tuple[int, ...],
    stride: tuple[int, ...],
    dilate: tuple[int, ...],
    pad: tuple[int, ...],
    groups: int,
    layout: str | None,
) -> Tensor:
    """Return the sampled values, (N, channels, kernel points, out height, out width)."""
    check_layout(data, kernel, layout)
    if len(kernel) != 2:
        raise MXNetError(f"expected a kernel of 2 integers, got {kernel}")
    stride, dilate = per_axis("stride", stride, 2, 1, 1), per_axis("dilate", dilate, 2, 1, 1)
    pad = per_axis("pad", pad, 2, 0, 0)
    batch, channels, height, width = data.shape
    _per_group("data's channels", channels, groups)
    points = kernel[0] * kernel[1]
    out = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip((height, width), pad, dilate, kernel, stride, strict=True)
    ]
    if min(out) < 1:
        raise MXNetError(f"expected a kernel within the padded data, got {kernel}")
    check_shape("offset", offset, batch, groups * points * 2, *out)
    y, x = (
        torch.arange(k, device=data.device).view(shape) * d + torch.arange(o, device=data.device).view(place) * s - p
        for k, d, o, s, p, shape, place in zip(
            kernel, dilate, out, stride, pad, ((-1, 1, 1, 1), (-1, 1, 1)), ((-1, 1), (-1,)), strict=True
        )
    )
    offset = offset.view(batch, groups, *kernel, 2, *out)
    y, x = y + offset[:, :, :, :, 0], x + offset[:, :, :, :, 1]
    inside = None
    if mask is None:
        # Without a mask, MXNet uses 0 for points outside the image instead of interpolating 0 with the border, and does
        # not move points on or beyond the last row.
        inside = ((y >= 0) & (x >= 0) & (y < height) & (x < width)).to(data.dtype)
        y, x = y.where(y < height - 1, height - 1), x.where(x < width - 1, width - 1)
    else:
        check_shape("mask", mask, batch, groups * points, *out)
        inside = mask.view(batch, groups, *kernel, *out)
    values = bilinear(data.reshape(batch * groups, -1, height, width), y.flatten(0, 1), x.flatten(0, 1))
    return (values * inside.flatten(0, 1).unsqueeze(1)).view(batch, channels, points, *out)


def _multiply_columns(
    columns: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    kernel: tuple[int, ...],
    channels: int,
    num_filter: int,
    num_group: int,
    no_bias: bool,
) -> Tensor:
    inner, filters = _per_group("data's channels", channels, num_group), _per_group("num_filter", num_filter, num_group)
    check_shape("weight", weight, num_filter, inner, *kernel)
    check_bias(bias, no_bias, num_filter)
    batch, height, width = columns.shape[0], *columns.shape[-2:]
    result = weight.reshape(num_group, filters, -1) @ columns.reshape(batch, num_group, -1, height * width)
    result = result.view(batch, num_filter, height, width)
    return result if bias is None else result + bias.view(-1, 1, 1)


# ---- correlation ----


@op("Correlation", same_dtype=True, outputs=("output", "tmp1", "tmp2"), visible=1)
def correlation(
    data1: Tensor,
    data2: Tensor,
    *,
    kernel_size: int = 1,
    max_displacement: int = 1,
    stride1: int = 1,
    stride2: int = 1,
    pad_size: int = 0,
    is_multiply: bool = True,
) -> Tensor:
    """The mean product (or |difference|) of patches of data1 and displaced patches of data2, one channel each."""
    if data1.dim() != 4 or data1.shape != data2.shape:
        raise MXNetError("expected two arrays of the same shape (batch, channel, height, width)")
    if min(kernel_size, stride1, stride2) < 1 or kernel_size % 2 == 0 or min(max_displacement, pad_size) < 0:
        raise MXNetError(
            "expected an odd kernel_size, strides of at least 1, max_displacement and pad_size of at least 0"
        )
    border = max_displacement + kernel_size // 2
    out = [(n + 2 * pad_size - 2 * border + stride1 - 1) // stride1 for n in data1.shape[2:]]
    if min(out) < 1:
        raise MXNetError(f"expected padded data larger than twice max_displacement plus half the kernel, {2 * border}")
    rows, columns = ((o - 1) * stride1 + kernel_size for o in out)
    data1, data2 = (F.pad(d, (pad_size,) * 4) for d in (data1, data2))
    patch = data1[:, :, max_displacement:, max_displacement:][:, :, :rows, :columns]
    reach = max_displacement // stride2 * stride2
    steps = range(max_displacement - reach, max_displacement + reach + 1, stride2)
    maps = []
    for top in steps:
        for left in steps:
            other = data2[:, :, top : top + rows, left : left + columns]
            both = patch * other if is_multiply else (patch - other).abs()
            maps.append(both.mean(1))
    return F.avg_pool2d(torch.stack(maps, 1), kernel_size, stride1)
