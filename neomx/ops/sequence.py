"""Batches of sequences padded to the same length. Axis 0 (or 1) is time, the other is the batch."""

from __future__ import annotations

from typing import Any

import torch

from ..base import MXNetError
from .table import by_data, op

Tensor = torch.Tensor


@by_data
def _lengths_shape(data: tuple[int, ...], attrs: dict[str, Any]) -> list[tuple[int, ...]]:
    return [(data[1 - attrs["axis"]],)]


@op(
    "SequenceMask",
    "_npx_sequence_mask",
    may_alias=True,
    takes={"sequence_length": lambda a: a["use_sequence_length"]},
    infer=_lengths_shape,
)
def sequence_mask(
    data: Tensor,
    sequence_length: Tensor | None = None,
    *,
    use_sequence_length: bool = False,
    value: float = 0.0,
    axis: int = 0,
) -> Tensor:
    """data with `value` after the end of each sequence."""
    lengths = _lengths(data, sequence_length, use_sequence_length, axis)
    if lengths is None:
        return data
    if not data.is_floating_point():  # truncated and wrapped, as in C
        value = torch.tensor(int(value)).to(data.dtype).item()
    ended = _steps(data, axis) >= lengths
    return data.masked_fill(ended.reshape(*ended.shape, *[1] * (data.dim() - 2)), value)


@op("SequenceLast", may_alias=True, takes={"sequence_length": lambda a: a["use_sequence_length"]}, infer=_lengths_shape)
def sequence_last(
    data: Tensor, sequence_length: Tensor | None = None, *, use_sequence_length: bool = False, axis: int = 0
) -> Tensor:
    """The last step of each sequence."""
    lengths = _lengths(data, sequence_length, use_sequence_length, axis)
    if lengths is None:
        return data.select(axis, data.size(axis) - 1)
    last = (lengths.flatten() - 1).clamp(0, data.size(axis) - 1)
    each = torch.arange(len(last), device=data.device)
    return data[last, each] if axis == 0 else data[each, last]


@op(
    "SequenceReverse",
    may_alias=True,
    takes={"sequence_length": lambda a: a["use_sequence_length"]},
    infer=_lengths_shape,
)
def sequence_reverse(
    data: Tensor, sequence_length: Tensor | None = None, *, use_sequence_length: bool = False, axis: int = 0
) -> Tensor:
    """Each sequence in reverse order. Elements after its end are unchanged."""
    if axis != 0:
        raise MXNetError("axis must be 0")
    lengths = _lengths(data, sequence_length, use_sequence_length, axis)
    if lengths is None:
        return data.flip(0)
    steps = _steps(data, axis)
    source = torch.where(steps < lengths, lengths - 1 - steps, steps)
    each = torch.arange(data.shape[1], device=data.device)
    return data[source, each]


def _lengths(data: Tensor, lengths: Tensor | None, wanted: bool, axis: int) -> Tensor | None:
    """Return the lengths as integers, at most that of data, shaped to broadcast with `_steps`, or None if not used."""
    if axis not in (0, 1):
        raise MXNetError("axis must be 0 or 1")
    if data.dim() < 2:
        raise MXNetError("expected data with at least 2 dimensions, time and batch")
    if wanted != (lengths is not None):
        raise MXNetError("expected both sequence_length and use_sequence_length=True, or neither")
    if lengths is None:
        return None
    batch = data.shape[1 - axis]
    if lengths.shape != (batch,):
        raise MXNetError(f"sequence_length must have shape ({batch},), got {tuple(lengths.shape)}")
    return lengths.long().clamp_max(data.size(axis)).unsqueeze(axis)


def _steps(data: Tensor, axis: int) -> Tensor:
    """Return 0, 1, 2, ... along time, shaped to broadcast with the lengths."""
    return torch.arange(data.size(axis), device=data.device).unsqueeze(1 - axis)
