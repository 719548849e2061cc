"""A vocabulary split over workers: each has some rows of the embedding, and the scores of those classes."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from ..base import MXNetError
from ..ops.cross_entropy import LOSSES_OF, cross_entropy_of_classes
from .crossing import Crossing

Tensor = torch.Tensor


def first_row(size: int, mesh: DeviceMesh) -> int:
    """Return this worker's first row of `size` rows: torch gives all workers but the last the same number."""
    return min(size, -(-size // mesh.size()) * mesh.get_local_rank())


def look_up(weight: DTensor, indices: Tensor, crossing: Crossing, padding: int | None = None) -> Tensor:
    """Look up rows of a sharded weight: each worker contributes the rows that it has, and these are summed.

    The gradient stays sharded: no worker allocates one of the whole weight.
    """
    start, local = first_row(weight.shape[0], weight.device_mesh), weight.to_local()
    at = indices - start
    elsewhere = (at < 0) | (at >= local.shape[0])
    here = None if padding is None or not 0 <= padding - start < local.shape[0] else padding - start
    rows = F.embedding(at.masked_fill(elsewhere, 0), local, here)
    return crossing.sum(rows.masked_fill(elsewhere.unsqueeze(-1), 0))


class _CrossEntropy(torch.autograd.Function):
    """Cross-entropy of scores sharded by columns; workers exchange one or two values per label."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, label: Tensor, start: int, group: dist.ProcessGroup) -> Tensor:
        exact = scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores
        most = exact.amax(1)
        dist.all_reduce(most, dist.ReduceOp.MAX, group)
        shifted = exact - most.unsqueeze(1)
        at = (label - start).unsqueeze(1)
        elsewhere = (at < 0) | (at >= scores.shape[1])
        at = at.masked_fill_(elsewhere, 0)
        chosen = shifted.gather(1, at).masked_fill_(elsewhere, 0).squeeze(1)
        power = shifted.exp_()
        sums = torch.stack([power.sum(1), chosen])
        dist.all_reduce(sums, group=group)
        ctx.save_for_backward(power.div_(sums[0].unsqueeze(1)), at, elsewhere)
        ctx.dtype = scores.dtype
        return (sums[0].log() - sums[1]).to(scores.dtype)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        probability, at, elsewhere = ctx.saved_tensors
        grad = grad.to(probability.dtype).unsqueeze(1)
        result = probability * grad
        return result.scatter_add_(1, at, (-grad).masked_fill(elsewhere, 0)).to(ctx.dtype), None, None, None


def sharded_losses(scores: Tensor, label: Tensor) -> Tensor:
    """Return the cross-entropy of each label, flattened; scores may be a DTensor sharded along the last axis."""
    assert isinstance(scores, DTensor)
    if all(placement.is_replicate() for placement in scores.placements):
        return cross_entropy_of_classes(scores.to_local(), label)
    if scores.placements != (Shard(scores.dim() - 1),):
        raise MXNetError(
            f"the loss needs scores that are sharded along the last axis, the classes; these are {scores.placements}"
        )
    mesh, classes = scores.device_mesh, scores.shape[-1]
    if tuple(label.shape) not in (tuple(scores.shape[:-1]), (*scores.shape[:-1], 1)):
        raise MXNetError(f"labels must have shape {tuple(scores.shape[:-1])}, got {tuple(label.shape)}")
    label = label.detach().reshape(-1).long().clamp(0, classes - 1)  # MXNet clips labels to the valid range
    local = scores.to_local().flatten(0, -2)
    start, group = first_row(classes, mesh), mesh.get_group()
    losses: Tensor = _CrossEntropy.apply(local, label, start, group)  # type: ignore[no-untyped-call]
    return losses


LOSSES_OF[DTensor] = sharded_losses


def cross_entropy(logits: Tensor, target: Tensor, reduction: str = "mean", ignore_index: int = -100) -> Tensor:
    """Compute torch's `cross_entropy` with class indices; the classes are on the last axis, which may be sharded.

    The scores are not gathered: workers exchange three values per target.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction must be 'mean', 'sum' or 'none', received {reduction!r}")
    if tuple(target.shape) != tuple(logits.shape[:-1]):
        raise ValueError(f"target must have shape {tuple(logits.shape[:-1])}, received {tuple(target.shape)}")
    _check_classes(target, logits.shape[-1], ignore_index)
    if not isinstance(logits, DTensor):
        logits = logits.flatten(0, -2)
        losses = F.cross_entropy(logits, target.reshape(-1), ignore_index=ignore_index, reduction="none")
    else:
        losses = sharded_losses(logits, target).masked_fill(target.reshape(-1) == ignore_index, 0)
    if reduction == "none":
        return losses.view(target.shape)
    return losses.sum() if reduction == "sum" else losses.sum() / (target != ignore_index).sum()


def _check_classes(target: Tensor, classes: int, ignore_index: int) -> None:
    wrong = (target != ignore_index) & ((target < 0) | (target >= classes))
    if wrong.any():
        raise IndexError(f"target {int(target[wrong][0])} is out of bounds: there are {classes} classes")
