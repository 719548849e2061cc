"""Ops whose names begin with an underscore, used by operators and old scripts."""

from __future__ import annotations

from typing import Any

from ..base import MXNetError


def _set_value(src: float, out: Any = None) -> Any:
    """Fill the array `out` with a value."""
    if out is None:
        raise MXNetError(f"_set_value: out= must be an array, received {type(out).__name__}")
    out[:] = src
    return out
