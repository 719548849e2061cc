"""Sinks: objects that show or record the events of a training, registered by name.

The registration defines the flag of `neomx run`, the environment variable that passes it to the workers, and how
`start_from_environment` starts the sink there. This module and those of the built-in sinks must not import torch,
because the launcher imports them to build its command line.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from typing import Any, Literal, TypeVar

from .. import process
from ..base import MXNetError, suggest
from ..comm.world import discover
from ..events import subscribe_each

GROUP = "neomx.sinks"  # entry points of packages with sinks: sink name = module that registers it
PREFIX = "NEOMX_SINK_"
_OLDER = {"progress": "NEOMX_PROGRESS", "tensorboard": "NEOMX_TENSORBOARD"}  # older variables without the prefix


class Sink(ABC):
    """Listens to events (listed in `mx.monitor`) from its creation until `close`."""

    _stops: tuple[Callable[[], None], ...] = ()

    @classmethod
    @abstractmethod
    def open(cls, value: str, rank: int, workers: int) -> Sink:
        """Create the sink of worker `rank` of `workers`. `value` is the value of its option, "" for a switch.

        Raise MXNetError if it cannot work, for example because a package is missing. That ends the program.
        """

    def listen(self, **listeners: Callable[..., Any]) -> None:
        """Call each listener for the event of its name, with the event's fields as keywords.

        An exception in a listener does not end the training: it is logged, and this sink stops listening.
        """
        guarded = {name: self._guarded(name, listener) for name, listener in listeners.items()}
        self._stops = (*self._stops, *subscribe_each(**guarded))

    def close(self) -> None:
        """Stop listening. A sink with pending output overrides this method and calls it first."""
        for stop in self._stops:
            stop()
        self._stops = ()

    def _guarded(self, event: str, listener: Callable[..., Any]) -> Callable[..., None]:
        def call(**fields: Any) -> None:
            try:
                listener(**fields)
            except Exception as error:
                Sink.close(self)  # not the subclass's, which might use what has just failed
                _warn(f"{type(self).__name__} failed at the event {event!r} and was stopped: {_text(error)}")

        return call


@dataclass(frozen=True)
class Registration:
    """How a sink is requested, and where it runs."""

    name: str
    sink: type[Sink]
    help: str
    metavar: str | None  # name of its value in the help; None for a switch, which has no value
    ranks: Literal["all", "first"]
    default: bool  # whether `neomx run` starts it by default
    parse: Callable[[str], str]  # validates the value and makes it valid on every worker
    variable: str

    def requested(self, environ: Mapping[str, str]) -> str | None:
        """Return its value from the environment, or None if it is not requested."""
        value = environ.get(self.variable, "")
        if self.metavar is None:
            return None if value in ("", "0") else ""
        return value or None

    def open(self, value: str, rank: int, workers: int) -> Sink | None:
        """Start it on worker `rank`, replacing a running one. Return None if it does not run on this worker."""
        if self.ranks == "first" and rank != 0:
            return None
        here = max(rank, 0)  # -1: not assigned by the store yet
        return process.start(f"sink {self.name}", lambda: self.sink.open(value, here, workers))


_registered: dict[str, Registration] = {}
_Class = TypeVar("_Class", bound=type[Sink])


def register_sink(
    name: str,
    *,
    help: str,
    metavar: str | None = None,
    ranks: Literal["all", "first"] = "all",
    default: bool = False,
    parse: Callable[[str], str] = str,
) -> Callable[[_Class], _Class]:
    """Register a Sink class, as a decorator.

    `neomx run --name` and `mx.monitor.start(name)` then start it.

    - `help`: one line for `neomx run --help`.
    - `metavar`: the name of its value there (`DIR`), if it has one; without it the option is a switch. - `ranks`: "all"
    to run it on all workers, "first" to run it on worker 0. - `default`: for switches, whether `neomx run` starts it
    unless `--no-name` is given. - `parse`: applied to the value by the launcher, for example `os.path.abspath`. It
    raises ValueError for invalid values.

    The environment variable NEOMX_SINK_NAME, set to the value or to 1, starts it under any launcher.
    """
    if not re.fullmatch(r"[a-z][a-z0-9-]*", name):
        raise MXNetError(f"register_sink expects a name of lowercase letters, digits and '-', received {name!r}")
    if ranks not in ("all", "first"):
        raise MXNetError(f"register_sink({name!r}): ranks must be 'all' or 'first', received {ranks!r}")
    if default and metavar is not None:
        raise MXNetError(f"register_sink({name!r}): default=True is for switches, but this sink takes a {metavar}")

    def register(sink: _Class) -> _Class:
        if not (isinstance(sink, type) and issubclass(sink, Sink)):
            raise MXNetError(f"register_sink({name!r}) expects a subclass of mx.monitor.Sink, received {sink!r:.80}")
        before = _registered.get(name)
        if before is not None and _path(before.sink) != _path(sink):  # equal paths: a notebook cell was run again
            raise MXNetError(f"the sink {name!r} is already registered by {_path(before.sink)}: choose another name")
        _registered[name] = Registration(name, sink, help, metavar, ranks, default, parse, _variable(name))
        return sink

    return register


def registered() -> list[Registration]:
    """Return all registered sinks, in order of registration."""
    return list(_registered.values())


def load_plugins(wanted: Callable[[str], bool] = lambda name: True) -> None:
    """Import the modules in the entry points `neomx.sinks` for the sinks that are `wanted`.

    A module that cannot be imported, or does not register its sink, is skipped with a warning.
    """
    for point in metadata.entry_points(group=GROUP):
        if point.name in _registered or not wanted(point.name):
            continue
        try:
            point.load()
        except Exception as error:
            _warn(f"the sink {point.name!r} cannot be loaded from {point.value}: {_text(error)}")
        else:
            if point.name not in _registered:
                _warn(f"the module {point.value} does not register the sink {point.name!r}: call register_sink in it")


def start(name: str, value: str | os.PathLike[str] = "") -> Sink | None:
    """Start a registered sink, replacing a running one of this name, until the program ends or it is closed.

    `value` is the value of its flag, empty for a switch. Returns None on workers where it does not run.
    """
    load_plugins(lambda each: each == name)
    found = _registered.get(name)
    if found is None:
        known = ", ".join(sorted(_registered))
        raise MXNetError(f"no sink {name!r} is registered.{suggest(name, _registered)} Registered: {known}")
    text = os.fspath(value)
    if bool(text) != (found.metavar is not None):
        expected = "no value" if found.metavar is None else f"a value ({found.metavar})"
        raise MXNetError(f"the sink {name!r} expects {expected}, received {text!r}")
    world = discover()
    return found.open(found.parse(text) if text else "", world.rank, world.size)


def start_from_environment(environ: Mapping[str, str] = os.environ) -> list[Sink]:
    """Start the sinks that the launcher requested in NEOMX_PROGRESS, NEOMX_TENSORBOARD or NEOMX_SINK_NAME."""
    if multiprocessing.parent_process():  # a process of a DataLoader
        return []
    world = discover(environ)
    if world.role != "worker":
        return []
    asked = {name for name, value in environ.items() if name.startswith(PREFIX) and value}
    if asked:
        load_plugins(lambda name: _variable(name) in asked)
    for variable in sorted(asked - {each.variable for each in registered()}):
        _warn(f"{variable} requests a sink that is not registered here: is its package installed on this machine?")
    started = []
    for each in registered():
        value = each.requested(environ)
        if value is None:
            continue
        try:
            started.append(each.open(value, world.rank, world.size))
        except MXNetError:  # already tells the user what to do
            raise
        except Exception as error:
            _warn(f"the sink {each.name!r} cannot be started: {_text(error)}")
    return [sink for sink in started if sink is not None]


def _variable(name: str) -> str:
    return _OLDER.get(name) or PREFIX + name.upper().replace("-", "_")


def _path(sink: type[Sink]) -> str:
    return f"{sink.__module__}.{sink.__qualname__}"


def _text(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _warn(message: str) -> None:
    logging.getLogger("neomx").warning("neomx: %s", message)
