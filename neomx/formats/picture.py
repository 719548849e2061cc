"""JPEG, PNG and other pictures by OpenCV, which MXNet uses too, so that pixels are the same: the extra `image`.

A picture is (height, width, channels) of numpy. OpenCV lets go of the GIL, so that threads decode side by side.
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
_HEAD = 1 << 16  # bytes in which a picture tells its size
_QUALITY_OPTION = {".jpg": "IMWRITE_JPEG_QUALITY", ".jpeg": "IMWRITE_JPEG_QUALITY", ".png": "IMWRITE_PNG_COMPRESSION"}
_WARP_UNIT, _WARP_STEPS = 1024, 32  # fixed-point numbers of a warp: parts of a pixel reckoned with, and told apart


def _opencv() -> Any:
    """OpenCV without threads of its own, and with the kernels that MXNet's has: Intel's round otherwise."""
    try:
        return _thread.cv2
    except AttributeError:
        pass
    said = os.environ.get(_OPENCV_LIMIT)
    os.environ.setdefault(_OPENCV_LIMIT, str(most_pixels()))  # OpenCV reads it once, when it is loaded
    try:
        import cv2
    except ImportError as error:
        raise MXNetError('reading, writing and resizing pictures needs OpenCV: pip install "neomx[image]"') from error
    finally:
        if said is None:
            del os.environ[_OPENCV_LIMIT]
    cv2.setNumThreads(0)
    cv2.ipp.setUseIPP(False)  # holds for the calling thread only
    _thread.cv2 = cv2
    return cv2


def most_pixels() -> int:
    """How many pixels a picture may have: NEOMX_MAX_PIXELS."""
    text = os.environ.get("NEOMX_MAX_PIXELS", "")
    if text and not text.isdecimal():
        raise MXNetError(f"NEOMX_MAX_PIXELS must be a number of pixels, received {text!r}")
    return int(text or _MOST_PIXELS)


def _check_pixels(head: bytes) -> None:
    """Refuse a picture that says it is larger than the limit, before any memory is taken for it."""
    width, height = _size_in(head)
    if width * height > most_pixels():
        raise MXNetError(
            f"a picture of {width} x {height} pixels is larger than the limit of {most_pixels()}. "
            "Set NEOMX_MAX_PIXELS to raise it"
        )


def _check_chunks(data: memoryview) -> None:
    """Refuse a PNG with a chunk that is longer than the file: OpenCV would take memory for what the chunk says."""
    at, name = 8, b""
    while name != b"IEND" and at < len(data):
        length, name = struct.unpack_from(">I4s", data, at) if at + 8 <= len(data) else (len(data), b"")
        if at + 12 + length > len(data):
            raise MXNetError(f"cannot decode a PNG of {len(data)} bytes: cut short or damaged at byte {at}")
        at += 12 + length


def _size_in(head: bytes) -> tuple[int, int]:
    """(width, height) as the first bytes of a picture tell them; (0, 0) where they do not, and OpenCV checks alone."""
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
    """Whether OpenCV is installed, and can be loaded."""
    try:
        _opencv()
    except MXNetError:
        return False
    return True


def decode(data: bytes | memoryview | np.ndarray, flag: int = 1, bgr: bool = False) -> np.ndarray:
    """A picture from the bytes of a file: `flag` 1 in colour, 0 in grey, both of uint8 and turned as its EXIF says.

    -1 takes it as it is in the file: not turned, with transparency, of uint16 if it has 16 bits.
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
        raise MXNetError(f"cannot decode a picture of {values.size} bytes: {error.err}") from error
    if pixels is None:
        raise MXNetError(
            f"cannot decode {values.size} bytes that begin with {values[:8].tobytes()!r}: "
            "not a picture, or one that was cut short"
        )
    if pixels.ndim == 2:
        return pixels[:, :, None]
    if flag < 0 and not bgr:
        return convert(pixels, "BGR2RGB" if pixels.shape[2] == 3 else "BGRA2RGBA")
    return pixels


