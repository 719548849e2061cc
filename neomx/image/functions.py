"""Images (height, width, channels): reading, resizing, cropping and turning.

Where they draw random numbers these functions use Python's (`random.seed`) or, for angles, numpy's, as MXNet's do.
"""

from __future__ import annotations

import math
import os
import random
from typing import Any

import numpy as np

from ..base import MXNetError
from ..context import current_context
from ..formats import picture
from ..ndarray import BilinearSampler, NDArray, array, from_numpy
from ..ndarray import _internal as _ops_of_module
from ..ndarray.kinds import by_mode

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
    """The image (height, width, channels) of uint8 in the bytes of a JPEG or PNG file.

    `flag` is 1 for three channels, 0 for a grey one; `to_rgb=False` leaves the colours in the order BGR.
    """
    if isinstance(buf, NDArray):
        buf = buf.asnumpy()
    if isinstance(buf, np.ndarray) and buf.dtype == np.uint8:
        data = buf.ravel()
    elif isinstance(buf, (bytes, bytearray, memoryview)):
        data = np.frombuffer(buf, np.uint8)
    else:
        raise ValueError(f"imdecode expects bytes, or an array of uint8, received {_kind(buf)}")
    if not data.size:
        raise MXNetError("imdecode: expected the bytes of an image, received none")
    if flag not in (0, 1):
        raise MXNetError(f"imdecode: flag={flag}: expected 1 (colour) or 0 (grey)")
    image = from_numpy(picture.decode(data, flag, bgr=not to_rgb))
    if out is None:
        return image.as_in_context(current_context())
    out[:] = image
    return out


def _kind(value: Any) -> str:
    return f"an array of {value.dtype}" if isinstance(value, np.ndarray) else type(value).__name__


