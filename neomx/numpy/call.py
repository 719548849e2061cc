"""Calls an op of the table on `mx.np` arrays or on symbols, so that one definition of a function serves both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

from ..context import Context, current_context
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


def is_symbol(*values: Any) -> bool:
    """Whether a call with these arguments makes a symbol."""
    return _front.symbols or any(isinstance(value, Symbol) for value in values)


def call(name: str, arrays: Sequence[Any], out: Any = None, **attrs: Any) -> Any:
    """The op `name` of arrays or symbols. Attributes are as a program gives them; the op converts them."""
    op = OPS[name]
    for array in arrays:
        if isinstance(array, Symbol):
            return create(op, hint(name), arrays, attrs, NpSymbol)
    if op.variadic:  # which would take what is no array for an attribute
        for array in arrays:
            if not isinstance(array, ndarray):
                ndarray.refuse(array, f"{name}: an argument")
    defaults = op.defaults  # which need no conversion: most calls give many of them
    given = {key: value for key, value in attrs.items() if key not in defaults or value is not defaults[key]}
    bound, values = op.bind(arrays, given, ndarray)
    return apply(op, bound, values, out, ndarray)


def make(name: str, ctx: Context | None = None, out: Any = None, **attrs: Any) -> Any:
    """The op `name`, which takes no array: an array on `ctx`, or a symbol."""
    op = OPS[name]
    if _front.symbols:
        return create(op, hint(name), (), {**attrs, **({} if ctx is None else {"ctx": ctx})}, NpSymbol)
    _, values = op.bind((), {**attrs, "ctx": ctx or current_context()}, ndarray)
    return apply(op, (), values, out, ndarray)


def hint(name: str) -> str:
    """What the automatic name of a node of this op begins with: `_npi_add` gives add0, add1, ..."""
    for prefix in ("_npi_", "_npx_", "_np_"):
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name.lower()
