"""mx.engine: the bulk size of MXNet's engine. It has no effect, because PyTorch runs each op immediately."""

from __future__ import annotations

import operator
from typing import Any

from .process import state


def set_bulk_size(size: int) -> int:
    """Set the number of ops to run in bulk, and return the previous number."""
    before, state.bulk_size = state.bulk_size, operator.index(size)
    return before


class bulk:
    """`with bulk(10):` sets the bulk size in the block and restores it afterwards."""

    def __init__(self, size: int):
        self._size = size
        self._before: list[int] = []

    def __enter__(self) -> bulk:
        self._before.append(set_bulk_size(self._size))
        return self

    def __exit__(self, *exc: Any) -> None:
        set_bulk_size(self._before.pop())
