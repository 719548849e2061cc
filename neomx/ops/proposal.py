"""Region proposals of Faster R-CNN: anchors moved by predictions, filtered by nms."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..base import MXNetError
from .boxes import check_floating, suppress
from .table import Floats, op

Tensor = torch.Tensor


def _base_anchors(stride: int, ratios: tuple[float, ...], scales: tuple[float, ...]) -> list[list[float]]:
    """Return the anchors of the cell at the origin in whole pixels: each scale for each ratio (height / width)."""
    centre = (stride - 1) / 2
    anchors = []
    for ratio in ratios:
        width = math.floor(math.sqrt(stride * stride / ratio) + 0.5)
        height = math.floor(width * ratio + 0.5)
        for scale in scales:
            x, y = (width * scale - 1) / 2, (height * scale - 1) / 2
            anchors.append([centre - x, centre - y, centre + x, centre + y])
    return anchors


def _move(anchors: Tensor, deltas: Tensor, edges: bool) -> Tensor:
    """Move anchors by predicted offsets of their four edges, or of their center and the log of their size."""
    if edges:
        return anchors + deltas
    size = anchors[..., 2:] - anchors[..., :2] + 1
    centre = anchors[..., :2] + (size - 1) / 2 + deltas[..., :2] * size
    half = (torch.exp(deltas[..., 2:]) * size - 1) / 2
    return torch.cat((centre - half, centre + half), -1)


@op("_contrib_Proposal", same_dtype=True, outputs=("output", "score"), visible=lambda a: 2 if a["output_score"] else 1)
@op(
    "_contrib_MultiProposal",
    same_dtype=True,
    outputs=("output", "score"),
    visible=lambda a: 2 if a["output_score"] else 1,
)
@torch.no_grad()
def multi_proposal(
    cls_prob: Tensor,
    bbox_pred: Tensor,
    im_info: Tensor,
    *,
    rpn_pre_nms_top_n: int = 6000,
    rpn_post_nms_top_n: int = 300,
    threshold: float = 0.7,
    rpn_min_size: int = 16,
    scales: Floats = (4.0, 8.0, 16.0, 32.0),
    ratios: Floats = (0.5, 1.0, 2.0),
    feature_stride: int = 16,
    output_score: bool = False,
    iou_loss: bool = False,
) -> Any:
    """Regions of interest: rows of image, left, top, right, bottom; and their scores if `output_score`.

    `cls_prob` (b, 2 * anchors, h, w) has the scores of background, then of foreground. `im_info` (b, 3) has the height
    and width of each image and the scale by which it was resized.
    """
    check_floating(cls_prob)
    kinds = len(ratios) * len(scales)
    if cls_prob.dim() != 4 or cls_prob.shape[1] != 2 * kinds:
        raise MXNetError(f"expected cls_prob of shape (b, {2 * kinds}, h, w): two scores for each ratio and scale")
    batch, _, height, width = cls_prob.shape
    if bbox_pred.shape != (batch, 4 * kinds, height, width):
        raise MXNetError(f"expected bbox_pred of shape {(batch, 4 * kinds, height, width)}")
    if im_info.shape != (batch, 3):
        raise MXNetError(f"expected im_info of shape {(batch, 3)}: height, width and scale of each image")
    if rpn_post_nms_top_n < 1 or feature_stride < 1:
        raise MXNetError("expected rpn_post_nms_top_n and feature_stride of at least 1")

    y = torch.arange(height, dtype=cls_prob.dtype, device=cls_prob.device).mul_(feature_stride).view(-1, 1, 1)
    x = torch.arange(width, dtype=cls_prob.dtype, device=cls_prob.device).mul_(feature_stride).view(1, -1, 1)
    shift = torch.stack(torch.broadcast_tensors(x, y, x, y), -1)
    anchors = shift + cls_prob.new_tensor(_base_anchors(feature_stride, ratios, scales))
    deltas = bbox_pred.reshape(batch, kinds, 4, height, width).permute(0, 3, 4, 1, 2)
    boxes = _move(anchors, deltas, iou_loss)
    scores = cls_prob[:, kinds:].permute(0, 2, 3, 1).clone(memory_format=torch.contiguous_format)
    if scores.is_meta:  # only the shapes are needed
        count = batch * rpn_post_nms_top_n
        return (scores.new_empty(count, 5), scores.new_empty(count, 1)) if output_score else scores.new_empty(count, 5)
    rois, found = [], []
    for image, (box, score, (rows, columns, scale)) in enumerate(zip(boxes, scores, im_info.tolist(), strict=True)):
        inside_y, inside_x = int(rows / feature_stride), int(columns / feature_stride)
        if inside_y > height or inside_x > width:
            raise MXNetError(
                f"image {image} is {rows:g} x {columns:g}, too large for a feature map of {height} x {width} cells "
                f"with feature_stride={feature_stride}"
            )
        limits = box.new_tensor((columns - 1, rows - 1, columns - 1, rows - 1))
        box = box.clamp_(min=0).minimum(limits)
        score[inside_y:] = -1
        score[:, inside_x:] = -1
        box, score = box.reshape(-1, 4), score.reshape(-1)
        smallest = rpn_min_size * scale
        small = (box[:, 2:] - box[:, :2] + 1 < smallest).any(1)
        # A box that is too small is enlarged, so that nms gets no empty boxes, and sorted to the end.
        grow = box.new_tensor((-smallest / 2, -smallest / 2, smallest / 2, smallest / 2))
        box = torch.where(small.unsqueeze(1), box + grow, box)
        score = torch.where(small, -1.0, score)

        order = score.argsort(descending=True, stable=True)
        if rpn_pre_nms_top_n > 0:
            order = order[:rpn_pre_nms_top_n]
        kept = order[suppress(box[order], threshold, limit=rpn_post_nms_top_n, pixel=1.0)]
        kept = kept[torch.arange(rpn_post_nms_top_n, device=kept.device) % len(kept)]  # repeat if there are too few
        rois.append(torch.nn.functional.pad(box[kept], (1, 0), value=image))
        found.append(score[kept].unsqueeze(1))
    return (torch.cat(rois), torch.cat(found)) if output_score else torch.cat(rois)
