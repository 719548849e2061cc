"""Rotation prediction: a network learns features by recognizing how a picture was turned."""

from __future__ import annotations

from typing import Any

from ..base import MXNetError
from ..gluon.kinds import front_of
from ..ndarray import NDArray


def rotations(x: NDArray, axes: tuple[int, int] = (2, 3)) -> tuple[Any, Any]:
    """Return a batch of pictures turned by 0, 90, 180 and 270 degrees, and the number of quarter turns of each.

    The result has four times as many pictures: first all unturned ones, then all that are turned once, and so on.
    `axes` are the height and the width, which must be equal: (2, 3) for NCHW, (1, 2) for NHWC.
    """
    if not isinstance(x, NDArray):
        raise TypeError(f"rotations expects an array, received {type(x).__name__}")
    if sorted(axes) not in [[i, j] for j in range(1, x.ndim) for i in range(1, j)]:
        raise ValueError(f"axes must be two different axes from 1 to {x.ndim - 1}, received {axes}")
    height, width = axes
    if x.shape[height] != x.shape[width]:
        raise MXNetError(
            f"rotations needs square pictures, received the shape {x.shape} with height and width on axes {axes}. "
            "Crop or resize them first"
        )
    F = front_of(x)
    swapped = list(range(x.ndim))
    swapped[height], swapped[width] = width, height
    turned = F.transpose(x, axes=tuple(swapped))
    half = F.flip(F.flip(x, axis=height), axis=width)
    pictures = F.concat(x, F.flip(turned, axis=height), half, F.flip(turned, axis=width), dim=0)
    return pictures, F.repeat(F.arange(4, ctx=x.context), repeats=len(x))
