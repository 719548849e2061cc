"""`foreach`, `while_loop` and `cond` on arrays, executed as Python loops and branches and recorded as they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..base import MXNetError
from ..ops.table import OPS
from .invoke import apply
from .ndarray import NDArray


def listed(value: Any, what: str, kind: type = NDArray) -> list[Any]:
    """Flatten an array (or an object of another `kind`) or a nested list of them."""
    if isinstance(value, kind):
        return [value]
    if isinstance(value, (list, tuple)):
        return [item for items in value for item in listed(items, what, kind)]
    raise AssertionError(f"{what} must be a (nested) list of {kind.__name__}, received {type(value).__name__}")


def shaped(flat: list[Any], like: Any) -> Any:
    """Return the flat items in the nesting of `like`."""
    items = iter(flat)

    def build(template: Any) -> Any:
        return [build(item) for item in template] if isinstance(template, (list, tuple)) else next(items)

    return build(like)


def _stack(columns: list[list[NDArray]]) -> list[NDArray]:
    return [apply(OPS["stack"], column, {"axis": 0}, None, NDArray) for column in columns]


def foreach(body: Callable[..., Any], data: Any, init_states: Any) -> Any:
    """Call `body(slice, states) -> (outputs, states)` for each slice along axis 0 and return the stacked outputs."""
    sequences = listed(data, "foreach: data")
    listed(init_states, "foreach: init_states")
    lengths = {len(s) for s in sequences}
    if len(lengths) != 1:
        raise MXNetError(f"foreach: all data must have the same size along axis 0, received {sorted(lengths)}")
    states, outputs, rows = init_states, None, []
    for i in range(lengths.pop()):
        outputs, states = body(shaped([s[i] for s in sequences], data), states)
        rows.append(listed(outputs, "foreach: an output of body"))
    if outputs is None:
        raise MXNetError("foreach: data has no slices along axis 0")
    return shaped(_stack([list(column) for column in zip(*rows, strict=True)]), outputs), states


def while_loop(
    cond: Callable[..., Any], func: Callable[..., Any], loop_vars: Any, max_iterations: int | None = None
) -> Any:
    """Call `func(*vars) -> (outputs, vars)` while `cond(*vars)` is true, at most `max_iterations` times.

    The outputs are stacked and padded with zeros to `max_iterations` rows.
    """
    if max_iterations is None:
        raise ValueError("max_iterations should be specified")
    single = isinstance(loop_vars, NDArray)
    variables = listed(loop_vars, "while_loop: loop_vars")
    if not variables:
        raise ValueError("loop_vars should contain at least one element")
    outputs: Any = []
    rows: list[list[NDArray]] = []
    while len(rows) < max_iterations and bool(_truth(cond(*variables), "while_loop: cond")):
        outputs, changed = func(*variables)
        changed = listed(changed, "while_loop: the variables that func returns")
        if len(changed) != len(variables):
            raise ValueError(f"func must return {len(variables)} loop variable(s), but returned {len(changed)}")
        variables = changed
        rows.append(listed(outputs, "while_loop: an output of func"))
    stacked = []
    for column in zip(*rows, strict=True):
        missing = max_iterations - len(rows)
        blank = [NDArray(torch.zeros_like(column[0]._data), column[0]._ctx)] * missing
        stacked += _stack([[*column, *blank]])
    return shaped(stacked, outputs) if stacked else [], variables[0] if single else variables


def cond(pred: Any, then_func: Callable[[], Any], else_func: Callable[[], Any]) -> Any:
    """Return `then_func()` if `pred` is nonzero, otherwise `else_func()`."""
    return then_func() if _truth(pred, "cond: pred") else else_func()


def _truth(value: Any, what: str) -> bool:
    if isinstance(value, NDArray):
        return bool(value.as_nd_ndarray().asscalar())
    if isinstance(value, (bool, int, float)):
        return bool(value)
    raise MXNetError(f"{what} must evaluate to an NDArray with one element, received {type(value).__name__}")
