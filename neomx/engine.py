"""mx.engine: how many ops MXNet's engine runs as one. PyTorch runs each op at once, so the number changes nothing."""

from __future__ import annotations

import operator
from typing import Any

from .process import state


def set_bulk_size(size: int) -> int:
    """Keep the number of ops to run in bulk; gives the one before."""
    before, state.bulk_size = state.bulk_size, operator.index(size)
    return before


class bulk:
    """`with bulk(10):` sets the number inside and puts the old one back."""

    def __init__(self, size: int):
        self._size = size
        self._before: list[int] = []

    def __enter__(self) -> bulk:
        self._before.append(set_bulk_size(self._size))
        return self

    def __exit__(self, *exc: Any) -> None:
        set_bulk_size(self._before.pop())
