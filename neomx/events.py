"""`emit(name, **fields)`: the one way anything reports what happened.

A progress bar, a log or a dashboard subscribes; with no subscriber an event costs a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .process import Listener, state

_listeners = state.listeners


def emit(name: str, **fields: Any) -> None:
    """Tell the subscribers of `name`, and those of everything, that it happened."""
    if _listeners:
        for listener in [*_listeners.get(name, ()), *_listeners.get(None, ())]:
            listener(name, fields)


def heard(name: str) -> bool:
    """Whether anybody listens to `name`: asked before measuring what only an event would carry."""
    return name in _listeners or None in _listeners


def subscribe(listener: Listener, name: str | None = None) -> Callable[[], None]:
    """Call `listener(name, fields)` for each event `name`, or for all. Returns the way to stop it."""
    _listeners.setdefault(name, []).append(listener)

    def stop() -> None:
        _listeners[name].remove(listener)
        if not _listeners[name]:
            del _listeners[name]

    return stop


def subscribe_each(**listeners: Callable[..., Any]) -> list[Callable[[], None]]:
    """Call each listener, with the event's fields as keywords, for the event of its name. Returns the ways to stop."""
    return [subscribe(lambda _, fields, of=of: of(**fields), name) for name, of in listeners.items()]  # type: ignore[misc]
