"""Events: `emit(name, **fields)` is how every part of the package reports progress.

Progress bars, logs and dashboards subscribe to events. An event without subscribers costs one dictionary lookup.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .process import Listener, state

_listeners = state.listeners


def emit(name: str, **fields: Any) -> None:
    """Notify the subscribers of the event `name` and the subscribers of all events."""
    if _listeners:
        for listener in [*_listeners.get(name, ()), *_listeners.get(None, ())]:
            listener(name, fields)


def heard(name: str) -> bool:
    """Whether the event `name` has a subscriber. Check this before measuring something only for an event."""
    return name in _listeners or None in _listeners


def subscribe(listener: Listener, name: str | None = None) -> Callable[[], None]:
    """Call `listener(name, fields)` for each event `name`, or for all events. Return a function that unsubscribes."""
    _listeners.setdefault(name, []).append(listener)

    def stop() -> None:
        _listeners[name].remove(listener)
        if not _listeners[name]:
            del _listeners[name]

    return stop


def subscribe_each(**listeners: Callable[..., Any]) -> list[Callable[[], None]]:
    """Subscribe each listener to the event of its name, which gets the fields as keywords.

    Return their unsubscribe functions.
    """
    return [subscribe(lambda _, fields, of=of: of(**fields), name) for name, of in listeners.items()]  # type: ignore[misc]
