"""Transforms of images, as Blocks: put together by `Compose` and given to `dataset.transform_first`.

Images are (height, width, channels) of 0 to 255 until `ToTensor` makes them (channels, height, width) of 0 to 1.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from .... import image
from ....base import numeric_types
from ....ndarray import NDArray
from ...block import Block, HybridBlock
from ...nn import HybridSequential, Lambda, Sequential

__all__ = [
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "ToTensor",
]


def _pair(size: Any) -> tuple[int, int]:
    """(width, height) of one length or of two."""
    return (size, size) if isinstance(size, numeric_types) else tuple(size)


class Compose(Sequential):
    """Transforms, Blocks or functions, one after another. Neighbours that are HybridBlocks run as one."""

    def __init__(self, transforms: Any):
        super().__init__()
        hybrid: list[HybridBlock] = []
        for transform in [*transforms, None]:
            if isinstance(transform, HybridBlock):
                hybrid.append(transform)
                continue
            if len(hybrid) == 1:
                self.add(hybrid[0])
            elif hybrid:
                together = HybridSequential()
                together.add(*hybrid)
                together.hybridize()
                self.add(together)
            hybrid = []
            if transform is not None:
                self.add(transform if isinstance(transform, Block) else Lambda(transform))


class Cast(HybridBlock):
    """The image with elements of `dtype`."""

    def __init__(self, dtype: Any = "float32"):
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x` as `dtype`."""
        return F.cast(x, self._dtype)


class RandomApply(Sequential):
    """A transform that is applied with probability `p`."""

    def __init__(self, transforms: Any, p: float = 0.5):
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, x: Any) -> Any:
        """The transform of `x`, or `x`."""
        return x if self.p < random.random() else self.transforms(x)


class ToTensor(HybridBlock):
    """(h, w, channels) of 0 to 255 to (channels, h, w) of float32 from 0 to 1; the same with images (n, ...)."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x` as a tensor."""
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x - `mean`) / `std`, numbers or one for each channel, of an image that is (channels, h, w) already."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0):
        super().__init__()
        self._mean, self._std = mean, std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x` normalised."""
        return F.image.normalize(x, self._mean, self._std)


class Rotate(Block):
    """A float32 image (channels, h, w), or images, turned by a fixed angle; see `image.imrotate` for the zooms."""

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False):
        super().__init__()
        self._args = rotation_degrees, zoom_in, zoom_out

    def forward(self, x: Any) -> Any:
        """`x` turned."""
        _check_float(x)
        return image.imrotate(x, *self._args)


class RandomRotation(Block):
    """A float32 image (channels, h, w), or images, turned by an angle within limits, with a probability."""

    def __init__(
        self,
        angle_limits: tuple[float, float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ):
        super().__init__()
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
        """`x` turned, or `x`."""
        if np.random.random() > self._rotate_with_proba:
            return x
        _check_float(x)
        return image.random_rotate(x, *self._args)


def _check_float(x: NDArray) -> None:
    if x.dtype is not np.float32:
        raise TypeError(
            f"This transformation only supports float32, received {np.dtype(x.dtype).name}. Consider calling it after "
            "ToTensor"
        )


class RandomResizedCrop(Block):
    """A part of random place, of `scale` of the area and width-to-height `ratio`, resized to `size` (width, height)."""

    def __init__(
        self,
        size: Any,
        scale: Any = (0.08, 1.0),
        ratio: tuple[float, float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: int = 1,
    ):
        super().__init__()
        self._args = _pair(size), scale, ratio, interpolation

    def forward(self, x: Any) -> Any:
        """A part of `x`."""
        return image.random_size_crop(x, *self._args)[0]


class CropResize(HybridBlock):
    """The rectangle at (`x`, `y`) of an image or of images, resized to `size` if that is given."""

    def __init__(self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: int | None = None):
        super().__init__()
        self._place = x, y, width, height
        self._size, self._interpolation = size, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """That part of `x`."""
        out = F.image.crop(x, *self._place)
        if not self._size:
            return out
        return F.image.resize(out, self._size, False, 1 if self._interpolation is None else self._interpolation)


class CenterCrop(Block):
    """The middle of an image, `size` (width, height) large, enlarged if the image is too small."""

    def __init__(self, size: Any, interpolation: int = 1):
        super().__init__()
        self._args = _pair(size), interpolation

    def forward(self, x: Any) -> Any:
        """The middle of `x`."""
        return image.center_crop(x, *self._args)[0]


class Resize(HybridBlock):
    """An image, or images, in another size: (width, height) or a length for both.

    With `keep_ratio` one length is the shorter side's.
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1):
        super().__init__()
        self._args = size, keep_ratio, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x` resized."""
        return F.image.resize(x, *self._args)


class RandomFlipLeftRight(HybridBlock):
    """The image, mirrored in half of the cases."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x`, mirrored or not."""
        return F.image.random_flip_left_right(x)


class RandomFlipTopBottom(HybridBlock):
    """The image, upside down in half of the cases."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x`, upside down or not."""
        return F.image.random_flip_top_bottom(x)


class _RandomFactor(HybridBlock):
    """A change of colours by a factor from 1 - `most`, but not below 0, to 1 + `most`."""

    _op = ""

    def __init__(self, most: float):
        super().__init__()
        self._args = max(0, 1 - most), 1 + most

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x` changed."""
        return getattr(F.image, self._op)(x, *self._args)


class RandomBrightness(_RandomFactor):
    """The image brighter or darker by a factor within 1 - `brightness` and 1 + `brightness`."""

    _op = "random_brightness"

    def __init__(self, brightness: float):
        super().__init__(brightness)


class RandomContrast(_RandomFactor):
    """The image's contrast changed by a factor within 1 - `contrast` and 1 + `contrast`."""

    _op = "random_contrast"

    def __init__(self, contrast: float):
        super().__init__(contrast)


class RandomSaturation(_RandomFactor):
    """The image's saturation changed by a factor within 1 - `saturation` and 1 + `saturation`."""

    _op = "random_saturation"

    def __init__(self, saturation: float):
        super().__init__(saturation)


class RandomHue(_RandomFactor):
    """The image's hues turned by a factor within 1 - `hue` and 1 + `hue` of the colour circle."""

    _op = "random_hue"

    def __init__(self, hue: float):
        super().__init__(hue)


class RandomColorJitter(HybridBlock):
    """Brightness, contrast, saturation and hue changed, in random order, each by a factor within 1 - x and 1 + x."""

    def __init__(self, brightness: float = 0, contrast: float = 0, saturation: float = 0, hue: float = 0):
        super().__init__()
        self._args = brightness, contrast, saturation, hue

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x` changed."""
        return F.image.random_color_jitter(x, *self._args)


class RandomLighting(HybridBlock):
    """AlexNet's noise: the main directions of colour added with normal weights of standard deviation `alpha`."""

    def __init__(self, alpha: float):
        super().__init__()
        self._alpha = alpha

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """`x` in another light."""
        return F.image.random_lighting(x, self._alpha)
