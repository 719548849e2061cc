"""`mx.np`: NumPy's functions on MXNet's arrays."""

from __future__ import annotations

from . import creation, elementwise, search
from . import shape as _shape
from .creation import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .multiarray import ndarray
from .search import *  # noqa: F403
from .shape import *  # noqa: F403

__all__ = ["ndarray", *creation.__all__, *elementwise.__all__, *search.__all__, *_shape.__all__]
