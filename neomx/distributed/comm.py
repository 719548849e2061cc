"""`mx.comm_init`, `mx.comm_allreduce` and others: calls at the top level of the package, over all workers."""

from __future__ import annotations

from typing import Any

from .. import dist
from .exchange import broadcast_values, reduce_values

__all__ = ["comm_allreduce", "comm_allreduce_sum", "comm_broadcast", "comm_finalize", "comm_init", "parallel_rank"]


def parallel_rank() -> int:
    """Return the rank of this worker, from 0."""
    return dist.rank()


def comm_init() -> None:
    """Connect to the other workers. Calls that need them do this implicitly."""
    dist.init()


def comm_finalize() -> None:
    """Disconnect from the other workers once all have called this. A later call connects again."""
    dist.shutdown()


def comm_allreduce(x: Any = None, op: str = "mean") -> Any:
    """Replace `x` by its mean over all workers, or another `op` of `mx.dist.all_reduce`, and return it.

    `x` is an array, a number, a list or dictionary of arrays, or a model, whose gradients are reduced. Without `x`,
    wait for all workers.
    """
    if x is None:
        dist.barrier()
        return None
    return reduce_values(x, op)


def comm_allreduce_sum(x: Any) -> Any:
    """Replace `x` by its sum over all workers, and return it."""
    return reduce_values(x, "sum")


def comm_broadcast(x: Any, root: int = 0) -> Any:
    """Replace `x` by its values on the worker `root`, and return it. Of a model, the parameters are replaced."""
    return broadcast_values(x, root)
