"""Gaussian blur."""

from __future__ import annotations

from functools import lru_cache

import torch

from .....ndarray import NDArray
from .....ops.image_resize import _border_index
from .....ops.random import rng
from ....block import Block
from .pixels import Range, apply, ordered, rounded

Tensor = torch.Tensor

__all__ = ["GaussianBlur"]


class GaussianBlur(Block):
    """Blurs the image with a Gaussian whose standard deviation in pixels is drawn from `sigma`, a number or a range."""

    def __init__(self, sigma: float | Range = (0.1, 2.0)):
        super().__init__()
        self._sigma = ordered("sigma", sigma, 0)

    def forward(self, x: NDArray) -> NDArray:
        """Return the blurred `x`."""
        return apply(lambda data: self._blurred(data, rng().uniform(*self._sigma)), x)

    def _blurred(self, data: Tensor, sigma: float) -> Tensor:
        work = data.to(torch.promote_types(data.dtype, torch.float32)).movedim(-1, 0)
        return rounded(blurred(work, sigma).movedim(0, -1), data).contiguous()


def blurred(planes: Tensor, sigma: float) -> Tensor:
    """Return planes (n, h, w) blurred by a Gaussian of standard deviation `sigma`.

    The image is reflected at its border. Products with a matrix for each side are faster than convolutions of small
    images, and allow Gaussians that are wider than the image.
    """
    rows, columns = (_weights(length, sigma).to(planes) for length in planes.shape[-2:])
    return rows @ planes @ columns.T


@lru_cache(maxsize=4)
def _weights(length: int, sigma: float) -> Tensor:
    """Return the weight of each old pixel in each new one, as (new, old)."""
    if sigma < 0.05:  # neighbors have weight 0 in float32
        return torch.eye(length)
    radius = int(4 * sigma + 0.5)
    kernel = torch.exp(-0.5 * (torch.arange(-radius, radius + 1, dtype=torch.float64) / sigma) ** 2)
    new, tap = _taps(length, radius)
    weights = torch.zeros(length, length, dtype=torch.float64)
    return weights.index_put_((new, tap), (kernel / kernel.sum()).repeat(length), accumulate=True)


@lru_cache(maxsize=16)
def _taps(length: int, radius: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the new pixel and of the old pixel for each weight of a kernel."""
    source = _border_index(radius, length, radius, 2, torch.device("cpu"))
    new = torch.arange(length)
    return new.repeat_interleave(2 * radius + 1), source[new[:, None] + torch.arange(2 * radius + 1)].flatten()
