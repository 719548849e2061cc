"""mx.profiler: where a program's time goes, as a trace for chrome://tracing or Perfetto and as a table.

    mx.profiler.set_config(filename="profile.json", profile_all=True, aggregate_stats=True)
    mx.profiler.set_state("run")
    ...
    mx.profiler.set_state("stop")
    print(mx.profiler.dumps())
    mx.profiler.dump()

The trace is torch's profiler's, with the ops under MXNet's names around what the engine runs for them, and with the
tasks, frames, events, counters and markers of the program. An op's time is that of its call: on a GPU the kernels have
rows of their own. Graphs that torch.compile has compiled show what the engine runs, without ops. Where a job has
several workers each writes its own file, `rank1_profile.json`. What is profiled and not dumped is written when the
program ends. With MXNET_PROFILER_AUTOSTART=1 profiling begins with `import neomx`.
"""

from __future__ import annotations

import atexit
import itertools
import time
import warnings
from numbers import Real
from typing import Any

from torch.profiler import record_function

from ..base import MXNetError, suggest
from .trace import Trace, check_directory

__all__ = [
    "Counter",
    "Domain",
    "Event",
    "Frame",
    "Marker",
    "Task",
    "dump",
    "dump_profile",
    "dumps",
    "pause",
    "profiler_set_config",
    "profiler_set_state",
    "resume",
    "scope",
    "set_config",
    "set_state",
]

_DEFAULTS: dict[str, Any] = {
    "filename": "profile.json",
    "profile_all": False,
    "profile_symbolic": False,
    "profile_imperative": False,
    "profile_memory": False,
    "profile_api": False,
    "continuous_dump": False,
    "dump_period": 1.0,
    "aggregate_stats": False,
    "profile_process": "worker",
}
_config = dict(_DEFAULTS)
_trace = Trace()
_numbers = itertools.count(1)


def _check_process(profile_process: str) -> None:
    if profile_process not in ("worker", "server"):
        raise ValueError(f"profile_process must be 'worker' or 'server', received {profile_process!r}")
    if profile_process == "server":
        raise MXNetError("profile_process='server': a worker can profile only itself. Expected 'worker'")


def set_config(**kwargs: Any) -> None:
    """Say what to profile and where to write it; what is not given goes back to its default.

    `filename`: the trace's file. `profile_memory` (or `profile_all`): what is allocated too. `aggregate_stats`: keep
    numbers for `dumps`. `continuous_dump`: write the file at each pause and stop as well. The ops of arrays and of
    symbols are always seen, so `profile_symbolic`, `profile_imperative` and `profile_api` change nothing.
    """
    for name in kwargs:
        if name not in _DEFAULTS:
            raise MXNetError(
                f"profiler.set_config: unknown argument {name!r}.{suggest(name, _DEFAULTS)} Expected some of "
                + ", ".join(_DEFAULTS)
            )
    _check_process(kwargs.get("profile_process", "worker"))
    check_directory(str(kwargs.get("filename", "profile.json")))
    flags = {name: _flag(name, value) for name, value in kwargs.items() if isinstance(_DEFAULTS[name], bool)}
    _config.update({**_DEFAULTS, **kwargs, **flags})


def _flag(name: str, value: Any) -> bool:
    """True or False as MXNet spells them: "False" and "0" are False."""
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise MXNetError(f"profiler.set_config: {name} must be True or False, received {value!r}")
    return text in ("true", "1")


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Begin to profile ('run'), or end it ('stop')."""
    if state not in ("run", "stop"):
        raise ValueError(f"profiler.set_state: expected 'run' or 'stop', received {state!r}")
    _check_process(profile_process)
    if state == "run":
        _begin()
    else:
        _end()


def _begin() -> None:
    if not _trace.running:
        _trace.begin(memory=bool(_config["profile_memory"] or _config["profile_all"]))


def _end() -> None:
    if _trace.running:
        _trace.end()
        if _config["continuous_dump"]:
            _trace.write(str(_config["filename"]))


@atexit.register
def _write_at_exit() -> None:
    if not _trace.is_empty:
        dump()


def start_from_environment() -> None:
    """Begin to profile everything: what MXNET_PROFILER_AUTOSTART=1 asks for."""
    set_config(profile_all=True, aggregate_stats=True)
    set_state("run")


def pause(profile_process: str = "worker") -> None:
    """Leave out what follows, until `resume`."""
    _check_process(profile_process)
    _end()


def resume(profile_process: str = "worker") -> None:
    """Go on profiling after `pause`."""
    _check_process(profile_process)
    _begin()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the trace to the file that was configured, whole or not at all.

    With `finished` profiling ends and the next trace begins empty; without, it goes on, and the next has all so far.
    """
    _check_process(profile_process)
    if _trace.is_empty:
        raise MXNetError("Profiler hasn't been run. Config and start profiler first: profiler.set_state('run')")
    if not finished:
        _trace.split()
    elif _trace.running:
        _trace.end()
    _trace.write(str(_config["filename"]))
    if finished:
        _trace.clear()


