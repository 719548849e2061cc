"""JPEG, PNG and other images, by OpenCV (the extra `image`). MXNet uses OpenCV too, so the pixels are the same.

An image is a numpy array (height, width, channels). OpenCV releases the GIL, so threads decode in parallel.
"""

from __future__ import annotations

import functools
import os
import struct
import threading
from typing import Any

import numpy as np

from ..base import MXNetError

_thread = threading.local()
_MOST_PIXELS = 1 << 27
_PNG = b"\x89PNG"
_OPENCV_LIMIT = "OPENCV_IO_MAX_IMAGE_PIXELS"
_HEAD = 1 << 16  # the leading bytes of a file that contain the image size
_QUALITY_OPTION = {".jpg": "IMWRITE_JPEG_QUALITY", ".jpeg": "IMWRITE_JPEG_QUALITY", ".png": "IMWRITE_PNG_COMPRESSION"}
_WARP_UNIT, _WARP_STEPS = 1024, 32  # fixed-point warp: subpixels per pixel for computing, and for sampling


def _opencv() -> Any:
    """Return OpenCV without its threads and without IPP, whose kernels round differently from MXNet's OpenCV."""
    try:
        return _thread.cv2
    except AttributeError:
        pass
    said = os.environ.get(_OPENCV_LIMIT)
    os.environ.setdefault(_OPENCV_LIMIT, str(most_pixels()))  # OpenCV reads it once, when it is loaded
    try:
        import cv2
    except ImportError as error:
        raise MXNetError('reading, writing and resizing images needs OpenCV: pip install "neomx[image]"') from error
    finally:
        if said is None:
            del os.environ[_OPENCV_LIMIT]
    cv2.setNumThreads(0)
    cv2.ipp.setUseIPP(False)  # applies only to the calling thread
    _thread.cv2 = cv2
    return cv2


def most_pixels() -> int:
    """Return the maximum number of pixels of an image, from NEOMX_MAX_PIXELS."""
    text = os.environ.get("NEOMX_MAX_PIXELS", "")
    if text and not text.isdecimal():
        raise MXNetError(f"NEOMX_MAX_PIXELS must be a number of pixels, received {text!r}")
    return int(text or _MOST_PIXELS)


def _check_pixels(head: bytes) -> None:
    """Refuse an image that declares more pixels than the limit, before memory is allocated for it."""
    width, height = _size_in(head)
    if width * height > most_pixels():
        raise MXNetError(
            f"an image of {width} x {height} pixels exceeds the limit of {most_pixels()}. "
            "Set NEOMX_MAX_PIXELS to raise it"
        )


def _check_chunks(data: memoryview) -> None:
    """Refuse a PNG with a chunk longer than the file: OpenCV would allocate the declared size."""
    at, name = 8, b""
    while name != b"IEND" and at < len(data):
        length, name = struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (len(data), b"")
        if at + 12 + length > len(data):
            raise MXNetError(f"cannot decode a PNG of {len(data)} bytes: truncated or damaged at byte {at}")
        at += 12 + length


def _size_in(head: bytes) -> tuple[int, int]:
    """Return (width, height) from the first bytes of an image, or (0, 0) if unknown; then only OpenCV checks it."""
    if head.startswith(_PNG) and len(head) >= 24:
        return struct.unpack(">II", head[16:24])
    if head.startswith(b"GIF8") and len(head) >= 10:
        return struct.unpack("<HH", head[6:10])
    if head.startswith(b"BM") and len(head) >= 26:
        width, height = struct.unpack("<ii", head[18:26])
        return abs(width), abs(height)
    if head.startswith(b"\xff\xd8"):
        return _size_in_jpeg(head)
    return 0, 0


