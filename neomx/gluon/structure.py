"""Nested lists of arrays, as a Block takes and returns them, to flat lists and back."""

from __future__ import annotations

from typing import Any

from ..ndarray import NDArray
from ..symbol import Symbol

ARRAY, NOTHING = 0, -1  # the formats of a single array and of None; a symbol of n outputs has n; a list, a list


def flatten(value: Any) -> tuple[list[Any], Any]:
    """(arrays, format): every array in `value` in order, and how they were nested."""
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
            f"received {type(value).__name__} {value!r:.80}"
        )
    flat: list[Any] = []
    formats = []
    for item in value:
        arrays, form = flatten(item)
        flat += arrays
        formats.append(form)
    return flat, formats


def regroup(flat: list[Any], form: Any) -> Any:
    """The value that `flatten` made `flat` and `form` of, with other arrays in it."""
    value, rest = _regroup(flat, form)
    assert not rest, f"{len(rest)} arrays too many for the format {form}"
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