def dumps(reset: bool = False, format: str = "table", sort_by: str = "total", ascending: bool = False) -> str:
    """What was profiled, added up by category and name: a 'table' or 'json'; '' without `aggregate_stats`.

    Ops are under `operator`, what autograd ran for their gradients under `backward`. `reset` begins the sums anew.
    """
    assert format in ("table", "json"), f"Invalid value provided for format: {format}. Support: 'table', 'json'"
    known = ("total", "avg", "min", "max", "count")
    assert sort_by in known, f"Invalid value provided for sort_by: {sort_by}. Support: {', '.join(map(repr, known))}"
    assert ascending in (False, True), f"Invalid value provided for ascending: {ascending}. Support: False, True"
    if not _config["aggregate_stats"]:
        return ""
    _trace.split()
    stats = _trace.stats
    text = stats.table(sort_by, ascending) if format == "table" else stats.json(sort_by, ascending)
    if reset:
        stats.clear()
    return text


# ---- names of old ----


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """The old form of `set_config`: what `mode` chooses among is always profiled."""
    warnings.warn(
        "profiler.profiler_set_config() is deprecated. Please use profiler.set_config() instead", stacklevel=2
    )
    if mode not in ("symbolic", "imperative", "api", "memory", "all"):
        raise MXNetError(
            f"profiler_set_config: expected mode 'symbolic', 'imperative', ... or 'all', received {mode!r}"
        )
    set_config(**{f"profile_{mode}": True}, filename=filename, aggregate_stats=True)


def profiler_set_state(state: str = "stop") -> None:
    """The old name of `set_state`."""
    warnings.warn("profiler.profiler_set_state() is deprecated. Please use profiler.set_state() instead", stacklevel=2)
    set_state(state)


def dump_profile() -> None:
    """The old name of `dump`."""
    warnings.warn("profiler.dump_profile() is deprecated. Please use profiler.dump() instead", stacklevel=2)
    dump()


# ---- a program's own marks ----


class scope(record_function):
    """`with profiler.scope("attention"):` shows what runs inside under a name."""


class Domain:
    """Groups a program's tasks, frames, counters and markers: their category in the trace."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """A task of this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """A frame of this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """A counter of this domain."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """A marker of this domain."""
        return Marker(self, name)


class _Span:
    """Something with a beginning and an end, which may overlap others and span threads."""

    def __init__(self, category: str, name: str):
        self.name = name
        self._category = category
        self._began: int | None = None

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        """It begins now."""
        self._began = time.time_ns()

    def stop(self) -> None:
        """It ends now; without a start that means nothing."""
        if self._began is None:
            return
        began, ended, self._began = self._began, time.time_ns(), None
        if _trace.running:
            self._note(began, ended)
            _trace.stats.add("Time", self._category, self.name, ended - began)

    def _note(self, began: int, ended: int) -> None:
        number = next(_numbers)
        _trace.note(self.name, self._category, "b", began, id=number)
        _trace.note(self.name, self._category, "e", ended, id=number)


class Task(_Span):
    """A piece of work of a Domain, from `start` to `stop`."""

    def __init__(self, domain: Domain, name: str):
        super().__init__(domain.name, name)


class Frame(_Span):
    """A piece of work that repeats, such as a batch, of a Domain."""

    def __init__(self, domain: Domain, name: str):
        super().__init__(f"{domain.name},frame", name)


class Event(_Span):
    """A piece of work of this thread, of no Domain."""

    def __init__(self, name: str):
        super().__init__("event", name)

    def _note(self, began: int, ended: int) -> None:
        _trace.note(self.name, self._category, "X", began, dur=(ended - began) / 1000)


class Counter:
    """A number that changes: `counter += 1`."""

    def __init__(self, domain: Domain, name: str, value: float | None = None):
        self.name = name
        self._category = domain.name
        self._value: float = 0
        if value is not None:
            self.set_value(value)

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: float) -> None:
        """It is `value` now."""
        value = value if isinstance(value, Real) else int(value)
        self._value = value
        if _trace.running:
            _trace.note(self.name, self._category, "C", args={self.name: value})
            _trace.stats.add("Counter", self._category, self.name, value)

    def increment(self, delta: float = 1) -> None:
        """It grows by `delta`."""
        self.set_value(self._value + delta)

    def decrement(self, delta: float = 1) -> None:
        """It shrinks by `delta`."""
        self.set_value(self._value - delta)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self


class Marker:
    """A moment worth a line in the trace."""

    _SCOPES = {"global": "g", "process": "p", "thread": "t", "task": "t", "marker": "t"}

    def __init__(self, domain: Domain, name: str):
        self.name = name
        self._category = f"{domain.name},instant_marker"

    def mark(self, scope: str = "process") -> None:
        """It is now; the line goes through the rows of the 'global' trace, the 'process' or the 'thread'."""
        if scope not in self._SCOPES:
            raise MXNetError(f"Marker.mark: expected a scope among {', '.join(self._SCOPES)}, received {scope!r}")
        _trace.note(self.name, self._category, "i", s=self._SCOPES[scope])
