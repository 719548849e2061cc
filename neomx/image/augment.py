"""Augmenters: callables that take an image (height, width, channels) and return a changed one.

They draw from Python's `random` (LightingAug from numpy's) in the same order as MXNet. With the same seeds they change
the same images in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import MXNetError
from ..ndarray import NDArray, array, dot, flip
from ..ndarray import sum as nd_sum
from ..ops.random import numpy_source, python_source, shuffled
from .functions import (
    Size,
    _get_interp_method,
    center_crop,
    color_normalize,
    imresize,
    random_crop,
    random_size_crop,
    resize_short,
)

__all__ = [
    "Augmenter",
    "BrightnessJitterAug",
    "CastAug",
    "CenterCropAug",
    "ColorJitterAug",
    "ColorNormalizeAug",
    "ContrastJitterAug",
    "CreateAugmenter",
    "ForceResizeAug",
    "HorizontalFlipAug",
    "HueJitterAug",
    "LightingAug",
    "RandomCropAug",
    "RandomGrayAug",
    "RandomOrderAug",
    "RandomSizedCropAug",
    "ResizeAug",
    "SaturationJitterAug",
    "SequentialAug",
]


class Augmenter:
    """Base class of augmenters. `dumps` returns the arguments passed to `__init__`."""

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = {name: _plain(value) for name, value in kwargs.items()}

    def dumps(self) -> Any:
        """Return the augmenter as JSON: its name and its arguments."""
        return json.dumps([type(self).__name__.lower(), self._kwargs])

    def __call__(self, src: NDArray) -> NDArray:
        """Return the changed image; it may be `src` itself, changed in place."""
        raise NotImplementedError("Must override implementation.")


def _plain(value: Any) -> Any:
    """Convert arrays to lists, for JSON."""
    if isinstance(value, NDArray):
        value = value.asnumpy()
    return value.tolist() if isinstance(value, np.ndarray) else value


# ---- compositions ----


class SequentialAug(Augmenter):
    """Apply augmenters one after the other."""

    def __init__(self, ts: Sequence[Augmenter]) -> None:
        super().__init__()
        self.ts = ts

    def dumps(self) -> list[Any]:
        """Return the name, and the `dumps` of each augmenter."""
        return [type(self).__name__.lower(), [part.dumps() for part in self.ts]]

    def __call__(self, src: NDArray) -> NDArray:
        for part in self.ts:
            src = part(src)
        return src


class RandomOrderAug(SequentialAug):
    """Apply all augmenters, in an order drawn for each image."""

    ts: list[Augmenter]

    def __call__(self, src: NDArray) -> NDArray:
        for augment in shuffled(self.ts):
            src = augment(src)
        return src


# ---- size and position ----


class ResizeAug(Augmenter):
    """Resize the image so that its shorter side is `size`, preserving the aspect ratio."""

    def __init__(self, size: int, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return resize_short(src, self.size, self.interp)


class ForceResizeAug(Augmenter):
    """Resize the image to `size` (width, height), ignoring the aspect ratio."""

    def __init__(self, size: Size, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        width, height = self.size
        return imresize(src, width, height, _get_interp_method(self.interp, (*src.shape[:2], height, width)))


class RandomCropAug(Augmenter):
    """Crop a rectangle of `size` (width, height) at a random position."""

    def __init__(self, size: Size, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """Crop a rectangle of random position, area and aspect ratio, and resize it to `size` (width, height)."""

    def __init__(self, size: Size, area: Any, ratio: tuple[float, float], interp: int = 2, **kwargs: Any) -> None:
        area = kwargs.pop("min_area", area)
        assert not kwargs, f"unexpected keyword arguments for RandomSizedCropAug: {', '.join(kwargs)}"
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size, self.area, self.ratio, self.interp = size, area, ratio, interp

    def __call__(self, src: NDArray) -> NDArray:
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class CenterCropAug(Augmenter):
    """Crop a rectangle of `size` (width, height) at the center."""

    def __init__(self, size: Size, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size, self.interp = size, interp

    def __call__(self, src: NDArray) -> NDArray:
        return center_crop(src, self.size, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Flip the image horizontally with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: NDArray) -> NDArray:
        return flip(src, axis=1) if python_source().random() < self.p else src


# ---- colors, of images that CastAug has converted to float ----

_GREY = (0.299, 0.587, 0.114)  # the weights of red, green and blue in the brightness of a pixel


class BrightnessJitterAug(Augmenter):
    """Multiply all pixels by a factor drawn from [1 - `brightness`, 1 + `brightness`]."""

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: NDArray) -> NDArray:
        src *= 1.0 + python_source().uniform(-self.brightness, self.brightness)
        return src


class ContrastJitterAug(Augmenter):
    """Scale the distance of pixels from the mean brightness by a factor drawn from [1 - `contrast`, 1 + `contrast`]."""

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast
        self.coef = array([[_GREY]])

    def __call__(self, src: NDArray) -> NDArray:
        alpha = 1.0 + python_source().uniform(-self.contrast, self.contrast)
        grey = src * self.coef
        grey = nd_sum(grey) * (3.0 * (1.0 - alpha) / grey.size)
        src *= alpha
        src += grey
        return src


class SaturationJitterAug(Augmenter):
    """Scale the distance of pixels from their gray value by a factor from [1 - `saturation`, 1 + `saturation`]."""

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation
        self.coef = array([[_GREY]])

    def __call__(self, src: NDArray) -> NDArray:
        alpha = 1.0 + python_source().uniform(-self.saturation, self.saturation)
        grey = nd_sum(src * self.coef, axis=2, keepdims=True) * (1.0 - alpha)
        src *= alpha
        src += grey
        return src


class HueJitterAug(Augmenter):
    """Rotate the colors in YIQ space by a random angle of at most `hue` times 180 degrees."""

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue
        self.tyiq = np.array([_GREY, (0.596, -0.274, -0.321), (0.211, -0.523, 0.311)])
        self.ityiq = np.array([(1.0, 0.956, 0.621), (1.0, -0.272, -0.647), (1.0, -1.107, 1.705)])

    def __call__(self, src: NDArray) -> NDArray:
        angle = python_source().uniform(-self.hue, self.hue) * np.pi
        cos, sin = np.cos(angle), np.sin(angle)
        turn = np.array([(1.0, 0.0, 0.0), (0.0, cos, -sin), (0.0, sin, cos)])
        return dot(src, array((self.ityiq @ turn @ self.tyiq).T))


class ColorJitterAug(RandomOrderAug):
    """Change brightness, contrast and saturation in random order, skipping those that are 0."""

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        kinds = (BrightnessJitterAug, brightness), (ContrastJitterAug, contrast), (SaturationJitterAug, saturation)
        super().__init__([kind(most) for kind, most in kinds if most > 0])


class LightingAug(Augmenter):
    """Add PCA noise: `eigvec` times `eigval` times normal values of standard deviation `alphastd`."""

    def __init__(self, alphastd: float, eigval: np.ndarray, eigvec: np.ndarray) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd, self.eigval, self.eigvec = alphastd, eigval, eigvec

    def __call__(self, src: NDArray) -> NDArray:
        alpha = numpy_source().normal(0, self.alphastd, size=(3,))
        src += array(np.dot(self.eigvec * alpha, self.eigval))
        return src


class ColorNormalizeAug(Augmenter):
    """Return (image - `mean`) / `std`. None skips the step."""

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        if isinstance(mean, bool) or isinstance(std, bool):
            raise MXNetError(f"mean={mean}, std={std}: expected numbers or None; True is for CreateAugmenter")
        self.mean, self.std = (v if v is None or isinstance(v, NDArray) else array(v) for v in (mean, std))

    def __call__(self, src: NDArray) -> NDArray:
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Convert the image to gray, with three equal channels, with probability `p`."""

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat = array([[0.21] * 3, [0.72] * 3, [0.07] * 3])

    def __call__(self, src: NDArray) -> NDArray:
        return dot(src, self.mat) if python_source().random() < self.p else src


