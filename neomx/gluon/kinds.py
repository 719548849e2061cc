"""Which kind of arrays a program works with: those of `mx.nd`, or those of `mx.np` after `npx.set_np()`.

Layers are written once. Their `F` has the functions of `mx.nd` or `mx.sym`; on `mx.np` arrays these return `mx.np`
arrays, and `F.np` and `F.npx` are there too.
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
    """The class of arrays to be made now."""
    return ndarray if modes.np_array else NDArray


def make_array(data: Any, ctx: Context) -> NDArray:
    """An array of Python data or of a numpy array, whose dtype `mx.np` keeps and `mx.nd` does not."""
    return np_array(data, ctx=ctx) if modes.np_array else nd.array(data, ctx)


def of_kind(array: NDArray) -> NDArray:
    """`array` as one of the class to be made now; memory is shared."""
    return array.as_np_ndarray() if modes.np_array else array


def front_of(x: Any) -> Any:
    """`F` for a `hybrid_forward` of this array."""
    return fronts.ARRAYS if isinstance(x, ndarray) else nd


def symbol_front_of(x: Any) -> Any:
    """`F` for a `hybrid_forward` of this symbol."""
    return fronts.SYMBOLS if isinstance(x, NpSymbol) else symbol


def is_np(F: Any) -> bool:
    """Whether `F` gives arrays or symbols of `mx.np`."""
    return isinstance(F, fronts.Front)


def is_eager(F: Any) -> bool:
    """Whether `F` computes with arrays, which have values and shapes, not with symbols."""
    return F.__name__ == nd.__name__
