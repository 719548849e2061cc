"""`mx.np`: NumPy's functions on MXNet's arrays."""

from __future__ import annotations

from . import creation, elementwise
from .creation import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .multiarray import ndarray

__all__ = ["ndarray", *creation.__all__, *elementwise.__all__]