class CastAug(Augmenter):
    """Cast the image to dtype `typ`."""

    def __init__(self, typ: str = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: NDArray) -> NDArray:
        return src.astype(self.typ)


# ---- the standard list ----

# Colors of the images in ImageNet: mean, standard deviation, and principal components.
_MEAN, _STD = np.array([123.68, 116.28, 103.53]), np.array([58.395, 57.12, 57.375])
_EIGVAL = np.array([55.46, 4.794, 1.148])
_EIGVEC = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])


def CreateAugmenter(
    data_shape: tuple[int, int, int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """Return the standard list of augmenters for images of `data_shape` (channels, height, width).

    `resize` is the size of the shorter side. `rand_crop` crops at a random position instead of the center, and
    `rand_resize` also with a random size. `mean` and `std` are one or three numbers, or True for the values of
    ImageNet. The other arguments are the strengths or probabilities of the augmenters.
    """
    size, augmenters = (data_shape[2], data_shape[1]), list[Augmenter]()
    if resize > 0:
        augmenters.append(ResizeAug(resize, inter_method))
    if rand_resize:
        assert rand_crop, "rand_resize=True crops rectangles of random size: it requires rand_crop=True"
        augmenters.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    else:
        augmenters.append(RandomCropAug(size, inter_method) if rand_crop else CenterCropAug(size, inter_method))
    if rand_mirror:
        augmenters.append(HorizontalFlipAug(0.5))
    augmenters.append(CastAug())
    return augmenters + _colour_augmenters(mean, std, brightness, contrast, saturation, hue, pca_noise, rand_gray)


def _colour_augmenters(
    mean: Any,
    std: Any,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
    pca_noise: float,
    rand_gray: float,
) -> list[Augmenter]:
    """Return the augmenters that change the colors of float images."""
    augmenters = list[Augmenter]()
    if brightness or contrast or saturation:
        augmenters.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        augmenters.append(HueJitterAug(hue))
    if pca_noise > 0:
        augmenters.append(LightingAug(pca_noise, _EIGVAL, _EIGVEC))
    if rand_gray > 0:
        augmenters.append(RandomGrayAug(rand_gray))
    mean, std = _checked("mean", mean, _MEAN), _checked("std", std, _STD)
    if mean is not None or std is not None:
        augmenters.append(ColorNormalizeAug(mean, std))
    return augmenters


def _checked(name: str, value: Any, usual: np.ndarray) -> Any:
    """Return the normalization values: those given, or the `usual` ones for True."""
    if value is True:
        return array(usual)
    assert value is None or (isinstance(value, (np.ndarray, NDArray)) and value.shape[0] in (1, 3)), (
        f"{name}={value!r}: expected True, or an array of 1 or 3 numbers"
    )
    return value
