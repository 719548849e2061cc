"""Errors, registries and the two modes (recording, training) that every room shares."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


class MXNetError(RuntimeError):
    """What neomx raises for anything a program did wrong. A RuntimeError, as in MXNet."""


class Modes(threading.local):
    """Whether this thread records for autograd, and whether layers behave as in training."""

    recording = False
    training = False

    def __init__(self) -> None:
        self.tape: list[Any] = []  # weak references to the arrays recorded since the last backward
        self.tape_limit = 10_000  # where to look for those that are gone


modes = Modes()


class Backward:
    """The train_mode that the running `autograd.backward` was given; None while none runs.

    One for all threads: the part of a backward that runs on a GPU has a thread of its own.
    """

    train_mode: bool | None = None


class Registry:
    """Classes by lower-case name, so that `create('sgd', ...)` finds `SGD`.

    >>> colours = Registry("colour")
    >>> @colours.register
    ... class Red: ...
    >>> type(colours.create("red")).__name__
    'Red'
    """

    def __init__(self, kind: str):
        self.kind = kind
        self.classes: dict[str, type] = {}

    def register(self, cls: type[T], *aliases: str) -> type[T]:
        """Make `cls` known under its own name and `aliases`; a later class takes the name over."""
        for name in (cls.__name__, *aliases):
            self.classes[name.lower()] = cls
        return cls

    def get(self, name: str) -> type:
        """The class registered as `name`."""
        try:
            return self.classes[name.lower()]
        except KeyError:
            raise MXNetError(f"unknown {self.kind} {name!r}. Registered: {', '.join(sorted(self.classes))}") from None

    def create(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """A new instance of the class registered as `name`."""
        return self.get(name)(*args, **kwargs)


def suggest(name: str, known: Iterable[str]) -> str:
    """' Did you mean ...?' for a name that is close to a known one, else ''."""
    import difflib

    close = difflib.get_close_matches(name, list(known), n=3)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def attach_names(namespace: dict[str, Any], names: Iterable[str], make: Callable[[str], Any]) -> None:
    """Put `make(name)` into a module's namespace for each name that it does not define itself."""
    for name in names:
        namespace.setdefault(name, make(name))
