"""`mx.mon.Monitor`: statistics of an executor's arrays every few batches, for debugging."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable
from typing import Any

from ..ndarray import NDArray


def _root_mean_square(array: NDArray) -> NDArray:
    return array.norm() / math.sqrt(array.size)


class Monitor:
    """Computes a statistic of outputs, arguments and auxiliary states whose names match `pattern`.

    It does so every `interval` batches. Call `tic` before the forward pass of a batch, and `toc` or `toc_print` after
    it. `stat_func` maps an array to an array or a list of arrays; the default is the root mean square. `monitor_all`
    includes the inputs of operators.
    """

    def __init__(
        self,
        interval: int,
        stat_func: Callable[[NDArray], Any] | None = None,
        pattern: str = ".*",
        sort: bool = False,
        monitor_all: bool = False,
    ):
        self.interval, self.sort, self.monitor_all = interval, sort, monitor_all
        self.stat_func = stat_func or _root_mean_square
        self.re_prog = re.compile(pattern)
        self.activated, self.step = False, 0
        self.queue: list[tuple[int, str, Any]] = []
        self.exes: list[Any] = []

    def stat_helper(self, name: str, array: NDArray) -> None:
        """Record the statistic of an array, if this batch is monitored and the name matches."""
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Any) -> None:
        """Monitor an executor, in addition to earlier ones."""
        exe.set_monitor_callback(self.stat_helper, self.monitor_all)
        self.exes.append(exe)

    def tic(self) -> None:
        """Start a batch."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """End a batch. Return (batch, name, statistic as text) for all monitored arrays."""
        if not self.activated:
            return []
        for exe in self.exes:
            for name, array in (*exe.arg_dict.items(), *exe.aux_dict.items()):
                self.stat_helper(name, array)
        found, self.queue, self.activated = self.queue, [], False
        if self.sort:
            found.sort(key=lambda each: each[1])
        return [(step, name, _text(value)) for step, name, value in found]

    def toc_print(self) -> None:
        """End a batch and log its statistics."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)


def _text(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    for each in values:
        assert isinstance(each, NDArray), f"stat_func must return an NDArray or a list of them, received {each!r:.80}"
    # Without !s, a float32 is formatted with the digits of a float64.
    return "".join(f"{each.as_nd_ndarray().asscalar() if each.size == 1 else each.asnumpy()!s}\t" for each in values)
