"""Bounding boxes as arrays of four coordinates: overlap, offsets, greedy matching and non-maximum suppression."""

from __future__ import annotations

from typing import Any, Literal

import torch

from ..base import MXNetError
from .table import op

Tensor = torch.Tensor
Format = Literal["center", "corner"]


# Coordinates are unbound and computed one by one: torch is slow on many short slices such as boxes[..., :2].


def to_corners(boxes: Tensor) -> Tensor:
    """Convert (center x, center y, width, height) to (left, top, right, bottom)."""
    x, y, wide, high = boxes.unbind(-1)
    wide, high = wide / 2, high / 2
    return torch.stack((x - wide, y - high, x + wide, y + high), -1)


def to_centres(boxes: Tensor) -> Tensor:
    """Convert (left, top, right, bottom) to (center x, center y, width, height)."""
    left, top, right, bottom = boxes.unbind(-1)
    return torch.stack(((left + right) / 2, (top + bottom) / 2, right - left, bottom - top), -1)


def overlaps(a: Tensor, b: Tensor, pixel: float = 0.0) -> Tensor:
    """Return the intersection over union, (..., n, m), of corner boxes `a` (..., n, 4) and `b` (..., m, 4).

    With `pixel` = 1, a box includes the pixels of its right and bottom edges.
    """
    left, top, right, bottom = a.unsqueeze(-2).unbind(-1)
    left2, top2, right2, bottom2 = b.unsqueeze(-3).movedim(-1, 0).contiguous()
    wide = (torch.minimum(right, right2) - torch.maximum(left, left2)).add_(pixel).clamp_(min=0)
    shared = (torch.minimum(bottom, bottom2) - torch.maximum(top, top2)).add_(pixel).clamp_(min=0).mul_(wide)
    area = (right - left + pixel) * (bottom - top + pixel)
    area2 = (right2 - left2 + pixel) * (bottom2 - top2 + pixel)
    union = (area + area2).sub_(shared)
    return shared.div_(union).masked_fill_(union <= 0, 0)


def offsets(boxes: Tensor, anchors: Tensor) -> Tensor:
    """Return the offsets of corner boxes to corner anchors: shifts relative to the anchor size, and log scales."""
    x, y, wide, high = to_centres(boxes).unbind(-1)
    x2, y2, wide2, high2 = to_centres(anchors).unbind(-1)
    return torch.stack(((x - x2) / wide2, (y - y2) / high2, torch.log(wide / wide2), torch.log(high / high2)), -1)


def apply_offsets(deltas: Tensor, anchors: Tensor) -> Tensor:
    """Return the corner boxes at offsets `deltas` to anchors given by center and size. The inverse of `offsets`."""
    x, y, wide, high = anchors.unbind(-1)
    dx, dy, log_wide, log_high = deltas.unbind(-1)
    x, y = dx * wide + x, dy * high + y
    wide, high = torch.exp(log_wide) * (wide / 2), torch.exp(log_high) * (high / 2)
    return torch.stack((x - wide, y - high, x + wide, y + high), -1)


_CHUNK = 256


def suppress(
    boxes: Tensor,
    threshold: float,
    groups: Tensor | None = None,
    *,
    limit: int | None = None,
    pixel: float = 0.0,
    inclusive: bool = False,
) -> Tensor:
    """Return which of the corner boxes (n, 4), sorted best first, remain after non-maximum suppression.

    Each box that is kept suppresses those that overlap it by more than `threshold`, or by `threshold` or more if
    `inclusive`. With `groups` (n,), a box suppresses only boxes of its own group. At most `limit` boxes remain.
    """
    kept = torch.empty(0, dtype=torch.long, device=boxes.device)

    def drops(first: Tensor, second: Tensor) -> Tensor:
        shared = overlaps(boxes[first], boxes[second], pixel)
        hit = shared >= threshold if inclusive else shared > threshold
        return hit if groups is None else hit & (groups[first, None] == groups[second])

    # Work in chunks, so that the matrix of all pairs is never in memory and `limit` saves work.
    for start in range(0, len(boxes), _CHUNK):
        if limit is not None and len(kept) >= limit:
            break
        here = torch.arange(start, min(start + _CHUNK, len(boxes)), device=boxes.device)
        if len(kept):
            here = here[~drops(kept, here).any(0)]
        hits = drops(here, here).triu_(1).float()
        # A box remains if no better remaining box suppresses it. Iterating this rule on all boxes together settles them
        # from the best to the worst, usually in a few iterations.
        remain = torch.ones_like(here, dtype=torch.bool)
        while True:
            now = remain.float() @ hits == 0
            if torch.equal(now, remain):
                break
            remain = now
        kept = torch.cat((kept, here[remain]))
    return kept if limit is None else kept[:limit]


