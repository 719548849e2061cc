"""The pixels of an image as a tensor, and checks of the arguments of transforms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from .....ndarray import NDArray

Tensor = torch.Tensor
Range = tuple[float, float]
Fill = float | tuple[float, ...]


def pixels_of(image: Any) -> Tensor:
    """Return the tensor of an image (height, width, channels), or of a batch (n, height, width, channels)."""
    if not isinstance(image, NDArray):
        raise TypeError(f"expected an image as an mx.nd or mx.np array, received {type(image).__name__}")
    data = image._data.detach()
    if data.dim() not in (3, 4) or not data.numel():
        raise ValueError(f"expected an image (height, width, channels), received shape {tuple(data.shape)}")
    if data.shape[-1] > 4 and data.shape[-3] <= 4:
        raise ValueError(
            f"expected an image (height, width, channels), received shape {tuple(data.shape)}, which looks like "
            "(channels, height, width). Apply ToTensor after this transform"
        )
    if not (data.dtype is torch.uint8 or data.is_floating_point()):
        raise TypeError(f"expected an image of uint8 or floats from 0 to 255, received {np.dtype(image.dtype).name}")
    return data


def one_image(image: Any) -> Tensor:
    """Return the tensor of one image (height, width, channels)."""
    data = pixels_of(image)
    if data.dim() != 3:
        raise ValueError(f"expected one image (height, width, channels), received shape {tuple(data.shape)}")
    return data


def apply(change: Callable[[Tensor], Tensor], image: Any) -> NDArray:
    """Return `image` with changed pixels. `change` is called for each image of a batch."""
    data = pixels_of(image)
    result = change(data) if data.dim() == 3 else torch.stack([change(each) for each in data])
    return image._kind(result.clone() if result is data else result, image.context)


def rounded(values: Tensor, like: Tensor) -> Tensor:
    """Convert interpolated values to the dtype of an image. For uint8 they are clipped and rounded, in place."""
    if like.dtype is torch.uint8:
        values = values.clamp_(0, 255).add_(0.5)  # round() would wait for other threads, even for small images
    return values.to(like.dtype)


# ---- arguments ----


def number(name: str, value: Any, low: float, high: float = math.inf, *, above: bool = False) -> float:
    """Return an argument that must be from `low` to `high`, or, with `above`, greater than `low`."""
    fits = isinstance(value, (int, float, np.number)) and low <= value <= high and not (above and value == low)
    if not fits:
        bound = f"greater than {low:g}" if above else f"of at least {low:g}"
        bound += f" and at most {high:g}" if high < math.inf else ""
        raise ValueError(f"{name}={value!r}: expected a number {bound}")
    return value


def whole(name: str, value: Any, low: int, high: float = math.inf) -> int:
    """Return an argument that must be a whole number from `low` to `high`."""
    if not isinstance(value, (int, np.integer)) or not low <= value <= high:
        bound = f"of at least {low}" if high == math.inf else f"from {low} to {high}"
        raise ValueError(f"{name}={value!r}: expected a whole number {bound}")
    return int(value)


def ordered(name: str, value: Any, low: float, high: float = math.inf) -> Range:
    """Return a range (from, to) that must lie between `low` and `high`."""
    pair = tuple(value) if isinstance(value, (tuple, list)) else (value, value)
    numbers = len(pair) == 2 and all(isinstance(end, (int, float, np.number)) for end in pair)
    if not (numbers and low <= pair[0] <= pair[1] <= high):
        bound = f"between {low:g} and {high:g}" if high < math.inf else f"of at least {low:g}"
        raise ValueError(f"{name}={value!r}: expected a number {bound} or a range (from, to) of such numbers")
    return pair


def around_zero(name: str, value: Any, most: float) -> Range:
    """Return a range of signed values: from -v to v for a number v, or a given range."""
    if isinstance(value, (int, float, np.number)):
        most = number(name, value, 0, most)
        return -most, most
    return ordered(name, value, -most, most)


def checked_fill(fill: Any) -> Fill:
    """Return the color of new pixels: a number, or a tuple with one number per channel."""
    values = tuple(fill) if isinstance(fill, (tuple, list)) else (fill,)
    if not values or not all(isinstance(value, (int, float, np.number)) for value in values):
        raise ValueError(f"fill={fill!r}: expected a number, or one number per channel")
    return values if isinstance(fill, (tuple, list)) else fill


def fill_of(fill: Fill, data: Tensor) -> Any:
    """Return a fill as a number or as a tensor that broadcasts over the pixels of an image."""
    if not isinstance(fill, tuple):
        return fill
    if len(fill) != data.shape[-1]:
        raise ValueError(f"fill={fill}: expected one number for each of the {data.shape[-1]} channels of the image")
    return torch.tensor(fill, dtype=torch.promote_types(data.dtype, torch.float32), device=data.device)
