"""The `F` of `hybrid_forward` in NumPy mode, and the namespaces `np` and `npx` of `mx.nd` and `mx.sym`.

A layer is written once for `mx.nd` and `mx.np`. In NumPy mode, its `F` has the functions of `mx.nd` or `mx.sym`, which
then return `mx.np` arrays or symbols, in addition to `F.np` and `F.npx`.
"""

from __future__ import annotations

import inspect
from types import ModuleType
from typing import Any

from .. import ndarray as nd
from .. import numpy, numpy_extension
from .. import symbol as sym
from ..ndarray import NDArray
from ..ndarray.invoke import make_function
from ..ndarray.kinds import on_np
from ..numpy.call import symbolic
from ..numpy.multiarray import ndarray
from ..numpy.symbol import NpSymbol
from ..ops.table import OPS
from ..symbol.build import make_function as make_symbol_function

_ARRAYS = {"np": numpy, "numpy": numpy, "npx": numpy_extension, "numpy_extension": numpy_extension}
_PREFIXES = {"contrib": "_contrib_", "linalg": "_linalg_", "image": "_image_"}


class AnyArray(NDArray):
    """Accepts arrays of `mx.nd` and of `mx.np`, because parameters may be older than `npx.set_np()`."""

    @classmethod
    def accepts(cls, value: Any) -> bool:
        """Whether `value` is an array."""
        return isinstance(value, NDArray)


class Front(ModuleType):
    """The functions of a module of `mx.nd` or `mx.sym`, returning arrays or symbols of `mx.np`. Created on demand."""

    def __init__(self, module: ModuleType, prefix: str = ""):
        super().__init__(module.__name__)
        self._module, self._prefix = module, prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        value = self._made(name)
        setattr(self, name, value)
        return value

    def _made(self, name: str) -> Any:
        value = getattr(self._module, name)
        if name in _ARRAYS:
            return value
        if isinstance(value, ModuleType):
            return Front(value, _PREFIXES.get(name, "")) if value.__name__.startswith("neomx.") else value
        row = OPS.get(self._prefix + name)
        if row is not None and value.__module__ in (make_function.__module__, make_symbol_function.__module__):
            if self._module.__name__.startswith(nd.__name__):
                return make_function(row, name, ndarray, AnyArray)
            return make_symbol_function(row, name, NpSymbol)
        return on_np(value) if inspect.isfunction(value) else value


def _symbolic_namespace(module: ModuleType) -> ModuleType:
    """Return a namespace of `mx.np` or `mx.npx` whose functions return symbols."""
    made = ModuleType(module.__name__.replace("neomx.", "neomx.symbol."), module.__doc__)
    for name, value in vars(module).items():
        if inspect.isfunction(value):
            setattr(made, name, symbolic(value))
        elif isinstance(value, ModuleType) and name in ("random", "linalg", "image"):
            setattr(made, name, _symbolic_namespace(value))
    vars(made)["_Symbol"] = NpSymbol
    return made


_SYMBOLS: dict[ModuleType, ModuleType] = {}


def of_arrays(name: str) -> ModuleType:
    """Return `mx.nd.np` or `mx.nd.npx`."""
    return _ARRAYS[name]


def of_symbols(name: str) -> ModuleType:
    """Return `mx.sym.np` or `mx.sym.npx`."""
    module = _ARRAYS[name]
    if module not in _SYMBOLS:
        _SYMBOLS[module] = _symbolic_namespace(module)
    return _SYMBOLS[module]


ARRAYS = Front(nd)  # F on mx.np arrays
SYMBOLS = Front(sym)  # F on symbols of mx.sym.np
