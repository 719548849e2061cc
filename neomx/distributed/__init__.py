"""`mx.distributed`: the collective calls of `mx.dist` under the names of torch.distributed."""

from . import backend
from .backend import (
    ReduceOp,
    all_gather,
    all_reduce,
    barrier,
    broadcast,
    destroy_process_group,
    get_rank,
    get_world_size,
    init_process_group,
    is_initialized,
    new_group,
    rank,
    world_size,
)

__all__ = [
    "ReduceOp",
    "all_gather",
    "all_reduce",
    "backend",
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
