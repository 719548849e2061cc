"""Collecting a trace: torch's profiler for what the engine does, and ops under MXNet's names while it runs."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast as named  # 3 us, where torch.profiler.record_function takes 30
from torch.compiler import is_compiling
from torch.profiler import ProfilerActivity, profile

from ..base import MXNetError
from ..comm import session, world
from ..formats.atomic import replacing
from ..ops.table import OPS, Op
from ..symbol.lowering import LOWERED
from .stats import Stats

_BACKWARD = "autograd::engine::evaluate_function: "


class Trace:
    """What was profiled since the last `write`: events for a trace viewer, and `stats`.

    torch's profiler cannot pause, so a profile has segments: each `begin` starts one, each `end` adds its events.
    """

    def __init__(self) -> None:
        self.stats = Stats()
        self._events: list[dict[str, Any]] = []
        self._origin: int | None = None  # ns of the clock at which the trace's time is 0
        self._waiting: list[tuple[int, dict[str, Any]]] = []  # events of a program, at ns of the clock
        self._segment: profile | None = None
        self._memory = False
        self._timed: list[tuple[str, int]] = []  # ops and their ns, in this segment

    @property
    def running(self) -> bool:
        """Whether a segment has begun."""
        return self._segment is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self._origin is None and not self.running

    def begin(self, memory: bool) -> None:
        """Start a segment; with `memory`, see what is allocated."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # it would print when it starts and stops
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._memory = memory
        self._segment = profile(activities=activities, profile_memory=memory)
        self._segment.start()
        _wrap_ops(self._timed)

    def end(self) -> None:
        """End the segment."""
        assert self._segment is not None
        _unwrap_ops()
        for name, ns in self._timed:
            self.stats.add("Time", "operator", name, ns)
        self._timed.clear()
        segment, self._segment = self._segment, None
        segment.stop()
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "trace.json")
            segment.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                trace = json.load(file)
        self._take(trace["traceEvents"], int(trace["baseTimeNanoseconds"]))

    def split(self) -> None:
        """End the segment and begin another, so that all so far is known."""
        if self.running:
            self.end()
            self.begin(self._memory)

    def _take(self, events: list[dict[str, Any]], base: int) -> None:
        """Add a segment's events, under MXNet's categories where it has some."""
        if self._origin is None:
            self._origin = base
        shift = (base - self._origin) / 1000
        for event in events:
            if not isinstance(event.get("pid"), int):
                continue  # torch's remarks on the segment as such
            if "ts" in event:
                event["ts"] += shift
            name, category = event["name"], event.get("cat")
            if category == "cpu_op" and name in OPS:
                event["cat"] = "operator"
            elif name == "[memory]":
                event = self._memory_event(event)
            elif name.startswith(_BACKWARD) and "dur" in event:
                event.update(name=name[len(_BACKWARD) :], cat="backward")
                self.stats.add("Time", "backward", event["name"], event["dur"] * 1000)
            self._events.append(event)

    def _memory_event(self, event: dict[str, Any]) -> dict[str, Any]:
        """torch's remark on an allocation as a counter of what is in use."""
        args = event["args"]
        device = "cpu/0" if args["Device Type"] == 0 else f"gpu/{max(args['Device Id'], 0)}"
        name = f"Memory: {device}"
        self.stats.add("Memory", "Device Storage", name, args["Total Allocated"])
        return {
            **{key: event[key] for key in ("pid", "tid", "ts")},
            **{"name": name, "cat": "Device Storage", "ph": "C", "args": {name: args["Total Allocated"]}},
        }

    def note(self, name: str, category: str, phase: str, at: int | None = None, **fields: Any) -> None:
        """An event of the program's own, now or at ns of the clock, if a segment runs."""
        if self.running:
            place = {"pid": os.getpid(), "tid": threading.get_native_id()}
            event = {"name": name, "cat": category, "ph": phase, **place, **fields}
            self._waiting.append((time.time_ns() if at is None else at, event))

    def write(self, filename: str) -> str:
        """Write all as JSON for chrome://tracing or Perfetto, and begin anew; the name of the file that was written."""
        path = _own_name(filename)
        events = [*self._events, *({**event, "ts": (at - (self._origin or 0)) / 1000} for at, event in self._waiting)]
        whole = {"traceEvents": events, "displayTimeUnit": "ms", "baseTimeNanoseconds": self._origin}
        with replacing(path) as file:
            file.write(json.dumps(whole).encode())
        return path

    def clear(self) -> None:
        """Forget the events."""
        self._events, self._waiting, self._origin = [], [], None


def _own_name(filename: str) -> str:
    """The file of this process: where there are several workers, rank1_profile.json."""
    here = session.session().world if session.is_open() else world.discover()
    if here.is_alone:
        return filename
    directory, name = os.path.split(filename)
    who = "rank" if here.role == "worker" else here.role
    return os.path.join(directory, f"{who}{here.rank if here.rank >= 0 else os.getpid()}_{name}")


def check_directory(filename: str) -> None:
    """Refuse a file whose directory is not there, before anything is profiled."""
    directory = os.path.dirname(os.path.abspath(filename))
    if not os.path.isdir(directory):
        raise MXNetError(f"profiler: expected filename= in a directory that exists, received {filename!r}")


# ---- ops under their names, only while a segment runs ----


def _wrapped(name: str, fn: Callable[..., Any], timed: list[tuple[str, int]]) -> Callable[..., Any]:
    def traced(*tensors: Any, **attrs: Any) -> Any:
        if is_compiling() or any(map(_has_no_memory, (*tensors, *attrs.values()))):
            return fn(*tensors, **attrs)  # a graph is made, or shapes are inferred: nothing is computed
        began = time.perf_counter_ns()
        with named(name):
            result = fn(*tensors, **attrs)
        timed.append((name, time.perf_counter_ns() - began))
        return result

    traced.plain = fn  # type: ignore[attr-defined]
    return traced


def _has_no_memory(value: Any) -> bool:
    """Whether a tensor, or a context for one, stands for shapes alone."""
    device = getattr(value, "device", None)
    return device is not None and device.type == "meta"


def _ops() -> Iterator[Op]:
    return iter({id(op): op for op in OPS.values()}.values())


def _wrap_ops(timed: list[tuple[str, int]]) -> None:
    """Put a tracing function in the place of each op's own, in the table and in graphs that were lowered from it."""
    traced = {}
    for op in _ops():
        traced[op.fn] = op.fn = _wrapped(op.name, op.fn, timed)
    _replace_in_graphs(lambda fn: traced.get(fn, fn))


def _unwrap_ops() -> None:
    """Put each op's own function back."""
    for op in _ops():
        op.fn = getattr(op.fn, "plain", op.fn)
    _replace_in_graphs(lambda fn: getattr(fn, "plain", fn))


def _replace_in_graphs(replaced: Callable[[Any], Any]) -> None:
    for run in list(LOWERED):
        space = run.__globals__
        space.update({name: replaced(value) for name, value in space.items() if name.startswith("op")})
