"""Symbols with NumPy's operators, as `mx.sym.np` has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import numeric_types
from ..ops.table import OPS
from ..symbol import Symbol
from ..symbol.build import create


def _created(name: str, *inputs: Symbol, **attrs: Any) -> NpSymbol:
    return create(OPS[name], name.removeprefix("_npi_"), inputs, attrs, NpSymbol)


def _operator(symbol_op: str, scalar_op: str) -> Callable[..., Any]:
    def binary(self: NpSymbol, other: Any) -> Any:
        if isinstance(other, Symbol):
            return _created(symbol_op, self, other)
        if isinstance(other, numeric_types):
            return _created(scalar_op, self, scalar=other)
        raise TypeError(f"a Symbol cannot be combined with {type(other).__name__}. Expected a Symbol or a number")

    return binary


class NpSymbol(Symbol):
    """A Symbol whose operators and methods are those of `mx.np`."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def as_nd_ndarray(self) -> Symbol:
        """This computation as a symbol of `mx.sym`."""
        return Symbol(self._outputs)

    def as_np_ndarray(self) -> NpSymbol:
        """This symbol, which belongs to `mx.sym.np` already."""
        return self

    __add__ = __radd__ = _operator("_npi_add", "_npi_add_scalar")
    __sub__ = _operator("_npi_subtract", "_npi_subtract_scalar")
    __mul__ = __rmul__ = _operator("_npi_multiply", "_npi_multiply_scalar")
    __rsub__ = _operator("_npi_subtract", "_npi_rsubtract_scalar")
    __truediv__ = __div__ = _operator("_npi_true_divide", "_npi_true_divide_scalar")
    __rtruediv__ = __rdiv__ = _operator("_npi_true_divide", "_npi_rtrue_divide_scalar")
    __pow__ = _operator("_npi_power", "_npi_power_scalar")
    __rpow__ = _operator("_npi_power", "_npi_rpower_scalar")
