"""Pooling over regions of interest.

Each op defines the pixels and weights that contribute to an output cell. The feature map becomes a table with a row
for each pixel, and a cell becomes a bag of rows. torch's embedding_bag computes the sum or maximum for all cells in one
call. The feature map has a gradient (as do the offsets of deformable pooling), but the regions do not.
"""

from __future__ import annotations

import math

import torch
from torch.nn.functional import embedding_bag

from ..base import MXNetError
from .table import Shape, op

Tensor = torch.Tensor


def _check(data: Tensor, rois: Tensor, columns: int = 5) -> None:
    if data.dim() != 4 or not data.is_floating_point():
        raise MXNetError("expected a feature map of floats, of shape (n, c, h, w)")
    if rois.dim() != 2 or rois.shape[1] != columns:
        raise MXNetError(f"expected regions of shape (r, {columns}), each starting with the index of its image")


def _pair(pooled_size: tuple[int, ...]) -> tuple[int, int]:
    if len(pooled_size) != 2 or min(pooled_size) < 1:
        raise MXNetError(f"pooled_size={pooled_size}: expected two positive sizes")
    return pooled_size[0], pooled_size[1]


def _coordinates(rois: Tensor) -> tuple[Tensor, Tensor]:
    """Return the image index of each region, and its other values in a precision suitable for coordinates."""
    rois = rois.detach()
    return rois[:, 0].long(), rois[:, 1:].to(torch.promote_types(rois.dtype, torch.float32))


def _inside(image: Tensor, count: int) -> Tensor:
    """Return whether a region's image index is valid. Other regions pool nothing and return 0."""
    return (image >= 0) & (image < count)


def _round(x: Tensor) -> Tensor:
    """Round to the nearest integer, halves away from zero."""
    return torch.trunc(x + torch.copysign(x.new_tensor(0.5), x))


