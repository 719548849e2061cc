"""Functions on images (height, width, channels): reading, resizing, cropping and rotating.

Random functions use Python's generator (`random.seed`) or, for angles, numpy's, as in MXNet.
"""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from ..base import MXNetError
from ..context import current_context
from ..formats import picture
from ..ndarray import BilinearSampler, NDArray, array, from_numpy
from ..ndarray import _internal as _ops_of_module
from ..ndarray.kinds import by_mode
from ..ops.random import numpy_source, python_source

__all__ = [
    "center_crop",
    "color_normalize",
    "copyMakeBorder",
    "fixed_crop",
    "imdecode",
    "imread",
    "imresize",
    "imrotate",
    "random_crop",
    "random_rotate",
    "random_size_crop",
    "resize_short",
    "scale_down",
]

Size = tuple[int, int]
_ops: Any = _ops_of_module  # filled from the op table

# ---- reading ----


@by_mode
def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """Decode the bytes of a JPEG or PNG file to a uint8 image (height, width, channels).

    `flag` is 1 for three channels, 0 for gray; `to_rgb=False` keeps the color order BGR.
    """
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    if isinstance(buf, np.ndarray) and buf.dtype == np.uint8:
        data = buf.ravel()
    elif isinstance(buf, (bytes, bytearray, memoryview)):
        data = np.frombuffer(buf, np.uint8)
    else:
        raise ValueError(f"imdecode expects bytes or a uint8 array, received {_kind(buf)}")
    if not data.size:
        raise MXNetError("imdecode: expected the bytes of an image, received none")
    if flag not in (0, 1):
        raise MXNetError(f"imdecode: flag={flag}: expected 1 (color) or 0 (gray)")
    image = from_numpy(picture.decode(data, flag, bgr=not to_rgb))
    if out is None:
        return image.as_in_context(current_context())
    out[:] = image
    return out


def _kind(value: Any) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__


