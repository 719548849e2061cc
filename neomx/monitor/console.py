"""A progress bar in a terminal, lines elsewhere: epoch, step, samples per second over all workers, loss, time left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from ..bar import ERASE, EVERY, line
from .loops import Loop, Loops
from .numbers import duration, number, rate
from .sinks import Sink, register_sink


@register_sink(
    "progress",
    help="show a progress bar, or lines without a terminal (shown unless --no-progress is given)",
    ranks="first",
    default=True,
)
class Progress(Sink):
    """Shows the progress of a training, and a summary line after each epoch.

    In a terminal it is a bar that is redrawn in place, elsewhere a line every `every` seconds. `workers` is the number
    of workers that train together, `epochs` the total number of epochs if known. It shows progress from its creation
    until `close`. Epochs are counted from 0, as in MXNet's logs. With `stream=None` it shows nothing. Output of the
    program appears above the bar.
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
        self._epochs, self._clock = epochs, clock
        self._bar: bool = self._stream is not None and (self._stream.isatty() if bar is None else bar)
        self._every = EVERY if self._bar else every
        self._loops = Loops(clock, workers)
        self._values: dict[str, Any] = {}
        self._shown_at = clock()
        self._visible = self._open_line = False
        if self._stream is not None:
            self._watch()

    @classmethod
    def open(cls, value: str, rank: int, workers: int) -> Progress:
        """Create the sink of a launched worker."""
        import torch  # noqa: F401  # import it before the timing starts

        return cls(workers=workers)

    def _watch(self) -> None:
        self.listen(
            fit_epoch=self._loops.name,
            epoch=self._loops.begin,
            reduce=self._loops.reduce,
            batch=lambda **fields: self._count(self._loops.batch(**fields)),
            step=lambda **fields: self._count(self._loops.step(**fields)),
            epoch_end=lambda **fields: self._sum_up(self._loops.end(**fields)),
            metrics=lambda values, **_: self._values.update(values),
        )
        if self._bar:
            sys.stdout, sys.stderr = _Above(sys.stdout, self), _Above(sys.stderr, self)  # type: ignore[assignment]

    def close(self) -> None:
        """Stop watching, and print summaries of unfinished loops."""
        super().close()
        for loop in self._loops.running[::-1]:
            self._sum_up(loop)
        self._loops.running.clear()
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if isinstance(stream, _Above) and stream._progress is self:
                setattr(sys, name, stream._stream)

    def _count(self, loop: Loop | None) -> None:
        if loop is not None and self._clock() - self._shown_at >= self._every:
            self._shown_at = self._clock()
            self._show(loop)

    def _show(self, loop: Loop) -> None:
        epochs = self._epochs_of(loop)
        seconds = loop.left(max(epochs - (loop.number or 0) - 1, 0) if epochs else 0)
        left = [] if seconds is None else [f"{duration(seconds)} left"]
        if self._bar:
            self._draw(loop, left)
        else:
            self._write(", ".join([self._place(loop), rate(loop.rate()), *self._numbers(), *left]) + "\n")

    def _epochs_of(self, loop: Loop) -> int | None:
        return self._epochs or loop.epochs

    def _place(self, loop: Loop) -> str:
        step = f"step {loop.done}" + (f"/{loop.steps}" if loop.steps else "")
        return step if loop.number is None else f"{self._name(loop)}, {step}"

    def _name(self, loop: Loop) -> str:
        assert loop.number is not None
        epochs = self._epochs_of(loop)
        return f"epoch {loop.number}" + (f" of {epochs}" if epochs else "")

    def _numbers(self) -> list[str]:
        names = sorted(self._values, key=lambda name: name != "loss")  # the loss first, then in order of appearance
        return [f"{name} {number(self._values[name]):.4g}" for name in names]

    def _draw(self, loop: Loop, left: list[str]) -> None:
        """Draw the bar. In a narrow terminal it shortens the rate, then omits metrics, starting with the last one."""
        if self._open_line:
            return
        place, numbers, speed = self._place(loop), self._numbers(), rate(loop.rate())
        short = speed.replace(" samples", "")
        choices = [[place, speed, *numbers, *left]]
        choices += [[place, short, *numbers[:count], *left] for count in range(len(numbers), -1, -1)]
        choices += [[place, *left], [place]]
        self._visible = True
        self._write(ERASE + line(self._stream, loop.fraction(), *(", ".join(parts) for parts in choices)))

    def _sum_up(self, loop: Loop | None) -> None:
        if loop is not None and loop.done:
            seconds = self._clock() - loop.started
            name = "" if loop.number is None else f"{self._name(loop)}: "
            steps = f"{loop.done} step{'s' if loop.done > 1 else ''} in {seconds:.1f} s"
            if loop.is_cut_short():
                steps = f"stopped at step {loop.done}/{loop.steps} after {seconds:.1f} s"
            self._above()
            self._write(
                ", ".join([name + steps, rate(loop.done_samples / max(seconds, 1e-9)), *self._numbers()]) + "\n"
            )

    def _above(self) -> None:
        """Erase the bar to make room for a line."""
        if self._visible:
            self._visible = False
            self._write(ERASE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class _Above:
    """Wraps an output stream of the program: erases the bar before output, and hides it until the line is complete."""

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
