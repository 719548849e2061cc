"""JPEG, PNG and other pictures, decoded and encoded by Pillow: the optional extra `image`."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from ..base import MXNetError

_FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG"}


def _pillow() -> Any:
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise MXNetError("reading and writing pictures needs Pillow: pip install neomx[image]") from error
    return Image, ImageOps


def decode(data: bytes, flag: int = 1, bgr: bool = False) -> np.ndarray:
    """A picture (height, width, channels) of uint8; `flag` 1 in colour, 0 in grey, -1 as it is in the file."""
    Image, ImageOps = _pillow()
    try:
        with Image.open(io.BytesIO(data)) as picture:
            if flag >= 0:  # turned upright, as OpenCV does
                picture = ImageOps.exif_transpose(picture)
            pixels = np.array(picture.convert(_mode(picture, flag)))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise MXNetError(f"cannot decode a picture of {len(data)} bytes: {error}") from error
    if pixels.ndim == 2:
        return pixels[:, :, None]
    return np.ascontiguousarray(pixels[:, :, [2, 1, 0, 3][: pixels.shape[2]]]) if bgr else pixels


def _mode(picture: Any, flag: int) -> str:
    if flag >= 0:
        return "RGB" if flag else "L"
    transparent = picture.mode in ("RGBA", "LA") or "transparency" in picture.info
    return "RGBA" if transparent else "L" if picture.mode in ("L", "1", "I;16", "I") else "RGB"


def encode(pixels: np.ndarray, quality: int, file_format: str, bgr: bool = False) -> bytes:
    """A picture (height, width[, channels]) of uint8 as a file: JPEG of `quality`, or PNG compressed so much."""
    Image, _ = _pillow()
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
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, kind, **options)
    return file.getvalue()
