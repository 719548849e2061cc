"""Files that are either wholly written or not there: a crash or a full disk leaves the old file as it was."""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from ..base import MXNetError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write; it takes the name `path` when the block ends well, and vanishes otherwise.

    A link is followed, the permissions of the file that is replaced are kept, and what is no regular file (a pipe,
    a device) is written to directly.
    """
    name = os.fspath(path)
    target = os.path.realpath(name)
    beside = f"{target}.{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        if os.path.exists(target) and not stat.S_ISREG(os.stat(target).st_mode):
            with open(target, "wb") as file:
                yield file
            return
        try:
            with open(beside, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            if os.path.exists(target):
                shutil.copymode(target, beside)
            os.replace(beside, target)
        except BaseException:
            if os.path.exists(beside):
                os.unlink(beside)
            raise
        _sync_directory(os.path.dirname(target))
    except OSError as error:
        raise MXNetError(f"cannot write {name}: {error.strerror or error}") from error


def _sync_directory(directory: str) -> None:
    """Make the rename itself survive a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
