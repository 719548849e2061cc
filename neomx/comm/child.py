"""One process that a launcher starts: its command, its output, and how it ended."""

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
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")  # 'ValueError: no good', 'package.errors.Stop'


@dataclasses.dataclass
class Command:
    """A process to start. `plain`: shown unchanged, on a terminal of its own if the launcher has one."""

    name: str
    argv: list[str]
    environ: dict[str, str]
    plain: bool = False
    stdin: int = subprocess.DEVNULL
    pass_fds: tuple[int, ...] = ()
    lines: bool = False  # shown line by line without a prefix


@dataclasses.dataclass(frozen=True)
class Failure:
    """A process that ended without success. `code` is negative for a signal."""

    name: str
    code: int
    host: str
    lines: list[str]

    @property
    def why(self) -> str:
        """The exit code or the signal in words."""
        return describe(self.code)

    @property
    def exit_code(self) -> int:
        """The exit code as a shell reports it: 128 + the signal."""
        return 128 - self.code if self.code < 0 else self.code

    @property
    def is_consequence(self) -> bool:
        """Whether its last lines say that it failed because another process was gone."""
        return any("PeerError" in line for line in self.lines)

    def summary(self, alike: Sequence[Failure] = ()) -> str:
        """Which process failed, how, and by which exception; its output was shown as it came.

        Those that failed `alike`, as programs do that have the same mistake, are named with it.
        """
        end = self._end()
        if alike:
            names = ", ".join(other.name for other in alike)
            end = f"{self.name}, {names} failed with the same error, by {self.why}"
        return f"{end}: {_last_words(self.lines) or 'it printed nothing'}{self._advice()}"

    def is_like(self, other: Failure) -> bool:
        """Whether both ended by the same error."""
        mine, theirs = _last_words(self.lines), _last_words(other.lines)
        return self.code == other.code > 0 and bool(mine) and mine == theirs

    def report(self) -> str:
        """Which process failed, how, and its last lines, for where its output was not shown."""
        said = "".join(f"\n  | {line}" for line in self.lines) or "\n  (it printed nothing)"
        return f"{self._end()}. Its last lines:{said}{self._advice()}"

    def _end(self) -> str:
        return f"{self.name} on {self.host} failed first, by {self.why}"

    def _advice(self) -> str:
        if self.code == -signal.SIGKILL:
            return (
                "\nIf nobody killed it, the system did for lack of memory: see dmesg, and use smaller batches or fewer "
                "workers"
            )
        if not any(EXHAUSTED in line for line in self.lines):
            return ""
        return (
            "\nIt had no file descriptors left: raise the hard limit (ulimit -Hn), and see whether other programs "
            "connect to the job's ports"
        )


def _last_words(lines: list[str]) -> str:
    """The line of the last traceback that names the exception, else the last line that is not empty."""
    after = [number for number, line in enumerate(lines) if line.startswith(_TRACEBACK)]
    begin = after[-1] + 1 if after else 0  # a long traceback may have lost its beginning
    named = [line for line in lines[begin:] if _EXCEPTION.match(line)]
    if named:
        return named[0] if after else named[-1]
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def describe(code: int) -> str:
    """'exit code 3', or 'signal SIGKILL' for a negative one."""
    if code >= 0:
        return f"exit code {code}"
    with contextlib.suppress(ValueError):
        return f"signal {signal.Signals(-code).name}"
    return f"signal {-code}"


class Child:
    """One process with its own session: everything it starts can be ended with it."""

    def __init__(self, command: Command, logs: str | None, screens: tuple[Screen, Screen]):
        self.name = command.name
        self.code: int | None = None
        self.tail: collections.deque[bytes] = collections.deque(maxlen=TAIL)
        self.sinks: dict[int, StreamOutput] = {}
        self._log = open_log(logs, command.name, screens[1])
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
        """The exit code once it has ended. It stays a zombie until `reap`, so that its number is nobody else's."""
        if not hasattr(os, "waitid"):  # macOS before Python 3.13
            self.code = self.process.poll()
        elif self.code is None:
            ended = os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is not None:
                self.code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        return self.code

    def read(self, fd: int) -> bool:
        """Pass on what the process has written. False at the end of the stream."""
        try:
            data = os.read(fd, 1 << 16)
        except BlockingIOError:
            return True
        except OSError as error:  # a terminal whose last writer is gone
            if error.errno != errno.EIO:
                raise
            data = b""
        if data:
            self.sinks[fd].feed(data)
        return bool(data)

    def close(self, fd: int) -> None:
        """The stream has ended."""
        self.sinks.pop(fd).close()
        os.close(fd)

    def reap(self) -> None:
        """Let go of the process, which has ended."""
        self.poll()
        self.process.wait()
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        if self._log is not None:
            self._log.close()

    def failure(self) -> Failure:
        """Its end, as a failure."""
        assert self.code
        return Failure(
            self.name, self.code, socket.gethostname(), [line.decode(errors="replace") for line in self.tail]
        )


def _prefix(command: Command, screen: Screen) -> str | None:
    if command.plain:
        return None
    return "" if command.lines else prefix_of(command.name, screen)


def _channels(command: Command, screens: tuple[Screen, Screen]) -> list[tuple[int, int]]:
    """Reading and writing ends for stdout and stderr: terminals for the plain process where ours are, else pipes."""
    terminals = [command.plain and screen.terminal for screen in screens]
    if all(terminals):
        return [_terminal(screens[0])] * 2
    return [_terminal(screen) if t else os.pipe() for t, screen in zip(terminals, screens, strict=True)]


def _terminal(screen: Screen) -> tuple[int, int]:
    """A terminal of the size of ours that hands through what is written to it."""
    reader, writer = pty.openpty()
    settings = termios.tcgetattr(writer)
    settings[1] &= ~termios.OPOST
    termios.tcsetattr(writer, termios.TCSANOW, settings)
    with contextlib.suppress(OSError):
        size = fcntl.ioctl(screen.stream.fileno(), termios.TIOCGWINSZ, b"\0" * 8)
        fcntl.ioctl(writer, termios.TIOCSWINSZ, size)
    return reader, writer
