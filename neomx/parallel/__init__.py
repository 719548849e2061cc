"""`mx.parallel`: layouts for models that do not fit on one device or train too slowly on it."""

from .apply import apply
from .checkpointing import checkpoint_blocks
from .clip import clip_global_norm
from .dimensions import Dimension, register_dimension
from .estimate import Estimate, Footprint, estimate
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
    "apply",
    "checkpoint_blocks",
    "clip_global_norm",
    "cross_entropy",
    "estimate",
    "load_state_dict",
    "optimizer",
    "register_dimension",
    "state_dict",
    "tasks",
    "train_step",
]