@by_mode
def imread(filename: str | os.PathLike[str], flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """The image in a file; see `imdecode`."""
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
    """The image in another size, by OpenCV's interpolation 0 (nearest) to 4 (lanczos); 1 is linear, 2 cubic, 3 area."""
    return _ops._cvimresize(src, w=w, h=h, interp=interp, out=out)


copyMakeBorder = _ops._cvcopyMakeBorder


def scale_down(src_size: Size, size: Size) -> Size:
    """(width, height) made smaller, in proportion, until it fits into an image of `src_size`."""
    w, h = map(float, size)
    sw, sh = src_size
    if sh < h:
        w, h = w * sh / h, sh
    if sw < w:
        w, h = sw, h * sw / w
    return int(w), int(h)


def _get_interp_method(interp: int, sizes: tuple[int, ...] = ()) -> int:
    """OpenCV's interpolation for a code: 9 chooses by sizes (old height, old width, new ones), 10 draws one of five."""
    if interp == 9:
        if not sizes:
            return 2
        old_height, old_width, height, width = sizes
        if height > old_height and width > old_width:
            return 2
        return 3 if height < old_height and width < old_width else 1
    if interp == 10:
        return random.randint(0, 4)
    if interp not in (0, 1, 2, 3, 4):
        raise ValueError(f"Unknown interp method {interp}: expected 0 to 4, 9 or 10")
    return interp


def _height_and_width(image: NDArray) -> tuple[int, int]:
    """Of one image; several, or one without channels, would be cut along the wrong axes."""
    if len(image.shape) != 3:
        raise ValueError(f"expected one image (height, width, channels), received the shape {tuple(image.shape)}")
    return image.shape[0], image.shape[1]


@by_mode
def resize_short(src: NDArray, size: int, interp: int = 2) -> NDArray:
    """The image in proportion, its shorter side of length `size`."""
    h, w = _height_and_width(src)
    new_w, new_h = (size, size * h // w) if h > w else (size * w // h, size)
    return imresize(src, new_w, new_h, _get_interp_method(interp, (h, w, new_h, new_w)))


# ---- cropping ----


@by_mode
def fixed_crop(src: NDArray, x0: int, y0: int, w: int, h: int, size: Size | None = None, interp: int = 2) -> NDArray:
    """The rectangle at (x0, y0), resized to `size` (width, height) if that is given."""
    out = src[y0 : y0 + h, x0 : x0 + w]
    if not out.size:
        raise MXNetError(f"the rectangle {w}x{h} at ({x0}, {y0}) has nothing of the image of shape {src.shape}")
    if size is None or (w, h) == tuple(size):
        return out.copy()
    return imresize(out, size[0], size[1], _get_interp_method(interp, (h, w, size[1], size[0])))


@by_mode
def random_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """A rectangle of `size` anywhere in the image, enlarged if that is too small; and its (x, y, width, height)."""
    h, w = _height_and_width(src)
    new_w, new_h = scale_down((w, h), size)
    place = random.randint(0, w - new_w), random.randint(0, h - new_h), new_w, new_h
    return fixed_crop(src, *place, size, interp), place


@by_mode
def center_crop(src: NDArray, size: Size, interp: int = 2) -> tuple[NDArray, tuple[int, int, int, int]]:
    """The rectangle of `size` in the middle, enlarged if that is too small; and its (x, y, width, height)."""
    h, w = _height_and_width(src)
    new_w, new_h = scale_down((w, h), size)
    place = (w - new_w) // 2, (h - new_h) // 2, new_w, new_h
    return fixed_crop(src, *place, size, interp), place


@by_mode
def random_size_crop(
    src: NDArray, size: Size, area: Any, ratio: tuple[float, float], interp: int = 2, **kwargs: Any
) -> tuple[NDArray, tuple[int, int, int, int]]:
    """A rectangle of random place, share of the image's `area` (from, to; or from) and width-to-height `ratio`.

    It is resized to `size`. Ten are tried; if none lies in the image the middle is taken.
    """
    area = kwargs.pop("min_area", area)
    assert not kwargs, f"unexpected keyword arguments for random_size_crop: {', '.join(kwargs)}"
    low, high = (area, 1.0) if isinstance(area, (int, float)) else area
    h, w = _height_and_width(src)
    for _ in range(10):
        target = random.uniform(low, high) * w * h
        new_ratio = math.exp(random.uniform(math.log(ratio[0]), math.log(ratio[1])))
        new_w, new_h = round(math.sqrt(target * new_ratio)), round(math.sqrt(target / new_ratio))
        if new_w <= w and new_h <= h:
            place = random.randint(0, w - new_w), random.randint(0, h - new_h), new_w, new_h
            return fixed_crop(src, *place, size, interp), place
    return center_crop(src, size, interp)


# ---- colours and turning ----


@by_mode
def color_normalize(src: NDArray, mean: Any, std: Any = None) -> NDArray:
    """The image less `mean`, divided by `std`; the array itself is changed."""
    if mean is not None:
        src -= mean
    if std is not None:
        src /= std
    return src


@by_mode
def imrotate(src: NDArray, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Images (channels, h, w) or (n, channels, h, w) of float32, turned counter-clockwise about their middle.

    `rotation_degrees` is a number, or an array of one for each image. What comes from outside is 0; `zoom_in`
    enlarges so that nothing does, `zoom_out` makes smaller so that nothing is lost.
    """
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")
    if src.dtype is not np.float32:
        raise TypeError(f"imrotate expects an image of float32, received {np.dtype(src.dtype).name}")
    if src.ndim not in (3, 4):
        raise ValueError(f"imrotate expects 3 or 4 dimensions, received the shape {src.shape}")
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
        raise ValueError(f"expected as many angles as images, received {len(angles)} and {count}")
    grid = _rotated_grid(angles, h, w, zoom_in, zoom_out)
    return BilinearSampler(src, array(grid, ctx=src.context))


def _rotated_grid(angles: np.ndarray, h: int, w: int, zoom_in: bool, zoom_out: bool) -> np.ndarray:
    """Where each pixel comes from: (n, 2, h, w), x and y from -1 to 1."""
    cos, sin = np.cos(angles), np.sin(angles)
    y, x = np.mgrid[:h, :w] - np.array([(h - 1) / 2, (w - 1) / 2])[:, None, None]
    grid = np.stack([(x * cos - y * sin) / ((w - 1) / 2), (x * sin + y * cos) / ((h - 1) / 2)], axis=1)
    if not (zoom_in or zoom_out):
        return grid
    width, height = w * abs(cos) + h * abs(sin), w * abs(sin) + h * abs(cos)  # of the box round the turned image
    scale = np.maximum(width / w, height / h) if zoom_out else np.minimum(w / width, h / height)
    return grid * scale[:, None]


@by_mode
def random_rotate(
    src: NDArray, angle_limits: tuple[float, float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """`imrotate` by angles drawn from `angle_limits`, one for each image."""
    if src.ndim == 3:
        return imrotate(src, np.random.uniform(*angle_limits), zoom_in, zoom_out)
    return imrotate(src, array(np.random.uniform(*angle_limits, size=len(src))), zoom_in, zoom_out)
