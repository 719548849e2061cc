"""`mx.parallel`: layouts for models that one device does not hold, or does not train fast enough."""

from .layout import Layout, Place
from .tasks import tasks

__all__ = ["Layout", "Place", "tasks"]
