"""A process that a launcher starts: its command, its output and its exit status."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import errno
import fcntl
import os
import pty
import re
import signal
import socket
import subprocess
import termios
from collections.abc import Sequence

from .descriptors import EXHAUSTED
from .output import TAIL, Screen, StreamOutput, open_log, prefix_of

_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # matches 'ValueError: no good', 'package.errors.Stop'


@dataclasses.dataclass
class Command:
    """A process to start.

    If `plain`, its output is shown unchanged, in a pseudo-terminal if the launcher has a terminal.
    """

    name: str
    argv: list[str]
    environ: dict[str, str]
    plain: bool = False
    stdin: int = subprocess.DEVNULL
    pass_fds: tuple[int, ...] = ()
    lines: bool = False  # show the output line by line, without a prefix


@dataclasses.dataclass(frozen=True)
class Failure:
    """A process that failed. `code` is negative for a signal."""

    name: str
    code: int
    host: str
    lines: list[str]
    is_interruption: bool = False  # a launcher was told to end, and its processes with it

    @property
    def why(self) -> str:
        """The exit code or the signal, as text."""
        return describe(self.code)

    @property
    def exit_code(self) -> int:
        """The exit code as a shell reports it: 128 + the signal number for a signal."""
        return 128 - self.code if self.code < 0 else self.code

    @property
    def is_consequence(self) -> bool:
        """Whether its last lines show that it failed because another process was lost."""
        return any("PeerError" in line for line in self.lines)

    @property
    def exception(self) -> str:
        """The exception with which it ended, such as 'ValueError: no good', or "" if it printed no traceback."""
        traced = any(line.startswith((_TRACEBACK, '  File "')) for line in self.lines)
        return _last_words(self.lines) if traced else ""

    def summary(self, alike: Sequence[Failure] = ()) -> str:
        """Return a summary: which process failed, how, and with which exception. Its output was already shown.

        Processes in `alike`, which failed with the same error, are named as well.
        """
        end = self._end()
        if alike:
            names = ", ".join(other.name for other in alike)
            end = f"{self.name}, {names} failed with the same error, {self.why}"
        return f"{end}: {_last_words(self.lines) or 'no output'}{self._advice()}"

    def is_like(self, other: Failure) -> bool:
        """Whether both failed with the same error."""
        mine, theirs = _last_words(self.lines), _last_words(other.lines)
        return self.code == other.code > 0 and bool(mine) and mine == theirs

    def report(self) -> str:
        """Return which process failed, how, and its last lines, for output that was not shown."""
        said = "".join(f"\n  | {line}" for line in self.lines) or "\n  (no output)"
        return f"{self._end()}. Its last lines:{said}{self._advice()}"

    def _end(self) -> str:
        return f"{self.name} on {self.host} failed first, with {self.why}"

    def _advice(self) -> str:
        if self.code == -signal.SIGKILL:
            return (
                "\nIf it was not killed on purpose, the system ran out of memory: see dmesg, and use smaller batches "
                "or fewer workers"
            )
        if not any(EXHAUSTED in line for line in self.lines):
            return ""
        return (
            "\nIt ran out of file descriptors: raise the hard limit (ulimit -Hn), and check whether other programs "
            "connect to the job's ports"
        )


def _last_words(lines: list[str]) -> str:
    """Return the line of the last traceback with the exception, or the last non-empty line."""
    after = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    begin = after[-1] + 1 if after else 0  # a long traceback may be cut at its beginning
    named = [line for line in lines[begin:] if _EXCEPTION.match(line)]
    if named:
        return named[0] if after else named[-1]
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def describe(code: int) -> str:
    """Return 'exit code 3', or 'signal SIGKILL' for a negative code."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


class Child:
    """A process in its own session, so that all its descendants can be ended with it."""

    def __init__(self, command: Command, logs: str | None, screens: tuple[Screen, Screen]):
        self.name, self.command = command.name, command
        self.code: int | None = None
        self.tail: collections.deque[bytes] = collections.deque(maxlen=TAIL)
        self.sinks: dict[int, StreamOutput] = {}
        self._log = open_log(logs, command.name, screens[1], again="NEOMX_JOINS" in command.environ)
        channels = _channels(command, screens)
        try:
            self.process = subprocess.Popen(
                command.argv,
                env=command.environ,
                stdin=command.stdin,
                stdout=channels[0][1],
                stderr=channels[1][1],
                start_new_session=True,
                pass_fds=command.pass_fds,
            )
        except BaseException:
            for fd in {channels[0][0], channels[1][0]}:
                os.close(fd)
            raise
        finally:
            for fd in {channels[0][1], channels[1][1]}:
                os.close(fd)
        self.group = self.process.pid
        for screen, (reader, _) in zip(screens, channels, strict=True):
            if reader not in self.sinks:
                os.set_blocking(reader, False)
                self.sinks[reader] = StreamOutput(screen, _prefix(command, screen), self.tail, self._log)

    def poll(self) -> int | None:
        """Return the exit code if it has ended.

        It stays a zombie until `reap`, so that its process ID is not reused.
        """
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            self.code = self.process.poll()
        elif self.code is None:
            ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self.code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self.code

    def read(self, fd: int) -> bool:
        """Forward the output of the process. Return False at the end of the stream."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        except OSError as error:  # a terminal whose last writer has exited
            if error.errno != errno.EIO:
                raise
            data = b""
        if data:
            self.sinks[fd].feed(data)
        return bool(data)

    def close(self, fd: int) -> None:
        """Close the stream after its end."""
        self.sinks.pop(fd).close()
        os.close(fd)

    def reap(self) -> None:
        """Release the process, which has ended."""
        self.poll()
        self.process.wait()
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self._log is not None:
            self._log.close()

    def failure(self) -> Failure:
        """Return its exit as a Failure."""
        assert self.code
        return Failure(
            self.name, self.code, socket.gethostname(), [line.decode(errors="replace") for line in self.tail]
        )


def _prefix(command: Command, screen: Screen) -> str | None:
    if command.plain:
        return None
    return "" if command.lines else prefix_of(command.name, screen)


def _channels(command: Command, screens: tuple[Screen, Screen]) -> list[tuple[int, int]]:
    """Return (reader, writer) of stdout and stderr: terminals for a plain process if ours are, else pipes."""
    terminals = [command.plain and screen.terminal for screen in screens]
    if all(terminals):
        return [_terminal(screens[0])] * 2
    return [_terminal(screen) if t else os.pipe() for t, screen in zip(terminals, screens, strict=True)]


def _terminal(screen: Screen) -> tuple[int, int]:
    """Open a pseudo-terminal of the size of ours that passes output through unchanged."""
    reader, writer = pty.openpty()
    settings = termios.tcgetattr(writer)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(writer, termios.TCSANOW, settings)
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(screen.stream.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
    return reader, writer
