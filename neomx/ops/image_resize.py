"""Resize and pad images (height, width, channels) as OpenCV does.

If OpenCV is installed, it resizes images in CPU memory: the pixels equal MXNet's and it takes a third of the time.
torch resizes the others: on other devices, in compiled graphs or for gradients. Its uint8 results may differ by 1.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch.nn.functional import embedding_bag, interpolate

from ..base import MXNetError
from ..formats import picture
from .table import Floats, Shape, op

Tensor = torch.Tensor

NEAREST, LINEAR, CUBIC, AREA, LANCZOS, LINEAR_EXACT = range(6)


def _taps(new: int, old: int, interp: int, shrinking: bool) -> tuple[Tensor, Tensor]:
    """Return the old pixels that contribute to each of `new` pixels along a side, and their weights, as (new, taps)."""
    scale = old / new
    place = torch.arange(new, dtype=torch.float64)
    if interp == AREA and shrinking:  # weighted by the fraction of the new pixel that each covers
        low = place * scale
        pixel = torch.floor(low)[:, None] + torch.arange(math.ceil(scale) + 1)
        covered = (low[:, None] + scale).minimum(pixel + 1) - low[:, None].maximum(pixel)
        return pixel.clamp_(max=old - 1).long(), covered.clamp_(min=0) / scale
    if interp == AREA:  # enlarging: linear, but only across the edge between two old pixels
        low = torch.floor(place * scale)
        after = (place + 1) - (low + 1) / scale
        after = torch.where(after > 0, after - after.floor(), 0.0)
    else:
        centre = (place + 0.5) * scale - 0.5
        low = torch.floor(centre)
        after = centre - low
    if interp == LANCZOS:
        reach = torch.arange(-3, 5)
        distance = after[:, None] - reach
        weights = torch.sinc(distance) * torch.sinc(distance / 4)
        weights /= weights.sum(1, keepdim=True)
    elif interp == CUBIC:
        reach, a = torch.arange(-1, 3), -0.75
        x = (after[:, None] - reach).abs()
        near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((x - 5) * x + 8) * x * a - 4 * a
        weights = torch.where(x <= 1, near, far)
    else:
        reach = torch.arange(2)
        weights = torch.stack((1 - after, after), 1)
    return (low[:, None] + reach).clamp_(0, old - 1).long(), weights


def _blend(images: Tensor, axis: int, pixels: Tensor, weights: Tensor) -> Tensor:
    """Return weighted sums of slices along one axis, computed by embedding_bag with the slices as rows."""
    lines = images.movedim(axis, 0)
    weights = weights.to(images)
    result = embedding_bag(pixels.to(images.device), lines.flatten(1), mode="sum", per_sample_weights=weights)
    return result.reshape(-1, *lines.shape[1:]).movedim(0, axis)


def _interpolate(images: Tensor, size: tuple[int, int], mode: str) -> Tensor:
    """Resize with torch's kernels for modes in which they agree with OpenCV. Weighted sums are several times slower."""
    planes = images.movedim(-1, -3)
    result = interpolate(planes if images.dim() == 4 else planes[None], size, mode=mode)
    return (result if images.dim() == 4 else result[0]).movedim(-3, -1).contiguous()


def _for_opencv(images: Tensor) -> bool:
    return (
        images.device.type == "cpu"
        and images.dtype in (torch.uint8, torch.float32, torch.float64)
        and images.shape[-1] <= 4
        and not images.requires_grad
        and not torch.compiler.is_compiling()
        and picture.available()
    )


def _by_opencv(images: Tensor, width: int, height: int, interp: int) -> Tensor:
    pixels = images.numpy()
    if images.dim() == 3:
        return torch.from_numpy(np.ascontiguousarray(picture.resize(pixels, width, height, interp)))
    return torch.from_numpy(np.stack([picture.resize(image, width, height, interp) for image in pixels]))


