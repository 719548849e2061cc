"""`mx.parallel`: layouts for models that do not fit on one device or train too slowly on it, and data parallelism.

`launch` starts workers, `data_parallel` makes a model train on all of them, and `datashard` divides the data.
"""

from ..dist import local_rank, rank, size
from . import datashard
from .apply import apply
from .checkpointing import checkpoint_blocks
from .clip import clip_global_norm
from .data_parallel import data_parallel
from .dimensions import Dimension, register_dimension
from .estimate import Estimate, Footprint, estimate
from .groups import allreduce, broadcast, finalize_group, get_group, get_group_rank, init_group
from .launching import launch, num_devices, set_num_devices
from .layout import Layout
from .module import load_state_dict, optimizer, state_dict
from .tasks import tasks
from .train_step import train_step
from .vocabulary import cross_entropy

__all__ = [
    "Dimension",
    "Estimate",
    "Footprint",
    "Layout",
    "allreduce",
    "apply",
    "broadcast",
    "checkpoint_blocks",
    "clip_global_norm",
    "cross_entropy",
    "data_parallel",
    "datashard",
    "estimate",
    "finalize_group",
    "get_group",
    "get_group_rank",
    "init_group",
    "launch",
    "load_state_dict",
    "local_rank",
    "num_devices",
    "optimizer",
    "rank",
    "register_dimension",
    "set_num_devices",
    "size",
    "state_dict",
    "tasks",
    "train_step",
]
