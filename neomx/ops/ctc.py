"""Connectionist temporal classification (CTC) loss, for labels without alignment."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F

from ..base import MXNetError
from .table import op, typed

Tensor = torch.Tensor


@op(
    "CTCLoss",
    "ctc_loss",
    "_contrib_CTCLoss",
    "_contrib_ctc_loss",
    takes={"data_lengths": lambda a: a["use_data_lengths"], "label_lengths": lambda a: a["use_label_lengths"]},
    outputs=2,
    visible=1,
    types=typed([0]),
)
def ctc_loss(
    data: Tensor,
    label: Tensor,
    data_lengths: Tensor | None = None,
    label_lengths: Tensor | None = None,
    *,
    use_data_lengths: bool = False,
    use_label_lengths: bool = False,
    blank_label: Literal["first", "last"] = "first",
) -> Tensor:
    """CTC loss of each sequence, from data of (time, batch, classes) before softmax and label of (batch, labels).

    The blank is class 0 ('first', labels padded with 0) or the last class ('last', labels padded with -1).
    `label_lengths` overrides where labels end. A label that is too long for the time steps has a loss of 0.
    """
    if use_label_lengths and not use_data_lengths and label_lengths is None:
        data_lengths, label_lengths = None, data_lengths  # a single array of lengths given by position is label_lengths
    for name, lengths, used in (
        ("data_lengths", data_lengths, use_data_lengths),
        ("label_lengths", label_lengths, use_label_lengths),
    ):
        if (lengths is not None) is not used:
            raise MXNetError(f"{name} must be given if and only if use_{name}=True")
    if data.dim() != 3 or label.dim() != 2 or data.shape[1] != label.shape[0]:
        raise MXNetError("expected data of (time, batch, classes) and label of (batch, labels)")
    time, batch, classes = data.shape
    if label.shape[1] > time:
        raise MXNetError(f"expected at most {time} labels, the number of time steps")
    targets = label.detach().long()
    if label_lengths is None:
        end = 0 if blank_label == "first" else -1
        label_lengths = (targets != end).cumprod(1).sum(1)
    data_lengths = _lengths("data_lengths", data_lengths, batch, time, data.device)
    label_lengths = _lengths("label_lengths", label_lengths, batch, label.shape[1], data.device)
    inside = torch.arange(label.shape[1], device=data.device) < label_lengths.unsqueeze(1)
    targets = targets.masked_fill(~inside, 0)
    if not targets.is_meta and bool(((targets < 0) | (targets >= classes)).any()):
        raise MXNetError(f"expected labels between 0 and {classes - 1}")
    # torch's kernel supports float32 and float64.
    scores = data if data.dtype is torch.float64 else data.float()
    loss = F.ctc_loss(
        F.log_softmax(scores, 2),
        targets,
        data_lengths,
        label_lengths,
        blank=0 if blank_label == "first" else classes - 1,
        reduction="none",
        zero_infinity=True,
    )
    return loss.to(data.dtype)


def _lengths(name: str, lengths: Tensor | None, batch: int, longest: int, device: torch.device) -> Tensor:
    if lengths is None:
        return torch.full((batch,), longest, device=device)
    lengths = lengths.detach().long()
    if tuple(lengths.shape) != (batch,):
        raise MXNetError(f"{name} must have shape ({batch},)")
    if not lengths.is_meta and bool(((lengths < 0) | (lengths > longest)).any()):
        raise MXNetError(f"{name} must be between 0 and {longest}")
    return lengths
