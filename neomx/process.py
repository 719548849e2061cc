"""The state of this process that is neither an argument nor an object of its own, in one place. Imports no torch."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from typing import Protocol, TypeVar


class Closeable(Protocol):
    """What runs beside the program until it is closed."""

    def close(self) -> None:
        """Write what is left, and end."""


_Closeable = TypeVar("_Closeable", bound=Closeable)

running: dict[str, Closeable] = {}  # by name; closed when the program ends


def start(name: str, make: Callable[[], _Closeable]) -> _Closeable:
    """Run what `make` returns under a name until the program ends. What ran under that name is closed before."""
    stop(name)
    made = running[name] = make()
    return made


def stop(name: str) -> None:
    """Close what runs under a name, if anything does."""
    if name in running:
        running.pop(name).close()


@atexit.register
def stop_all() -> None:
    """Close all that runs, the latest first."""
    while running:
        running.popitem()[1].close()
