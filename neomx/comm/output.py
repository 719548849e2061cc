"""What many processes print, on one screen: rank 0 as it is, the others line by line behind their name."""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import time
from typing import Any, BinaryIO

TAIL = 20  # lines of each process that are kept for the report of a failure
LONGEST = 1 << 16  # bytes of one line; beyond, it is cut in pieces
PATIENCE = 0.2  # seconds that other ranks' lines wait for rank 0 to finish its line
COLOURS = (36, 33, 35, 32, 34, 96, 93, 95, 92, 94)


def colourful(stream: Any) -> bool:
    """Whether to colour: on a terminal, unless NO_COLOR says no or FORCE_COLOR yes."""
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or is_terminal(stream)


def is_terminal(stream: Any) -> bool:
    """Whether the stream itself says that it writes to a terminal: a notebook's does not, whatever is behind it."""
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):
        return False


class Screen:
    """A stream that one process writes to as it likes and the others in whole lines."""

    def __init__(self, stream: Any, other: Screen | None = None):
        """`other` is where it is said once that lines of this one are lost, should its disk be full."""
        self.stream, self._other, self._losing = stream, other, False
        self.terminal = is_terminal(stream)
        self.colour = colourful(stream)
        self.broken = False
        self._open_line = b""  # what the plain process has written since its last end of line
        self._waiting: list[bytes] = []
        self._since = 0.0

    def plain(self, data: bytes) -> None:
        """Show bytes untouched and at once."""
        self._write(data)
        self._open_line = (self._open_line + data).rpartition(b"\n")[2].rpartition(b"\r")[2][-LONGEST:]
        if not self._open_line:
            self._show_waiting()

    def line(self, text: bytes) -> None:
        """Show one line, but not in the middle of another."""
        if not self._waiting:
            self._since = time.monotonic()
        self._waiting.append(text)
        if not self._open_line:
            self._show_waiting()

    def tick(self) -> None:
        """Show lines that have waited long enough for an end of line that does not come: a bar, or a prompt."""
        if not self._waiting or time.monotonic() - self._since < PATIENCE:
            return
        if self.terminal:  # clear the bar, show the lines, draw the bar again
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
        """Show all that still waits."""
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
    """Write without a buffer of Python's: what cannot be written is not tried again when the interpreter ends."""
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
    """Write all of it to a file without a buffer."""
    left = memoryview(data)
    while left.nbytes:
        written = file.write(left)
        if written is None:  # it does not block, and nobody has read yet
            time.sleep(0.01)
        else:
            left = left[written:]


def lost_lines(where: str, error: OSError) -> str:
    """What is said once of output that cannot be written."""
    return f"cannot write to {where} ({error.strerror or error}): lines are lost there, the job goes on"


class Lines:
    """Bytes in pieces, lines out. Of a bar that is drawn over itself only the last state counts."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST:
            lines.append(self._rest[:LONGEST])
            self._rest = self._rest[LONGEST:]
        return [_last_state(line) for line in lines]

    def rest(self) -> list[bytes]:
        """The last line, if it had no end."""
        rest, self._rest = self._rest, b""
        return [_last_state(rest)] if rest else []


def _last_state(line: bytes) -> bytes:
    return line.rstrip(b"\r").rpartition(b"\r")[2]


class Log:
    """A file that keeps the output of one process. While its disk is full lines are lost, which is said once."""

    def __init__(self, path: str, screen: Screen) -> None:
        self._file: BinaryIO = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by `close`
        self._screen, self._losing = screen, False

    def write(self, data: bytes) -> None:
        """Keep it, if there is space."""
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
    """Where one stream of one process goes: the screen, its log, its last lines."""

    def __init__(self, screen: Screen, prefix: str | None, tail: collections.deque[bytes], log: Log | None):
        self._screen, self._tail, self._log = screen, tail, log
        self._prefix = None if prefix is None else prefix.encode()
        self._lines = Lines()

    def feed(self, data: bytes) -> None:
        """Take what the process has written."""
        if self._log is not None:
            self._log.write(data)
        if self._prefix is None:
            self._screen.plain(data)
        self._take(self._lines.feed(data))

    def close(self) -> None:
        """Take an unfinished last line too."""
        self._take(self._lines.rest())

    def _take(self, lines: list[bytes]) -> None:
        self._tail.extend(lines)
        if self._prefix is not None:
            for line in lines:
                self._screen.line(self._prefix + line)


def prefix_of(name: str, screen: Screen) -> str:
    """'[3] ' for worker 3, '[server 0] ' for a server, in a colour of its own where there are colours."""
    role, _, number = name.partition(" ")
    text = f"[{number if role == 'worker' else name}] "
    if not screen.colour:
        return text
    colour = COLOURS[int(number) % len(COLOURS)] if number.isdigit() else 0
    return f"\x1b[{colour}m{text}\x1b[0m"


def say(text: str) -> None:
    """Print a message of the launcher's own, while no process runs."""
    with contextlib.suppress(OSError):
        write_through(sys.stderr, f"neomx: {text}\n".encode())


def open_log(directory: str | None, name: str, screen: Screen) -> Log | None:
    """DIR/worker-3.log for worker 3, or nothing without a directory. What is wrong with it is told on `screen`."""
    if directory is None:
        return None
    os.makedirs(directory, exist_ok=True)
    return Log(os.path.join(directory, name.replace(" ", "-") + ".log"), screen)