@by_mode
def imread(filename: str | os.PathLike[str], flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """Read an image file; see `imdecode`."""
    try:
        with open(filename, "rb") as file:
            data = file.read()
    except OSError as error:
        raise MXNetError(f"cannot read the image {os.fspath(filename)}: {error.strerror}") from error
    try:
        return imdecode(data, flag, to_rgb, out)
    except MXNetError as error:
        raise MXNetError(f"{os.fspath(filename)}: {error}") from error


# ---- resizing ----


@by_mode
def imresize(src: NDArray, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """Resize the image, by OpenCV's interpolation 0 (nearest), 1 (linear), 2 (cubic), 3 (area) or 4 (Lanczos)."""
    return _ops._cvimresize(src, w=w, h=h, interp=interp, out=out)


copyMakeBorder = _ops._cvcopyMakeBorder


def scale_down(src_size: Size, size: Size) -> Size:
    """Scale `size` (width, height) down, preserving the aspect ratio, until it fits into `src_size`."""
    w, h = map(float, size)
    sw, sh = src_size
    if sh < h:
        w, h = w * sh / h, sh
    if sw < w:
        w, h = sw, h * sw / w
    return int(w), int(h)


def _get_interp_method(interp: int, sizes: tuple[int, ...] = ()) -> int:
    """Return OpenCV's interpolation for a code: 9 chooses by sizes (old height, old width, new ones), 10 is random."""
    if interp == 9:
        if not sizes:
            return 2
        old_height, old_width, height, width = sizes
        if height > old_height and width > old_width:
            return 2
        return 3 if height < old_height and width < old_width else 1
    if interp == 10:
        return python_source().randint(0, 4)
    if interp not in (0, 1, 2, 3, 4):
        raise ValueError(f"Unknown interp method {interp}: expected 0 to 4, 9 or 10")
    return interp


def _height_and_width(image: NDArray) -> tuple[int, int]:
    """Return the size of one image; a batch, or an image without channels, would be cropped along the wrong axes."""
    if len(image.shape) != 3:
        raise ValueError(f"expected one image (height, width, channels), received shape {tuple(image.shape)}")
    return image.shape[0], image.shape[1]


@by_mode
def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """Resize the image so that its shorter side is `size`, preserving the aspect ratio."""
    h, w = _height_and_width(src)
    new_w, new_h = (size, size * h // w) if h > w else (size * w // h, size)
    return imresize(src, new_w, new_h, _get_interp_method(interp, (h, w, new_h, new_w)))


# ---- cropping ----


@by_mode
def fixed_crop(src: NDArray, x0: int, y0: int, w: int, h: int, size: Size | None = None, interp: int = 2) -> NDArray:
    """Crop the rectangle at (x0, y0), and resize it to `size` (width, height) if given."""
    out = src[y0 : y0 + h, x0 : x0 + w]
    if not out.size:
        raise MXNetError(f"the rectangle {w}x{h} at ({x0}, {y0}) does not overlap the image of shape {src.shape}")
    if size is None or (w, h) == tuple(size):
        return out.copy()
    return imresize(out, size[0], size[1], _get_interp_method(interp, (h, w, size[1], size[0])))


@by_mode
def random_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Crop a rectangle of `size` at a random position, enlarged if the image is smaller.

    Returns the crop and its (x, y, width, height).
    """
    h, w = _height_and_width(src)
    new_w, new_h = scale_down((w, h), size)
    place = python_source().randint(0, w - new_w), python_source().randint(0, h - new_h), new_w, new_h
    return fixed_crop(src, *place, size, interp), place


@by_mode
def center_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Crop a rectangle of `size` at the center, enlarged if the image is smaller.

    Returns the crop and its (x, y, width, height).
    """
    h, w = _height_and_width(src)
    new_w, new_h = scale_down((w, h), size)
    place = (w - new_w) // 2, (h - new_h) // 2, new_w, new_h
    return fixed_crop(src, *place, size, interp), place


@by_mode
def random_size_crop(
    src: NDArray, size: Size, area: Any, ratio: tuple[float, float], interp: int = 2, **kwargs: Any
) -> tuple[NDArray, tuple[int, int, int, int]]:
    """Crop a random rectangle with an area in `area` (a range, or the minimum) and an aspect ratio in `ratio`.

    `area` is relative to the area of the image, `ratio` is width to height. The crop is resized to `size`. If none of
    ten random rectangles lies in the image, the center is cropped. Returns the crop and its (x, y, width, height).
    """
    area = kwargs.pop("min_area", area)
    assert not kwargs, f"unexpected keyword arguments for random_size_crop: {', '.join(kwargs)}"
    low, high = (area, 1.0) if isinstance(area, (int, float)) else area
    h, w = _height_and_width(src)
    for _ in range(10):
        target = python_source().uniform(low, high) * w * h
        new_ratio = math.exp(python_source().uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w, new_h = round(math.sqrt(target * new_ratio)), round(math.sqrt(target / new_ratio))
        if new_w <= w and new_h <= h:
            place = python_source().randint(0, w - new_w), python_source().randint(0, h - new_h), new_w, new_h
            return fixed_crop(src, *place, size, interp), place
    return center_crop(src, size, interp)


# ---- colors and rotation ----


@by_mode
def color_normalize(src: NDArray, mean: Any, std: Any = None) -> NDArray:
    """Subtract `mean` and divide by `std`, in place."""
    if mean is not None:
        src -= mean
    if std is not None:
        src /= std
    return src


@by_mode
def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate float32 images (channels, h, w) or (n, channels, h, w) counter-clockwise about their center.

    `rotation_degrees` is a number, or an array with one angle per image. Pixels from outside the image are 0. `zoom_in`
    enlarges the image so that there are none; `zoom_out` shrinks it so that no pixel is lost.
    """
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")
    if src.dtype is not np.float32:
        raise TypeError(f"imrotate expects a float32 image, received {np.dtype(src.dtype).name}")
    if src.ndim not in (3, 4):
        raise ValueError(f"imrotate expects 3 or 4 dimensions, received shape {src.shape}")
    if src.ndim == 3:
        if not isinstance(rotation_degrees, (int, float, np.number)):
            raise TypeError("When a single image is passed the rotation angle is required to be a scalar.")
        return imrotate(src.reshape((1, *src.shape)), rotation_degrees, zoom_in, zoom_out).reshape(src.shape)
    count, _, h, w = src.shape
    degrees = rotation_degrees.asnumpy() if isinstance(rotation_degrees, NDArray) else rotation_degrees
    angles = np.radians(np.asarray(degrees, dtype=np.float64)).reshape(-1, 1, 1)
    if angles.size == 1:
        angles = np.repeat(angles, count, axis=0)
    if len(angles) != count:
        raise ValueError(f"expected one angle per image, received {len(angles)} angles for {count} images")
    grid = _rotated_grid(angles, h, w, zoom_in, zoom_out)
    return BilinearSampler(src, array(grid, ctx=src.context))


def _rotated_grid(angles: np.ndarray, h: int, w: int, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """Return the source coordinates of each pixel: (n, 2, h, w), x and y from -1 to 1."""
    cos, sin = np.cos(angles), np.sin(angles)
    y, x = np.mgrid[:h, :w] - np.array([(h - 1) / 2, (w - 1) / 2])[:, None, None]
    grid = np.stack([(x * cos - y * sin) / ((w - 1) / 2), (x * sin + y * cos) / ((h - 1) / 2)], axis=1)
    return grid * _rotation_zoom(cos, sin, h, w, zoom_in, zoom_out)[:, None] if zoom_in or zoom_out else grid


def _rotation_zoom(cos: np.ndarray, sin: np.ndarray, h: int, w: int, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """Return the factor from distances in the rotated image to those in the image, for each angle."""
    if not (zoom_in or zoom_out):
        return np.ones_like(cos)
    width, height = w * abs(cos) + h * abs(sin), w * abs(sin) + h * abs(cos)  # the bounding box of the rotated image
    return np.maximum(width / w, height / h) if zoom_out else np.minimum(w / width, h / height)


@by_mode
def random_rotate(
    src: NDArray, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """Rotate by angles drawn from `angle_limits`, one per image; see `imrotate`."""
    if src.ndim == 3:
        return imrotate(src, numpy_source().uniform(*angle_limits), zoom_in, zoom_out)
    return imrotate(src, array(numpy_source().uniform(*angle_limits, size=len(src))), zoom_in, zoom_out)
