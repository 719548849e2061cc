"""The records of jobs in the background: a private directory for each, with its state and its output.

A record may be left over or damaged, so nothing in it is trusted: a process counts as that of a job only if it began
when the record says.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import socket
import stat
import tempfile
import time
from typing import Any

from .errors import ConfigurationError

_NAME = re.compile("[0-9a-f]{8}")
_LONGEST = 1 << 20  # bytes of a state
_KEPT = 7 * 24 * 3600.0  # seconds for which the record of a job is kept after its end


@dataclasses.dataclass(frozen=True)
class State:
    """What is known about a job."""

    host: str
    boot: str  # of the host: process IDs start again with it
    pid: int  # of the process that supervises the job
    began: int  # when that process began, in ticks since the boot
    since: float  # when the job began, in seconds since 1970
    command: list[str]
    workers: str
    patience: float  # seconds that the job may need to end
    code: int | None = None  # its exit code; None: it has not ended by itself

    @property
    def is_elsewhere(self) -> bool:
        """Whether it runs on another host, so that its process cannot be found here."""
        return self.host != socket.gethostname() and self.code is None

    @property
    def is_running(self) -> bool:
        """Whether it runs on this host."""
        return self.code is None and not self.is_elsewhere and self.boot == _boot() and began(self.pid) == self.began

    def told(self) -> str:
        """Return the state in words."""
        if self.code is not None:
            return f"ended, exit code {self.code}"
        return f"on {self.host}" if self.is_elsewhere else "running" if self.is_running else "killed"


@dataclasses.dataclass(frozen=True)
class Record:
    """The directory of a job."""

    name: str

    @property
    def path(self) -> str:
        """The directory."""
        return os.path.join(_jobs(), self.name)

    @property
    def log(self) -> str:
        """The file with the output."""
        return os.path.join(self.path, "output.log")

    def write(self, state: State) -> None:
        """Replace the state in one operation."""
        fd, made = tempfile.mkstemp(dir=self.path)  # mode 0600
        with open(fd, "w") as file:
            json.dump(dataclasses.asdict(state), file)
        os.replace(made, os.path.join(self.path, "state.json"))

    def read(self) -> State | None:
        """Return the state, or None if there is no valid one."""
        try:
            with open(open_own(os.path.join(self.path, "state.json")), "rb") as file:
                return _parsed(json.loads(file.read(_LONGEST)))
        except (OSError, ValueError, TypeError, RecursionError):
            return None


def create(name: str) -> Record:
    """Create the directory of a new job."""
    record = Record(name)
    os.makedirs(os.path.dirname(_jobs()), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(_jobs(), 0o700)
    found = os.lstat(_jobs())
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"{_jobs()} must be a directory of user {os.getuid()} without access for others; found owner "
            f"{found.st_uid} and {stat.filemode(found.st_mode)}. Remove it, or run chmod 700 on it"
        )
    os.mkdir(record.path, 0o700)
    return record


def find(name: str) -> Record | None:
    """Return the record of a job, or None."""
    record = Record(name)
    return record if _NAME.fullmatch(name) and _is_own_directory(record.path) else None


def records() -> dict[Record, State]:
    """Return all jobs of this user, the oldest first. Records of jobs that ended long ago are deleted."""
    found = {}
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(_jobs()):
            record = find(name)
            state = None if record is None else record.read()
            if record is None or _is_stale(record, state):
                continue
            if state is not None:
                found[record] = state
    return dict(sorted(found.items(), key=lambda item: item[1].since))


def _is_stale(record: Record, state: State | None) -> bool:
    """Delete the record of a job that ended, or was never complete, long ago. Return whether it was."""
    if state is not None and (state.is_running or state.is_elsewhere):
        return False
    with contextlib.suppress(OSError):
        changed = max(entry.stat(follow_symlinks=False).st_mtime for entry in os.scandir(record.path))
        if time.time() - changed < _KEPT:
            return False
    shutil.rmtree(record.path, ignore_errors=True)
    return True


def here(command: list[str], workers: str, patience: float) -> State:
    """Return the state of a job that this process supervises."""
    pid = os.getpid()
    return State(socket.gethostname(), _boot(), pid, began(pid) or 0, time.time(), command, workers, patience)


def open_own(path: str) -> int:
    """Open a regular file of this user for reading. Raises OSError for links and files of others."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid():
        os.close(fd)
        raise PermissionError(f"{path} is not a file of this user")
    return fd


def began(pid: int) -> int | None:
    """Return when a process began, in ticks since the boot, or None if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def _boot() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()


def _jobs() -> str:
    # Not below XDG_RUNTIME_DIR, which is in memory and deleted when the user logs out: jobs in the background go on.
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.path.join(os.path.abspath(cache), "neomx", "jobs")


def _is_own_directory(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _parsed(said: Any) -> State:
    """Return the state that a file contains. Raises TypeError or ValueError if it is invalid."""
    state = State(**said)
    if not isinstance(state.command, list):
        raise TypeError("the command of a job must be a list")
    texts = (state.host, state.boot, state.workers, *state.command)
    numbers = (state.since, state.patience)
    if (
        not all(isinstance(text, str) for text in texts)
        or not all(isinstance(number, float | int) and abs(number) < 1e12 for number in numbers)
        or not all(type(number) is int and number > 0 for number in (state.pid, state.began))
        or state.code is not None
        and type(state.code) is not int
    ):
        raise ValueError("the state of a job is invalid")
    return state
