"""A progress bar in a terminal: one line, redrawn in place."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

ERASE = "\r\x1b[K"
EVERY = 0.1  # seconds between two redraws


_SHORTEST = 5  # minimum width of a bar, in characters
_PERCENT = 8  # width of ' 100%  ' plus one spare character


def line(stream: Any, fraction: float | None, *texts: str) -> str:
    """Return the bar followed by the longest of `texts` that fits next to it, or the first text that fits alone.

    `texts` are ordered from long to short. The line is never wider than the terminal, because a wrapped line cannot be
    erased.
    """
    room = shutil.get_terminal_size().columns - 1
    beside = (0,) if fraction is None else (_SHORTEST + _PERCENT, 0)
    text = next((text for taken in beside for text in texts if len(text) + taken <= room), texts[-1])
    length = min(40, room - len(text) - _PERCENT)
    if fraction is not None and length >= _SHORTEST:
        full, empty = ("█", "░") if _can_write(stream, "█░") else ("#", ".")
        filled = int(length * fraction)
        text = f"{full * filled}{empty * (length - filled)} {fraction:4.0%}  {text}"
    return text[:room]


def duration(seconds: float) -> str:
    """Format a duration as '0:07', '12:34' or '3:02:01'."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Bar:
    """Shows how many of `total` items are done, the rate, and the time left. Shows nothing without a terminal."""

    def __init__(self, total: int, things: str, stream: Any = None, clock: Callable[[], float] = time.monotonic):
        self._total, self._things, self._stream, self._clock = total, things, stream or sys.stderr, clock
        self._began = self._shown = clock()
        self._visible = False

    def show(self, done: int) -> None:
        """Update the bar: `done` items are done so far."""
        now = self._clock()
        if now - self._shown < EVERY or not self._stream.isatty():
            return
        self._shown = now
        rate = done / (now - self._began)
        left = f", {duration((self._total - done) / rate)} left" if rate else ""
        text = f"{done:,}/{self._total:,} {self._things}, {rate:,.0f}/s{left}"
        self._write(ERASE + line(self._stream, done / self._total, text))
        self._visible = True

    def say(self, text: str) -> None:
        """Print a line of text above the bar."""
        self.erase()
        self._write(text + "\n")

    def erase(self) -> None:
        """Erase the bar."""
        if self._visible:
            self._write(ERASE)
            self._visible = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def _can_write(stream: Any, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
