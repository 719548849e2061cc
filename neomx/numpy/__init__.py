"""`mx.np`: NumPy's functions on MXNet's arrays."""

from __future__ import annotations

from . import creation, elementwise, fallback, fallback_linalg, utils
from .creation import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .fallback import *  # noqa: F403
from .multiarray import ndarray
from .utils import *  # noqa: F403

__all__ = [
    "fallback",
    "fallback_linalg",
    "ndarray",
    *creation.__all__,
    *elementwise.__all__,
    *fallback.__all__,
    *utils.__all__,
]
