"""Whether a weight's gradient was written since an update used it: torch's own counts of writes tell."""

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
    """Changes when a backward or the program writes to the weight's gradient."""
    return stamp(raw_gradient(weight))


def stamp(gradient: torch.Tensor | None) -> Stamp:
    """The same of a gradient itself."""
    return Stamp(gradient, (0, 0) if gradient is None else (gradient._version, getattr(gradient, "_writes", 0)))
