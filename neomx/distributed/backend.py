"""Collective calls on arrays that change their argument, as those of torch.distributed do, and return it."""

from __future__ import annotations

from typing import Any

from .. import dist
from ..dist import Workers, barrier, is_initialized, new_group
from .exchange import broadcast_values, reduce_values

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "barrier",
    "broadcast",
    "destroy_process_group",
    "get_rank",
    "get_world_size",
    "init_process_group",
    "is_initialized",
    "new_group",
    "rank",
    "world_size",
]


class ReduceOp:
    """The operations of `all_reduce`, by torch's names."""

    SUM = "sum"
    AVG = "mean"
    MAX = "max"
    MIN = "min"
    PRODUCT = "prod"


def all_reduce(x: Any, op: str = ReduceOp.SUM, group: Workers | None = None) -> Any:
    """Replace `x` by its sum over all workers, or its AVG, MAX, MIN or PRODUCT, and return it.

    `x` is an array, a tensor, a list or a dictionary of them, or a model, whose gradients are reduced. For a number,
    the result is returned only.
    """
    return reduce_values(x, op, group)


def broadcast(x: Any, src: int = 0, group: Workers | None = None) -> Any:
    """Replace `x` by its values on the worker `src`, and return it. Of a model, the parameters are replaced."""
    return broadcast_values(x, src, group)


def all_gather(x: Any, group: Workers | None = None) -> list[Any]:
    """Return a list with the array `x` of every worker."""
    found: list[Any] = dist.all_gather(x, group)
    return found


def rank() -> int:
    """Return the rank of this worker, from 0."""
    return dist.rank()


def world_size() -> int:
    """Return the number of workers."""
    return dist.size()


get_rank, get_world_size = rank, world_size


def init_process_group() -> None:
    """Connect to the other workers. The launcher has set the addresses and ranks. Other calls do this implicitly."""
    dist.init()


def destroy_process_group() -> None:
    """Disconnect from the other workers once all have called this."""
    dist.shutdown()
