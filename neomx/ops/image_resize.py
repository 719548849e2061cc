"""Resizing and padding images (height, width, channels), as OpenCV does it.

OpenCV computes with integers of its own on uint8 images, so that a result here may differ from its by one.
"""

from __future__ import annotations

import torch
from torch.nn.functional import interpolate

from ..base import MXNetError
from .table import Floats, Shape, op

Tensor = torch.Tensor

NEAREST, LINEAR, CUBIC, AREA, LANCZOS, LINEAR_EXACT = range(6)


def _area_weights(new: int, old: int) -> Tensor:
    """What each old pixel gives to each new, larger one: the share of the new one that it covers."""
    scale = old / new
    low = torch.arange(new, dtype=torch.float64)[:, None] * scale
    pixel = torch.arange(old, dtype=torch.float64)
    return ((low + scale).minimum(pixel + 1) - low.maximum(pixel)).clamp_(min=0) / scale


def _area_weights_enlarging(new: int, old: int) -> Tensor:
    """Area interpolation where an image grows: linear, but only across the edge between two old pixels."""
    place = torch.arange(new, dtype=torch.float64)
    low = torch.floor(place * old / new)
    across = (place + 1) - (low + 1) * new / old
    across = torch.where(across > 0, across - across.floor(), 0.0)
    return _spread(low, torch.stack((1 - across, across), 1), old)


def _lanczos_weights(new: int, old: int) -> Tensor:
    """Lanczos interpolation over the eight pixels around."""
    place = (torch.arange(new, dtype=torch.float64) + 0.5) * old / new - 0.5
    low = torch.floor(place)
    distance = (place - low)[:, None] - torch.arange(-3, 5)
    weights = torch.sinc(distance) * torch.sinc(distance / 4)
    return _spread(low - 3, weights / weights.sum(1, keepdim=True), old)


def _spread(first: Tensor, weights: Tensor, old: int) -> Tensor:
    """Weights of consecutive old pixels, from `first` on, as a matrix (new, old); pixels outside are the border's."""
    pixel = (first[:, None].long() + torch.arange(weights.shape[1])).clamp_(0, old - 1)
    return torch.zeros(len(first), old, dtype=weights.dtype).scatter_add_(1, pixel, weights)


def resize_images(images: Tensor, width: int, height: int, interp: int) -> Tensor:
    """Images (..., h, w, c) in another size, by one of OpenCV's interpolations."""
    if not (images.is_floating_point() or images.dtype is torch.uint8):
        raise MXNetError("expected images of uint8 or floats")
    if not NEAREST <= interp <= LINEAR_EXACT:
        raise MXNetError(
            f"interp={interp}: expected 0 (nearest), 1 (linear), 2 (cubic), 3 (area), 4 (lanczos) or 5 (exact linear)"
        )
    old_height, old_width = images.shape[-3:-1]
    if interp == NEAREST:
        y = torch.arange(height, device=images.device) * old_height // height
        x = torch.arange(width, device=images.device) * old_width // width
        return images[..., y[:, None], x, :]
    work = images if images.is_floating_point() else images.float()
    if interp in (LINEAR, LINEAR_EXACT, CUBIC):
        mode = "bicubic" if interp == CUBIC else "bilinear"
        planes = work.reshape(-1, *work.shape[-3:]).permute(0, 3, 1, 2)
        result = interpolate(planes, (height, width), mode=mode, align_corners=False).permute(0, 2, 3, 1)
        result = result.reshape(*images.shape[:-3], height, width, images.shape[-1])
    else:
        weigh = _lanczos_weights
        if interp == AREA:
            shrinking = height <= old_height and width <= old_width
            weigh = _area_weights if shrinking else _area_weights_enlarging
        down, across = weigh(height, old_height).to(work), weigh(width, old_width).to(work)
        result = torch.einsum("hy,...yxc,wx->...hwc", down, work, across)
    if images.dtype is torch.uint8:
        result = result.round_().clamp_(0, 255).to(torch.uint8)
    return result.contiguous()


@op("_image_resize")
def image_resize(data: Tensor, *, size: Shape = (), keep_ratio: bool = False, interp: int = 1) -> Tensor:
    """Images (h, w, c) or (n, h, w, c) in another size: (width, height), or one length for both.

    With `keep_ratio` one length is the shorter side's.
    """
    if data.dim() not in (3, 4):
        raise MXNetError("expected an image (h, w, c) or images (n, h, w, c)")
    if len(size) not in (1, 2) or min(size) < 1:
        raise MXNetError(f"size={size}: expected a length or (width, height), at least 1")
    width, height = size[0], size[-1]
    if keep_ratio and len(size) == 1:
        old_height, old_width = data.shape[-3:-1]
        if old_height > old_width:
            height = old_height * width // old_width
        else:
            width = old_width * height // old_height
    return resize_images(data, width, height, interp)


@op("_cvimresize")
def cv_resize(src: Tensor, *, w: int, h: int, interp: int = 1) -> Tensor:
    """An image (h, w, c) in another size."""
    if src.dim() != 3:
        raise MXNetError("expected an image (h, w, c)")
    if w < 1 or h < 1:
        raise MXNetError("expected w and h of at least 1")
    return resize_images(src, w, h, interp)


def _border_index(before: int, length: int, after: int, kind: int, device: torch.device) -> Tensor:
    """Which pixel stands at each place of a bordered line."""
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
    """An image (h, w, c) with a border: 0 of `value` or one of `values` for each channel, 1 of the edge's pixels,
    2 mirrored, 3 repeated, 4 mirrored without doubling the edge.
    """
    if src.dim() != 3:
        raise MXNetError("expected an image (h, w, c)")
    if min(top, bot, left, right) < 0:
        raise MXNetError("expected borders of at least 0")
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
