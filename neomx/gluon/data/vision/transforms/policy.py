"""Policies: random sequences of simple transforms, AutoAugment and RandAugment.

A policy consists of operations with a strength from 0 to 1. Strength 0 changes nothing. The sign is random where there
is one.

| operation | at strength 1 |
|---|---|
| `ShearX`, `ShearY` | a shift by 0.3 pixels per row or column, which leaves the upper left corner in place |
| `TranslateX`, `TranslateY` | a shift by 150/331 of the width or height |
| `Rotate` | by 30 degrees |
| `Brightness`, `Color`, `Contrast`, `Sharpness` | a factor of 0.1 or 1.9 |
| `Posterize` | 4 bits instead of 8 |
| `Solarize` | all values are inverted |
| `AutoContrast`, `Equalize`, `Invert`, `Identity` | no strength |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .....ndarray import NDArray
from .....ops.random import rng
from ....block import Block
from .color import blend, color, contrast, equalized, posterized, sharpness, solarized, stretched
from .geometric import affine
from .joint import Geometric, MatrixMove
from .pixels import Fill, apply, checked_fill, number, one_image, whole

Tensor = torch.Tensor
Step = tuple[str, float]  # an operation and its strength, with a sign

__all__ = ["AutoAugment", "RandAugment"]


# The matrices from the result to the image, for a strength and the size (height, width).
_MOVES: dict[str, Callable[[float, int, int], np.ndarray]] = {
    "ShearX": lambda s, h, w: np.array([[1, 0.3 * s, 0], [0, 1, 0], [0, 0, 1.0]]),
    "ShearY": lambda s, h, w: np.array([[1, 0, 0], [0.3 * s, 1, 0], [0, 0, 1.0]]),
    "TranslateX": lambda s, h, w: affine(0, 0, 1, 150 / 331 * s * w, 0, h, w),
    "TranslateY": lambda s, h, w: affine(0, 0, 1, 0, 150 / 331 * s * h, h, w),
    "Rotate": lambda s, h, w: affine(math.radians(30 * s), 0, 1, 0, 0, h, w),
}
_COLORS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "Brightness": lambda data, s: blend(0, data, 1 + 0.9 * s),
    "Color": lambda data, s: color(data, 1 + 0.9 * s),
    "Contrast": lambda data, s: contrast(data, 1 + 0.9 * s),
    "Sharpness": lambda data, s: sharpness(data, 1 + 0.9 * s),
    "Posterize": lambda data, s: posterized(data, 8 - round(4 * abs(s))),
    "Solarize": lambda data, s: solarized(data, 256 * (1 - abs(s))),
    "AutoContrast": lambda data, s: stretched(data),
    "Equalize": lambda data, s: equalized(data),
    "Invert": lambda data, s: 255 - data,
    "Identity": lambda data, s: data,
}
_RAND_AUGMENT = [name for name in (*_MOVES, *_COLORS) if name != "Invert"]


class _Policy(Geometric, Block):
    """Base of policies. `_draw` returns the steps for one image."""

    def __init__(self, fill: Fill, min_visible: float):
        super().__init__(min_visible)
        self._fill = checked_fill(fill)

    def _draw(self) -> Sequence[Step]:
        raise NotImplementedError

    def forward(self, x: Any) -> Any:
        """Return the augmented `x`. Each image of a batch is augmented separately."""
        return apply(lambda data: self._augmented(data, self._draw()), x)

    def _augmented(self, data: Tensor, steps: Sequence[Step]) -> Tensor:
        for name, strength in steps:
            if name in _MOVES:
                data = _move([(name, strength)], data.shape[0], data.shape[1]).linear(data, self._fill)
            else:
                data = _COLORS[name](data, strength)
        return data

    def _moved(self, image: NDArray) -> tuple[NDArray, MatrixMove]:
        height, width = one_image(image).shape[:2]
        steps = self._draw()
        return apply(lambda data: self._augmented(data, steps), image), _move(steps, height, width)


def _move(steps: Sequence[Step], height: int, width: int) -> MatrixMove:
    """Return the move of all steps together."""
    back = np.eye(3)
    for name, strength in steps:
        if name in _MOVES:
            back = back @ _MOVES[name](strength, height, width)
    return MatrixMove(back, (height, width), (height, width))


class RandAugment(_Policy):
    """Applies `num_ops` random operations of equal strength to an image (h, w, 1 or 3 channels).

    `magnitude` is the strength, from 0 to 30. Pixels from outside of the image have the color `fill`.
    """

    def __init__(self, num_ops: int = 2, magnitude: float = 9, fill: Fill = 128, *, min_visible: float = 0.1):
        super().__init__(fill, min_visible)
        self._count, self._strength = whole("num_ops", num_ops, 0), number("magnitude", magnitude, 0, 30) / 30

    def _draw(self) -> Sequence[Step]:
        random = rng()
        names = random.integers(len(_RAND_AUGMENT), size=self._count)
        signs = random.choice((-1, 1), self._count)
        return [(_RAND_AUGMENT[name], self._strength * sign) for name, sign in zip(names, signs, strict=True)]


class AutoAugment(_Policy):
    """Applies a random row of a policy to an image (h, w, 1 or 3 channels).

    `policy` is "imagenet", "cifar10" or "svhn", which were found by search on these datasets, or a list of rows. A row
    is a list of (operation, probability, magnitude), where the magnitude is from 0 to 9, or None for operations without
    strength. Pixels from outside of the image have the color `fill`.
    """

    def __init__(self, policy: Any = "imagenet", fill: Fill = 128, *, min_visible: float = 0.1):
        super().__init__(fill, min_visible)
        if isinstance(policy, str):
            if policy not in _POLICIES:
                raise ValueError(f"policy={policy!r}: expected one of {', '.join(_POLICIES)}, or a list of rows")
            policy = _POLICIES[policy]
        self._rows = [[_checked_step(step) for step in row] for row in policy]
        if not self._rows:
            raise ValueError("policy: expected at least one row")

    def _draw(self) -> Sequence[Step]:
        random = rng()
        row = self._rows[random.integers(len(self._rows))]
        chances, signs = random.random(len(row)), random.choice((-1, 1), len(row))
        return [
            (name, magnitude / 9 * sign)
            for (name, probability, magnitude), chance, sign in zip(row, chances, signs, strict=True)
            if chance < probability
        ]


def _checked_step(step: Any) -> tuple[str, float, float]:
    if not isinstance(step, (tuple, list)) or len(step) != 3:
        raise ValueError(f"policy: expected (operation, probability, magnitude), received {step!r}")
    name, probability, magnitude = step
    if name not in _MOVES and name not in _COLORS:
        raise ValueError(f"policy: unknown operation {name!r}, expected one of {', '.join((*_MOVES, *_COLORS))}")
    number(f"policy: probability of {name}", probability, 0, 1)
    return name, probability, 0 if magnitude is None else number(f"policy: magnitude of {name}", magnitude, 0, 9)


def _table(text: str) -> list[list[tuple[str, float, float]]]:
    """Return the rows of a policy. A line has the operations of a row: name, probability and magnitude (0 if none)."""

    def steps(words: list[str]) -> Iterator[tuple[str, float, float]]:
        for i in range(0, len(words), 3):
            yield words[i], float(words[i + 1]), float(words[i + 2])

    return [list(steps(line.split())) for line in text.strip().splitlines()]


# The policies of Cubuk et al., "AutoAugment: Learning Augmentation Policies from Data" (2019), appendix.
_POLICIES = {
    "imagenet": _table("""
        Posterize 0.4 8  Rotate 0.6 9
        Solarize 0.6 5  AutoContrast 0.6 0
        Equalize 0.8 0  Equalize 0.6 0
        Posterize 0.6 7  Posterize 0.6 6
        Equalize 0.4 0  Solarize 0.2 4
        Equalize 0.4 0  Rotate 0.8 8
        Solarize 0.6 3  Equalize 0.6 0
        Posterize 0.8 5  Equalize 1.0 0
        Rotate 0.2 3  Solarize 0.6 8
        Equalize 0.6 0  Posterize 0.4 6
        Rotate 0.8 8  Color 0.4 0
        Rotate 0.4 9  Equalize 0.6 0
        Equalize 0.0 0  Equalize 0.8 0
        Invert 0.6 0  Equalize 1.0 0
        Color 0.6 4  Contrast 1.0 8
        Rotate 0.8 8  Color 1.0 2
        Color 0.8 8  Solarize 0.8 7
        Sharpness 0.4 7  Invert 0.6 0
        ShearX 0.6 5  Equalize 1.0 0
        Color 0.4 0  Equalize 0.6 0
        Equalize 0.4 0  Solarize 0.2 4
        Solarize 0.6 5  AutoContrast 0.6 0
        Invert 0.6 0  Equalize 1.0 0
        Color 0.6 4  Contrast 1.0 8
        Equalize 0.8 0  Equalize 0.6 0
    """),
    "cifar10": _table("""
        Invert 0.1 0  Contrast 0.2 6
        Rotate 0.7 2  TranslateX 0.3 9
        Sharpness 0.8 1  Sharpness 0.9 3
        ShearY 0.5 8  TranslateY 0.7 9
        AutoContrast 0.5 0  Equalize 0.9 0
        ShearY 0.2 7  Posterize 0.3 7
        Color 0.4 3  Brightness 0.6 7
        Sharpness 0.3 9  Brightness 0.7 9
        Equalize 0.6 0  Equalize 0.5 0
        Contrast 0.6 7  Sharpness 0.6 5
        Color 0.7 7  TranslateX 0.5 8
        Equalize 0.3 0  AutoContrast 0.4 0
        TranslateY 0.4 3  Sharpness 0.2 6
        Brightness 0.9 6  Color 0.2 8
        Solarize 0.5 2  Invert 0.0 0
        Equalize 0.2 0  AutoContrast 0.6 0
        Equalize 0.2 0  Equalize 0.6 0
        Color 0.9 9  Equalize 0.6 0
        AutoContrast 0.8 0  Solarize 0.2 8
        Brightness 0.1 3  Color 0.7 0
        Solarize 0.4 5  AutoContrast 0.9 0
        TranslateY 0.9 9  TranslateY 0.7 9
        AutoContrast 0.9 0  Solarize 0.8 3
        Equalize 0.8 0  Invert 0.1 0
        TranslateY 0.7 9  AutoContrast 0.9 0
    """),
    "svhn": _table("""
        ShearX 0.9 4  Invert 0.2 0
        ShearY 0.9 8  Invert 0.7 0
        Equalize 0.6 0  Solarize 0.6 6
        Invert 0.9 0  Equalize 0.6 0
        Equalize 0.6 0  Rotate 0.9 3
        ShearX 0.9 4  AutoContrast 0.8 0
        ShearY 0.9 8  Invert 0.4 0
        ShearY 0.9 5  Solarize 0.2 6
        Invert 0.9 0  AutoContrast 0.8 0
        Equalize 0.6 0  Rotate 0.9 3
        ShearX 0.9 4  Solarize 0.3 3
        ShearY 0.8 8  Invert 0.7 0
        Equalize 0.9 0  TranslateY 0.6 6
        Invert 0.9 0  Equalize 0.6 0
        Contrast 0.3 3  Rotate 0.8 4
        Invert 0.8 0  TranslateY 0.0 2
        ShearY 0.7 6  Solarize 0.4 8
        Invert 0.6 0  Rotate 0.8 4
        ShearY 0.3 7  TranslateX 0.9 3
        ShearX 0.1 6  Invert 0.6 0
        Solarize 0.7 2  TranslateY 0.6 7
        ShearY 0.8 4  Invert 0.8 0
        ShearX 0.7 9  TranslateY 0.8 3
        ShearY 0.8 5  AutoContrast 0.7 0
        ShearX 0.7 2  Invert 0.1 0
    """),
}
