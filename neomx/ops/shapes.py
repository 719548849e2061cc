"""Shapes that may be partly unknown (a dimension of -1) or unknown (None)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

Shapes = Sequence[tuple[int, ...] | None]
UNKNOWN = -1


def is_known(shape: tuple[int, ...] | None) -> TypeGuard[tuple[int, ...]]:
    """Return whether a shape is completely known."""
    return shape is not None and UNKNOWN not in shape


def merged(*shapes: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """Combine several partly known shapes into one. Raises ValueError if they contradict each other."""
    result: tuple[int, ...] | None = None
    for shape in shapes:
        if result is None or shape is None or result == shape:
            result = shape if result is None else result
        elif len(result) != len(shape):
            raise ValueError(f"shapes {result} and {shape} differ")
        else:
            result = tuple(_same_length(a, b) for a, b in zip(result, shape, strict=True))
    return result


def _same_length(a: int, b: int) -> int:
    if a != b and UNKNOWN not in (a, b):
        raise ValueError(f"sizes {a} and {b} differ")
    return max(a, b)
