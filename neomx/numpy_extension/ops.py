"""The ops of `mx.npx`, as functions on arrays or symbols."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Any

from ..base import _Null
from ..numpy.call import call
from ..ops.table import OPS, Op


def make_function(op_name: str, name: str) -> Callable[..., Any]:
    """The function of an op, with the signature that MXNet gives it."""
    row = OPS[op_name]

    def function(*args: Any, out: Any = None, name: str | None = None, **kwargs: Any) -> Any:
        given = {key: value for key, value in kwargs.items() if value is not _Null}
        return call(op_name, args, out, **given)

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


__all__ = []
for _name in OPS:
    _short = _name.removeprefix("_npx_")
    if _short != _name and not _short.startswith("_"):
        globals()[_short] = make_function(_name, _short)
        __all__.append(_short)
