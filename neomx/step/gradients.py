"""Detect whether a gradient was written since the last update used it, from torch's version counters."""

from __future__ import annotations

import torch

from ..comm.buckets import Stamp
from ..ndarray import NDArray
from ..ndarray.freshness import is_fresh as is_fresh
from ..ndarray.freshness import leaf_of as leaf_of
from ..ndarray.freshness import mark_fresh as mark_fresh
from ..ndarray.freshness import mark_used as mark_used
from ..ndarray.freshness import raw_gradient


def stamp_of(weight: NDArray) -> Stamp:
    """A value that changes when backward or the program writes to the weight's gradient."""
    return stamp(raw_gradient(weight))


def stamp(gradient: torch.Tensor | None) -> Stamp:
    """The same value for a gradient tensor."""
    return Stamp(gradient, (0, 0) if gradient is None else (gradient._version, getattr(gradient, "_writes", 0)))
