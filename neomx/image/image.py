"""Images (height, width, channels): reading, resizing, cropping and turning."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats import picture
from ..ndarray import NDArray, array


def imdecode(buf: Any, flag: int = 1, to_rgb: bool = True, out: NDArray | None = None) -> NDArray:
    """The image (height, width, channels) of uint8 in the bytes of a JPEG or PNG file.

    `flag` is 1 for three channels, 0 for a grey one; `to_rgb=False` leaves the colours in the order BGR.
    """
    data = buf.asnumpy().tobytes() if isinstance(buf, NDArray) else bytes(buf)
    if not data:
        raise MXNetError("imdecode: expected the bytes of an image, received none")
    pixels = array(picture.decode(data, flag, bgr=not to_rgb), dtype=np.uint8)
    if out is None:
        return pixels
    out[:] = pixels
    return out


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
