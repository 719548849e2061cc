"""Automatic names: `fullyconnected0`, `dense1_`, ... counted by kind, as MXNet counts them."""

from __future__ import annotations

import threading
from typing import Any


class _Managers(type):
    """Gives the class NameManager its `current`, which programs read."""

    @property
    def current(cls) -> NameManager:
        return current()


class NameManager(metaclass=_Managers):
    """Gives names to what a program does not name. As a `with` block it counts from zero again."""

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}
        self._outer: list[NameManager] = []

    def get(self, name: str | None, hint: str) -> str:
        """`name` if there is one, else `hint` with the next number."""
        if name:
            return name
        number = self._counter.get(hint, 0)
        self._counter[hint] = number + 1
        return f"{hint}{number}"

    def __enter__(self) -> NameManager:
        self._outer.append(current())
        _local.manager = self
        return self

    def __exit__(self, *exc: Any) -> None:
        _local.manager = self._outer.pop()


class Prefix(NameManager):
    """Puts a prefix before every name, given or automatic."""

    def __init__(self, prefix: str):
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """The prefix and the name."""
        return self._prefix + super().get(name, hint)


class _Local(threading.local):
    def __init__(self) -> None:
        self.manager: NameManager = NameManager()


_local = _Local()


def current() -> NameManager:
    """The manager of the innermost `with` block of this thread."""
    return _local.manager
