"""JPEG, PNG and other pictures, decoded and encoded by Pillow: the optional extra `image`."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ..base import MXNetError

_FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG"}


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise MXNetError("reading and writing pictures needs Pillow: pip install neomx[image]") from error
    return Image


def decode(data: bytes, flag: int = 1, bgr: bool = False) -> np.ndarray:
    """A picture (height, width, channels) of uint8, not turned; `flag` 1 in colour, 0 in grey, -1 as in the file."""
    Image = _pillow()
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if picture.mode.startswith("I"):  # 16 bits, of which we keep the upper 8
                picture = Image.fromarray((np.asarray(picture).astype(np.int32) >> 8).astype(np.uint8))
            pixels = np.array(picture.convert(_mode(picture, flag)))
    except Image.UnidentifiedImageError:
        raise MXNetError(f"cannot decode {len(data)} bytes that begin with {data[:8]!r}: not a picture") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise MXNetError(f"cannot decode a picture of {len(data)} bytes: {error}") from error
    if pixels.ndim == 2:
        return pixels[:, :, None]
    return np.ascontiguousarray(pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]) if bgr else pixels


def _mode(picture: Any, flag: int) -> str:
    if flag >= 0:
        return "RGB" if flag else "L"
    if picture.mode in ("RGBA", "LA") or "transparency" in picture.info:
        return "RGBA"
    return "L" if picture.mode in ("L", "1") else "RGB"


def encode(pixels: np.ndarray, quality: int, file_format: str, bgr: bool = False) -> bytes:
    """A picture (height, width[, 1 or 3]) of uint8 as a file: JPEG of `quality`, or PNG compressed so much."""
    kind = _FORMATS.get(file_format.lower())
    if kind is None:
        raise MXNetError(f"img_fmt={file_format!r}: expected {', '.join(_FORMATS)}")
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3)):
        raise MXNetError(
            f"expected a picture (height, width) or (height, width, 3) of uint8, received {pixels.dtype} {pixels.shape}"
        )
    if pixels.ndim == 3:
        pixels = pixels[:, :, 0] if pixels.shape[2] == 1 else pixels[:, :, ::-1] if bgr else pixels
    options = {"quality": quality} if kind == "JPEG" else {"compress_level": quality}
    file = io.BytesIO()
    _pillow().fromarray(np.ascontiguousarray(pixels)).save(file, kind, **options)
    return file.getvalue()
