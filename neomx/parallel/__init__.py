"""`mx.parallel`: layouts for models that one device does not hold, or does not train fast enough."""

from .layout import Layout, Place
from .vocabulary import cross_entropy

__all__ = ["Layout", "Place", "cross_entropy"]