def _size_in_jpeg(head: bytes) -> tuple[int, int]:
    at = 2
    while at + 9 <= len(head):
        if head[at] != 0xFF:
            at += 1
            continue
        marker = head[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", head[at + 5 : at + 9])
            return width, height
        bare = marker in (0x00, 0x01, 0xFF) or 0xD0 <= marker <= 0xD8
        at += (1 if marker == 0xFF else 2) if bare else 2 + struct.unpack(">H", head[at + 2 : at + 4])[0]
    return 0, 0


@functools.cache
def available() -> bool:
    """Return whether OpenCV is installed and can be loaded."""
    try:
        _opencv()
    except MXNetError:
        return False
    return True


def decode(data: bytes | memoryview | np.ndarray, flag: int = 1, bgr: bool = False) -> np.ndarray:
    """Decode the bytes of an image file: `flag` 1 for color, 0 for gray, both uint8 and rotated according to EXIF.

    -1 decodes it as stored: not rotated, with transparency, uint16 if it has 16 bits.
    """
    cv2 = _opencv()
    if flag == 1 and not bgr:
        flag = cv2.IMREAD_COLOR_RGB
    values = np.frombuffer(data, np.uint8)
    _check_pixels(values[:_HEAD].tobytes())
    if values[:4].tobytes() == _PNG:
        _check_chunks(values.data)
    try:
        pixels = cv2.imdecode(values, flag) if values.size else None
    except cv2.error as error:
        raise MXNetError(f"cannot decode an image of {values.size} bytes: {error.err}") from error
    if pixels is None:
        raise MXNetError(
            f"cannot decode {values.size} bytes that begin with {values[:8].tobytes()!r}: not an image, or truncated"
        )
    if pixels.ndim == 2:
        return pixels[:, :, None]
    if flag < 0 and not bgr:
        return convert(pixels, "BGR2RGB" if pixels.shape[2] == 3 else "BGRA2RGBA")
    return pixels


def encode(pixels: np.ndarray, quality: int, file_format: str, bgr: bool = False) -> bytes:
    """Encode an image (height, width[, channels]): JPEG of `quality`, PNG with this compression level, or others."""
    cv2, file_format = _opencv(), file_format.lower()
    if not file_format.startswith(".") or not cv2.haveImageWriter("a" + file_format):
        raise MXNetError(f"img_fmt={file_format!r}: expected '.jpg', '.png' or another format that OpenCV writes")
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise MXNetError(
            f"expected a uint8 image (height, width) or (height, width, 3), received {pixels.dtype} {pixels.shape}"
        )
    if channels > 1 and not bgr:
        pixels = convert(pixels, "RGB2BGR" if channels == 3 else "RGBA2BGRA")
    option = _QUALITY_OPTION.get(file_format)
    quality = min(quality, 9) if file_format == ".png" else quality  # pack_img's default is meant for JPEG
    try:
        done, encoded = cv2.imencode(file_format, pixels, [getattr(cv2, option), quality] if option else [])
    except cv2.error as error:
        raise MXNetError(f"cannot encode an image of shape {pixels.shape} as {file_format}: {error.err}") from error
    if not done:
        raise MXNetError(f"cannot encode an image of shape {pixels.shape} as {file_format}")
    return encoded.tobytes()


def resize(pixels: np.ndarray, width: int, height: int, interp: int = 1) -> np.ndarray:
    """Resize the image, by OpenCV's interpolation 0 nearest, 1 linear, 2 cubic, 3 area or 4 Lanczos."""
    return _call("resize", pixels, (width, height), interpolation=interp)


def warp(
    pixels: np.ndarray,
    matrix: np.ndarray,
    width: int,
    height: int,
    interp: int = 1,
    fill: float | tuple[float, ...] = 0,
) -> np.ndarray:
    """Apply an affine `matrix` (2, 3) to the image; `fill` is the value of pixels without a source.

    Positions are rounded to 1/32 pixel, as in MXNet's OpenCV; warpAffine of newer versions is finer.
    """
    cv2 = _opencv()
    back = cv2.invertAffineTransform(matrix.astype(np.float64))
    rounding = _WARP_UNIT // 2 if interp == 0 else _WARP_UNIT // _WARP_STEPS // 2
    along = np.rint(back[:, :1] * np.arange(width) * _WARP_UNIT).astype(np.int64)
    down = np.rint((back[:, 1:2] * np.arange(height) + back[:, 2:]) * _WARP_UNIT).astype(np.int64) + rounding
    steps = (along[:, None, :] + down[:, :, None]) // (_WARP_UNIT // _WARP_STEPS)  # (x and y, height, width)
    whole, part = np.divmod(steps, _WARP_STEPS)
    places = np.ascontiguousarray(np.moveaxis(np.clip(whole, -(1 << 15), (1 << 15) - 1), 0, 2).astype(np.int16))
    shares = (part[1] * _WARP_STEPS + part[0]).astype(np.uint16)
    return _call("remap", pixels, places, shares, interp, borderMode=cv2.BORDER_CONSTANT, borderValue=_scalar(fill))


def pad(
    pixels: np.ndarray,
    top: int,
    bottom: int,
    left: int,
    right: int,
    border: int = 0,
    fill: float | tuple[float, ...] = 0,
) -> np.ndarray:
    """Add a border: 0 constant `fill`, 1 edge repeated, 2 reflected with edge, 3 wrapped, 4 reflected without edge."""
    return _call("copyMakeBorder", pixels, top, bottom, left, right, border, value=_scalar(fill))


def convert(pixels: np.ndarray, change: str) -> np.ndarray:
    """Convert colors: `change` is OpenCV's name, for example "RGB2HLS", "BGR2RGB" or "RGB2GRAY"."""
    return _call("cvtColor", pixels, getattr(_opencv(), "COLOR_" + change))


def _scalar(fill: float | tuple[float, ...]) -> tuple[float, ...]:
    return fill if isinstance(fill, tuple) else (fill,) * 4


def _call(name: str, pixels: np.ndarray, *args: Any, **options: Any) -> np.ndarray:
    """Call OpenCV's function on an image, and restore the axis of a single channel, which OpenCV drops."""
    cv2 = _opencv()
    try:
        result = getattr(cv2, name)(pixels, *args, **options)
    except cv2.error as error:
        raise MXNetError(
            f"{name} of an image (dtype {pixels.dtype}, shape {pixels.shape}) with {args} failed: {error.err}"
        ) from error
    return result[:, :, None] if result.ndim == 2 else result


def draw_box(
    pixels: np.ndarray, box: Any, colour: tuple[int, ...], thickness: int = 2, text: str | None = None
) -> np.ndarray:
    """Return the image with a box (xmin, ymin, xmax, ymax, each from 0 to 1) and a label in its corner drawn on it."""
    cv2, (height, width) = _opencv(), pixels.shape[:2]
    xmin, ymin, xmax, ymax = (int(v * side) for v, side in zip(box, (width, height) * 2, strict=True))
    pixels = np.ascontiguousarray(pixels)
    cv2.rectangle(pixels, (xmin, ymin), (xmax, ymax), colour, thickness)
    if text is not None:
        cv2.putText(pixels, text, (xmin + 5, ymin + 20), cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 2)
    return pixels


def show(pixels: np.ndarray, title: str, milliseconds: int) -> None:
    """Show the image (BGR) in a window."""
    cv2 = _opencv()
    try:
        cv2.imshow(title, pixels)
        cv2.waitKey(milliseconds)
    except cv2.error as error:
        raise MXNetError("cannot open a window: this OpenCV build has no GUI. Install opencv-python") from error
