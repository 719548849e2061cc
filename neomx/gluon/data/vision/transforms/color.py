"""Transforms of colors: MXNet's random ones, and functions with given strengths, which policies use.

The functions follow the definitions of Pillow: for uint8 images they give its pixels.
"""

from __future__ import annotations

from typing import Any

import torch

from .....ndarray import NDArray
from .....ops.image import _like, _work
from .....ops.random import rng
from ....block import Block, HybridBlock
from .pixels import apply, number, whole

Tensor = torch.Tensor

__all__ = [
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomGray",
    "RandomHue",
    "RandomLighting",
    "RandomSaturation",
    "adjust_brightness",
    "adjust_color",
    "adjust_contrast",
    "adjust_sharpness",
    "autocontrast",
    "equalize",
    "invert",
    "posterize",
    "solarize",
]


class _RandomFactor(HybridBlock):
    """Adjusts colors by a random factor between max(0, 1 - `most`) and 1 + `most`."""

    _op = ""

    def __init__(self, most: float):
        super().__init__()
        self._args = max(0, 1 - most), 1 + most

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Adjust `x`."""
        return getattr(F.image, self._op)(x, *self._args)


class RandomBrightness(_RandomFactor):
    """Adjusts the brightness by a random factor between 1 - `brightness` and 1 + `brightness`."""

    _op = "random_brightness"

    def __init__(self, brightness: float):
        super().__init__(brightness)


class RandomContrast(_RandomFactor):
    """Adjusts the contrast by a random factor between 1 - `contrast` and 1 + `contrast`."""

    _op = "random_contrast"

    def __init__(self, contrast: float):
        super().__init__(contrast)


class RandomSaturation(_RandomFactor):
    """Adjusts the saturation by a random factor between 1 - `saturation` and 1 + `saturation`."""

    _op = "random_saturation"

    def __init__(self, saturation: float):
        super().__init__(saturation)


class RandomHue(_RandomFactor):
    """Rotates the hues by a random factor between 1 - `hue` and 1 + `hue` of the color circle."""

    _op = "random_hue"

    def __init__(self, hue: float):
        super().__init__(hue)


class RandomColorJitter(HybridBlock):
    """Adjusts brightness, contrast, saturation and hue in random order, each by a factor between 1 - x and 1 + x."""

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0):
        super().__init__()
        self._args = brightness, contrast, saturation, hue

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Adjust `x`."""
        return F.image.random_color_jitter(x, *self._args)


