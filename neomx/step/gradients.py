"""Whether a weight's gradient was written since an update used it: torch's own counts of writes tell."""

from __future__ import annotations

import torch

from ..comm.buckets import Stamp
from ..ndarray import NDArray


def leaf_of(weight: NDArray) -> torch.Tensor:
    """The tensor beside which torch keeps a weight's gradient: not its own, if it is a part of that tensor."""
    return getattr(weight, "_leaf", weight._data)


def _raw_gradient(weight: NDArray) -> torch.Tensor | None:
    """The memory of a weight's gradient, None before there is one; of a gradient that workers share, this one's."""
    gradient = leaf_of(weight).grad
    return getattr(gradient, "_local_tensor", gradient)


def is_fresh(weight: NDArray) -> bool:
    """Whether a backward has written the weight's gradient since the last update used it."""
    gradient = _raw_gradient(weight)
    return gradient is not None and getattr(gradient, "_used", None) != gradient._version


def mark_used(weight: NDArray) -> None:
    """Say that an update has used the weight's gradient."""
    gradient = _raw_gradient(weight)
    if gradient is not None:
        gradient._used = gradient._version  # type: ignore[attr-defined]


def mark_fresh(weight: NDArray) -> None:
    """Say that the weight's gradient is new, though no backward of this process has written it."""
    gradient = _raw_gradient(weight)
    if gradient is not None:
        gradient._used = None  # type: ignore[attr-defined]


def stamp_of(weight: NDArray) -> Stamp:
    """Changes when a backward or the program writes to the weight's gradient."""
    return stamp(_raw_gradient(weight))


def stamp(gradient: torch.Tensor | None) -> Stamp:
    """The same of a gradient itself."""
    return Stamp(gradient, (0, 0) if gradient is None else (gradient._version, getattr(gradient, "_writes", 0)))
