"""The kind of arrays that a program uses: `mx.nd`, or `mx.np` after `npx.set_np()`.

Each layer is written once. Its `F` has the functions of `mx.nd` or `mx.sym`. Called with `mx.np` arrays, they return
`mx.np` arrays, and `F.np` and `F.npx` are available as well.
"""

from __future__ import annotations

from typing import Any

from .. import ndarray as nd
from .. import symbol
from ..base import modes
from ..context import Context
from ..ndarray import NDArray
from ..numpy.creation import array as np_array
from ..numpy.multiarray import ndarray
from ..numpy.symbol import NpSymbol
from ..numpy_extension import fronts

__all__ = ["array_type", "front_of", "is_eager", "is_np", "make_array", "of_kind", "symbol_front_of"]


def array_type() -> type[NDArray]:
    """The class of newly created arrays in the current mode."""
    return ndarray if modes.np_array else NDArray


def make_array(data: Any, ctx: Context) -> NDArray:
    """Create an array from Python data or a numpy array. `mx.np` keeps the dtype of a numpy array, `mx.nd` does not."""
    return np_array(data, ctx=ctx) if modes.np_array else nd.array(data, ctx)


def of_kind(array: NDArray) -> NDArray:
    """Return `array` as an instance of the current array class. Memory is shared."""
    return array.as_np_ndarray() if modes.np_array else array


def front_of(x: Any) -> Any:
    """The `F` that `hybrid_forward` receives for this array."""
    return fronts.ARRAYS if isinstance(x, ndarray) else nd


def symbol_front_of(x: Any) -> Any:
    """The `F` that `hybrid_forward` receives for this symbol."""
    return fronts.SYMBOLS if isinstance(x, NpSymbol) else symbol


def is_np(F: Any) -> bool:
    """Whether `F` returns arrays or symbols of `mx.np`."""
    return isinstance(F, fronts.Front)


def is_eager(F: Any) -> bool:
    """Whether `F` computes with arrays, which have values and shapes, rather than with symbols."""
    return F.__name__ == nd.__name__
