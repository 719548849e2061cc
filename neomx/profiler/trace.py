"""Collects a trace: engine events from torch's profiler, and ops under MXNet's names while it runs."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C._profiler import _RecordFunctionFast as named  # 3 us; torch.profiler.record_function takes 30 us
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
    """Events recorded since the last `write`, for a trace viewer, and their `stats`.

    torch's profiler cannot pause, so a profile consists of segments: `begin` starts one, `end` adds its events.
    """

    def __init__(self) -> None:
        self.stats = Stats()
        self._events: list[dict[str, Any]] = []
        self._origin: int | None = None  # clock time in ns at which the trace starts
        self._waiting: list[tuple[int, dict[str, Any]]] = []  # user-defined events, with clock times in ns
        self._segment: profile | None = None
        self._memory = False
        self._timed: list[tuple[str, int]] = []  # ops and their times in ns, in this segment

    @property
    def running(self) -> bool:
        """Whether a segment is running."""
        return self._segment is not None

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self._origin is None and not self.running

    def begin(self, memory: bool) -> None:
        """Start a segment; with `memory`, also record allocations."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it prints when it starts and stops
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
        """End the segment and start another, so that all events so far are collected."""
        if self.running:
            self.end()
            self.begin(self._memory)

    def _take(self, events: list[dict[str, Any]], base: int) -> None:
        """Add the events of a segment, mapped to MXNet's categories where these exist."""
        if self._origin is None:
            self._origin = base
        shift = (base - self._origin) / 1000
        for event in events:
            if not isinstance(event.get("pid"), int):
                continue  # torch's metadata about the segment
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
        """Convert an allocation event of torch to a counter of the memory in use."""
        args = event["args"]
        device = "cpu/0" if args["Device Type"] == 0 else f"gpu/{max(args['Device Id'], 0)}"
        name = f"Memory: {device}"
        self.stats.add("Memory", "Device Storage", name, args["Total Allocated"])
        return {
            **{key: event[key] for key in ("pid", "tid", "ts")},
            **{"name": name, "cat": "Device Storage", "ph": "C", "args": {name: args["Total Allocated"]}},
        }

    def note(self, name: str, category: str, phase: str, at: int | None = None, **fields: Any) -> None:
        """Record a user-defined event, now or at clock time `at` in ns, if a segment is running."""
        if self.running:
            place = {"pid": os.getpid(), "tid": threading.get_native_id()}
            event = {"name": name, "cat": category, "ph": phase, **place, **fields}
            self._waiting.append((time.time_ns() if at is None else at, event))

    def write(self, filename: str) -> str:
        """Write all events as JSON for chrome://tracing or Perfetto, clear them, and return the file name."""
        path = _own_name(filename)
        events = [*self._events, *({**event, "ts": (at - (self._origin or 0)) / 1000} for at, event in self._waiting)]
        whole = {"traceEvents": events, "displayTimeUnit": "ms", "baseTimeNanoseconds": self._origin}
        with replacing(path) as file:
            file.write(json.dumps(whole).encode())
        return path

    def clear(self) -> None:
        """Remove all events."""
        self._events, self._waiting, self._origin = [], [], None


def _own_name(filename: str) -> str:
    """Return the file name of this process: rank1_profile.json if there are several workers."""
    here = session.session().world if session.is_open() else world.discover()
    if here.is_alone:
        return filename
    directory, name = os.path.split(filename)
    who = "rank" if here.role == "worker" else here.role
    return os.path.join(directory, f"{who}{here.rank if here.rank >= 0 else os.getpid()}_{name}")


def check_directory(filename: str) -> None:
    """Raise MXNetError if the directory of the file does not exist, before profiling starts."""
    directory = os.path.dirname(os.path.abspath(filename))
    if not os.path.isdir(directory):
        raise MXNetError(f"profiler: expected filename= in a directory that exists, received {filename!r}")


# ---- op names, only while a segment runs ----


def _wrapped(name: str, fn: Callable[..., Any], timed: list[tuple[str, int]]) -> Callable[..., Any]:
    def traced(*tensors: Any, **attrs: Any) -> Any:
        if is_compiling() or any(map(_has_no_memory, (*tensors, *attrs.values()))):
            return fn(*tensors, **attrs)  # tracing or shape inference: nothing is computed
        began = time.perf_counter_ns()
        with named(name):
            result = fn(*tensors, **attrs)
        timed.append((name, time.perf_counter_ns() - began))
        return result

    traced.plain = fn  # type: ignore[attr-defined]
    return traced


def _has_no_memory(value: Any) -> bool:
    """Return whether a tensor, or the context for one, has only a shape and no data."""
    device = getattr(value, "device", None)
    return device is not None and device.type == "meta"


def _ops() -> Iterator[Op]:
    return iter({id(op): op for op in OPS.values()}.values())


def _wrap_ops(timed: list[tuple[str, int]]) -> None:
    """Replace the functions of each op by tracing ones, in the op table and in graphs lowered from it."""
    traced = {}
    for op in _ops():
        traced[op.fn] = op.fn = _wrapped(op.name, op.fn, timed)
        if op.fresh is not None:
            op.fresh = _wrapped(op.name, op.fresh, timed)
    _replace_in_graphs(lambda fn: traced.get(fn, fn))


def _unwrap_ops() -> None:
    """Restore the functions of each op."""
    for op in _ops():
        op.fn, op.fresh = getattr(op.fn, "plain", op.fn), getattr(op.fresh, "plain", op.fresh)
    _replace_in_graphs(lambda fn: getattr(fn, "plain", fn))


def _replace_in_graphs(replaced: Callable[[Any], Any]) -> None:
    for run in list(LOWERED):
        space = run.__globals__
        space.update({name: replaced(value) for name, value in space.items() if name.startswith("op")})
