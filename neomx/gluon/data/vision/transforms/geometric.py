"""Transforms that move pixels: flips, crops, sizes, rotations, affine, perspective and elastic deformations.

All of them accept boxes and masks (see `joint`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ..... import image as images
from .....base import numeric_types
from .....image.functions import _rotation_zoom
from .....ndarray import NDArray
from .....ops.image_resize import cv_border
from .....ops.random import generator, numpy_source, rng
from ....block import Block, HybridBlock
from .blur import blurred
from .joint import FieldMove, Geometric, MatrixMove, Move
from .pixels import Fill, Range, apply, around_zero, checked_fill, fill_of, number, one_image, ordered

Tensor = torch.Tensor

__all__ = [
    "CenterCrop",
    "CropResize",
    "ElasticTransform",
    "Pad",
    "RandomAffine",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomPerspective",
    "RandomResizedCrop",
    "RandomRotation",
    "Resize",
    "Rotate",
]


def _pair(size: Any) -> tuple[int, int]:
    """Return (width, height) from one size or a pair."""
    return (size, size) if isinstance(size, numeric_types) else tuple(size)


def _size(image: NDArray) -> tuple[int, int]:
    return image.shape[0], image.shape[1]


# ---- flips ----


class _RandomFlip(Geometric, HybridBlock):
    _op = ""
    _axis = 0

    def __init__(self) -> None:
        super().__init__()

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return `x`, flipped or not."""
        return getattr(F.image, self._op)(x)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        # This draws the number that the op would draw, so that boxes do not change which images are flipped.
        if torch.rand((), generator=generator(image.context), device=image._data.device) >= 0.5:
            return image, MatrixMove.none(_size(image))
        back, column = np.eye(3), 1 - self._axis
        back[column, [column, 2]] = -1, image.shape[self._axis]
        flipped = apply(lambda data: data.flip(self._axis), image)
        return flipped, MatrixMove(back, _size(image), _size(image))


class RandomFlipLeftRight(_RandomFlip):
    """Flips the image horizontally with probability 0.5."""

    _op, _axis = "random_flip_left_right", 1


class RandomFlipTopBottom(_RandomFlip):
    """Flips the image vertically with probability 0.5."""

    _op, _axis = "random_flip_top_bottom", 0


# ---- sizes and crops ----


class Resize(Geometric, HybridBlock):
    """Resizes an image or a batch to `size`: (width, height), or one number for both.

    With `keep_ratio`, one number is the length of the shorter side.
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1):
        super().__init__()
        self._args = size, keep_ratio, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Resize `x`."""
        return F.image.resize(x, *self._args)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        resized = self(image)
        height, width = old = _size(image)
        return resized, MatrixMove.crop((0, 0, width, height), old, _size(resized))


