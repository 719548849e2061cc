"""Calls an op of the table on `mx.np` arrays or on symbols, so that one definition of a function serves both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
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
    symbols = False  # whether functions without array arguments make symbols


_front = _Front()


@contextmanager
def making_symbols() -> Iterator[None]:
    """Have functions that take no array (zeros, arange, random numbers) make symbols."""
    before, _front.symbols = _front.symbols, True
    try:
        yield
    finally:
        _front.symbols = before


def symbolic(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of `mx.np` as `mx.sym.np` has it."""

    @wraps(function)
    def on_symbols(*args: Any, **kwargs: Any) -> Any:
        with making_symbols():
            return function(*args, **kwargs)

    return on_symbols


def call(name: str, arrays: Sequence[Any] = (), out: Any = None, **attrs: Any) -> Any:
    """The op `name` of arrays or symbols. Attributes are as a program gives them; the op converts them.

    An op that takes no array makes one on `ctx=`, or a symbol while the program is `making_symbols`.
    """
    for array in arrays:
        if type(array) is not ndarray:
            return call_any(name, arrays, attrs, out)
    if not arrays and _front.symbols:
        return _symbol(name, (), attrs)
    op = OPS[name]
    return apply(op, arrays, op.changed(attrs) if attrs else attrs, out, ndarray)


def call_any(name: str, args: Sequence[Any], attrs: dict[str, Any], out: Any = None) -> Any:
    """The op `name` of any arguments, which are checked: arrays or symbols first, attributes also by position."""
    op = OPS[name]
    for arg in args:
        if isinstance(arg, Symbol):
            return _symbol(name, args, attrs)
    if op.variadic:  # which would take what is no array for an attribute
        for arg in args:
            if not isinstance(arg, ndarray):
                ndarray.refuse(arg, f"{name}: an argument")
    arrays, values = op.bind(args, attrs, ndarray)
    return apply(op, arrays, values, out, ndarray)


def _symbol(name: str, args: Sequence[Any], attrs: dict[str, Any]) -> NpSymbol:
    given = {key: value for key, value in attrs.items() if key != "ctx" or value is not None}
    return create(OPS[name], hint(name), args, given, NpSymbol)


def hint(name: str) -> str:
    """What the automatic name of a node of this op begins with: `_npi_add` gives add0, add1, ..."""
    for prefix in ("_npi_", "_npx_", "_np_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name.lower()
