"""SSD: anchor boxes, their training targets, and detections from predictions."""

from __future__ import annotations

import math

import torch

from ..base import MXNetError
from .boxes import apply_offsets, check_floating, match, offsets, overlaps, suppress, to_centres
from .table import Floats, op

Tensor = torch.Tensor


@op("_contrib_MultiBoxPrior", "_npx_multibox_prior")
@torch.no_grad()
def multibox_prior(
    data: Tensor,
    *,
    sizes: Floats = (1.0,),
    ratios: Floats = (1.0,),
    clip: bool = False,
    steps: Floats = (-1.0, -1.0),
    offsets: Floats = (0.5, 0.5),
) -> Tensor:
    """Anchor boxes of each cell of a feature map (n, c, h, w): all sizes with the first ratio, then the other ratios.

    Coordinates are fractions of the image; widths account for the map's aspect ratio. `steps` and `offsets` are (y, x).
    """
    check_floating(data)
    if data.dim() < 4:
        raise MXNetError("expected a feature map of shape (n, c, h, w)")
    if not sizes or not ratios or len(steps) != 2 or len(offsets) != 2:
        raise MXNetError("expected at least one size and one ratio, and two steps and offsets (y, x)")
    if steps[0] * steps[1] < 0:
        raise MXNetError(f"steps={steps}: expected both to be positive or both negative")
    height, width = data.shape[2:4]
    step_y, step_x = steps if steps[0] > 0 else (1 / height, 1 / width)
    root = math.sqrt(ratios[0])
    shapes = [(size * height / width * root, size / root) for size in sizes]
    shapes += [(sizes[0] * height / width * math.sqrt(r), sizes[0] / math.sqrt(r)) for r in ratios[1:]]
    half = data.new_tensor(shapes) / 2
    y = (torch.arange(height, dtype=data.dtype, device=data.device) + offsets[0]) * step_y
    x = (torch.arange(width, dtype=data.dtype, device=data.device) + offsets[1]) * step_x
    centre = torch.stack((x.expand(height, -1), y.unsqueeze(1).expand(-1, width)), -1).unsqueeze(2)
    boxes = torch.cat((centre - half, centre + half), -1).reshape(1, -1, 4)
    return boxes.clamp_(0, 1) if clip else boxes


@op(
    "_contrib_MultiBoxTarget", "_npx_multibox_target", same_dtype=True, outputs=("loc_target", "loc_mask", "cls_target")
)
@torch.no_grad()
def multibox_target(
    anchor: Tensor,
    label: Tensor,
    cls_pred: Tensor,
    *,
    overlap_threshold: float = 0.5,
    ignore_label: float = -1.0,
    negative_mining_ratio: float = -1.0,
    negative_mining_thresh: float = 0.5,
    minimum_negative_samples: int = 0,
    variances: Floats = (0.1, 0.1, 0.2, 0.2),
) -> tuple[Tensor, Tensor, Tensor]:
    """Training targets of anchors (1, a, 4): box offsets (b, a * 4), their mask, and classes (b, a), 0 for background.

    Labels (b, n, 5 or more) are rows of class, left, top, right, bottom, padded with rows of -1. Each labeled box is
    matched to its best anchor, and each other anchor to a box that it overlaps by more than `overlap_threshold`. With a
    positive `negative_mining_ratio`, only this many times the number of positive anchors become background: those with
    the lowest background probability among anchors that overlap no box by `negative_mining_thresh`. The others are
    ignored. `minimum_negative_samples` is ignored, as in MXNet on a CPU.
    """
    _check_target(anchor, label, cls_pred, variances)
    ended = (label[:, :, 0] == -1).cumsum(1)
    labelled = ended == 0
    if not label.is_meta and (label[:, :, 1:5][(ended == 1) & (label[:, :, 0] == -1)] != -1).any():
        raise MXNetError("expected all coordinates to be -1 in a label row that starts with -1")
    count = anchor.shape[1]
    shared = torch.where(labelled.unsqueeze(1), overlaps(anchor, label[:, :, 1:5]), -1.0)
    best, best_box = shared.max(2)
    box, _ = match(shared, 1e-6)
    if overlap_threshold > 0:
        box = torch.where((box < 0) & (best > overlap_threshold), best_box, box)
    positive = box >= 0

    box = box.clamp(min=0)
    rows = label.gather(1, box.unsqueeze(-1).expand(-1, -1, label.shape[2]))
    classes = torch.where(positive, rows[:, :, 0] + 1, 0.0)
    if negative_mining_ratio > 0:
        wanted = (positive.sum(1) * negative_mining_ratio).long().clamp(max=count - positive.sum(1))
        candidate = ~positive & (best < negative_mining_thresh)
        found = candidate.sum(1)
        if not found.is_meta and (found < wanted).any():
            raise MXNetError(
                f"negative mining needs {wanted.tolist()} background anchors, but only {found.tolist()} overlap no box "
                f"by negative_mining_thresh={negative_mining_thresh}. Raise the threshold or lower the ratio"
            )
        doubt = torch.where(candidate, cls_pred.softmax(1)[:, 0], torch.inf)
        rank = doubt.argsort(dim=1, stable=True).argsort(1)
        classes = torch.where(positive | (rank < wanted.unsqueeze(1)), classes, ignore_label)
    classes = torch.where(labelled.any(1, keepdim=True), classes, ignore_label)
    targets = offsets(rows[:, :, 1:5], anchor) / anchor.new_tensor(variances)
    mask = positive.unsqueeze(-1).expand_as(targets)
    return torch.where(mask, targets, 0.0).flatten(1), mask.to(anchor.dtype).flatten(1), classes


