"""AttrScope: sets attributes on all symbols created in a `with` block."""

from __future__ import annotations

import threading
from typing import Any


class _Scopes(type):
    """Metaclass that provides `AttrScope.current`."""

    @property
    def current(cls) -> AttrScope:
        return current()


class AttrScope(metaclass=_Scopes):
    """`with mx.AttrScope(ctx_group='dev1'):` sets the attribute ctx_group on each symbol created in the block."""

    def __init__(self, **kwargs: str):
        for name, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(f"attributes must be strings, received {name}={value!r}")
        self._attr = dict(kwargs)
        self._outer: list[AttrScope] = []

    def get(self, attr: dict[str, str] | None) -> dict[str, str]:
        """Return the scope's attributes, updated with `attr`."""
        return {**self._attr, **attr} if attr else dict(self._attr)

    def __enter__(self) -> AttrScope:
        outer = current()
        self._outer.append(outer)
        self._attr = {**outer._attr, **self._attr}
        _local.scope = self
        return self

    def __exit__(self, *exc: Any) -> None:
        _local.scope = self._outer.pop()


class _Local(threading.local):
    def __init__(self) -> None:
        self.scope = AttrScope()


_local = _Local()


def current() -> AttrScope:
    """Return the innermost scope of this thread."""
    return _local.scope
