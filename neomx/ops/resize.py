"""Image resizing: upsampling and bilinear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F

from ..base import MXNetError
from .conv import check_shape
from .table import by_data, op

Tensor = torch.Tensor


def _input_names(attrs: dict[str, Any]) -> Sequence[str]:
    if attrs["sample_type"] == "bilinear":
        return "data", "weight"
    return [f"arg{i}" for i in range(attrs["num_args"])]


@by_data
def _kernel_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    if attrs["sample_type"] != "bilinear":
        raise LookupError
    width = 2 * attrs["scale"] - attrs["scale"] % 2
    return [(attrs["num_filter"], 1, width, width)]


@op(
    "UpSampling",
    same_dtype=True,
    takes=_input_names,
    starts=dict.fromkeys(("weight", "arg1"), '["bilinear", {}]'),
    infer=_kernel_shape,
)
def upsampling(
    *data: Tensor,
    scale: int,
    num_filter: int = 0,
    sample_type: Literal["bilinear", "nearest"],
    multi_input_mode: Literal["concat", "sum"] = "concat",
    num_args: int = 1,
    workspace: int = 512,
) -> Tensor:
    """Images enlarged `scale` times, by repeating pixels or by a deconvolution ('bilinear': data, weight).

    Several images are all resized to `scale` times the size of the first, then concatenated by channels or summed.
    """
    if scale < 1:
        raise MXNetError(f"expected a scale of at least 1, got {scale}")
    if sample_type == "bilinear":
        return _spread(data, scale, num_filter)
    if not data or any(d.dim() != 4 for d in data):
        raise MXNetError("expected images of shape (batch, channel, height, width)")
    size = [n * scale for n in data[0].shape[2:]]
    for image in data:
        if any(large % small for large, small in zip(size, image.shape[2:], strict=True)):
            raise MXNetError(f"expected image heights and widths that divide {size}, got {tuple(image.shape)}")
    # 'nearest-exact' uses pixel centers, so that rounding cannot select an adjacent pixel.
    images = [F.interpolate(d, size, mode="nearest-exact") for d in data]
    if len(images) == 1:
        return images[0]
    if multi_input_mode == "concat":
        return torch.cat(images, 1)
    if any(i.shape != images[0].shape for i in images):
        raise MXNetError("expected images with the same number of channels for multi_input_mode='sum'")
    return torch.stack(images).sum(0)


def _spread(data: tuple[Tensor, ...], scale: int, num_filter: int) -> Tensor:
    if len(data) != 2 or data[0].dim() != 4:
        raise MXNetError("expected data (batch, channel, height, width) and weight")
    image, weight = data
    if image.shape[1] != num_filter:
        raise MXNetError(f"expected num_filter to be the number of channels, {image.shape[1]}, got {num_filter}")
    kernel = 2 * scale - scale % 2
    check_shape("weight", weight, num_filter, 1, kernel, kernel)
    return F.conv_transpose2d(image, weight, stride=scale, padding=scale // 2, groups=num_filter)


@op("_contrib_BilinearResize2D", takes={"like": lambda a: a["mode"] == "like"})
def bilinear_resize(
    data: Tensor,
    like: Tensor | None = None,
    *,
    height: int = 1,
    width: int = 1,
    scale_height: float | None = None,
    scale_width: float | None = None,
    mode: Literal["like", "odd_scale", "size", "to_even_down", "to_even_up", "to_odd_down", "to_odd_up"] = "size",
    align_corners: bool = True,
) -> Tensor:
    """Images resized by bilinear interpolation: to a size, by a scale, like an array, or to an even or odd size."""
    if data.dim() != 4:
        raise MXNetError("expected images of shape (batch, channel, height, width)")
    if (like is not None) != (mode == "like"):
        raise MXNetError("expected an array `like` if and only if mode='like'")
    if like is not None:
        size = list(like.shape[2:])
    else:
        size = _size(data.shape[2:], mode, (height, width), scale_height, scale_width)
    if len(size) != 2 or min(size) < 1:
        raise MXNetError(f"expected an output of at least 1 x 1, got {' x '.join(map(str, size))}")
    # An output of size 1 is the first pixel in MXNet, for both values of align_corners.
    data = data[:, :, : 1 if size[0] == 1 else None, : 1 if size[1] == 1 else None]
    return F.interpolate(data, size, mode="bilinear", align_corners=align_corners)


def _size(
    lengths: Sequence[int], mode: str, given: tuple[int, int], scale_height: float | None, scale_width: float | None
) -> list[int]:
    """Return height and width of the output in all modes but 'like'."""
    if mode.startswith("to_"):
        return [_of_parity(length, mode) for length in lengths]
    if mode == "size" and scale_height is None and scale_width is None:
        return list(given)
    if scale_height is None or scale_width is None:
        raise MXNetError("expected both scale_height and scale_width")
    scaled = zip(lengths, (scale_height, scale_width), strict=True)
    return [
        int((length - 1) * scale) + 1 if mode == "odd_scale" and length % 2 else int(length * scale)
        for length, scale in scaled
    ]


def _of_parity(length: int, mode: str) -> int:
    """Return the length, or the next one that is even or odd, e.g. for 'to_even_up' or 'to_odd_down'."""
    _, parity, direction = mode.split("_")
    if (length % 2 == 0) == (parity == "even"):
        return length
    return length + (1 if direction == "up" else -1)