def _table(data: Tensor, classes: int = 1, bins: int = 1) -> Tensor:
    """Return a row for each (image, class, bin, y, x). The channels are ordered (class, channel of the class, bin)."""
    n, channels, height, width = data.shape
    parts = data.reshape(n, classes, channels // classes // bins, bins, height, width)
    return parts.permute(0, 1, 3, 4, 5, 2).reshape(-1, channels // classes // bins)


def _grid(top: Tensor, bottom: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return all (y, x) with top <= y < bottom and left <= x < right, for each region, row and column of cells.

    The edges broadcast to (regions, rows, columns). Return the number of points in each cell, and for each point the
    index of its cell, y and x.
    """
    edges = torch.broadcast_tensors(top, bottom, left, right)
    top, bottom, left, right = (edge.flatten() for edge in edges)
    wide = (right - left).clamp_(min=0)
    size = (bottom - top).clamp_(min=0) * wide
    cell = torch.repeat_interleave(size, output_size=0 if size.is_meta else None)  # meta: only shapes are inferred
    place = torch.arange(len(cell), device=size.device) - (size.cumsum(0) - size)[cell]
    wide = wide[cell]
    return size, cell, top[cell] + place // wide, left[cell] + place % wide


def _edges(cells: int, step: Tensor, start: Tensor, corner: Tensor, length: int) -> tuple[Tensor, Tensor]:
    """Return the first pixel of each cell along a side of each region, and the pixel after it: (regions, cells)."""
    cell = torch.arange(cells, device=step.device)
    step, start, corner = step[:, None], start[:, None], corner[:, None]
    first, last = torch.floor(cell * step + start) + corner, torch.ceil((cell + 1) * step + start) + corner
    return first.clamp_(0, length).long(), last.clamp_(0, length).long()


def _bilinear(y: Tensor, x: Tensor, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return the four pixels around each point, and their weights: two arrays of (points, 4)."""
    y, x = y.clamp(0, height - 1), x.clamp(0, width - 1)
    y0, x0, y1, x1 = (edge.detach().nan_to_num() for edge in (y.floor(), x.floor(), y.ceil(), x.ceil()))
    down, across = y - y0, x - x0
    pixels = torch.stack((y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1), 1).long()
    weights = torch.stack(((1 - down) * (1 - across), (1 - down) * across, down * (1 - across), down * across), 1)
    return pixels, weights


def _sum(table: Tensor, rows: Tensor, weights: Tensor, sizes: Tensor) -> Tensor:
    """Return weighted sums of rows. Bag i consists of the next `sizes[i]` rows."""
    weights = weights.to(table.dtype)
    return embedding_bag(rows, table, sizes.cumsum(0) - sizes, mode="sum", per_sample_weights=weights)


@op("ROIPooling", "_npx_roi_pooling", same_dtype=True, outputs=("output", "maxidx"), visible=1)
def roi_pooling(data: Tensor, rois: Tensor, *, pooled_size: Shape, spatial_scale: float) -> Tensor:
    """The maximum in each cell of a grid over each region (image, left, top, right, bottom), in whole pixels."""
    _check(data, rois)
    rows, columns = _pair(pooled_size)
    n, channels, height, width = data.shape
    image, corners = _coordinates(rois)
    corners = _round(corners * spatial_scale)
    low, size = corners[:, :2], (corners[:, 2:] - corners[:, :2] + 1).clamp_(min=1)

    zero = torch.zeros_like(image)
    top, bottom = _edges(rows, size[:, 1] / rows, zero, low[:, 1], height)
    left, right = _edges(columns, size[:, 0] / columns, zero, low[:, 0], width)
    bottom = torch.where(_inside(image, n)[:, None], bottom, top)
    sizes, cell, y, x = _grid(top[:, :, None], bottom[:, :, None], left[:, None], right[:, None])
    pixels = (image[cell // (rows * columns)] * height + y) * width + x
    table = _table(data)
    result, _, _, best = torch.embedding_bag(table.detach(), pixels, sizes.cumsum(0) - sizes, mode=2)  # mode 2: maximum
    if table.requires_grad:  # the gradient of gather is faster, and differentiable
        result = table.gather(0, best.clamp(min=0)) * (sizes > 0).unsqueeze(1)
    return result.reshape(len(rois), rows, columns, channels).permute(0, 3, 1, 2).contiguous()


def _sample(
    data: Tensor,
    image: Tensor,
    size: Tensor,
    cells: tuple[int, int],
    ratio: int,
    place: Tensor,
    turn: Tensor | None,
    bins: int,
) -> Tensor:
    """Return the mean of bilinear samples in each cell of each region.

    A region of `size` (width, height) starts at `place` or, if rotated by the angle `turn`, is centered at `place`.
    """
    rows, columns = cells
    n, channels, height, width = data.shape
    step_x, step_y = size[:, 0] / columns, size[:, 1] / rows
    if ratio > 0:
        count_x = count_y = torch.full_like(image, ratio)
    else:
        count_x, count_y = step_x.ceil().long(), step_y.ceil().long()
    every = rows * columns
    zero = torch.zeros((1, rows, columns), dtype=torch.long, device=data.device)
    bottom = count_y * _inside(image, n)
    counts, cell, j, i = _grid(zero, bottom[:, None, None], zero, count_x[:, None, None])
    region = cell // every
    row, column = cell // columns % rows, cell % columns
    y = row * step_y[region] + (j + 0.5) * step_y[region] / count_y[region]
    x = column * step_x[region] + (i + 0.5) * step_x[region] / count_x[region]
    if turn is not None:
        y, x = y - size[region, 1] / 2, x - size[region, 0] / 2
        cos, sin = torch.cos(turn)[region], torch.sin(turn)[region]
        y, x = y * cos - x * sin, x * cos + y * sin
    y, x = y + place[region, 1], x + place[region, 0]
    near = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    pixels, weights = _bilinear(y, x, height, width)
    weights = weights * (near / counts[cell]).unsqueeze(1)
    block = image[region] * bins + (cell % every if bins > 1 else 0)
    pixels = pixels + (block * height * width).unsqueeze(1)
    result = _sum(_table(data, bins=bins), pixels.flatten(), weights.flatten(), counts * 4)
    return result.reshape(len(image), rows, columns, channels // bins).permute(0, 3, 1, 2).contiguous()


@op("_contrib_ROIAlign", same_dtype=True)
def roi_align(
    data: Tensor,
    rois: Tensor,
    *,
    pooled_size: Shape,
    spatial_scale: float,
    sample_ratio: int = -1,
    position_sensitive: bool = False,
    aligned: bool = False,
) -> Tensor:
    """The mean of bilinear samples in each cell of a grid over each region (image, left, top, right, bottom).

    A cell has `sample_ratio` squared samples, or by default about one for each pixel. `aligned` assumes pixel centers
    at half coordinates. With `position_sensitive`, each cell reads its own channels.
    """
    _check(data, rois)
    cells = _pair(pooled_size)
    bins = cells[0] * cells[1] if position_sensitive else 1
    if data.shape[1] % bins:
        raise MXNetError(f"position_sensitive: expected the number of channels to be a multiple of the {bins} cells")
    image, corners = _coordinates(rois)
    corners = corners * spatial_scale - (0.5 if aligned else 0.0)
    size = corners[:, 2:] - corners[:, :2]
    if not aligned:
        size = size.clamp(min=1)
    elif not size.is_meta and (size <= 0).any():
        raise MXNetError("aligned: expected regions with right > left and bottom > top")
    return _sample(data, image, size, cells, sample_ratio, corners[:, :2], None, bins)


@op("_contrib_RROIAlign", same_dtype=True)
def rotated_roi_align(
    data: Tensor, rois: Tensor, *, pooled_size: Shape, spatial_scale: float, sampling_ratio: int = -1
) -> Tensor:
    """ROIAlign of rotated regions (image, center x, center y, width, height, degrees)."""
    _check(data, rois, columns=6)
    image, numbers = _coordinates(rois)
    place, size = numbers[:, :2] * spatial_scale, (numbers[:, 2:4] * spatial_scale).clamp(min=1)
    return _sample(data, image, size, _pair(pooled_size), sampling_ratio, place, numbers[:, 4] * (math.pi / 180), 1)


def _check_groups(data: Tensor, output_dim: int, group_size: int, pooled_size: int) -> None:
    if output_dim < 1 or group_size < 1 or pooled_size < 1:
        raise MXNetError("expected output_dim, group_size and pooled_size of at least 1")
    if data.shape[1] != output_dim * group_size * group_size:
        raise MXNetError(f"expected {output_dim * group_size * group_size} channels: output_dim * group_size ** 2")


def _bins(group_size: int, pooled_size: int, device: torch.device) -> Tensor:
    """Return which of the group_size ** 2 channel groups each cell reads: (pooled_size, pooled_size)."""
    group = torch.arange(pooled_size, device=device) * group_size // pooled_size
    return group[:, None] * group_size + group


@op("_contrib_PSROIPooling", same_dtype=True)
def position_sensitive_roi_pooling(
    data: Tensor, rois: Tensor, *, spatial_scale: float, output_dim: int, pooled_size: int, group_size: int = 0
) -> Tensor:
    """The mean of the pixels in each cell of a grid over each region, where each cell reads its own channels.

    The region is divided into group_size x group_size parts with output_dim channels each.
    """
    _check(data, rois)
    group_size = group_size or pooled_size
    _check_groups(data, output_dim, group_size, pooled_size)
    n, _, height, width = data.shape
    image, corners = _coordinates(rois)
    low, high = _round(corners[:, :2]) * spatial_scale, (_round(corners[:, 2:]) + 1) * spatial_scale
    size = (high - low).clamp(min=0.1)
    step, zero = size / pooled_size, torch.zeros_like(image)
    top, bottom = _edges(pooled_size, step[:, 1], low[:, 1], zero, height)
    left, right = _edges(pooled_size, step[:, 0], low[:, 0], zero, width)
    bottom = torch.where(_inside(image, n)[:, None], bottom, top)
    sizes, cell, y, x = _grid(top[:, :, None], bottom[:, :, None], left[:, None], right[:, None])
    bins = _bins(group_size, pooled_size, data.device).flatten()
    block = image[cell // len(bins)] * group_size**2 + bins[cell % len(bins)]
    pixels = (block * height + y) * width + x
    result = _sum(_table(data, bins=group_size**2), pixels, 1 / sizes[cell], sizes)
    return result.reshape(len(rois), pooled_size, pooled_size, output_dim).permute(0, 3, 1, 2).contiguous()


@op(
    "_contrib_DeformablePSROIPooling",
    same_dtype=True,
    takes={"trans": lambda a: not a["no_trans"]},
    outputs=("output", "top_count"),
    visible=1,
)
def deformable_position_sensitive_roi_pooling(
    data: Tensor,
    rois: Tensor,
    trans: Tensor | None = None,
    *,
    spatial_scale: float,
    output_dim: int,
    group_size: int,
    pooled_size: int,
    part_size: int = 0,
    sample_per_part: int = 1,
    trans_std: float = 0.0,
    no_trans: bool = False,
) -> Tensor:
    """The mean of bilinear samples in each cell of a grid over each region, with the cells moved by offsets `trans`.

    `trans` (r, 2 * classes, part_size, part_size) contains the x, then y offsets of each class. They are multiplied by
    `trans_std` and the size of the region. The output channels are divided among the classes.
    """
    _check(data, rois)
    _check_groups(data, output_dim, group_size, pooled_size)
    part_size = part_size or pooled_size
    if no_trans:
        trans = None
    elif trans is None:
        raise MXNetError("expected trans; pass no_trans=True to omit it")
    elif trans.dim() != 4 or trans.shape[1] < 2 or trans.shape != (len(rois), trans.shape[1], part_size, part_size):
        raise MXNetError(f"expected trans of shape ({len(rois)}, 2 * classes, {part_size}, {part_size})")
    classes = 1 if trans is None else trans.shape[1] // 2
    if output_dim % classes:
        raise MXNetError(f"expected output_dim to be a multiple of the {classes} classes of trans")
    if sample_per_part < 1:
        raise MXNetError("expected sample_per_part of at least 1")
    n, _, height, width = data.shape
    image, corners = _coordinates(rois)
    low = _round(corners[:, :2]) * spatial_scale - 0.5
    size = ((_round(corners[:, 2:]) + 1) * spatial_scale - 0.5 - low).clamp(min=0.1)
    step = size / pooled_size

    # Points are indexed by (region, class, row, column, sample y, sample x).
    cell, sample = (torch.arange(count, device=data.device) for count in (pooled_size, sample_per_part))

    def starts(axis: int) -> Tensor:
        start = cell * step[:, axis, None] + low[:, axis, None]
        start = start[:, None, :, None] if axis else start[:, None, None, :]
        if trans is None:
            return start
        part = cell * part_size // pooled_size
        shift = trans.unflatten(1, (classes, 2))[:, :, axis][:, :, part[:, None], part]
        return start + shift.to(start.dtype) * trans_std * size[:, axis, None, None, None]

    def points(axis: int) -> Tensor:
        inner = sample * (step[:, axis, None] / sample_per_part)
        inner = inner[:, None, None, None, :, None] if axis else inner[:, None, None, None, None, :]
        point = starts(axis)[..., None, None] + inner
        return point.expand(len(rois), classes, pooled_size, pooled_size, sample_per_part, sample_per_part)

    y, x = points(1), points(0)
    near = (y >= -0.5) & (y <= height - 0.5) & (x >= -0.5) & (x <= width - 0.5)
    near &= _inside(image, n).view(-1, 1, 1, 1, 1, 1)
    share = near / near.sum((4, 5), keepdim=True).clamp(min=1)
    pixels, weights = _bilinear(y.flatten(), x.flatten(), height, width)
    weights = weights * share.flatten().unsqueeze(1)
    block = (
        image.clamp(0, n - 1)[:, None, None, None] * classes + torch.arange(classes, device=data.device)[:, None, None]
    )
    block = block * group_size**2 + _bins(group_size, pooled_size, data.device)
    pixels = pixels.reshape(*block.shape, sample_per_part**2 * 4) + (block * height * width).unsqueeze(-1)
    sizes = torch.full_like(block.flatten(), pixels.shape[-1])
    result = _sum(_table(data, classes, group_size**2), pixels.flatten(), weights.flatten(), sizes)
    result = result.reshape(len(rois), classes, pooled_size, pooled_size, output_dim // classes)
    return result.permute(0, 1, 4, 2, 3).reshape(len(rois), output_dim, pooled_size, pooled_size)
