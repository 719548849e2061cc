"""mx.profiler: profiles a program, as a trace for chrome://tracing or Perfetto and as a table.

    mx.profiler.set_config(filename="profile.json", profile_all=True, aggregate_stats=True)
    mx.profiler.set_state("run")
    ...
    mx.profiler.set_state("stop")
    print(mx.profiler.dumps())
    mx.profiler.dump()

The trace comes from torch's profiler. Ops appear under MXNet's names, around the engine calls they make, together with
the tasks, frames, events, counters and markers of the program. The time of an op is that of its call; on a GPU, kernels
have separate rows. Graphs compiled by torch.compile show engine calls without ops. In a job with several workers each
one writes its own file, `rank1_profile.json`. Data that was not dumped is written when the program ends. With
MXNET_PROFILER_AUTOSTART=1 profiling starts with `import neomx`.
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
        raise MXNetError("profile_process='server': a worker can only profile itself. Expected 'worker'")


def set_config(**kwargs: Any) -> None:
    """Set what to profile and where to write it. Options that are not given are reset to their defaults.

    `filename`: the file of the trace. `profile_memory` (or `profile_all`): also record allocations. `aggregate_stats`:
    collect statistics for `dumps`. `continuous_dump`: also write the file at each pause and stop. Ops of arrays and
    symbols are always recorded, so `profile_symbolic`, `profile_imperative` and `profile_api` have no effect.
    """
    for name in kwargs:
        if name not in _DEFAULTS:
            raise MXNetError(
                f"profiler.set_config: unknown argument {name!r}.{suggest(name, _DEFAULTS)} Expected one of "
                + ", ".join(_DEFAULTS)
            )
    _check_process(kwargs.get("profile_process", "worker"))
    check_directory(str(kwargs.get("filename", "profile.json")))
    flags = {name: _flag(name, value) for name, value in kwargs.items() if isinstance(_DEFAULTS[name], bool)}
    _config.update({**_DEFAULTS, **kwargs, **flags})


def _flag(name: str, value: Any) -> bool:
    """Convert MXNet's spellings of flags: "False" and "0" are False."""
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise MXNetError(f"profiler.set_config: {name} must be True or False, received {value!r}")
    return text in ("true", "1")


def set_state(state: str = "stop", profile_process: str = "worker") -> None:
    """Start ('run') or stop ('stop') profiling."""
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
    """Start profiling everything, as requested by MXNET_PROFILER_AUTOSTART=1."""
    set_config(profile_all=True, aggregate_stats=True)
    set_state("run")


def pause(profile_process: str = "worker") -> None:
    """Pause profiling until `resume`."""
    _check_process(profile_process)
    _end()


def resume(profile_process: str = "worker") -> None:
    """Resume profiling after `pause`."""
    _check_process(profile_process)
    _begin()


def dump(finished: bool = True, profile_process: str = "worker") -> None:
    """Write the trace to the configured file, atomically.

    With `finished` profiling stops and the next trace starts empty. Otherwise it continues, and the next trace includes
    all events so far.
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
    """Return statistics by category and name, as a 'table' or as 'json'; '' without `aggregate_stats`.

    Ops are in the category `operator`, their gradients in `backward`. `reset` clears the statistics.
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


# ---- deprecated names ----


def profiler_set_config(mode: str = "symbolic", filename: str = "profile.json") -> None:
    """Set the file; the old form of `set_config`. `mode` is ignored: everything it could select is always profiled."""
    warnings.warn(
        "profiler.profiler_set_config() is deprecated. Please use profiler.set_config() instead", stacklevel=2
    )
    if mode not in ("symbolic", "imperative", "api", "memory", "all"):
        raise MXNetError(
            f"profiler_set_config: expected mode 'symbolic', 'imperative', ... or 'all', received {mode!r}"
        )
    set_config(**{f"profile_{mode}": True}, filename=filename, aggregate_stats=True)


