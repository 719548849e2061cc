"""Atomic file writes: after a crash or on a full disk, the old file remains unchanged."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, cast

from ..base import MXNetError

_ENDING = ".tmp"  # of a file that is not committed yet


class Replacement:
    """A file that is renamed to its final name by `commit` and removed by `discard`.

    Symbolic links are followed, and the permissions of a replaced file are kept. If the path is not a regular file (a
    pipe, a device), it is written directly. A forked process can do neither: its copy only closes the file.
    """

    def __init__(self, path: str | os.PathLike[str], buffering: int = -1):
        self.name = os.fspath(path)
        self._target = os.path.realpath(self.name)
        self._pid = os.getpid()
        self._beside: str | None = None
        with self._told():
            if os.path.exists(self._target) and not stat.S_ISREG(os.stat(self._target).st_mode):
                self.file = cast(BinaryIO, open(self._target, "wb", buffering))  # noqa: SIM115
            else:
                beside = f"{self._target}.{os.getpid()}-{secrets.token_hex(4)}{_ENDING}"
                self.file = cast(BinaryIO, open(beside, "xb", buffering))  # noqa: SIM115
                self._beside = beside

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise MXNetError(f"cannot write {self.name}: {error.strerror or error}") from error

    def write(self, data: bytes) -> None:
        """Write all of `data`; an unbuffered file may need several writes."""
        with self._told():
            left = memoryview(data)
            while left:
                left = left[self.file.write(left) :]

    def commit(self) -> None:
        """Rename the file to its final name."""
        beside = self._beside
        if beside is None or self._pid != os.getpid():
            with self._told():
                self.file.close()
            return
        try:
            with self._told():
                self.file.flush()
                os.fsync(self.file.fileno())
                self.file.close()
                if os.path.exists(self._target):
                    shutil.copymode(self._target, beside)
                os.replace(beside, self._target)
                self._beside = None
                _sync_directory(os.path.dirname(self._target))
        finally:
            self.discard()

    def discard(self) -> None:
        """Remove the file; a no-op after `commit`."""
        beside, self._beside = self._beside, None
        with suppress(OSError):  # flushing the buffer may fail on a full disk
            self.file.close()
        if beside is not None and self._pid == os.getpid() and os.path.exists(beside):
            os.unlink(beside)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """Open a file for writing that is renamed to `path` if the block succeeds, and removed otherwise."""
    replacement = Replacement(path)
    try:
        with replacement._told():
            yield replacement.file
    except BaseException:
        replacement.discard()
        raise
    replacement.commit()


def being_written(path: str) -> bool:
    """Return whether a file of this name is being written, or was left behind by a killed writer."""
    target = os.path.realpath(path)
    folder, start = os.path.split(target)
    try:
        return any(name.startswith(start + ".") and name.endswith(_ENDING) for name in os.listdir(folder))
    except OSError:
        return False


def _sync_directory(directory: str) -> None:
    """Make the rename durable across a power failure, where the system supports it."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
