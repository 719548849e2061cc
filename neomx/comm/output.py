"""Merges the output of several processes: rank 0 unchanged, the others line by line with a prefix."""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import time
from typing import Any, BinaryIO, Literal

TAIL = 20  # last lines of each process, kept for failure reports
LONGEST = 1 << 16  # maximum bytes of a line; longer ones are split
PATIENCE = 0.2  # seconds that lines of other ranks wait for rank 0 to finish its line
COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)


def colourful(stream: Any) -> bool:
    """Whether to use colors: on a terminal, unless NO_COLOR is set, or anywhere if FORCE_COLOR is set."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream)


def is_terminal(stream: Any) -> bool:
    """Whether the stream reports to be a terminal. Streams of notebooks do not."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


class Screen:
    """An output stream to which one process writes freely and the others in whole lines."""

    def __init__(self, stream: Any, other: Screen | None = None):
        """`other` is the screen that shows a message, once, if output to this one is lost because of a full disk."""
        self.stream, self._other, self._losing = stream, other, False
        self.terminal = is_terminal(stream)
        self.colour = colourful(stream)
        self.broken = False
        self._open_line = b""  # what the plain process has written since its last newline
        self._waiting: list[bytes] = []
        self._since = 0.0

    def plain(self, data: bytes) -> None:
        """Show bytes unchanged and immediately."""
        self._write(data)
        self._open_line = (self._open_line + data).rpartition(b"\n")[2].rpartition(b"\r")[2][-LONGEST:]
        if not self._open_line:
            self._show_waiting()

    def line(self, text: bytes) -> None:
        """Show a line, but not in the middle of another one."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(text)
        if not self._open_line:
            self._show_waiting()

    def tick(self) -> None:
        """Show lines that have waited too long for a newline, for example because of a progress bar or a prompt."""
        if not self._waiting or time.monotonic() - self._since < PATIENCE:
            return
        if self.terminal:  # clear the bar, show the lines, redraw the bar
            self._write(b"\r\x1b[K" + self._taken() + self._open_line)
        else:
            self._open_line = b""
            self._write(b"\n" + self._taken())

    def _show_waiting(self) -> None:
        if self._waiting:
            self._write(self._taken())

    def _taken(self) -> bytes:
        lines, self._waiting = self._waiting, []
        return b"".join(line + b"\n" for line in lines)

    def close(self) -> None:
        """Show all pending lines."""
        if self._waiting and self._open_line:
            self._write(b"\n")
            self._open_line = b""
        self._show_waiting()

    def _write(self, data: bytes) -> None:
        if self.broken:
            return
        try:
            write_through(self.stream, data)
        except BrokenPipeError:
            self.broken = True
            raise
        except OSError as error:  # a full disk
            if not self._losing and self._other is not None:
                self._other.line(f"neomx: {lost_lines(getattr(self.stream, 'name', 'a stream'), error)}".encode())
            self._losing = True


def write_through(stream: Any, data: bytes) -> None:
    """Write unbuffered, so that the interpreter does not retry failed writes at exit."""
    stream.flush()
    raw = getattr(getattr(stream, "buffer", None), "raw", None)
    if raw is not None:
        write_all(raw, data)
        return
    if hasattr(stream, "buffer"):
        stream.buffer.write(data)
    else:
        stream.write(data.decode(errors="replace"))
    stream.flush()


def write_all(file: Any, data: bytes) -> None:
    """Write all bytes to an unbuffered file."""
    left = memoryview(data)
    while left.nbytes:
        written = file.write(left)
        if written is None:  # nonblocking, and the reader is behind
            time.sleep(0.01)
        else:
            left = left[written:]


def lost_lines(where: str, error: OSError) -> str:
    """Return the message about output that cannot be written."""
    return f"cannot write to {where} ({error.strerror or error}): lines are lost there, the job continues"


class Lines:
    """Splits bytes into lines. Of a line redrawn with carriage returns, only the last state counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the lines that are complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            lines.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return [_last_state(line) for line in lines]

    def rest(self) -> list[bytes]:
        """Return the last line if it has no newline."""
        rest, self._rest = self._rest, b""
        return [_last_state(rest)] if rest else []


def _last_state(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Log:
    """A file with the output of one process. If the disk is full, lines are lost and a message is shown once."""

    def __init__(self, path: str, screen: Screen, mode: Literal["ab", "wb"]) -> None:
        self._file: BinaryIO = open(path, mode, buffering=0)  # noqa: SIM115 - closed by `close`
        self._screen, self._losing = screen, False

    def write(self, data: bytes) -> None:
        """Write to the file if there is space."""
        try:
            write_all(self._file, data)
        except OSError as error:
            if not self._losing:
                self._screen.line(f"neomx: {lost_lines(self._file.name, error)}".encode())
            self._losing = True

    def close(self) -> None:
        """Close the file."""
        with contextlib.suppress(OSError):
            self._file.close()


class StreamOutput:
    """The destinations of one stream of a process: the screen, the log file and the last lines."""

    def __init__(self, screen: Screen, prefix: str | None, tail: collections.deque[bytes], log: Log | None):
        self._screen, self._tail, self._log = screen, tail, log
        self._prefix = None if prefix is None else prefix.encode()
        self._lines = Lines()

    def feed(self, data: bytes) -> None:
        """Process output of the process."""
        if self._log is not None:
            self._log.write(data)
        if self._prefix is None:
            self._screen.plain(data)
        self._take(self._lines.feed(data))

    def close(self) -> None:
        """Process an unfinished last line."""
        self._take(self._lines.rest())

    def _take(self, lines: list[bytes]) -> None:
        self._tail.extend(lines)
        if self._prefix is not None:
            for line in lines:
                self._screen.line(self._prefix + line)


def prefix_of(name: str, screen: Screen) -> str:
    """Return '[3] ' for worker 3 or '[server 0] ' for a server, in its own color if colors are used."""
    role, _, number = name.partition(" ")
    text = f"[{number if role == 'worker' else name}] "
    if not screen.colour:
        return text
    colour = COLOURS[int(number) % len(COLOURS)] if number.isdigit() else 0
    return f"\x1b[{colour}m{text}\x1b[0m"


def say(text: str) -> None:
    """Print a message of the launcher while no process runs."""
    with contextlib.suppress(OSError):
        write_through(sys.stderr, f"neomx: {text}\n".encode())


def open_log(directory: str | None, name: str, screen: Screen, again: bool = False) -> Log | None:
    """Open DIR/worker-3.log for worker 3, or return None without a directory. Write errors are shown on `screen`.

    If the process is started `again`, keep what an earlier one with this name has written.
    """
    if directory is None:
        return None
    os.makedirs(directory, exist_ok=True)
    return Log(os.path.join(directory, name.replace(" ", "-") + ".log"), screen, "ab" if again else "wb")
