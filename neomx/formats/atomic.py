"""Files that are either wholly written or not there: a crash or a full disk leaves the old file as it was."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, cast

from ..base import MXNetError

_ENDING = ".tmp"  # of a file that has not got its name yet


class Replacement:
    """A file to write, which takes its name at `commit` and vanishes at `discard`.

    A link is followed, the permissions of the file that is replaced are kept, and what is no regular file (a pipe,
    a device) is written to directly. A forked process may do neither: its copy closes the file, and no more.
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
        """Write all of `data`, also to a file without a buffer, which may take less at once."""
        with self._told():
            left = memoryview(data)
            while left:
                left = left[self.file.write(left) :]

    def commit(self) -> None:
        """Give the file its name."""
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
        """Remove the file; after `commit` this does nothing."""
        beside, self._beside = self._beside, None
        with suppress(OSError):  # what it still had to write may not fit
            self.file.close()
        if beside is not None and self._pid == os.getpid() and os.path.exists(beside):
            os.unlink(beside)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write; it takes the name `path` when the block ends well, and vanishes otherwise."""
    replacement = Replacement(path)
    try:
        with replacement._told():
            yield replacement.file
    except BaseException:
        replacement.discard()
        raise
    replacement.commit()


def being_written(path: str) -> bool:
    """Whether a file of this name is being written, or was when its writer was killed."""
    target = os.path.realpath(path)
    folder, start = os.path.split(target)
    try:
        return any(name.startswith(start + ".") and name.endswith(_ENDING) for name in os.listdir(folder))
    except OSError:
        return False


def _sync_directory(directory: str) -> None:
    """Make the rename itself survive a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
