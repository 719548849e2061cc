"""`mx.mon.Monitor`: statistics of an executor's arrays every few batches, to find where numbers go wrong."""

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
    """A statistic of all outputs, arguments and auxiliary states whose names match `pattern`, every `interval` batches.

    Call `tic` before a batch's forward, and `toc` or `toc_print` after it. `stat_func` makes an array, or a list of
    them, of an array: by default the root of the mean square. `monitor_all` watches inputs of operators too.
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
        """Note an array's statistic, if it is this batch's turn and the name matches."""
        if self.activated and self.re_prog.match(name):
            self.queue.append((self.step, name, self.stat_func(array)))

    def install(self, exe: Any) -> None:
        """Watch an executor, beside those before."""
        exe.set_monitor_callback(self.stat_helper, self.monitor_all)
        self.exes.append(exe)

    def tic(self) -> None:
        """A batch begins."""
        if self.step % self.interval == 0:
            self.queue, self.activated = [], True
        self.step += 1

    def toc(self) -> list[tuple[int, str, str]]:
        """A batch is over: (batch, name, statistic as text) of all that was watched."""
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
        """`toc`, and log what it gives."""
        for step, name, text in self.toc():
            logging.info("Batch: %7d %-30s %s", step, name, text)


def _text(value: Any) -> str:
    values = value if isinstance(value, list) else [value]
    for each in values:
        assert isinstance(each, NDArray), f"stat_func must give an NDArray or a list of them, it gave {each!r:.80}"
    # !s: a float32 formatted without it has the digits of a float64
    return "".join(f"{each.as_nd_ndarray().asscalar() if each.size == 1 else each.asnumpy()!s}\t" for each in values)
