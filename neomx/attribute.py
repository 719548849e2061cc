"""AttrScope: attributes that every symbol made in a `with` block carries."""

from __future__ import annotations

import threading
from typing import Any


class _Scopes(type):
    """Gives the class AttrScope its `current`, which programs read."""

    @property
    def current(cls) -> AttrScope:
        return current()


class AttrScope(metaclass=_Scopes):
    """`with mx.AttrScope(ctx_group='dev1'):` gives each symbol made inside the attribute ctx_group."""

    def __init__(self, **kwargs: str):
        for name, value in kwargs.items():
            if not isinstance(value, str):
                raise ValueError(f"attributes must be strings, received {name}={value!r}")
        self._attr = dict(kwargs)
        self._outer: list[AttrScope] = []

    def get(self, attr: dict[str, str] | None) -> dict[str, str]:
        """The scope's attributes with `attr` over them."""
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
    """The innermost scope of this thread."""
    return _local.scope