def profiler_set_state(state: str = "stop") -> None:
    """Start or stop profiling; the old name of `set_state`."""
    warnings.warn("profiler.profiler_set_state() is deprecated. Please use profiler.set_state() instead", stacklevel=2)
    set_state(state)


def dump_profile() -> None:
    """Write the trace; the old name of `dump`."""
    warnings.warn("profiler.dump_profile() is deprecated. Please use profiler.dump() instead", stacklevel=2)
    dump()


# ---- user-defined events ----


class scope(record_function):
    """`with profiler.scope("attention"):` groups the events inside under a name."""


class Domain:
    """A category for the tasks, frames, counters and markers of a program."""

    def __init__(self, name: str):
        self.name = name

    def __str__(self) -> str:
        return self.name

    def new_task(self, name: str) -> Task:
        """Create a task in this domain."""
        return Task(self, name)

    def new_frame(self, name: str) -> Frame:
        """Create a frame in this domain."""
        return Frame(self, name)

    def new_counter(self, name: str, value: float | None = None) -> Counter:
        """Create a counter in this domain."""
        return Counter(self, name, value)

    def new_marker(self, name: str) -> Marker:
        """Create a marker in this domain."""
        return Marker(self, name)


class _Span:
    """An event with a start and an end, which may overlap other events and span threads."""

    def __init__(self, category: str, name: str):
        self.name = name
        self._category = category
        self._began: int | None = None

    def __str__(self) -> str:
        return self.name

    def start(self) -> None:
        """Record the start."""
        self._began = time.time_ns()

    def stop(self) -> None:
        """Record the end; a no-op if it was not started."""
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
    """A piece of work in a Domain, from `start` to `stop`."""

    def __init__(self, domain: Domain, name: str):
        super().__init__(domain.name, name)


class Frame(_Span):
    """A repeated piece of work in a Domain, such as a batch."""

    def __init__(self, domain: Domain, name: str):
        super().__init__(f"{domain.name},frame", name)


class Event(_Span):
    """A piece of work of the current thread, without a Domain."""

    def __init__(self, name: str):
        super().__init__("event", name)

    def _note(self, began: int, ended: int) -> None:
        _trace.note(self.name, self._category, "X", began, dur=(ended - began) / 1000)


class Counter:
    """A value that changes over time: `counter += 1`."""

    def __init__(self, domain: Domain, name: str, value: float | None = None):
        self.name = name
        self._category = domain.name
        self._value: float = 0
        if value is not None:
            self.set_value(value)

    def __str__(self) -> str:
        return self.name

    def set_value(self, value: float) -> None:
        """Set the value."""
        value = value if isinstance(value, Real) else int(value)
        self._value = value
        if _trace.running:
            _trace.note(self.name, self._category, "C", args={self.name: value})
            _trace.stats.add("Counter", self._category, self.name, value)

    def increment(self, delta: float = 1) -> None:
        """Increase the value by `delta`."""
        self.set_value(self._value + delta)

    def decrement(self, delta: float = 1) -> None:
        """Decrease the value by `delta`."""
        self.set_value(self._value - delta)

    def __iadd__(self, delta: float) -> Counter:
        self.increment(delta)
        return self

    def __isub__(self, delta: float) -> Counter:
        self.decrement(delta)
        return self


class Marker:
    """A point in time, shown as a line in the trace."""

    _SCOPES = {"global": "g", "process": "p", "thread": "t", "task": "t", "marker": "t"}

    def __init__(self, domain: Domain, name: str):
        self.name = name
        self._category = f"{domain.name},instant_marker"

    def mark(self, scope: str = "process") -> None:
        """Record the marker now; its line spans the 'global' trace, the 'process' or the 'thread'."""
        if scope not in self._SCOPES:
            raise MXNetError(f"Marker.mark: expected a scope among {', '.join(self._SCOPES)}, received {scope!r}")
        _trace.note(self.name, self._category, "i", s=self._SCOPES[scope])
