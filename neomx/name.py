"""Automatic names such as `fullyconnected0` and `dense1_`, numbered by kind as in MXNet."""

from __future__ import annotations

import threading
from typing import Any


class _Managers(type):
    """Metaclass that provides `NameManager.current`."""

    @property
    def current(cls) -> NameManager:
        return current()


class NameManager(metaclass=_Managers):
    """Generates names for symbols and blocks without one. As a context manager, it starts counting from zero."""

    def __init__(self) -> None:
        self._counter: dict[str, int] = {}
        self._outer: list[NameManager] = []

    def get(self, name: str | None, hint: str) -> str:
        """Return `name` if it is given, otherwise `hint` with the next number."""
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
    """Adds a prefix to every name, given or automatic."""

    def __init__(self, prefix: str):
        super().__init__()
        self._prefix = prefix

    def get(self, name: str | None, hint: str) -> str:
        """Return the prefixed name."""
        return self._prefix + super().get(name, hint)


class _Local(threading.local):
    def __init__(self) -> None:
        self.manager: NameManager = NameManager()


_local = _Local()


def current() -> NameManager:
    """Return the manager of the innermost `with` block of this thread."""
    return _local.manager
