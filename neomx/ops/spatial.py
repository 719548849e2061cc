"""Image sampling at arbitrary positions: grids, bilinear samplers, spatial transformers."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F

from ..base import MXNetError
from .table import Shape, op

Tensor = torch.Tensor


def bilinear(data: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Interpolate `data` (N, C, H, W) at pixel positions y and x (N, ...). Returns (N, C, ...), 0 outside the image.

    F.grid_sample takes positions scaled to [-1, 1]. Rounding in that scaling could move a position on a pixel to the
    other side of the pixel, where the gradient of the position is different.
    """
    height, width = data.shape[-2:]
    flat = data.flatten(2)
    top, left = y.detach().floor(), x.detach().floor()
    result: Tensor | None = None
    for row, row_weight in ((top, top + 1 - y), (top + 1, y - top)):
        for column, column_weight in ((left, left + 1 - x), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            index = (row * width + column).where(inside, 0).long().flatten(1).unsqueeze(1)
            values = flat.gather(2, index.expand(-1, data.shape[1], -1)).view(*data.shape[:2], *y.shape[1:])
            part = values * (row_weight * column_weight * inside).unsqueeze(1)
            result = part if result is None else result + part
    assert result is not None
    return result


def _affine_grid(theta: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the source position of each pixel of an image of `shape`: (N, (x, y), H, W), each from -1 to 1."""
    if len(shape) != 2 or min(shape) < 1:
        raise MXNetError(f"expected a positive target_shape (height, width), got {shape}")
    if theta.dim() != 2 or theta.shape[1] != 6:
        raise MXNetError("expected affine parameters of shape (batch, 6)")
    y, x = (_span(n, theta) for n in shape)
    y, x = torch.broadcast_tensors(y.unsqueeze(1), x)
    points = torch.stack((x, y, torch.ones_like(x))).flatten(1)
    return (theta.view(-1, 2, 3) @ points).view(-1, 2, *shape)


def _span(length: int, like: Tensor) -> Tensor:
    """Return `length` values from -1 to 1."""
    steps = torch.arange(length, dtype=like.dtype, device=like.device)
    return steps * (2 / (length - 1) if length > 1 else 0) - 1


@op("GridGenerator", outputs=("output", "grid_dst"), visible=1)
def grid_generator(data: Tensor, *, transform_type: Literal["affine", "warp"], target_shape: Shape = (0, 0)) -> Tensor:
    """A sampling grid for BilinearSampler from affine parameters (N, 6), or from a flow (N, 2, H, W) in pixels."""
    if transform_type == "affine":
        return _affine_grid(data, target_shape)
    if data.dim() != 4 or data.shape[1] != 2:
        raise MXNetError("expected a flow of shape (batch, 2, height, width)")
    height, width = data.shape[2:]
    y = torch.arange(height, dtype=data.dtype, device=data.device).unsqueeze(1)
    x = torch.arange(width, dtype=data.dtype, device=data.device)
    return torch.stack(((data[:, 0] + x) / ((width - 1) / 2) - 1, (data[:, 1] + y) / ((height - 1) / 2) - 1), 1)


def _sample(data: Tensor, grid: Tensor) -> Tensor:
    if data.dim() != 4 or grid.dim() != 4 or grid.shape[0] != data.shape[0] or grid.shape[1] != 2:
        raise MXNetError("expected data (batch, channel, height, width) and grid (batch, 2, height, width)")
    return F.grid_sample(data, grid.permute(0, 2, 3, 1), "bilinear", "zeros", align_corners=True)


@op("BilinearSampler", same_dtype=True, outputs=("output", "tmp"), visible=1)
def bilinear_sampler(data: Tensor, grid: Tensor, *, cudnn_off: bool | None = None) -> Tensor:
    """Data at the positions in `grid` (N, (x, y), H, W), where -1 to 1 spans the image. It is 0 outside."""
    return _sample(data, grid)


@op("SpatialTransformer", same_dtype=True, outputs=("output", "grid_dst", "grid_src"), visible=1)
def spatial_transformer(
    data: Tensor,
    loc: Tensor,
    *,
    target_shape: Shape = (0, 0),
    transform_type: Literal["affine"],
    sampler_type: Literal["bilinear"],
    cudnn_off: bool | None = None,
) -> Tensor:
    """Data under the affine transformations `loc` (N, 6), sampled with size `target_shape`."""
    return _sample(data, _affine_grid(loc, target_shape))
