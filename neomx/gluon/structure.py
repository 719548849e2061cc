"""Conversion between nested and flat lists of arrays, for the arguments and results of Blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ndarray import NDArray
from ..symbol import Symbol

ARRAY, NOTHING = 0, -1  # formats of an array and of None; a symbol with n outputs has format n, a list has a list


def flatten(value: Any) -> tuple[list[Any], Any]:
    """Return (arrays, format): all arrays in `value` in order, and a description of their nesting."""
    if isinstance(value, NDArray):
        return [value], ARRAY
    if value is None:
        return [None], NOTHING
    if isinstance(value, Symbol):
        count = len(value.list_outputs())
        return [value], count if count > 1 else ARRAY
    if not isinstance(value, (list, tuple)):
        raise ValueError(
            "a HybridBlock takes and returns arrays, symbols, None, and lists of them; "
            f"received {type(value).__name__}"
            + (". Convert it with mx.nd.array" if isinstance(value, np.ndarray) else f" {value!r:.80}")
        )
    flat: list[Any] = []
    formats = []
    for item in value:
        arrays, form = flatten(item)
        flat += arrays
        formats.append(form)
    return flat, formats


def regroup(flat: list[Any], form: Any) -> Any:
    """Nest the arrays `flat` as `form` describes: the inverse of `flatten`."""
    value, rest = _regroup(flat, form)
    assert not rest, f"{len(rest)} extra arrays for the format {form}"
    return value


def _regroup(flat: list[Any], form: Any) -> tuple[Any, list[Any]]:
    if form in (NOTHING, ARRAY):
        return flat[0], flat[1:]
    if isinstance(form, int):
        return flat[:form], flat[form:]
    values = []
    for each in form:
        value, flat = _regroup(flat, each)
        values.append(value)
    return values, flat
