"""`mx.parallel`: layouts for models that one device does not hold, or does not train fast enough."""

from .layout import Layout, Place
from .train_step import train_step

__all__ = ["Layout", "Place", "train_step"]