def encode(pixels: np.ndarray, quality: int, file_format: str, bgr: bool = False) -> bytes:
    """A picture (height, width[, channels]) as a file: JPEG of `quality`, PNG compressed so much, or others."""
    cv2, file_format = _opencv(), file_format.lower()
    if not file_format.startswith(".") or not cv2.haveImageWriter("a" + file_format):
        raise MXNetError(f"img_fmt={file_format!r}: expected '.jpg', '.png' or another format that OpenCV writes")
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.dtype not in (np.uint8, np.uint16) or pixels.ndim not in (2, 3) or channels not in (1, 3, 4):
        raise MXNetError(
            f"expected a picture (height, width) or (height, width, 3) of uint8, received {pixels.dtype} {pixels.shape}"
        )
    if channels > 1 and not bgr:
        pixels = convert(pixels, "RGB2BGR" if channels == 3 else "RGBA2BGRA")
    option = _QUALITY_OPTION.get(file_format)
    quality = min(quality, 9) if file_format == ".png" else quality  # pack_img's default is one for JPEG
    try:
        done, encoded = cv2.imencode(file_format, pixels, [getattr(cv2, option), quality] if option else [])
    except cv2.error as error:
        raise MXNetError(f"cannot encode a picture of shape {pixels.shape} as {file_format}: {error.err}") from error
    if not done:
        raise MXNetError(f"cannot encode a picture of shape {pixels.shape} as {file_format}")
    return encoded.tobytes()


def resize(pixels: np.ndarray, width: int, height: int, interp: int = 1) -> np.ndarray:
    """The picture in another size, by OpenCV's interpolation 0 nearest, 1 linear, 2 cubic, 3 area or 4 lanczos."""
    return _call("resize", pixels, (width, height), interpolation=interp)


def warp(
    pixels: np.ndarray,
    matrix: np.ndarray,
    width: int,
    height: int,
    interp: int = 1,
    fill: float | tuple[float, ...] = 0,
) -> np.ndarray:
    """The picture moved by an affine `matrix` (2, 3) into a new one; `fill` is for where nothing comes to be.

    Places are rounded to a 32nd of a pixel, as by the OpenCV that MXNet has; later ones' warpAffine is finer.
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
    """The picture with a border: 0 of colour `fill`, 1 edge repeated, 2 mirrored, 3 wrapped, 4 mirrored in the edge."""
    return _call("copyMakeBorder", pixels, top, bottom, left, right, border, value=_scalar(fill))


def convert(pixels: np.ndarray, change: str) -> np.ndarray:
    """Colours of another kind: `change` is OpenCV's name, as "RGB2HLS", "BGR2RGB" or "RGB2GRAY"."""
    return _call("cvtColor", pixels, getattr(_opencv(), "COLOR_" + change))


def _scalar(fill: float | tuple[float, ...]) -> tuple[float, ...]:
    return fill if isinstance(fill, tuple) else (fill,) * 4


def _call(name: str, pixels: np.ndarray, *args: Any, **options: Any) -> np.ndarray:
    """OpenCV's function on a picture; it drops the axis of a single channel, which is given back here."""
    cv2 = _opencv()
    try:
        result = getattr(cv2, name)(pixels, *args, **options)
    except cv2.error as error:
        raise MXNetError(
            f"{name} of a picture of {pixels.dtype} and shape {pixels.shape} with {args} failed: {error.err}"
        ) from error
    return result[:, :, None] if result.ndim == 2 else result


def draw_box(
    pixels: np.ndarray, box: Any, colour: tuple[int, ...], thickness: int = 2, text: str | None = None
) -> np.ndarray:
    """The picture with a box (xmin, ymin, xmax, ymax, each from 0 to 1) drawn on it, and a word in its corner."""
    cv2, (height, width) = _opencv(), pixels.shape[:2]
    xmin, ymin, xmax, ymax = (int(v * side) for v, side in zip(box, (width, height) * 2, strict=True))
    pixels = np.ascontiguousarray(pixels)
    cv2.rectangle(pixels, (xmin, ymin), (xmax, ymax), colour, thickness)
    if text is not None:
        cv2.putText(pixels, text, (xmin + 5, ymin + 20), cv2.FONT_HERSHEY_SIMPLEX, 0.5, colour, 2)
    return pixels


def show(pixels: np.ndarray, title: str, milliseconds: int) -> None:
    """The picture (blue, green, red) in a window."""
    cv2 = _opencv()
    try:
        cv2.imshow(title, pixels)
        cv2.waitKey(milliseconds)
    except cv2.error as error:
        raise MXNetError("cannot open a window: this OpenCV was built without; use opencv-python") from error
