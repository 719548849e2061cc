"""`mx.nd.contrib`: the `_contrib_...` ops of the op table, and functions composed of ops."""

from __future__ import annotations

import math

import torch

from ..context import Context
from ..ops.random import generator
from .contrib_optim import (  # noqa: F401
    adamw_update,
    mp_adamw_update,
    multi_adamw_update,
    multi_lamb_update,
    multi_mp_adamw_update,
    multi_mp_lamb_update,
)
from .control_flow import cond, foreach, while_loop  # noqa: F401
from .ndarray import NDArray


def isnan(data: NDArray) -> NDArray:
    """Return 1 for elements that are NaN, otherwise 0."""
    return data != data


def isinf(data: NDArray) -> NDArray:
    """Return 1 for elements that are infinite, otherwise 0."""
    return data.abs() == math.inf


def isfinite(data: NDArray) -> NDArray:
    """Return 1 for elements that are neither infinite nor NaN, otherwise 0."""
    return data - data == 0


def rand_zipfian(
    true_classes: NDArray, num_sampled: int, range_max: int, ctx: Context | None = None
) -> tuple[NDArray, NDArray, NDArray]:
    """Draw classes from a log-uniform (Zipfian) distribution: P(c) = (log(c + 2) - log(c + 1)) / log(range_max + 1).

    Returns the drawn classes, the expected count of each true class, and the expected count of each drawn class.
    """
    ctx = ctx or true_classes.context
    width = math.log(range_max + 1)
    uniform = torch.rand(num_sampled, dtype=torch.float64, device=ctx.device, generator=generator(ctx))
    sampled = torch.exp(uniform * width).long().sub_(1).clamp_(max=range_max - 1)

    def expected(classes: torch.Tensor) -> NDArray:
        classes = classes.to(ctx.device, torch.float64)
        return NDArray(torch.log((classes + 2) / (classes + 1)) / width * num_sampled, ctx)

    return NDArray(sampled, ctx), expected(true_classes._data), expected(sampled)
