"""Call an op of the op table on `mx.np` arrays or on symbols, so that one function definition serves both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ..ndarray.invoke import apply
from ..ops.table import OPS
from ..symbol import Symbol
from ..symbol.build import create
from .multiarray import ndarray
from .symbol import NpSymbol


class _Front(threading.local):
    symbols = False  # whether functions without array arguments return symbols


front = _Front()


@contextmanager
def making_symbols() -> Iterator[None]:
    """Make functions without array arguments (zeros, arange, random numbers) return symbols."""
    before, front.symbols = front.symbols, True
    try:
        yield
    finally:
        front.symbols = before


def symbolic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the `mx.sym.np` version of a function of `mx.np`."""

    @wraps(function)
    def on_symbols(*args: Any, **kwargs: Any) -> Any:
        with making_symbols():
            return function(*args, **kwargs)

    return on_symbols


def call(name: str, arrays: Sequence[Any] = (), out: Any = None, **attrs: Any) -> Any:
    """Call the op `name` on arrays or symbols. The op converts the attributes from the values that a program passes.

    An op without array inputs returns an array on `ctx=`, or a symbol inside `making_symbols`.
    """
    for array in arrays:
        if type(array) is not ndarray:
            return call_any(name, arrays, attrs, out)
    if not arrays and front.symbols:
        return _symbol(name, (), attrs)
    op = OPS[name]
    if attrs:
        given, attrs, unchanged = attrs, {}, op.unchanged
        try:
            for key, value in given.items():
                if value is not unchanged[key]:  # a default is neither converted nor passed on
                    attrs[key] = op.attrs[key](value)
        except (TypeError, ValueError, SyntaxError):
            op.convert(key, value)  # raises an error that names the attribute
    return apply(op, arrays, attrs, out, ndarray)


def call_converted(name: str, arrays: Sequence[Any], out: Any, attrs: dict[str, Any]) -> Any:
    """Like `call`, but faster, for attributes that already have the types that the op's function expects."""
    for array in arrays:
        if type(array) is not ndarray:
            return call_any(name, arrays, attrs, out)
    return apply(OPS[name], arrays, attrs, out, ndarray)


def reduced(name: str, array: ndarray, axis: Any, out: Any) -> Any:
    """Reduce an array over axes, the op's other attributes being defaults: faster than `call`."""
    op = OPS[name]
    if axis is None:
        return apply(op, (array,), {}, out, ndarray)
    return apply(op, (array,), {"axis": (axis,) if type(axis) is int else op.convert("axis", axis)}, out, ndarray)


def joined(name: str, arrays: Iterable[Any], axis: int | None, out: Any) -> Any:
    """Join arrays or symbols along an axis."""
    inputs = arrays if type(arrays) is list else tuple(arrays)
    for array in inputs:
        if type(array) is not ndarray:
            break
    else:
        if type(axis) is int:  # fast path for the common case; 0 is the op's default
            return apply(OPS[name], inputs, {"axis": axis} if axis else {}, out, ndarray)
    return call(name, inputs, out, axis=axis)


def call_any(name: str, args: Sequence[Any], attrs: dict[str, Any], out: Any = None) -> Any:
    """Call the op `name` with checked arguments: arrays or symbols first, then attributes by position or by name."""
    op = OPS[name]
    for arg in args:
        if isinstance(arg, Symbol):
            return _symbol(name, args, attrs)
    if op.variadic:  # otherwise, an argument that is not an array would become an attribute
        for arg in args:
            if not isinstance(arg, ndarray):
                ndarray.refuse(arg, f"{name}: an argument")
    arrays, values = op.bind(args, attrs, ndarray)
    return apply(op, arrays, values, out, ndarray)


def _symbol(name: str, args: Sequence[Any], attrs: dict[str, Any]) -> NpSymbol:
    given = {key: value for key, value in attrs.items() if key != "ctx" or value is not None}
    return create(OPS[name], hint(name), args, given, NpSymbol)


def hint(name: str) -> str:
    """Return the base of automatic node names of this op: `_npi_add` becomes add0, add1, ..."""
    for prefix in ("_npi_", "_npx_", "_np_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name.lower()
