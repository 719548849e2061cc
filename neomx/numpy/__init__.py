"""`mx.np`: NumPy's functions on MXNet's arrays."""

from __future__ import annotations

from . import creation, linalg, products, random, reduce, statistics
from .creation import *  # noqa: F403
from .multiarray import ndarray
from .products import *  # noqa: F403
from .reduce import *  # noqa: F403
from .statistics import *  # noqa: F403

__all__ = ["linalg", "ndarray", "random", *creation.__all__, *products.__all__, *reduce.__all__, *statistics.__all__]
