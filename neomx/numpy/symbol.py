"""The symbols of `mx.sym.np`, with NumPy's operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as onp

from ..base import numeric_types
from ..ops.table import OPS
from ..symbol import Symbol
from ..symbol.build import create
from .methods import Methods, check_astype


def _created(name: str, *inputs: Symbol, **attrs: Any) -> NpSymbol:
    return create(OPS[name], name.removeprefix("_npi_").removeprefix("_npx_"), inputs, attrs, NpSymbol)


def with_number(op_name: str, symbol: Symbol, number: Any, reflected: bool = False) -> NpSymbol:
    """Combine a symbol and a number. `is_int` keeps integer dtypes; MXNet only sets it for numbers on the right."""
    is_int = isinstance(number, int) and not reflected
    return _created(op_name, symbol, scalar=float(number), is_int=is_int)


def _operator(symbol_op: str, scalar_op: str, reflected: bool = False) -> Callable[..., Any]:
    def binary(self: NpSymbol, other: Any) -> Any:
        if isinstance(other, Symbol):
            return _created(symbol_op, self, other)
        if isinstance(other, numeric_types):
            return with_number(scalar_op, self, other, reflected)
        raise TypeError(f"expected a Symbol or a number as operand of a Symbol, received {type(other).__name__}")

    return binary


def _part(symbol: NpSymbol, items: tuple[Any, ...], in_tuple: bool) -> NpSymbol:
    """Express x[items] as in MXNet's files: a slice, and a reshape that drops the axes indexed by ints."""
    slices = [item if isinstance(item, slice) else slice(int(item), int(item) + 1 or None, 1) for item in items]
    begin, end, step = ([getattr(each, name) for each in slices] for name in ("start", "stop", "step"))
    attrs: dict[str, Any] = {"begin": begin, "end": end}
    if in_tuple or isinstance(items[0], slice):
        attrs["step"] = step
    part = create(OPS["slice"], "slice", (symbol,), attrs, NpSymbol)
    if not in_tuple and isinstance(items[0], slice):
        return part
    codes = tuple(-2 if isinstance(item, slice) else -3 for item in items)
    return _created("_npx_reshape", part, newshape=(*codes, -4))


class NpSymbol(Methods, Symbol):
    """A Symbol with the operators and methods of `mx.np`."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __getitem__(self, key: Any) -> Any:
        """Return a part of the array, selected by ints and slices, or one output of a symbol with several outputs."""
        if len(self._outputs) != 1:
            return super().__getitem__(key)
        if isinstance(key, tuple) and not key:
            return self
        items = key if isinstance(key, tuple) else (key,)
        if not all(isinstance(item, (int, onp.integer, slice)) for item in items):
            raise IndexError(f"a symbol index must be an int, a slice, or a tuple of these, received {key!r:.80}")
        return _part(self, items, in_tuple=isinstance(key, tuple))

    def as_nd_ndarray(self) -> Symbol:
        """Return this symbol as a symbol of `mx.sym`."""
        return Symbol(self._outputs)

    def as_np_ndarray(self) -> NpSymbol:
        """Return this symbol, which already belongs to `mx.sym.np`."""
        return self

    @property
    def num_outputs(self) -> int:
        """The number of outputs."""
        return len(self._outputs)

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> NpSymbol:
        """Return this symbol with elements of `dtype`."""
        check_astype(order, casting, subok)
        return create(OPS["cast"], "cast", (self,), {"dtype": dtype}, NpSymbol)

    __add__ = __radd__ = _operator("_npi_add", "_npi_add_scalar")
    __sub__ = _operator("_npi_subtract", "_npi_subtract_scalar")
    __rsub__ = _operator("_npi_subtract", "_npi_rsubtract_scalar", reflected=True)
    __mul__ = __rmul__ = _operator("_npi_multiply", "_npi_multiply_scalar")
    __truediv__ = __div__ = _operator("_npi_true_divide", "_npi_true_divide_scalar")
    __rtruediv__ = __rdiv__ = _operator("_npi_true_divide", "_npi_rtrue_divide_scalar", reflected=True)
    __mod__ = _operator("_npi_mod", "_npi_mod_scalar")
    __rmod__ = _operator("_npi_mod", "_npi_rmod_scalar", reflected=True)
    __pow__ = _operator("_npi_power", "_npi_power_scalar")
    __rpow__ = _operator("_npi_power", "_npi_rpower_scalar", reflected=True)
    __eq__ = _operator("_npi_equal", "_npi_equal_scalar")
    __ne__ = _operator("_npi_not_equal", "_npi_not_equal_scalar")
    __gt__ = _operator("_npi_greater", "_npi_greater_scalar")
    __ge__ = _operator("_npi_greater_equal", "_npi_greater_equal_scalar")
    __lt__ = _operator("_npi_less", "_npi_less_scalar")
    __le__ = _operator("_npi_less_equal", "_npi_less_equal_scalar")

    def __neg__(self) -> NpSymbol:
        return with_number("_npi_multiply_scalar", self, -1.0)

    def __abs__(self) -> NpSymbol:
        return _created("_npi_absolute", self)
