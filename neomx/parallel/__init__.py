"""`mx.parallel`: layouts for models that one device does not hold, or does not train fast enough."""

from .apply import apply
from .layout import Layout, Place

__all__ = ["Layout", "Place", "apply"]
