"""Conversions between `mx.nd` and `mx.np` arrays that share memory, also inside lists."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ..base import modes

Function = TypeVar("Function", bound=Callable[..., Any])


def as_np(value: Any) -> Any:
    """Replace `mx.nd` arrays and `mx.sym` symbols in `value` with those of `mx.np`."""
    return _each(value, "as_np_ndarray")


def as_nd(value: Any) -> Any:
    """Replace `mx.np` arrays and symbols in `value` with those of `mx.nd` and `mx.sym`."""
    return _each(value, "as_nd_ndarray")


def _each(value: Any, convert: str) -> Any:
    if type(value) in (list, tuple):
        return type(value)(_each(item, convert) for item in value)
    return getattr(value, convert)() if hasattr(value, convert) else value


def on_np(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of `mx.nd` arrays to accept and return `mx.np` arrays."""

    @wraps(function)
    def converting(*args: Any, **kwargs: Any) -> Any:
        kwargs = {name: as_nd(value) for name, value in kwargs.items()}
        return as_np(function(*as_nd(args), **kwargs))

    return converting


def by_mode(function: Function) -> Function:
    """Wrap a function of `mx.nd` arrays to accept and return `mx.np` arrays in NumPy mode."""
    converting = on_np(function)

    @wraps(function)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (converting if modes.np_array else function)(*args, **kwargs)

    return chosen  # type: ignore[return-value]
