"""The ops of `mx.npx`, as functions on arrays or symbols."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from ..base import _Null
from ..numpy.call import call, call_any
from ..ops.table import OPS, Op


def make_function(op_name: str, name: str) -> Callable[..., Any]:
    """Return the function of an op, with the same signature as in MXNet."""
    row = OPS[op_name]

    def function(*args: Any, out: Any = None, name: str | None = None, **kwargs: Any) -> Any:
        if kwargs:
            kwargs = {key: value for key, value in kwargs.items() if value is not _Null}
        return call_any(op_name, args, kwargs, out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{inspect.getdoc(row.fn) or ''}\n\n{row.signature()}".strip()
    function.__signature__ = _signature(row)  # type: ignore[attr-defined]
    return function


def _signature(row: Op) -> inspect.Signature:
    inputs = [Parameter(each, Parameter.POSITIONAL_OR_KEYWORD, default=None) for each in row.inputs]
    if row.variadic:
        inputs = [Parameter(row.inputs[0], Parameter.VAR_POSITIONAL)]
    kind = Parameter.KEYWORD_ONLY if row.variadic else Parameter.POSITIONAL_OR_KEYWORD
    attributes = [Parameter(each, kind, default=_Null) for each in row.attr_order]
    others = [Parameter(each, kind, default=None) for each in ("out", "name")]
    return inspect.Signature([*inputs, *attributes, *others, Parameter("kwargs", Parameter.VAR_KEYWORD)])


def constraint_check(x: Any, msg: str) -> Any:
    """Return True if all elements of a boolean array are True; otherwise raise an error with the given message."""
    return call("_npx_constraint_check", (x,), msg=msg)


def nonzero(a: Any) -> Any:
    """Return the indices of the nonzero elements, one row per element."""
    return call("_npx_nonzero", (a,))


def reshape(a: Any, newshape: Any, reverse: bool = False, order: str = "C") -> Any:
    """Reshape, with the codes -1 to -6: -2 copies a dimension, -4 copies all that remain, -5 merges two, and so on."""
    return call("_npx_reshape", (a,), newshape=newshape, reverse=reverse, order=order)


__all__ = ["constraint_check", "nonzero", "reshape"]
for _name in OPS:
    _short = _name.removeprefix("_npx_")
    if _short != _name and not _short.startswith("_") and _short not in __all__:
        globals()[_short] = make_function(_name, _short)
        __all__.append(_short)
