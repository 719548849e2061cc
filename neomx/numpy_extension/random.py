"""`mx.npx.random`: random functions that NumPy does not have."""

from __future__ import annotations

from typing import Any

from ..context import Context
from ..numpy.random import at_least_0, draw
from ..random import seed as _seed

__all__ = ["bernoulli", "normal_n", "seed", "uniform_n"]


def seed(seed: int, ctx: Any = "all") -> None:
    """Seed the random number generator of a context, or of all contexts."""
    _seed(seed, ctx)


def bernoulli(
    prob: Any = None,
    logit: Any = None,
    size: Any = None,
    dtype: Any = None,
    ctx: Context | None = None,
    out: Any = None,
) -> Any:
    """Draw 1 with a probability, given as `prob` or as `logit`, and 0 otherwise."""
    if (prob is None) == (logit is None):
        raise ValueError(f"expected either prob or logit, received prob={prob!r:.80} and logit={logit!r:.80}")
    if prob is not None:
        at_least_0("prob", prob)
        at_least_0("1 - prob", 1 - prob)
    parameter = {"prob": prob} if logit is None else {"logit": logit}
    other = {"logit": None} if logit is None else {"prob": None}
    dtype = dtype or "float32"
    return draw("_npi_bernoulli", parameter, size, ctx, out, dtype=dtype, is_logit=logit is not None, **other)


def normal_n(
    loc: Any = 0.0, scale: Any = 1.0, batch_shape: Any = None, dtype: Any = None, ctx: Context | None = None
) -> Any:
    """Draw `batch_shape` normal samples for each parameter. loc and scale have gradients."""
    at_least_0("scale", scale)
    return draw("_npi_normal_n", {"loc": loc, "scale": scale}, batch_shape, ctx, dtype=dtype or "float32")


def uniform_n(
    low: Any = 0.0, high: Any = 1.0, batch_shape: Any = None, dtype: Any = None, ctx: Context | None = None
) -> Any:
    """Draw `batch_shape` uniform samples for each parameter. As in MXNet, they have no gradient."""
    return draw("_npi_uniform_n", {"low": low, "high": high}, batch_shape, ctx, dtype=dtype or "float32")
