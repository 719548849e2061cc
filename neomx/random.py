"""`mx.random`: seeding, and the distributions of `mx.nd.random`."""

from __future__ import annotations

import operator

from .context import Context
from .ndarray.random import (
    exponential,
    gamma,
    generalized_negative_binomial,
    multinomial,
    negative_binomial,
    normal,
    poisson,
    randint,
    randn,
    shuffle,
    uniform,
)
from .ops import random as _random
from .ops.random import rng

__all__ = [
    "exponential",
    "gamma",
    "generalized_negative_binomial",
    "multinomial",
    "negative_binomial",
    "normal",
    "poisson",
    "randint",
    "randn",
    "rng",
    "seed",
    "shuffle",
    "uniform",
]


def seed(seed_state: int, ctx: Context | str = "all") -> None:
    """Seed the generator of one context, or of all. Equal seeds give equal values, which differ from MXNet's."""
    try:
        value = operator.index(seed_state)
    except TypeError:
        raise ValueError(f"seed_state must be an int, received {seed_state!r}") from None
    _random.seed(value, None if ctx == "all" else Context(ctx))
