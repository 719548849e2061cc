"""Several augmented views of one sample."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class Views:
    """A transform for datasets that replaces a sample with several views of it.

    `dataset.transform(Views(weak, strong))` has the items `(weak(x), strong(x))`, and `(weak(x), strong(x), label)` if
    those of the dataset are `(x, label)`. In a DataLoader, functions that draw from `mx.random.rng()` return the same
    views for any number of workers.
    """

    def __init__(self, *functions: Callable[[Any], Any]):
        if not functions or not all(map(callable, functions)):
            raise TypeError(f"Views expects one or more functions of a sample, received {functions!r:.80}")
        self._functions = functions

    def __call__(self, x: Any, *others: Any) -> tuple[Any, ...]:
        """Return the views of `x`, followed by the other elements of the item."""
        return *(function(x) for function in self._functions), *others
