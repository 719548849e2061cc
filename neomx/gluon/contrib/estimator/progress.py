"""A progress line on the terminal with the speed and the remaining time of an epoch."""

from __future__ import annotations

import logging
import sys
import time
from typing import TYPE_CHECKING, Any

from .events import BatchEnd, EpochBegin, EpochEnd

if TYPE_CHECKING:
    from .estimator import Estimator

WIDTH = 24
SECONDS_BETWEEN = 0.1


class ProgressLine(EpochBegin, BatchEnd, EpochEnd):
    """Shows the progress of each epoch on stderr and erases the line at the end."""

    priority = float("inf")

    def __init__(self, title: str, batches: int | None):
        self.title = title
        self.batches = batches
        self.drawn_at = 0.0
        self.is_drawn = False
        self.all_done = 0

    def epoch_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Start counting batches and samples."""
        self.done = self.samples = 0
        self.begin = time.monotonic()
        self.total = self.batches
        if self.title == "Training" and estimator.max_batch:
            left = estimator.max_batch - self.all_done
            self.total = left if self.batches is None else min(left, self.batches)
        estimator.logger.addFilter(self._make_room)

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Update the line, at most ten times per second."""
        self.done += 1
        self.all_done += 1
        self.samples += sum(len(part) for part in kwargs["loss"])
        now = time.monotonic()
        if now - self.drawn_at >= SECONDS_BETWEEN:
            self._write("\r\033[K" + self._text(now - self.begin))
            self.drawn_at, self.is_drawn = now, True

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Erase the line."""
        self._wipe()
        estimator.logger.removeFilter(self._make_room)

    def _text(self, seconds: float) -> str:
        rate = f"{self.samples / max(seconds, 1e-9):.0f} samples/s"
        if not self.total:
            return f"{self.title} batch {self.done}, {rate}"
        full = WIDTH * self.done // self.total
        left = seconds / self.done * (self.total - self.done)
        bar = "#" * full + "." * (WIDTH - full)
        return f"{self.title} [{bar}] {self.done}/{self.total} batches, {rate}, {_clock(left)} left"

    def _make_room(self, record: logging.LogRecord) -> bool:
        """Erase the progress line before another message is logged. As a logging filter, it accepts every message."""
        self._wipe()
        return True

    def _wipe(self) -> None:
        if self.is_drawn:
            self._write("\r\033[K")
            self.is_drawn = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


def progress_line(title: str, data: Any) -> list[ProgressLine]:
    """Return a list with the handler if stderr is a terminal, otherwise an empty list."""
    if not sys.stderr.isatty():
        return []
    try:
        return [ProgressLine(title, len(data))]
    except (TypeError, AttributeError):  # a sampler without a length
        return [ProgressLine(title, None)]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}" if minutes >= 60 else f"{minutes}:{rest:02d}"
