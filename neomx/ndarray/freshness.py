"""Whether a variable's gradient was written since an update used it: torch's own counts of writes tell."""

from __future__ import annotations

from typing import Any

import torch


def leaf_of(weight: Any) -> torch.Tensor:
    """The tensor beside which torch keeps a weight's gradient: not its own, if it is a part of that tensor."""
    return getattr(weight, "_leaf", weight._data)


def raw_gradient(weight: Any) -> torch.Tensor | None:
    """The memory of a weight's gradient, None before there is one; of a gradient that workers share, this one's."""
    gradient = leaf_of(weight).grad
    return getattr(gradient, "_local_tensor", gradient)


def is_fresh(weight: Any) -> bool:
    """Whether a backward has written the weight's gradient since the last update used it."""
    gradient = raw_gradient(weight)
    return gradient is not None and getattr(gradient, "_used", None) != gradient._version


def mark_used(weight: Any) -> None:
    """Say that an update has used the weight's gradient."""
    gradient = raw_gradient(weight)
    if gradient is not None:
        gradient._used = gradient._version  # type: ignore[attr-defined]


def mark_fresh(weight: Any) -> None:
    """Say that the weight's gradient is new, though no backward of this process has written it."""
    gradient = raw_gradient(weight)
    if gradient is not None:
        gradient._used = None  # type: ignore[attr-defined]
