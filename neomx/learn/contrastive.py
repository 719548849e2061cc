"""Contrastive learning: SimCLR's loss, whose negatives are the samples of all workers."""

from __future__ import annotations

from typing import Any

import torch

from ..base import MXNetError
from ..gluon.loss import Loss
from ..ops.table import Op
from .gather import call, gathered

Tensor = torch.Tensor


def _nt_xent(first: Tensor, second: Tensor, *, temperature: float) -> Tensor:
    """Return the loss of each pair of rows, the mean over both of its rows as anchors."""
    if first.dim() != 2 or first.shape != second.shape:
        raise MXNetError(
            "NTXentLoss expects two arrays of one shape (samples, features), received "
            f"{tuple(first.shape)} and {tuple(second.shape)}"
        )
    if first.is_meta:
        return first.new_empty(len(first))
    wide = torch.promote_types(first.dtype, torch.float32)
    views = [torch.nn.functional.normalize(each.to(wide), dim=1) for each in (first, second)]
    everyone, start = gathered(torch.stack(views, 1))  # the two views of a sample are neighbors
    if len(everyone) < 2:
        raise MXNetError("NTXentLoss needs at least two samples over all workers, because other samples are negatives")
    scores = torch.stack(views, 1).flatten(0, 1) @ everyone.flatten(0, 1).T / temperature
    own = torch.arange(2 * start, 2 * start + len(scores), device=scores.device)
    scores = scores.scatter(1, own.unsqueeze(1), -torch.inf)
    losses = torch.nn.functional.cross_entropy(scores, own ^ 1, reduction="none")  # own ^ 1: the other view
    return losses.view(-1, 2).mean(1).to(first.dtype)


_NT_XENT = Op(_nt_xent, ("_learn_nt_xent",), same_dtype=True, may_alias=False, mutates=())


class NTXentLoss(Loss):
    """SimCLR's loss of two views of the same samples, arrays of shape (samples, features).

    Each view must recognize the other view of its sample among the views of all samples of all workers, by cosine
    similarity divided by `temperature`. The result has one loss per sample, the mean over its two views.

    All workers must call it equally often, and `backward` too, so pass last_batch='discard' to the DataLoader. With
    `trainer.step(samples of all workers)`, the gradients are those of one process with the whole batch.
    """

    def __init__(self, temperature: float = 0.5, weight: float | None = None, **kwargs: Any):
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, received {temperature!r}")
        super().__init__(weight, 0, **kwargs)
        self._temperature = float(temperature)

    def hybrid_forward(self, F: Any, first: Any, second: Any) -> Any:
        return self._weigh(F, call(_NT_XENT, first, second, temperature=self._temperature))
