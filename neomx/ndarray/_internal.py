"""Ops whose names begin with an underscore: what operators and old scripts call."""

from __future__ import annotations

from typing import Any

from ..base import MXNetError


def _set_value(src: float, out: Any = None) -> Any:
    """Fill the array `out` with a number."""
    if out is None:
        raise MXNetError("_set_value: expected an array to fill as out=")
    out[:] = src
    return out
