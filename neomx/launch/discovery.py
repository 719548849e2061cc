"""The hosts of an elastic job, as a program of the user prints them: `neomx run --hosts-from SCRIPT`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from typing import IO

from ..comm.child import describe
from ..comm.guard import signal_group
from ..comm.wire import printable
from .errors import ConfigurationError
from .job import parse_host

EVERY = 5.0  # seconds between two runs
LIMIT = 10.0  # seconds that a run may take
_LONGEST = 1 << 20  # bytes of output


class Discovery:
    """Runs the script again and again, without blocking. `hosts` has the last valid list: workers by host."""

    def __init__(self, path: str):
        self.path = os.path.abspath(path)
        self.hosts: dict[str, int] = {}
        self._run: _Run | None = None
        self._next = 0.0
        self._problem = ""

    def first(self) -> None:
        """Run it once and wait. Raises ConfigurationError if it fails."""
        self._run = self._started()
        try:
            while self._run is not None:
                self._take(self._run)
                time.sleep(0.02)
        finally:
            self.close()
        if self._problem:
            raise ConfigurationError(f"{self._problem}; nothing was started")

    def poll(self) -> str:
        """Update `hosts` if the script has ended, and start it if it is time. Return a new problem, or ""."""
        before = self._problem
        if self._run is not None:
            self._take(self._run)
        elif time.monotonic() >= self._next:
            self._run = self._started()
        changed = self._problem and self._problem != before
        return f"{self._problem}; the last valid list stays in use" if changed else ""

    def close(self) -> None:
        """End the script if it runs."""
        if self._run is not None:
            self._run.end()
            self._run = None

    def _started(self) -> _Run | None:
        try:
            return _Run(self.path)
        except OSError as error:
            self._end(f"cannot be started: {error.strerror}")
            return None

    def _take(self, run: _Run) -> None:
        problem = run.problem()
        if problem is None:
            return
        if not problem:
            problem = self._read(run.lines())
        run.end()
        self._run = None
        self._end(problem)

    def _end(self, problem: str) -> None:
        self._problem = problem and f"--hosts-from {self.path} {problem}"
        self._next = time.monotonic() + EVERY

    def _read(self, lines: list[str]) -> str:
        """Parse what the script has printed. Return the problem, or ""."""
        hosts: dict[str, int] = {}
        for line in lines:
            text = line.partition("#")[0].strip()
            if not text:
                continue
            found = parse_host(text)
            if found is None:
                return f"printed {printable(line[:80])!r}: expected lines host:workers, such as alpha:4"
            if found[0] in hosts:
                return f"printed the host {found[0]} twice"
            hosts[found[0]] = found[1]
        self.hosts = hosts
        return ""


class _Run:
    """One run of the script. Its output goes to files, so that it never waits for a reader."""

    def __init__(self, path: str):
        self._out: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `end`
        self._err: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        self._limit = time.monotonic() + LIMIT
        try:
            self._process = subprocess.Popen(
                [path], stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, start_new_session=True
            )
        except OSError:
            self._close()
            raise

    def problem(self) -> str | None:
        """Return None while it runs, then why its output is not used, or ""."""
        code = self._process.poll()
        if max(os.fstat(file.fileno()).st_size for file in (self._out, self._err)) > _LONGEST:
            return f"printed more than {_LONGEST} bytes"
        if code is None:
            return f"did not end within {LIMIT:g} s" if time.monotonic() > self._limit else None
        if code:
            said = self._text(self._err).strip().splitlines()
            return f"failed with {describe(code)}" + (f": {printable(said[-1][:200])}" if said else "")
        return ""

    def lines(self) -> list[str]:
        """Return the lines that it has printed."""
        return self._text(self._out).splitlines()

    @staticmethod
    def _text(file: IO[bytes]) -> str:
        file.seek(0)
        return file.read(_LONGEST).decode(errors="replace")

    def end(self) -> None:
        """End it with its descendants, if it still runs."""
        if self._process.poll() is None:
            signal_group(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._close()

    def _close(self) -> None:
        for file in (self._out, self._err):
            with contextlib.suppress(OSError):
                file.close()
