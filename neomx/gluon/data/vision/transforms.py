"""Image transforms as Blocks, which `Compose` combines, for use with `dataset.transform_first`.

Images are (height, width, channels) with values from 0 to 255. `ToTensor` converts them to (channels, height, width)
with values from 0 to 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .... import image
from ....base import numeric_types
from ....ndarray import NDArray
from ....ops.random import numpy_source, python_source
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
    """Return (width, height) from one size or a pair."""
    return (size, size) if isinstance(size, numeric_types) else tuple(size)


class Compose(Sequential):
    """Applies several transforms (Blocks or functions) in sequence. Adjacent HybridBlocks run as one."""

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
    """Casts the image to `dtype`."""

    def __init__(self, dtype: Any = "float32"):
        super().__init__()
        self._dtype = dtype

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Cast `x`."""
        return F.cast(x, self._dtype)


class RandomApply(Sequential):
    """Applies a transform with probability `p`."""

    def __init__(self, transforms: Any, p: float = 0.5):
        super().__init__()
        self.transforms, self.p = transforms, p

    def forward(self, x: Any) -> Any:
        """Return the transformed `x`, or `x` itself."""
        return x if self.p < python_source().random() else self.transforms(x)


class ToTensor(HybridBlock):
    """Converts (h, w, channels) from 0 to 255 to float32 (channels, h, w) from 0 to 1. Accepts a batch (n, ...) too."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Convert `x`."""
        return F.image.to_tensor(x)


class Normalize(HybridBlock):
    """(x - `mean`) / `std` of an image (channels, h, w). Both are numbers, or tuples with one number per channel."""

    def __init__(self, mean: Any = 0.0, std: Any = 1.0):
        super().__init__()
        self._mean, self._std = mean, std

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Normalize `x`."""
        return F.image.normalize(x, self._mean, self._std)


class Rotate(Block):
    """Rotates a float32 image (channels, h, w), or a batch, by a fixed angle. See `image.imrotate` for the zooms."""

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False):
        super().__init__()
        self._args = rotation_degrees, zoom_in, zoom_out

    def forward(self, x: Any) -> Any:
        """Rotate `x`."""
        _check_float(x)
        return image.imrotate(x, *self._args)


class RandomRotation(Block):
    """Rotates a float32 image (channels, h, w), or a batch, by a random angle, with probability `rotate_with_proba`."""

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
        """Return the rotated `x`, or `x` itself."""
        if numpy_source().random() > self._rotate_with_proba:
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
    """Crops a random area, with a fraction `scale` of the image and aspect `ratio`, and resizes it to `size` (w, h)."""

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
        """Crop and resize `x`."""
        return image.random_size_crop(x, *self._args)[0]


class CropResize(HybridBlock):
    """Crops the rectangle at (`x`, `y`) from an image or a batch, and resizes it to `size` if given."""

    def __init__(self, x: int, y: int, width: int, height: int, size: Any = None, interpolation: int | None = None):
        super().__init__()
        self._place = x, y, width, height
        self._size, self._interpolation = size, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Crop `x`, and resize it if requested."""
        out = F.image.crop(x, *self._place)
        if not self._size:
            return out
        return F.image.resize(out, self._size, False, 1 if self._interpolation is None else self._interpolation)


class CenterCrop(Block):
    """Crops the center of an image to `size` (width, height). A smaller image is enlarged."""

    def __init__(self, size: Any, interpolation: int = 1):
        super().__init__()
        self._args = _pair(size), interpolation

    def forward(self, x: Any) -> Any:
        """Crop the center of `x`."""
        return image.center_crop(x, *self._args)[0]


class Resize(HybridBlock):
    """Resizes an image or a batch to `size`: (width, height), or one number for both.

    With `keep_ratio`, one number is the length of the shorter side.
    """

    def __init__(self, size: Any, keep_ratio: bool = False, interpolation: int = 1):
        super().__init__()
        self._args = size, keep_ratio, interpolation

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Resize `x`."""
        return F.image.resize(x, *self._args)


class RandomFlipLeftRight(HybridBlock):
    """Flips the image horizontally with probability 0.5."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return `x`, flipped or not."""
        return F.image.random_flip_left_right(x)


class RandomFlipTopBottom(HybridBlock):
    """Flips the image vertically with probability 0.5."""

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """Return `x`, flipped or not."""
        return F.image.random_flip_top_bottom(x)


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