def resize_images(images: Tensor, width: int, height: int, interp: int) -> Tensor:
    """Return images (..., h, w, c) resized by one of OpenCV's interpolations."""
    if not images.numel():
        raise MXNetError("expected a nonempty image")
    if not (images.is_floating_point() or images.dtype is torch.uint8 or interp == NEAREST):
        raise MXNetError("expected uint8 or floating-point images")
    if not NEAREST <= interp <= LINEAR_EXACT:
        raise MXNetError(
            f"interp={interp}: expected 0 (nearest), 1 (linear), 2 (cubic), 3 (area), 4 (lanczos) or 5 (exact linear)"
        )
    if _for_opencv(images):
        return _by_opencv(images, width, height, interp)
    old_height, old_width = images.shape[-3:-1]
    if interp == NEAREST:
        y = torch.arange(height, device=images.device) * old_height // height
        x = torch.arange(width, device=images.device) * old_width // width
        return images.index_select(-3, y).index_select(-2, x)
    if interp in (LINEAR, LINEAR_EXACT):
        return _interpolate(images, (height, width), "bilinear")
    result = images if images.is_floating_point() else images.float()
    if interp == CUBIC:  # in floats: with uint8, torch clips to 255 between the two directions
        result = _interpolate(result, (height, width), "bicubic")
        return result if images.is_floating_point() else result.round_().clamp_(0, 255).to(torch.uint8)
    shrinking = height <= old_height and width <= old_width
    result = _blend(result, -3, *_taps(height, old_height, interp, shrinking))
    result = _blend(result, -2, *_taps(width, old_width, interp, shrinking)).contiguous()
    return result if images.is_floating_point() else result.round_().clamp_(0, 255).to(torch.uint8)


@op("_image_resize", "_npx__image_resize")
def image_resize(data: Tensor, *, size: Shape = (), keep_ratio: bool = False, interp: int = 1) -> Tensor:
    """Resize images (h, w, c) or (n, h, w, c) to (width, height), or to one size for both.

    With `keep_ratio`, a single size is that of the shorter side.
    """
    if data.dim() not in (3, 4):
        raise MXNetError("expected an image (h, w, c) or images (n, h, w, c)")
    if len(size) not in (1, 2) or min(size) < 1:
        raise MXNetError(f"size={size}: expected a positive size or (width, height)")
    width, height = size[0], size[-1]
    if keep_ratio and len(size) == 1:
        old_height, old_width = data.shape[-3:-1]
        if old_height > old_width:
            height = old_height * width // old_width
        else:
            width = old_width * height // old_height
    return resize_images(data, width, height, interp)


@op("_cvimresize", "_npi_cvimresize")
def cv_resize(src: Tensor, *, w: int, h: int, interp: int = 1) -> Tensor:
    """An image (h, w, c), resized."""
    if src.dim() != 3:
        raise MXNetError("expected an image (h, w, c)")
    if w < 1 or h < 1:
        raise MXNetError("expected w and h of at least 1")
    return resize_images(src, w, h, interp)


def _border_index(before: int, length: int, after: int, kind: int, device: torch.device) -> Tensor:
    """Return the index of the source pixel for each pixel of a padded line."""
    place = torch.arange(-before, length + after, device=device)
    if kind == 1:  # aaa|abc|ccc
        return place.clamp_(0, length - 1)
    if kind == 3:  # abc|abc|abc
        return place % length
    if kind == 2:  # cba|abc|cba
        place = place % (2 * length)
        return place.minimum(2 * length - 1 - place)
    period = max(2 * length - 2, 1)  # cb|abc|ba
    place = place % period
    return place.minimum(period - place) if length > 1 else place


@op("_cvcopyMakeBorder")
def cv_border(
    src: Tensor, *, top: int, bot: int, left: int, right: int, type: int = 0, value: float = 0.0, values: Floats = ()
) -> Tensor:
    """An image (h, w, c) with a border.

    `type` is 0 for `value`, or `values` per channel; 1 for the edge pixels; 2 for reflection; 3 for wrapping; 4 for
    reflection without repeating the edge.
    """
    if src.dim() != 3 or not src.numel():
        raise MXNetError("expected a nonempty image (h, w, c)")
    if min(top, bot, left, right) < 0:
        raise MXNetError("expected nonnegative borders")
    if not 0 <= type <= 4:
        raise MXNetError(f"type={type}: expected 0 to 4")
    height, width, channels = src.shape
    if type == 0:
        colour = torch.zeros(channels, dtype=torch.float64)
        colour[:] = 0.0 if values else value
        for i, v in enumerate(values[:channels]):
            colour[i] = v
        if not src.is_floating_point():
            limits = torch.iinfo(src.dtype)
            colour.round_().clamp_(limits.min, limits.max)
        result = colour.to(src).expand(top + height + bot, left + width + right, channels).contiguous()
        result[top : top + height, left : left + width] = src
        return result
    y = _border_index(top, height, bot, type, src.device)
    x = _border_index(left, width, right, type, src.device)
    return src[y[:, None], x]
