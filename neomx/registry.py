"""`mx.registry`: registries of classes by lower-case name, one for each base class."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from .base import string_types, suggest

__all__ = ["get_alias_func", "get_create_func", "get_register_func", "get_registry", "string_types"]

Class = TypeVar("Class", bound=type)

_registries: dict[type, dict[str, type]] = {}


def get_registry(base_class: type) -> dict[str, type]:
    """Return a copy of the registry of `base_class`: {name: class}."""
    return dict(_registries.get(base_class, {}))


def get_register_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """Return a function, also usable as a class decorator, that registers subclasses of `base_class` as `nickname`."""
    registry = _registries.setdefault(base_class, {})

    def register(klass: Class, name: str | None = None) -> Class:
        """Register `klass` under `name`, or under its own name."""
        if not issubclass(klass, base_class):
            raise AssertionError(f"can only register subclasses of {base_class.__name__}, received {klass.__name__}")
        key = (name or klass.__name__).lower()
        if registry.get(key, klass) is not klass:
            warnings.warn(f"{nickname} {key!r} is replaced by {klass!r}, it was {registry[key]!r}", stacklevel=2)
        registry[key] = klass
        return klass

    return register


def get_alias_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """Return a function that creates class decorators: `@alias('name', 'other name')`."""
    register = get_register_func(base_class, nickname)

    def alias(*aliases: str) -> Callable[[Class], Class]:
        """Return a class decorator that registers under these names."""

        def decorate(klass: Class) -> Class:
            for name in aliases:
                register(klass, name)
            return klass

        return decorate

    return alias


def get_create_func(base_class: type, nickname: str) -> Callable[..., Any]:
    """Return a function that creates instances from a registered name, JSON or a dictionary, and accepts instances."""
    registry = _registries.setdefault(base_class, {})

    def create(*args: Any, **kwargs: Any) -> Any:
        """Return an instance: `create('name', ...)`, `create('["name", {...}]')` or `create(instance)`."""
        if not args and nickname not in kwargs:
            raise ValueError(f"create: expected the name of a registered {nickname}, received {kwargs}")
        name, args = (args[0], args[1:]) if args else (kwargs.pop(nickname), ())
        complete = isinstance(name, base_class) or (isinstance(name, str) and name.startswith(("[", "{")))
        if complete and (args or kwargs):
            raise AssertionError(f"{nickname} {name!r:.80} is already an instance; other arguments are not accepted")
        if isinstance(name, base_class):
            return name
        if isinstance(name, dict):
            return create(**name)
        if not isinstance(name, str):
            raise AssertionError(f"expected a {nickname} or its name, received {name!r:.80}")
        if name.startswith("["):
            name, kwargs = json.loads(name)
        elif name.startswith("{"):
            return create(**json.loads(name))
        if name.lower() not in registry:
            known = f"{suggest(name.lower(), registry)} Registered: {', '.join(sorted(registry))}"
            raise AssertionError(f"unknown {nickname} {name!r}.{known}")
        return registry[name.lower()](*args, **kwargs)

    return create
