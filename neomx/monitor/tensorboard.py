"""Scalars for TensorBoard, in a directory for each worker: what is reported, the rate, and where a step's time goes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from ..base import MXNetError
from ..events import subscribe
from .numbers import number


def _writer(directory: str) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise MXNetError("writing for TensorBoard needs its package: pip install neomx[tensorboard]") from error
    return SummaryWriter(log_dir=directory)


class TensorBoard:
    """Writes `directory`/worker-`rank`, from when it is made until `close`.

    Reported values are written as they come. Once in `every` seconds, and at an epoch's end, the means since the last
    time: `samples_per_second` of this worker, and the seconds of a step by what they went to: `seconds/step`,
    `seconds/forward`, `seconds/backward`, `seconds/communication` and `seconds/waiting`. `seconds/step` is from one
    step's end to the next one's, with loading of data and all else.
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
        self._forget()
        handlers = {
            "forward": lambda seconds, **_: self._spend("forward", seconds),
            "backward": lambda seconds, **_: self._spend("backward", seconds),
            "step": self._step,
            "metrics": self._note,
            "epoch_end": lambda **_: self._flush(),
        }
        self._stops = [subscribe(lambda _, fields, of=of: of(**fields), name) for name, of in handlers.items()]  # type: ignore[misc]

    def close(self) -> None:
        """Write what is left, and end the files."""
        for stop in self._stops:
            stop()
        self._stops = []
        self._flush()
        self._writer.close()

    def _forget(self) -> None:
        self._since, self._counted, self._samples = self._clock(), 0, 0.0
        self._spent: dict[str, float] = {}

    def _spend(self, on: str, seconds: float) -> None:
        self._spent[on] = self._spent.get(on, 0.0) + seconds

    def _step(self, samples: float, communication: float = 0.0, waiting: float = 0.0, **_: Any) -> None:
        self._steps += 1
        self._counted += 1
        self._samples += samples
        self._spend("communication", communication)
        self._spend("waiting", waiting)
        if self._clock() - self._since >= self._every:
            self._flush()

    def _note(self, values: dict[str, Any], **_: Any) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, number(value), self._steps)

    def _flush(self) -> None:
        elapsed = max(self._clock() - self._since, 1e-9)
        if self._counted:
            self._writer.add_scalar("samples_per_second", self._samples / elapsed, self._steps)
            for on, seconds in {"step": elapsed, **self._spent}.items():
                self._writer.add_scalar(f"seconds/{on}", seconds / self._counted, self._steps)
        self._forget()
