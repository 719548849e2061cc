"""Image ops for training data: tensor conversion, normalization, crops, flips and random color changes.

An image is (height, width, channels). uint8 images stay uint8: results are clipped to 0 and 255 and truncated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..base import MXNetError
from .random import generator
from .table import FILLED_IN, Ctx, Floats, op, typed

Tensor = torch.Tensor


class _Through(torch.autograd.Function):
    """Call a function on an image and pass the gradient through as if the image were unchanged, as MXNet does."""

    @staticmethod
    def forward(ctx: Any, call: Callable[[Tensor], Tensor], data: Tensor) -> Tensor:
        return call(data)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        return None, grad


def _gradient_through(fn: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @functools.wraps(fn)
    def call(data: Tensor, **attrs: Any) -> Tensor:
        if data.requires_grad and torch.is_grad_enabled():
            return _Through.apply(lambda image: fn(image, **attrs), data)
        return fn(data, **attrs)

    return call


def _check_image(data: Tensor) -> None:
    if data.dim() != 3 or data.shape[2] not in (1, 3):  # the result of ToTensor has the channels first
        raise MXNetError("expected an image (height, width, 1 or 3 channels)")


def _like(values: Tensor, data: Tensor) -> Tensor:
    """Convert computed values to the dtype of the image."""
    if data.dtype is torch.uint8:
        values = values.clamp_(0, 255)
    return values.to(data.dtype)


def _work(data: Tensor) -> Tensor:
    """Convert the image to a dtype for computation."""
    return data.to(torch.promote_types(data.dtype, torch.float32))


# ---- deterministic ----


@op("_image_to_tensor", "_npx__image_to_tensor", types=typed([torch.float32]))
def to_tensor(data: Tensor) -> Tensor:
    """Convert (h, w, c) or (n, h, w, c) with values 0..255 to (c, h, w) or (n, c, h, w) as float32 with values 0..1."""
    if data.dim() not in (3, 4):
        raise MXNetError("expected an image (h, w, c) or images (n, h, w, c)")
    planes = data.movedim(-1, -3)
    if data.dtype is torch.uint8:
        return planes.contiguous().to(torch.float32).div_(255)
    return planes.to(torch.float32, memory_format=torch.contiguous_format) / 255


@op("_image_normalize", "_npx__image_normalize")
def normalize(data: Tensor, *, mean: Floats = (0.0,) * 4, std: Floats = (1.0,) * 4) -> Tensor:
    """(x - mean) / std for each channel of (c, h, w) or (n, c, h, w)."""
    if data.dim() not in (3, 4):
        raise MXNetError("expected an image (channels, h, w) or images (n, channels, h, w)")
    channels = data.shape[-3]
    if channels not in (1, 3):
        raise MXNetError(f"expected 1 or 3 channels, got {channels}")
    for name, values in (("mean", mean), ("std", std)):
        if len(values) not in (1, channels):
            raise MXNetError(f"{name}={values}: expected 1 or {channels} values")
    work = data if data.is_floating_point() else data.float()
    shift, scale = (v[0] if len(v) == 1 else work.new_tensor(v).view(-1, 1, 1) for v in (mean, std))
    result = (work - shift).div_(scale)
    return result if data.is_floating_point() else result.long().to(data.dtype)


@op("_image_crop", "_npx__image_crop", may_alias=True)
def crop(data: Tensor, *, x: int, y: int, width: int, height: int) -> Tensor:
    """The rectangle at (x, y) of an image (h, w, c) or of images (n, h, w, c)."""
    if data.dim() not in (3, 4) or data.shape[-1] not in (1, 3):
        raise MXNetError("expected an image (h, w, c) or images (n, h, w, c) of 1 or 3 channels")
    rows, columns = data.shape[-3:-1]
    if width < 1 or height < 1 or x < 0 or y < 0 or x + width > columns or y + height > rows:
        raise MXNetError(f"expected a rectangle within the image of width {columns} and height {rows}")
    return data[..., y : y + height, x : x + width, :].contiguous()


@op("_image_flip_left_right", "_npx__image_flip_left_right")
@_gradient_through
def flip_left_right(data: Tensor) -> Tensor:
    """The image flipped horizontally."""
    _check_image(data)
    return data.flip(1)


@op("_image_flip_top_bottom", "_npx__image_flip_top_bottom")
@_gradient_through
def flip_top_bottom(data: Tensor) -> Tensor:
    """The image flipped vertically."""
    _check_image(data)
    return data.flip(0)


# The principal components of colors in photographs: the change of red, green and blue for one standard deviation each.
_COLOUR_DIRECTIONS = (
    (-31.4735508, 3.44784474, 0.460233212),
    (-32.2111664, -0.021573, -0.934472024),
    (-32.3664551, -3.33087111, 0.482504398),
)


def _light(data: Tensor, alpha: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    work = _work(data)
    return _like(work + work.new_tensor(_COLOUR_DIRECTIONS) @ alpha.to(work), data)


@op("_image_adjust_lighting", "_npx__image_adjust_lighting")
@_gradient_through
def adjust_lighting(data: Tensor, *, alpha: Floats) -> Tensor:
    """Add `alpha` times the three principal components of colors in photographs (AlexNet's lighting noise)."""
    _check_image(data)
    if len(alpha) != 3:
        raise MXNetError(f"alpha={alpha}: expected three values")
    return _light(data, torch.tensor(alpha, device=data.device))


# ---- random ----


def _brightness(data: Tensor, factor: Tensor) -> Tensor:
    return _like(_work(data) * factor, data)


def _grey(work: Tensor) -> Tensor:
    return work @ work.new_tensor((0.299, 0.587, 0.114))


def _contrast(data: Tensor, factor: Tensor) -> Tensor:
    work = _work(data)
    mean = (_grey(work) if data.shape[2] == 3 else work).mean()
    return _like(work * factor + mean * (1 - factor), data)


def _saturation(data: Tensor, factor: Tensor) -> Tensor:
    if data.shape[2] == 1:
        return data.clone()
    work = _work(data)
    # MXNet intends to blend with the gray value, but its sum over the three channels keeps only the last term.
    grey = work[:, :, 2:] * 0.114
    return _like(work * factor + grey * (1 - factor), data)


def _hue(data: Tensor, factor: Tensor) -> Tensor:
    """Rotate the hue by `factor` turns of the color circle. Lightness and saturation are unchanged."""
    if data.shape[2] == 1:
        return data.clone()
    work = _work(data)
    red, green, blue = work.movedim(2, 0).contiguous()
    high = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    spread = high - low
    turn = torch.where(high == green, 2 * spread + (blue - red), 4 * spread + (red - green))
    turn = torch.where(high == red, green - blue, turn)
    turn = turn.div_(spread).nan_to_num_(0).add_(factor * 6).remainder_(6)  # in sixths of the circle, with red at 0
    share = torch.stack(((turn - 3).abs_() - 1, 2 - (turn - 2).abs_(), 2 - (turn - 4).abs_())).clamp_(0, 1)
    return _like(share.mul_(spread).add_(low).movedim(0, 2), data).contiguous()


def _uniform(low: float, high: float, data: Tensor, ctx: Any) -> Tensor:
    return low + (high - low) * torch.rand((), generator=generator(ctx), device=data.device)


def _enter_random(name: str, change: Callable[[Tensor, Tensor], Tensor], doc: str) -> None:
    @_gradient_through
    def random_change(data: Tensor, *, min_factor: float, max_factor: float, ctx: Ctx = FILLED_IN) -> Tensor:
        _check_image(data)
        if min_factor < 0 or max_factor < 0:
            raise MXNetError("expected factors of at least 0")
        return change(data, _uniform(min_factor, max_factor, data, ctx))

    random_change.__doc__ = doc
    op(f"_image_random_{name}", f"_npx__image_random_{name}")(random_change)


_enter_random("brightness", _brightness, "Multiply the image by a random factor.")
_enter_random("contrast", _contrast, "Change the contrast by a random factor.")
_enter_random("saturation", _saturation, "Change the saturation by a random factor.")
_enter_random("hue", _hue, "Rotate the hue by a random fraction of the color circle.")


@op("_image_random_color_jitter", "_npx__image_random_color_jitter")
@_gradient_through
def random_color_jitter(
    data: Tensor,
    *,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    ctx: Ctx = FILLED_IN,
) -> Tensor:
    """Change brightness, contrast, saturation and hue in random order, each by a factor from 1 - x to 1 + x."""
    _check_image(data)
    changes = ((_brightness, brightness), (_contrast, contrast), (_saturation, saturation), (_hue, hue))
    result = data.clone()
    if data.is_meta:  # only the shape is needed
        return result
    for i in torch.randperm(4, generator=generator(ctx), device=data.device).tolist():
        change, most = changes[i]
        if most > 0:
            result = change(result, _uniform(1 - most, 1 + most, data, ctx))
    return result


@op("_image_random_lighting", "_npx__image_random_lighting")
@_gradient_through
def random_lighting(data: Tensor, *, alpha_std: float = 0.05, ctx: Ctx = FILLED_IN) -> Tensor:
    """`adjust_lighting` with three normal random values of standard deviation `alpha_std`."""
    _check_image(data)
    return _light(data, alpha_std * torch.randn(3, generator=generator(ctx), device=data.device))


def _enter_random_flip(name: str, axis: int, doc: str) -> None:
    @_gradient_through
    def random_flip(data: Tensor, *, ctx: Ctx = FILLED_IN) -> Tensor:
        _check_image(data)
        if data.is_meta or torch.rand((), generator=generator(ctx), device=data.device) < 0.5:
            return data.flip(axis)
        return data.clone()

    random_flip.__doc__ = doc
    op(f"_image_random_{name}", f"_npx__image_random_{name}")(random_flip)


_enter_random_flip("flip_left_right", 1, "Flip the image horizontally with probability 0.5.")
_enter_random_flip("flip_top_bottom", 0, "Flip the image vertically with probability 0.5.")
