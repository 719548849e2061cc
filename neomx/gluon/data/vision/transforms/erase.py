"""Transforms that erase a part of the image."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from .....base import numeric_types
from .....ndarray import NDArray
from .....ops.random import rng
from ....block import Block
from .pixels import Fill, Range, apply, checked_fill, fill_of, ordered, whole

Tensor = torch.Tensor

__all__ = ["CutOut", "RandomErasing"]


def _erased(data: Tensor, x: int, y: int, width: int, height: int, color: Any) -> Tensor:
    """Return an image (h, w, channels) with a rectangle of another color, clipped to the image."""
    result = data.clone()
    result[max(y, 0) : max(y + height, 0), max(x, 0) : max(x + width, 0)] = color
    return result


class CutOut(Block):
    """Erases `count` rectangles of `size` (width, height), each with its center at a random pixel of the image."""

    def __init__(self, size: Any, count: int = 1, fill: Fill = 0):
        super().__init__()
        self._size = (size, size) if isinstance(size, numeric_types) else tuple(size)
        if len(self._size) != 2 or not all(isinstance(side, (int, np.integer)) and side > 0 for side in self._size):
            raise ValueError(f"size={size!r}: expected a positive whole number or (width, height)")
        self._count, self._fill = whole("count", count, 1), checked_fill(fill)

    def forward(self, x: NDArray) -> NDArray:
        """Return `x` without the rectangles. Each image of a batch has its own."""
        return apply(self._cut, x)

    def _cut(self, data: Tensor) -> Tensor:
        width, height = self._size
        color, random = fill_of(self._fill, data), rng()
        for _ in range(self._count):
            x, y = int(random.integers(data.shape[1])), int(random.integers(data.shape[0]))
            data = _erased(data, x - width // 2, y - height // 2, width, height, color)
        return data


class RandomErasing(Block):
    """Erases a random rectangle, with a fraction `scale` of the area of the image and a ratio of width to height.

    New pixels have the color `fill`. With fill="noise" they are random.
    """

    def __init__(self, scale: Range = (0.02, 0.33), ratio: Range = (0.3, 3.3), fill: Fill | str = 0):
        super().__init__()
        self._scale, self._ratio = ordered("scale", scale, 0, 1), ordered("ratio", ratio, 1e-3)
        self._fill = fill if fill == "noise" else checked_fill(fill)

    def forward(self, x: NDArray) -> NDArray:
        """Return `x` without the rectangle. Each image of a batch has its own."""
        return apply(self._cut, x)

    def _cut(self, data: Tensor) -> Tensor:
        random = rng()
        rows, columns, channels = data.shape
        area = random.uniform(*self._scale) * rows * columns
        ratio = math.exp(random.uniform(math.log(self._ratio[0]), math.log(self._ratio[1])))
        width, height = min(round(math.sqrt(area * ratio)), columns), min(round(math.sqrt(area / ratio)), rows)
        x, y = int(random.integers(columns - width + 1)), int(random.integers(rows - height + 1))
        if isinstance(self._fill, str):
            color: Any = torch.from_numpy(random.uniform(0, 256, (height, width, channels))).to(data)
        else:
            color = fill_of(self._fill, data)
        return _erased(data, x, y, width, height, color)
