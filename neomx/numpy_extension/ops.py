"""The ops of `mx.npx`, as functions on arrays or symbols."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..numpy.call import call
from ..ops.table import OPS, Op


def _function(row: Op, name: str, op_name: str) -> Callable[..., Any]:
    def function(*args: Any, out: Any = None, **kwargs: Any) -> Any:
        return call(op_name, args, out, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{inspect.getdoc(row.fn) or ''}\n\n{row.signature()}".strip()
    return function


__all__ = []
for _name, _row in OPS.items():
    _short = _name.removeprefix("_npx_")
    if _short != _name and not _short.startswith("_"):
        globals()[_short] = _function(_row, _short, _name)
        __all__.append(_short)
