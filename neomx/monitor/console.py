"""A progress bar in a terminal, lines elsewhere: epoch, step, samples per second over all workers, loss, time left."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

from ..events import subscribe
from .numbers import duration, number, rate

BAR_EVERY = 0.1  # seconds between two drawings
RATE_OVER = 5.0  # seconds over which the rate is taken
ERASE = "\r\x1b[K"


@dataclass(eq=False)
class _Loop:
    """A pass over a loader, as far as it has come; the outermost one is the program, which has no loader."""

    started: float
    loader: Any = None
    number: int | None = None
    steps: int | None = None
    samples: int | None = None
    done: int = 0
    done_samples: int = 0
    recent: deque[tuple[float, int]] = field(default_factory=deque)  # when, and how many samples were done by then

    def add(self, now: float, samples: int) -> None:
        """A step was done."""
        self.recent = self.recent or deque([(self.started, 0)])
        self.done += 1
        self.done_samples += samples
        self.recent.append((now, self.done_samples))
        while len(self.recent) > 2 and now - self.recent[1][0] >= RATE_OVER:
            self.recent.popleft()

    def fraction(self) -> float | None:
        """How much of it is done, if that is known."""
        if self.samples and self.done_samples <= self.samples:
            return self.done_samples / self.samples
        return min(self.done / self.steps, 1.0) if self.steps else None

    def rate(self) -> float:
        """Samples per second lately."""
        (first, before), (last, after) = self.recent[0], self.recent[-1]
        return (after - before) / max(last - first, 1e-9)


class Progress:
    """Shows how far a training is: a bar, redrawn in place, in a terminal; a line every `every` seconds elsewhere; and
    a line for each epoch that is over.

    `workers` train together, and `epochs` there will be, if known. It watches from when it is made until `close`.
    With `stream=None` it shows nothing. What the program prints meanwhile appears above the bar.
    """

    def __init__(
        self,
        stream: TextIO | str | None = "stderr",
        workers: int = 1,
        epochs: int | None = None,
        bar: bool | None = None,
        every: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._stream: Any = sys.stderr if isinstance(stream, str) else stream
        self._workers, self._epochs, self._clock = workers, epochs, clock
        self._bar: bool = self._stream is not None and (self._stream.isatty() if bar is None else bar)
        self._every = BAR_EVERY if self._bar else every
        self._loops = [_Loop(clock())]
        self._values: dict[str, Any] = {}
        self._shown_at = clock()
        self._visible = self._open_line = False
        self._stops: list[Callable[[], None]] = []
        if self._stream is not None:
            self._watch()

    def _watch(self) -> None:
        handlers = {"epoch": self._begin, "epoch_end": self._end, "step": self._step, "metrics": self._note}
        self._stops = [subscribe(lambda _, fields, of=of: of(**fields), name) for name, of in handlers.items()]  # type: ignore[misc]
        if self._bar:
            sys.stdout, sys.stderr = _Above(sys.stdout, self), _Above(sys.stderr, self)  # type: ignore[assignment]

    def close(self) -> None:
        """Stop watching. A loop that is not over is summed up."""
        for stop in self._stops:
            stop()
        self._stops = []
        while self._loops:
            self._sum_up(self._loops.pop())
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Above) and stream._progress is self:
                setattr(sys, name, stream._stream)

    # ---- events ----

    def _begin(self, loader: Any, number: int, steps: int | None, samples: int | None, **_: Any) -> None:
        self._loops.append(_Loop(self._clock(), loader, number, steps, samples))

    def _end(self, loader: Any, **_: Any) -> None:
        for loop in self._loops[::-1]:
            if loop.loader is loader:
                self._loops.remove(loop)
                self._sum_up(loop)
                break

    def _step(self, samples: float, total: float | None = None, **_: Any) -> None:
        now = self._clock()
        self._loops[-1].add(now, int(samples * self._workers if total is None else total))
        if now - self._shown_at >= self._every:
            self._shown_at = now
            self._show()

    def _note(self, values: dict[str, Any], **_: Any) -> None:
        self._values.update(values)

    # ---- what is seen ----

    def _show(self) -> None:
        loop = self._loops[-1]
        parts = [self._place(loop), rate(loop.rate()), *self._numbers()]
        left = self._left(loop)
        if left is not None:
            parts.append(f"{duration(left)} left")
        if self._bar:
            self._draw(loop.fraction(), parts)
        else:
            self._write(", ".join(parts) + "\n")

    def _place(self, loop: _Loop) -> str:
        step = f"step {loop.done}" + (f"/{loop.steps}" if loop.steps else "")
        return step if loop.number is None else f"{self._name(loop)}, {step}"

    def _name(self, loop: _Loop) -> str:
        assert loop.number is not None
        return f"epoch {loop.number + 1}" + (f"/{self._epochs}" if self._epochs else "")

    def _numbers(self) -> list[str]:
        names = sorted(self._values, key=lambda name: name != "loss")  # the loss first, the others as they came
        return [f"{name} {number(self._values[name]):.4g}" for name in names]

    def _left(self, loop: _Loop) -> float | None:
        fraction = loop.fraction()
        if not fraction:
            return None
        whole = (self._clock() - loop.started) / fraction
        epochs = max(self._epochs - (loop.number or 0) - 1, 0) if self._epochs else 0
        return whole * (1 - fraction + epochs)

    def _draw(self, fraction: float | None, parts: list[str]) -> None:
        """The bar, as long as the terminal is wide; never longer, since then it could not be erased."""
        if self._open_line:
            return
        text, room = ", ".join(parts), shutil.get_terminal_size().columns - 1
        length = min(40, room - len(text) - 8)
        if fraction is not None and length >= 5:
            full, empty = ("█", "░") if _can_write(self._stream, "█░") else ("#", ".")
            filled = int(length * fraction)
            text = f"{full * filled}{empty * (length - filled)} {fraction:4.0%}  {text}"
        self._visible = True
        self._write(ERASE + text[:room])

    def _sum_up(self, loop: _Loop) -> None:
        if loop.done:
            seconds = self._clock() - loop.started
            name = "" if loop.number is None else f"{self._name(loop)}: "
            steps = f"{loop.done} step{'s' if loop.done > 1 else ''} in {seconds:.1f} s"
            self._above()
            self._write(
                ", ".join([name + steps, rate(loop.done_samples / max(seconds, 1e-9)), *self._numbers()]) + "\n"
            )

    def _above(self) -> None:
        """Make room for a line where the bar is."""
        if self._visible:
            self._visible = False
            self._write(ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Above:
    """The program's output: before it the bar is erased, and the bar waits until a line is complete."""

    def __init__(self, stream: Any, progress: Progress):
        self._stream, self._progress = stream, progress

    def write(self, text: str) -> int:
        """Write above the bar."""
        if text:
            self._progress._above()
            self._progress._open_line = not text.endswith("\n")
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _can_write(stream: Any, text: str) -> bool:
    try:
        text.encode(getattr(stream, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True