class RandomLighting(HybridBlock):
    """AlexNet's noise: adds the principal components of color with normal weights of standard deviation `alpha`."""

    def __init__(self, alpha: float):
        super().__init__()
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Add the noise to `x`."""
        return F.image.random_lighting(x, self._alpha)


class RandomGray(Block):
    """Replaces the colors with gray, in equal channels, with probability `p`."""

    def __init__(self, p: float = 0.1):
        super().__init__()
        self._p = number("p", p, 0, 1)

    def forward(self, x: Any) -> Any:
        """Return `x`, gray or not."""
        return apply(lambda data: color(data, 0) if rng().random() < self._p else data, x)


# ---- tensors (h, w, channels) ----


def blend(base: Any, data: Tensor, factor: float) -> Tensor:
    """Return `data` for factor 1, `base` for 0, and other factors in proportion."""
    return _like(base + (_work(data) - base) * factor, data)


def gray(data: Tensor) -> Tensor:
    """Return the brightness of each pixel as floats (h, w, 1); whole numbers for uint8."""
    work = _work(data)
    if data.shape[-1] == 1:
        return work
    if data.shape[-1] != 3:
        raise ValueError(f"expected an image with 1 or 3 channels, received {data.shape[-1]}")
    # Multiples of 2**-16, as in Pillow, so that sums of whole numbers are exact in float32.
    mean = (work @ (work.new_tensor((19595, 38470, 7471)) / 65536)).unsqueeze(-1)
    return mean.add_(0.5).floor_() if data.dtype is torch.uint8 else mean


def color(data: Tensor, factor: float) -> Tensor:
    """Return the image with `factor` times the distance of each color from gray."""
    return blend(gray(data), data, factor)


def contrast(data: Tensor, factor: float) -> Tensor:
    """Return the image with `factor` times the distance of each pixel from the mean brightness."""
    mean = gray(data).mean()
    return blend(mean.add_(0.5).floor_() if data.dtype is torch.uint8 else mean, data, factor)


def sharpness(data: Tensor, factor: float) -> Tensor:
    """Return the image with `factor` times the distance of each pixel from its mean with its neighbors."""
    work = _work(data)
    smooth = work.clone()
    rows = work[:-2] + work[1:-1] + work[2:]
    inner = (rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:] + 4 * work[1:-1, 1:-1]) / 13
    smooth[1:-1, 1:-1] = (inner + 0.5).to(torch.uint8) if data.dtype is torch.uint8 else inner
    return blend(smooth, data, factor)


def stretched(data: Tensor) -> Tensor:
    """Return the image with the values of each channel stretched to 0 to 255."""
    low, high = data.amin((0, 1)).double(), data.amax((0, 1)).double()
    # 255 / x would be 255 times the rounded reciprocal, which may be less than 255 for the highest value.
    scale = torch.where(high > low, torch.full_like(low, 255).div_(high - low), 1.0)
    return _like(data * scale - torch.where(high > low, low * scale, 0.0), data)


def equalized(data: Tensor) -> Tensor:
    """Return the image with the values of each channel replaced so that all occur about equally often."""
    levels = data.long() if data.dtype is torch.uint8 else data.round().clamp(0, 255).long()
    levels = levels + 256 * torch.arange(data.shape[-1], device=data.device)
    counts = torch.bincount(levels.flatten(), minlength=256 * data.shape[-1]).view(-1, 256)
    below = counts.cumsum(1) - counts
    step = (below * (counts > 0)).amax(1, keepdim=True) // 255  # all pixels but those of the highest level
    table = torch.where(step > 0, (below + step // 2) // step.clamp(min=1), torch.arange(256, device=data.device))
    return table.clamp_(max=255).flatten().index_select(0, levels.flatten()).view(data.shape).to(data.dtype)


def posterized(data: Tensor, bits: int) -> Tensor:
    """Return the image with the upper `bits` of each value."""
    step = 2 ** (8 - bits)
    return data & (256 - step) if data.dtype is torch.uint8 else data - data.remainder(step)


def solarized(data: Tensor, threshold: float) -> Tensor:
    """Return the image with values of at least `threshold` inverted."""
    return torch.where(data < float(threshold), data, 255 - data)  # a whole number would become a uint8


# ---- arrays ----


def adjust_brightness(image: NDArray, factor: float) -> NDArray:
    """Return the image with all values multiplied by `factor`."""
    return apply(lambda data: blend(0, data, number("factor", factor, 0)), image)


def adjust_color(image: NDArray, factor: float) -> NDArray:
    """Return the image with `factor` times the distance of each color from gray: 0 is gray, 1 changes nothing."""
    return apply(lambda data: color(data, number("factor", factor, 0)), image)


def adjust_contrast(image: NDArray, factor: float) -> NDArray:
    """Return the image with `factor` times the distance of each pixel from the mean brightness."""
    return apply(lambda data: contrast(data, number("factor", factor, 0)), image)


def adjust_sharpness(image: NDArray, factor: float) -> NDArray:
    """Return a smoothed image for factor 0, the image for 1, and a sharpened one above."""
    return apply(lambda data: sharpness(data, number("factor", factor, 0)), image)


def autocontrast(image: NDArray) -> NDArray:
    """Return the image with the values of each channel stretched to 0 to 255."""
    return apply(stretched, image)


def equalize(image: NDArray) -> NDArray:
    """Return the image with the values of each channel replaced so that all occur about equally often."""
    return apply(equalized, image)


def invert(image: NDArray) -> NDArray:
    """Return the image with each value v replaced by 255 - v."""
    return apply(lambda data: 255 - data, image)


def posterize(image: NDArray, bits: int) -> NDArray:
    """Return the image with only the upper `bits` (0 to 8) of each value."""
    return apply(lambda data: posterized(data, whole("bits", bits, 0, 8)), image)


def solarize(image: NDArray, threshold: float) -> NDArray:
    """Return the image with values of at least `threshold` inverted."""
    return apply(lambda data: solarized(data, number("threshold", threshold, 0, 256)), image)
