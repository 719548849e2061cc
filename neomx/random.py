"""`mx.random`."""

from __future__ import annotations

from .context import Context
from .ops import random as _random


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Seed the random numbers of one context, or of all. MXNet's numbers differ; repeating a seed repeats ours."""
    _random.seed(int(seed_state), None if ctx == "all" else ctx)  # type: ignore[arg-type]
