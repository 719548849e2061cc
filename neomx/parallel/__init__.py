"""`mx.parallel`: layouts for models that one device does not hold, or does not train fast enough."""

from .apply import apply
from .clip import clip_global_norm
from .layout import Layout, Place
from .module import load_state_dict, optimizer, state_dict
from .train_step import train_step
from .vocabulary import cross_entropy

__all__ = [
    "Layout",
    "Place",
    "apply",
    "clip_global_norm",
    "cross_entropy",
    "load_state_dict",
    "optimizer",
    "state_dict",
    "train_step",
]
