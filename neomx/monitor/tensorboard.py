"""Writes scalars for TensorBoard, in a directory for each worker: reported values, the rate, and the time of a step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from ..base import MXNetError
from .loops import Loop, Loops
from .numbers import number
from .sinks import Sink, register_sink


def _writer(directory: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MXNetError('TensorBoard output needs its package: pip install "neomx[tensorboard]"') from error
    return SummaryWriter(log_dir=directory)


@register_sink(
    "tensorboard",
    help="write scalars for TensorBoard",
    metavar="DIR",
    parse=os.path.abspath,
)
class TensorBoard(Sink):
    """Writes to `directory`/worker-`rank`, from its creation until `close`.

    Reported values are written immediately. Every `every` seconds, and at the end of an epoch, it writes means since
    the last time: `samples_per_second`, of all workers if known, else of this one, and the seconds per step by
    activity: `seconds/step`, the total from the end of one step to the end of the next; `seconds/forward` and
    `seconds/backward`; `seconds/waiting`, for other workers; `seconds/communication`, as far as backward does not hide
    it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        rank: int = 0,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._writer = _writer(os.path.join(os.fspath(directory), f"worker-{rank}"))
        self._every, self._clock = every, clock
        self._steps = 0
        self._loops = Loops(clock)
        self._forget()
        self.listen(
            epoch=self._loops.begin,
            batch=lambda **fields: self._count(self._loops.batch(**fields)),
            forward=lambda seconds, **_: self._spend("forward", seconds),
            backward=lambda seconds, **_: self._spend("backward", seconds),
            reduce=self._reduce,
            step=self._step,
            epoch_end=self._end,
            metrics=self._note,
        )

    @classmethod
    def open(cls, value: str, rank: int, workers: int) -> TensorBoard:
        """Create the sink of a launched worker."""
        return cls(value, rank)

    def close(self) -> None:
        """Write pending values and close the files."""
        super().close()
        self._flush()
        self._writer.close()

    def _forget(self) -> None:
        self._since, self._counted, self._trained = self._clock(), 0, self._loops.trained
        self._spent: dict[str, float] = {}

    def _spend(self, on: str, seconds: float) -> None:
        self._spent[on] = self._spent.get(on, 0.0) + seconds

    def _reduce(self, waiting: float, seconds: float, **_: Any) -> None:
        self._spend("waiting", waiting)
        self._spend("communication", seconds - waiting)

    def _end(self, **fields: Any) -> None:
        self._loops.end(**fields)
        self._flush()

    def _step(self, **fields: Any) -> None:
        self._steps += 1
        self._counted += 1
        self._count(self._loops.step(**fields))

    def _count(self, loop: Loop | None) -> None:
        if loop is not None and self._clock() - self._since >= self._every:
            self._flush()

    def _note(self, values: dict[str, Any], **_: Any) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, number(value), self._steps)

    def _flush(self) -> None:
        elapsed = max(self._clock() - self._since, 1e-9)
        if self._counted:
            self._writer.add_scalar("samples_per_second", (self._loops.trained - self._trained) / elapsed, self._steps)
            for on, seconds in {"step": elapsed, **self._spent}.items():
                self._writer.add_scalar(f"seconds/{on}", seconds / self._counted, self._steps)
        self._forget()