def _check_target(anchor: Tensor, label: Tensor, cls_pred: Tensor, variances: tuple[float, ...]) -> None:
    check_floating(anchor)
    if anchor.dim() != 3 or anchor.shape[0] != 1 or anchor.shape[2] != 4:
        raise MXNetError("expected anchors of shape (1, a, 4), shared by the batch")
    if label.dim() != 3 or label.shape[1] < 1 or label.shape[2] < 5:
        raise MXNetError("expected labels of shape (b, n, 5 or more)")
    if cls_pred.dim() != 3 or cls_pred.shape[0] != label.shape[0] or cls_pred.shape[2] != anchor.shape[1]:
        raise MXNetError("expected class predictions of shape (b, classes + 1, a)")
    if len(variances) != 4:
        raise MXNetError(f"variances={variances}: expected four values")


@op("_contrib_MultiBoxDetection", "_npx_multibox_detection", same_dtype=True)
@torch.no_grad()
def multibox_detection(
    cls_prob: Tensor,
    loc_pred: Tensor,
    anchor: Tensor,
    *,
    clip: bool = True,
    threshold: float = 0.01,
    background_id: int = 0,
    nms_threshold: float = 0.5,
    force_suppress: bool = False,
    variances: Floats = (0.1, 0.1, 0.2, 0.2),
    nms_topk: int = -1,
) -> Tensor:
    """Rows of class, score, left, top, right, bottom for each anchor, best first. Class -1 means no detection.

    Class 0 of `cls_prob` (b, classes + 1, a) is the background, regardless of `background_id`, as in MXNet. A detection
    that nms suppresses keeps its row with class -1. An `nms_threshold` outside (0, 1] disables nms and sorting. Rows
    beyond `nms_topk` are left as they were before sorting, with class -1.
    """
    check_floating(cls_prob)
    if cls_prob.dim() != 3 or anchor.shape != (1, cls_prob.shape[2], 4):
        raise MXNetError("expected class probabilities of shape (b, classes + 1, a) and anchors of shape (1, a, 4)")
    if loc_pred.shape != (cls_prob.shape[0], cls_prob.shape[2] * 4):
        raise MXNetError("expected box predictions of shape (b, a * 4)")
    if len(variances) != 4:
        raise MXNetError(f"variances={variances}: expected four values")
    batch, classes, count = cls_prob.shape
    result = cls_prob.new_full((batch, count, 6), -1)
    if classes < 2 or result.is_meta:
        return result
    score, label = cls_prob[:, 1:].max(1)
    deltas = loc_pred.reshape(batch, count, 4) * loc_pred.new_tensor(variances)
    boxes = apply_offsets(deltas, to_centres(anchor))
    if clip:
        boxes = boxes.clamp_(0, 1)
    rows = torch.cat((label.to(boxes.dtype).unsqueeze(-1), score.unsqueeze(-1), boxes), -1)
    for output, every, valid in zip(result, rows, score >= threshold, strict=True):
        found = every[valid]
        output[: len(found)] = found
        if not 0 < nms_threshold <= 1 or not len(found):
            continue
        top = nms_topk if 0 < nms_topk < len(found) else len(found)
        best = found[found[:, 1].argsort(descending=True, stable=True)[:top]]
        kept = suppress(best[:, 2:], nms_threshold, None if force_suppress else best[:, 0], inclusive=True)
        ids = torch.full_like(best[:, 0], -1)
        ids[kept] = best[kept, 0]
        output[:top] = best
        output[: len(found), 0] = -1
        output[:top, 0] = ids
    return result
