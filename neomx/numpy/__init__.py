"""`mx.np`: NumPy's functions on MXNet's arrays."""

from __future__ import annotations

from . import (
    creation,
    elementwise,
    fallback,
    fallback_linalg,
    linalg,
    products,
    random,
    reduce,
    search,
    statistics,
    utils,
)
from . import shape as _shape
from .creation import *  # noqa: F403
from .elementwise import *  # noqa: F403
from .fallback import *  # noqa: F403
from .multiarray import ndarray
from .products import *  # noqa: F403
from .reduce import *  # noqa: F403
from .search import *  # noqa: F403
from .shape import *  # noqa: F403
from .statistics import *  # noqa: F403
from .utils import *  # noqa: F403

__all__ = [
    "fallback",
    "fallback_linalg",
    "linalg",
    "ndarray",
    "random",
    *creation.__all__,
    *elementwise.__all__,
    *fallback.__all__,
    *products.__all__,
    *reduce.__all__,
    *search.__all__,
    *_shape.__all__,
    *statistics.__all__,
    *utils.__all__,
]
