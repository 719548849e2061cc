"""A timeline of calls, for trace viewers."""

from __future__ import annotations

import json
import time
from typing import Any

from .. import events, process
from ..formats.atomic import replacing
from .job import rank


class _Timeline:
    """Records all exchanges from now on."""

    def __init__(self, path: str):
        self._path = path
        self._slices: list[dict[str, Any]] = []
        self._stops = events.subscribe_each(hvd=self._add, reduce=lambda **fields: self._add("gradients", **fields))

    def _add(self, call: str, waiting: float, seconds: float, **_: Any) -> None:
        end = time.perf_counter()
        for name, begin, length in (
            (f"waiting for {call}", end - seconds, waiting),
            (call, end - seconds + waiting, seconds - waiting),
        ):
            self._slices.append(dict(name=name, ph="X", pid=rank(), tid=0, ts=begin * 1e6, dur=length * 1e6))

    def close(self) -> None:
        for stop in self._stops:
            stop()
        with replacing(self._path) as file:
            file.write(json.dumps({"traceEvents": self._slices}).encode())


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Record the calls and gradient sums of worker 0, and write them at `stop_timeline` or at exit.

    Open the file in chrome://tracing. Calls are not batched into cycles, so `mark_cycles` is ignored.
    """
    stop_timeline()
    if rank() == 0:
        process.start("timeline", lambda: _Timeline(file_path))


def stop_timeline() -> None:
    """Write the file, if a timeline is active."""
    process.stop("timeline")
