"""`mx.random`: seeding, and the distributions of `mx.nd.random`."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

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
    "RandomState",
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
    _random.seed(_integer(seed_state), None if ctx == "all" else Context(ctx))


def _integer(seed: Any) -> int:
    try:
        return operator.index(seed)
    except TypeError:
        raise ValueError(f"the seed must be an int, received {seed!r}") from None


def _from_own_state(draw: Callable[..., Any]) -> Callable[..., Any]:
    """Return `draw` as a method that draws from the state of its object."""

    @functools.wraps(draw)
    def method(self: RandomState, *args: Any, **kwargs: Any) -> Any:
        with _random.drawing_from(self._source):
            return draw(*args, **kwargs)

    me = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    given = inspect.signature(draw)
    method.__signature__ = given.replace(parameters=[me, *given.parameters.values()])  # type: ignore[attr-defined]
    return method


class RandomState:
    """The distributions of `mx.random` with a state of their own. MXNet does not have it.

    Equal seeds give equal numbers, whatever else draws random numbers, and `mx.random.seed` does not change them.
    Without a seed, it starts from one that `mx.random` draws.
    """

    def __init__(self, seed: int | None = None) -> None:
        self.seed(_random.new_seed() if seed is None else seed)

    def seed(self, seed: int) -> None:
        """Start again from a seed."""
        value = _integer(seed)
        self._source = _random.SampleRandom((abs(value), int(value < 0)))

    uniform = _from_own_state(uniform)
    normal = _from_own_state(normal)
    randn = _from_own_state(randn)
    randint = _from_own_state(randint)
    exponential = _from_own_state(exponential)
    gamma = _from_own_state(gamma)
    poisson = _from_own_state(poisson)
    negative_binomial = _from_own_state(negative_binomial)
    generalized_negative_binomial = _from_own_state(generalized_negative_binomial)
    multinomial = _from_own_state(multinomial)
    shuffle = _from_own_state(shuffle)
