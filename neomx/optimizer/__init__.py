"""`mx.optimizer`: algorithms that update weights from their gradients."""

from . import contrib, optimizer
from .optimizer import *  # noqa: F403
from .optimizer import __all__ as _names

__all__ = [*_names, "contrib", "optimizer"]
