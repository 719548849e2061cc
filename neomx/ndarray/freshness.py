"""Track whether a variable's gradient was written since an update used it, using torch's version counters."""

from __future__ import annotations

from typing import Any

import torch


def leaf_of(weight: Any) -> torch.Tensor:
    """Return the leaf tensor that holds a weight's gradient. The weight may be a view of that tensor."""
    return getattr(weight, "_leaf", weight._data)


def raw_gradient(weight: Any) -> torch.Tensor | None:
    """Return the memory of a weight's gradient (the local shard if it is sharded), or None if there is none."""
    gradient = leaf_of(weight).grad
    return getattr(gradient, "_local_tensor", gradient)


def is_fresh(weight: Any) -> bool:
    """Whether a backward pass has written the weight's gradient since the last update used it."""
    return is_fresh_gradient(raw_gradient(weight))


def is_fresh_gradient(gradient: torch.Tensor | None) -> bool:
    """Whether a gradient exists and was written since the last update used it."""
    return gradient is not None and getattr(gradient, "_used", None) != gradient._version


def mark_used(weight: Any) -> None:
    """Mark the weight's gradient as used by an update."""
    gradient = raw_gradient(weight)
    if gradient is not None:
        gradient._used = gradient._version  # type: ignore[attr-defined]


def mark_fresh(weight: Any) -> None:
    """Mark the weight's gradient as new, although no backward pass of this process has written it."""
    gradient = raw_gradient(weight)
    if gradient is not None:
        gradient._used = None  # type: ignore[attr-defined]