class CropResize(Geometric, HybridBlock):
    """Crops the rectangle at (`x`, `y`) from an image or a batch, and resizes it to `size` if given."""

    def __init__(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        size: Any = None,
        interpolation: int | None = None,
        *,
        min_visible: float = 0.1,
    ):
        super().__init__(min_visible)
        self._place = x, y, width, height
        self._size, self._interpolation = size, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Crop `x`, and resize it if requested."""
        out = F.image.crop(x, *self._place)
        if not self._size:
            return out
        return F.image.resize(out, self._size, False, 1 if self._interpolation is None else self._interpolation)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        cropped = self(image)
        return cropped, MatrixMove.crop(self._place, _size(image), _size(cropped))


class _Crop(Geometric, Block):
    """Base of crops whose place depends on the image. `_cropped` returns the crop and its (x, y, width, height)."""

    def _cropped(self, image: NDArray) -> tuple[NDArray, tuple[int, int, int, int]]:
        raise NotImplementedError

    def forward(self, x: Any) -> Any:
        """Crop `x`."""
        return self._cropped(x)[0]

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        cropped, place = self._cropped(image)
        return cropped, MatrixMove.crop(place, _size(image), _size(cropped))


class CenterCrop(_Crop):
    """Crops the center of an image to `size` (width, height). A smaller image is enlarged."""

    def __init__(self, size: Any, interpolation: int = 1, *, min_visible: float = 0.1):
        super().__init__(min_visible)
        self._args = _pair(size), interpolation

    def _cropped(self, image: NDArray) -> tuple[NDArray, tuple[int, int, int, int]]:
        return images.center_crop(image, *self._args)


class RandomResizedCrop(_Crop):
    """Crops a random area, with a fraction `scale` of the image and aspect `ratio`, and resizes it to `size` (w, h)."""

    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: int = 1,
        *,
        min_visible: float = 0.1,
    ):
        super().__init__(min_visible)
        self._args = _pair(size), scale, ratio, interpolation

    def _cropped(self, image: NDArray) -> tuple[NDArray, tuple[int, int, int, int]]:
        return images.random_size_crop(image, *self._args)


class RandomCrop(_Crop):
    """Crops a rectangle of `size` (width, height) at a random position, after padding each side by `pad` pixels.

    New pixels have the color `fill`. If the padded image is smaller than `size`, the crop is enlarged.
    """

    def __init__(self, size: Any, pad: Any = 0, fill: Fill = 0, interpolation: int = 1, *, min_visible: float = 0.1):
        super().__init__(min_visible)
        self._size = _pair(size)
        if len(self._size) != 2 or min(self._size) < 1:
            raise ValueError(f"size={size!r}: expected a positive size or (width, height)")
        self._pad, self._interpolation = Pad(pad, fill), interpolation

    def _cropped(self, image: NDArray) -> tuple[NDArray, tuple[int, int, int, int]]:
        one_image(image)
        padded = self._pad(image)
        height, width = _size(padded)
        wide, high = images.scale_down((width, height), self._size)
        random = rng()
        x, y = int(random.integers(width - wide + 1)), int(random.integers(height - high + 1))
        cropped = images.fixed_crop(padded, x, y, wide, high, self._size, self._interpolation)
        left, top = self._pad.sides[:2]
        return cropped, (x - left, y - top, wide, high)


class Pad(Geometric, Block):
    """Adds a border of the color `fill`: `pad` is its width, (x, y), or (left, top, right, bottom)."""

    def __init__(self, pad: Any, fill: Fill = 0):
        super().__init__()
        sides = (pad,) * 4 if isinstance(pad, numeric_types) else tuple(pad) * (4 // max(len(pad), 1))
        if len(sides) != 4 or not all(isinstance(side, (int, np.integer)) and side >= 0 for side in sides):
            raise ValueError(f"pad={pad!r}: expected whole numbers: one, (x, y), or (left, top, right, bottom)")
        self.sides, self._fill = sides, checked_fill(fill)

    def forward(self, x: Any) -> Any:
        """Return `x` with its border."""
        return apply(self._padded, x) if any(self.sides) else x

    def _padded(self, data: Tensor) -> Tensor:
        fill_of(self._fill, data)  # check the number of channels
        left, top, right, bottom = self.sides
        colors = self._fill if isinstance(self._fill, tuple) else (self._fill,) * data.shape[-1]
        return cv_border(data, top=top, bot=bottom, left=left, right=right, values=colors)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        padded = self(image)
        (height, width), (left, top) = _size(padded), self.sides[:2]
        return padded, MatrixMove.crop((-left, -top, width, height), _size(image), (height, width))


# ---- rotations of (channels, h, w), as in MXNet ----


class _Rotation(Geometric, Block):
    """Base of rotations of float32 images (channels, h, w), whose masks are (h, w) or (n, h, w)."""

    _axes = (1, 2)

    def _rotated(self, x: NDArray, angle: float, zoom_in: bool, zoom_out: bool) -> tuple[NDArray, Move]:
        _check_float(x)
        height, width = x.shape[1:]
        turn = math.radians(angle)
        zoom = _rotation_zoom(np.cos(turn), np.sin(turn), height, width, zoom_in, zoom_out)
        back = affine(turn, 0, 1 / float(zoom), 0, 0, height, width)
        return images.imrotate(x, angle, zoom_in, zoom_out), MatrixMove(back, (height, width), (height, width))


class Rotate(_Rotation):
    """Rotates a float32 image (channels, h, w), or a batch, by a fixed angle. See `image.imrotate` for the zooms."""

    def __init__(
        self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False, *, min_visible: float = 0.1
    ):
        super().__init__(min_visible)
        self._args = rotation_degrees, zoom_in, zoom_out

    def forward(self, x: Any) -> Any:
        """Rotate `x`."""
        _check_float(x)
        return images.imrotate(x, *self._args)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        return self._rotated(image, *self._args)


class RandomRotation(_Rotation):
    """Rotates a float32 image (channels, h, w), or a batch, by a random angle, with probability `rotate_with_proba`."""

    def __init__(
        self,
        angle_limits: tuple[float, float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
        *,
        min_visible: float = 0.1,
    ):
        super().__init__(min_visible)
        lower, upper = angle_limits
        if lower >= upper:
            raise ValueError(f"`angle_limits` must be an ordered tuple, received {angle_limits}")
        if not 0 <= rotate_with_proba <= 1:
            raise ValueError(
                f"Probability of rotating the image should be between 0 and 1, received {rotate_with_proba}"
            )
        self._args = (lower, upper), zoom_in, zoom_out
        self._rotate_with_proba = rotate_with_proba

    def forward(self, x: Any) -> Any:
        """Return the rotated `x`, or `x` itself."""
        if numpy_source().random() > self._rotate_with_proba:
            return x
        _check_float(x)
        return images.random_rotate(x, *self._args)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        if numpy_source().random() > self._rotate_with_proba:
            return image, MatrixMove.none((image.shape[1], image.shape[2]))
        limits, *zooms = self._args
        return self._rotated(image, numpy_source().uniform(*limits), *zooms)


def _check_float(x: NDArray) -> None:
    if x.dtype is not np.float32:
        raise TypeError(
            f"This transformation only supports float32, received {np.dtype(x.dtype).name}. Consider calling it after "
            "ToTensor"
        )


# ---- interpolated moves of (h, w, channels) ----


class _Warp(Geometric, Block):
    """Base of transforms that draw a move for each image. New pixels have the color `fill`."""

    def __init__(self, fill: Fill, min_visible: float):
        super().__init__(min_visible)
        self._fill = checked_fill(fill)

    def _draw(self, height: int, width: int) -> Move:
        raise NotImplementedError

    def forward(self, x: Any) -> Any:
        """Return the moved `x`. Each image of a batch is moved separately."""
        return apply(lambda data: self._draw(*data.shape[:2]).linear(data, self._fill), x)

    def _moved(self, image: NDArray) -> tuple[NDArray, Move]:
        move = self._draw(*one_image(image).shape[:2])
        return apply(lambda data: move.linear(data, self._fill), image), move


class RandomAffine(_Warp):
    """Rotates, shears, scales and shifts an image (h, w, channels), about its center.

    The values are drawn uniformly. `degrees` (counterclockwise) and `shear` (along the rows, in degrees) are ranges, or
    a number v for the range from -v to v. `scale` is a range of factors. `translate` is the largest shift as a fraction
    of the width and of the height, or one number for both. New pixels have the color `fill`.
    """

    def __init__(
        self,
        degrees: float | Range = 0,
        translate: float | tuple[float, float] = 0,
        scale: float | Range = 1,
        shear: float | Range = 0,
        fill: Fill = 0,
        *,
        min_visible: float = 0.1,
    ):
        super().__init__(fill, min_visible)
        self._degrees, self._shear = around_zero("degrees", degrees, 360), around_zero("shear", shear, 89)
        shifts = translate if isinstance(translate, (tuple, list)) else (translate, translate)
        if len(shifts) != 2:
            raise ValueError(f"translate={translate!r}: expected a number or a pair (x, y)")
        self._translate = tuple(number("translate", shift, 0, 1) for shift in shifts)
        self._scale = ordered("scale", scale, 1e-3)

    def _draw(self, height: int, width: int) -> MatrixMove:
        random = rng()
        angle, shear = math.radians(random.uniform(*self._degrees)), math.radians(random.uniform(*self._shear))
        scale = random.uniform(*self._scale)
        x, y = (share * random.uniform(-1, 1) for share in self._translate)
        back = affine(angle, shear, scale, x * width, y * height, height, width)
        return MatrixMove(back, (height, width), (height, width))


def affine(angle: float, shear: float, scale: float, x: float, y: float, height: int, width: int) -> np.ndarray:
    """Return the matrix from the result to the image: rotated and sheared by radians, scaled, and shifted by pixels."""
    cos, sin, slope = math.cos(angle) / scale, math.sin(angle) / scale, math.tan(shear)
    (a, b), (c, d) = (cos - slope * sin, -sin - slope * cos), (sin, cos)
    left, top = width / 2, height / 2
    x, y = left + x, top + y  # where the center goes
    return np.array([[a, b, left - a * x - b * y], [c, d, top - c * x - d * y], [0, 0, 1]])


class RandomPerspective(_Warp):
    """Views an image (h, w, channels) from a random direction.

    Each corner moves towards the center by up to `distortion` times half the width and half the height. Above 0.6 the
    image could fold.
    """

    def __init__(self, distortion: float = 0.5, fill: Fill = 0, *, min_visible: float = 0.1):
        super().__init__(fill, min_visible)
        self._distortion = number("distortion", distortion, 0, 0.6)

    def _draw(self, height: int, width: int) -> MatrixMove:
        corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float64)
        inward = np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]]) * (width / 2, height / 2)
        moved = corners + inward * rng().uniform(0, self._distortion, (4, 2))
        # The inverse of the way forward is positive for all points that come from the image.
        return MatrixMove(np.linalg.inv(_projection(corners, moved)), (height, width), (height, width))


def _projection(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the 3 x 3 matrix that maps four points to four others."""
    ones, zeros = np.ones((4, 1)), np.zeros((4, 3))
    points = np.hstack([sources, ones])
    rows = np.vstack([np.hstack([points, zeros]), np.hstack([zeros, points])])
    goal = targets.T.ravel()
    scaled = -goal[:, None] * np.vstack([sources, sources])
    return np.append(np.linalg.solve(np.hstack([rows, scaled]), goal), 1).reshape(3, 3)


class ElasticTransform(_Warp):
    """Deforms an image (h, w, channels) like rubber: each pixel comes from a source at a smooth random distance.

    The distances are `alpha` pixels times random values between -1 and 1, blurred by a Gaussian of `sigma` pixels. A
    moved box is that of the pixels that come from the box, so its corners are whole numbers.
    """

    def __init__(self, alpha: float = 50.0, sigma: float = 5.0, fill: Fill = 0, *, min_visible: float = 0.1):
        super().__init__(fill, min_visible)
        self._alpha, self._sigma = number("alpha", alpha, 0), number("sigma", sigma, 0)

    def _draw(self, height: int, width: int) -> FieldMove:
        noise = torch.from_numpy(rng().uniform(-1, 1, (2, height, width)).astype(np.float32))
        return FieldMove(self._alpha * blurred(noise, self._sigma).permute(1, 2, 0))