def match(scores: Tensor, threshold: float, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """Match rows and columns of each matrix in `scores` (b, n, m) greedily: the best pair above `threshold` first.

    Return the column of each row and the row of each column, or -1 without a match. Ties go to the first row, then to
    the first column. There are at most `limit` pairs.
    """
    batch, n, m = scores.shape
    rest = torch.where(scores > threshold, scores, -torch.inf)
    columns = torch.full((batch, n), -1, dtype=torch.long, device=scores.device)
    rows = torch.full((batch, m), -1, dtype=torch.long, device=scores.device)
    if scores.is_meta:  # only the shapes are needed
        return columns, rows
    # A pair in which each is the best of the other is certain to be chosen, so all of these pairs are matched together.
    while True:
        best, column = rest.max(2)
        mutual = rest.argmax(1).gather(1, column) == torch.arange(n, device=scores.device)
        each, row = (mutual & (best > -torch.inf)).nonzero(as_tuple=True)
        if not len(each):
            break
        column = column[each, row]
        columns[each, row] = column
        rest[each, row] = -torch.inf
        rest[each, :, column] = -torch.inf
    if limit is not None and limit < min(n, m):
        score = scores.gather(2, columns.clamp(min=0).unsqueeze(2)).squeeze(2)
        order = torch.where(columns >= 0, score, -torch.inf).argsort(dim=1, descending=True, stable=True)
        columns.scatter_(1, order[:, limit:], -1)
    each, row = (columns >= 0).nonzero(as_tuple=True)
    rows[each, columns[each, row]] = row
    return columns, rows


def check_floating(*tensors: Tensor) -> None:
    """Raise unless all tensors are floating point."""
    for tensor in tensors:
        if not tensor.is_floating_point():
            raise MXNetError("expected arrays of a floating point type")


@op("_contrib_box_iou", same_dtype=True)
@torch.no_grad()
def box_iou(lhs: Tensor, rhs: Tensor, *, format: Format = "corner") -> Tensor:
    """Intersection over union of every box of lhs with every box of rhs."""
    check_floating(lhs)
    for tensor in (lhs, rhs):
        if tensor.dim() < 2 or tensor.shape[-1] != 4:
            raise MXNetError("expected boxes of shape (..., n, 4)")
    a, b = lhs.reshape(-1, 4), rhs.reshape(-1, 4)
    if format == "center":
        a, b = to_corners(a), to_corners(b)
    return overlaps(a, b).reshape(*lhs.shape[:-1], *rhs.shape[:-1])


@op("_contrib_box_encode", same_dtype=True)
@torch.no_grad()
def box_encode(
    samples: Tensor, matches: Tensor, anchors: Tensor, refs: Tensor, means: Tensor, stds: Tensor
) -> tuple[Tensor, Tensor]:
    """Training targets of anchors: the normalized offsets to their matched boxes, and a mask of positive anchors."""
    check_floating(samples)
    if anchors.dim() != 3 or refs.dim() != 3 or anchors.shape[-1] != 4 or refs.shape[-1] != 4:
        raise MXNetError("expected anchors of shape (b, n, 4) and refs of shape (b, m, 4)")
    if samples.shape != anchors.shape[:2] or matches.shape != anchors.shape[:2] or len(refs) != len(anchors):
        raise MXNetError(
            "expected samples (b, n), matches (b, n), anchors (b, n, 4) and refs (b, m, 4) with equal b and n"
        )
    if means.shape != (4,) or stds.shape != (4,):
        raise MXNetError("expected means and stds of shape (4,)")
    index = matches.long().clamp(0, refs.shape[1] - 1)
    matched = refs.gather(1, index.unsqueeze(-1).expand(-1, -1, 4))
    masks = (samples > 0.5).unsqueeze(-1).expand_as(anchors)
    targets = (offsets(matched, anchors) - means) / stds
    return torch.where(masks, targets, 0.0), masks.to(anchors.dtype)


@op("_contrib_box_decode", same_dtype=True)
@torch.no_grad()
def box_decode(
    data: Tensor,
    anchors: Tensor,
    *,
    std0: float = 1.0,
    std1: float = 1.0,
    std2: float = 1.0,
    std3: float = 1.0,
    clip: float = -1.0,
    format: Format = "center",
) -> Tensor:
    """Corner boxes from predicted offsets (b, n, 4) and anchors (1, n, 4). `clip` bounds the log of the scale."""
    check_floating(data)
    if data.dim() != 3 or data.shape[-1] != 4 or anchors.shape != (1, *data.shape[1:]):
        raise MXNetError("expected data of shape (b, n, 4) and anchors of shape (1, n, 4)")
    if format == "corner":
        anchors = to_centres(anchors)
    deltas = data * data.new_tensor((std0, std1, std2, std3))
    if clip > 0:
        deltas[..., 2:].clamp_(max=clip)
    return apply_offsets(deltas, anchors)


@op("_contrib_bipartite_matching", outputs=2)
@torch.no_grad()
def bipartite_matching(
    data: Tensor, *, is_ascend: bool = False, threshold: float, topk: int = -1
) -> tuple[Tensor, Tensor]:
    """Match rows and columns greedily by score. Returns the column of each row and the row of each column, -1 if none.

    Pairs must score above `threshold`, or below it with `is_ascend`. As in MXNet, a positive `topk` allows topk + 1.
    """
    check_floating(data)
    if data.dim() < 2:
        raise MXNetError("expected scores of shape (..., rows, columns)")
    if not data.numel():
        return data.new_full(data.shape[:-1], -1), data.new_full((*data.shape[:-2], data.shape[-1]), -1)
    scores = data.reshape(-1, *data.shape[-2:])
    if is_ascend:
        scores, threshold = -scores, -threshold
    columns, rows = match(scores, threshold, topk + 1 if topk > 0 else None)
    return (
        columns.to(data.dtype).reshape(data.shape[:-1]),
        rows.to(data.dtype).reshape(*data.shape[:-2], data.shape[-1]),
    )


class _Rows(torch.autograd.Function):
    """The results of nms. The gradient of an output row goes to the input row it was copied from, in any box format."""

    @staticmethod
    def forward(ctx: Any, data: Tensor, result: Tensor, source: Tensor) -> Tensor:
        ctx.save_for_backward(source)
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (source,) = ctx.saved_tensors
        batch, n, width = grad.shape
        room = grad.new_zeros(batch, n + 1, width)  # the last row receives the gradients of empty rows
        index = source.unsqueeze(-1).expand(-1, -1, width)
        return room.scatter_add(1, index, grad)[:, :n], None, None


@op("_contrib_box_nms", "_contrib_box_non_maximum_suppression", outputs=2, visible=1)
def box_nms(
    data: Tensor,
    *,
    overlap_thresh: float = 0.5,
    valid_thresh: float = 0.0,
    topk: int = -1,
    coord_start: int = 2,
    score_index: int = 1,
    id_index: int = -1,
    background_id: int = -1,
    force_suppress: bool = False,
    in_format: Format = "corner",
    out_format: Format = "corner",
) -> Tensor:
    """Non-maximum suppression: the remaining rows, best first, followed by rows of -1.

    Rows with a score of at most `valid_thresh`, or with class `background_id`, are dropped. With `id_index`, a box only
    suppresses boxes of its own class, unless `force_suppress`. A positive `topk` considers only that many best rows.
    """
    check_floating(data)
    _check_columns(data, coord_start, score_index, id_index)
    if topk == 0 or not data.numel() or data.is_meta:
        return data.clone()
    flat = data.detach().reshape(-1, *data.shape[-2:])
    batch, n, _ = flat.shape
    coords = slice(coord_start, coord_start + 4)
    result = torch.full_like(flat, -1)
    source = torch.full((batch, n), n, dtype=torch.long, device=data.device)
    for rows, output, origin in zip(flat, result, source, strict=True):
        scores = rows[:, score_index]
        valid = scores > valid_thresh
        if id_index >= 0:
            valid &= rows[:, id_index] != background_id
        order = valid.nonzero().squeeze(1)
        order = order[scores[order].argsort(descending=True, stable=True)]
        if topk > 0:
            order = order[:topk]
        best = rows[order]
        boxes = best[:, coords]
        groups = best[:, id_index] if id_index >= 0 and not force_suppress else None
        kept = suppress(to_corners(boxes) if in_format == "center" else boxes, overlap_thresh, groups)
        best = best[kept]
        if in_format != out_format:
            best[:, coords] = (to_corners if out_format == "corner" else to_centres)(best[:, coords])
        output[: len(kept)] = best
        origin[: len(kept)] = order[kept]
    if data.requires_grad:
        result = _Rows.apply(data.reshape(flat.shape), result, source)
    return result.reshape(data.shape)


def _check_columns(data: Tensor, coord_start: int, score_index: int, id_index: int) -> None:
    if data.dim() < 2:
        raise MXNetError("expected rows of boxes, of shape (..., n, columns)")
    width = data.shape[-1]
    if not 0 <= coord_start <= width - 4:
        raise MXNetError(f"coord_start={coord_start}: expected four coordinates within the {width} columns")
    for name, index in (("score_index", score_index), ("id_index", id_index)):
        if coord_start <= index < coord_start + 4:
            raise MXNetError(f"{name}={index} is one of the coordinates {coord_start} to {coord_start + 3}")
        if index >= width or (index < 0 and name == "score_index"):
            raise MXNetError(f"{name}={index}: expected one of the {width} columns")
