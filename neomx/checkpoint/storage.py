"""The directory of checkpoints: on a disk, or at a URL through fsspec (`s3://`, `sftp://`, `memory://`, ...).

Both kinds promise the same: a file that `put` writes is whole or not there, one that `create` writes is durable when
the block ends, and only one job at a time owns a directory.
"""

from __future__ import annotations

import errno
import fcntl
import importlib
import json
import os
import shutil
import socket
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from ..base import MXNetError
from ..formats.atomic import replacing
from .manifest import CheckpointError, DamagedError

_LOCK = ".lock"
_OWNER = ".owner.json"
_HELD = (errno.EACCES, errno.EAGAIN)


class Sink(Protocol):
    """A file that is being written."""

    def write(self, data: memoryview, /) -> object:
        """Write some bytes. Return how many, if not all of them."""


class Storage(ABC):
    """A directory with a folder for each checkpoint. Paths are relative to it."""

    url: str

    @abstractmethod
    def names(self, folder: str = "") -> list[str]:
        """Return the names of the files and folders in a folder, in order. A missing folder has none."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Return the size of a regular file, or None if there is none."""

    @abstractmethod
    def read(self, path: str, begin: int, into: memoryview) -> None:
        """Read bytes of a file, from `begin`. Raises DamagedError if it ends before."""

    @abstractmethod
    def make(self, folder: str = "") -> None:
        """Create a folder, if it does not exist."""

    @abstractmethod
    def create(self, path: str) -> Any:
        """Return a context manager for writing a file, which is durable when the block ends."""

    @abstractmethod
    def put(self, path: str, content: bytes) -> None:
        """Write a small file. Readers see all of it or nothing."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file, if it exists."""

    @abstractmethod
    def remove_folder(self, folder: str) -> None:
        """Delete a folder with all files in it, if it exists."""

    @abstractmethod
    def claim(self, token: str) -> None:
        """Become the only job that writes here. Raises CheckpointError if another one is running."""

    @abstractmethod
    def check_claim(self) -> None:
        """Raise CheckpointError if another job has taken over the directory."""

    @abstractmethod
    def release(self) -> None:
        """Let other jobs write here."""

    def get(self, path: str, most: int) -> bytes | None:
        """Return the contents of a file, or None if there is none. Raises DamagedError if it has more bytes."""
        size = self.size(path)
        if size is None:
            return None
        if size > most:
            raise DamagedError(f"{self.shown(path)} has {size} bytes, expected at most {most}: it is damaged")
        content = bytearray(size)
        self.read(path, 0, memoryview(content))
        return bytes(content)

    def shown(self, path: str) -> str:
        """Return the whole path of a file, for messages."""
        return f"{self.url}/{path}"


def open_storage(directory: str | os.PathLike[str], options: Mapping[str, Any] | None = None) -> Storage:
    """Return the storage of a directory or a URL. `options` are those of the file system of a URL."""
    path = os.fspath(directory)
    if "://" in path:
        return Remote(path, options or {})
    if options:
        raise MXNetError(f"storage_options are for a URL such as s3://bucket/run, received the directory {path!r}")
    return Local(path)


# ---- on a disk ----


class Local(Storage):
    """A directory of the operating system."""

    def __init__(self, path: str):
        self.url = os.path.abspath(path)
        self._lock = -1

    def _at(self, path: str) -> str:
        return os.path.join(self.url, path)

    def names(self, folder: str = "") -> list[str]:
        """Return the names of the files and folders in a folder."""
        try:
            return sorted(os.listdir(self._at(folder)))
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise CheckpointError(f"cannot read the directory {self._at(folder)}: {error.strerror or error}") from error

    def size(self, path: str) -> int | None:
        """Return the size of a regular file. A symbolic link or a pipe does not count."""
        try:
            info = os.lstat(self._at(path))
        except OSError:
            return None
        return info.st_size if stat.S_ISREG(info.st_mode) else None

    def read(self, path: str, begin: int, into: memoryview) -> None:
        """Read bytes of a file."""
        try:
            handle = os.open(self._at(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                left = into
                while left:
                    count = os.preadv(handle, [left], begin)
                    if not count:
                        raise DamagedError(f"{self._at(path)} ends too early: {len(left)} bytes are missing")
                    left, begin = left[count:], begin + count
            finally:
                os.close(handle)
        except OSError as error:
            raise DamagedError(f"cannot read {self._at(path)}: {error.strerror or error}") from error

    def make(self, folder: str = "") -> None:
        """Create a folder."""
        os.makedirs(self._at(folder), exist_ok=True)

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        """Write a file without a temporary name: a checkpoint has only the files that its manifest lists."""
        with open(self._at(path), "xb", buffering=0) as file:
            yield file
            os.fsync(file.fileno())

    def put(self, path: str, content: bytes) -> None:
        """Write a small file and make its folder durable."""
        with replacing(self._at(path)) as file:
            file.write(content)
        self._settle(os.path.dirname(self._at(path)))
        self._settle(self.url)

    @staticmethod
    def _settle(folder: str) -> None:
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def remove(self, path: str) -> None:
        """Delete a file."""
        with suppress(FileNotFoundError):
            os.unlink(self._at(path))

    def remove_folder(self, folder: str) -> None:
        """Delete a folder with all files in it."""
        shutil.rmtree(self._at(folder), ignore_errors=True)

    def claim(self, token: str) -> None:
        """Lock a file. The system unlocks it when this process ends, however it ends; forked processes do not share it.

        A file system without locks is used without one.
        """
        handle = os.open(self._at(_LOCK), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _HELD:
                holder = os.pread(handle, 200, 0).decode(errors="replace").strip()
                os.close(handle)
                raise _taken(self.url, holder) from None
        else:
            os.ftruncate(handle, 0)
            os.pwrite(handle, _this_process().encode(), 0)
        self._lock = handle

    def check_claim(self) -> None:
        """Do nothing: the lock is held until `release`."""

    def release(self) -> None:
        """Unlock."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


# ---- at a URL ----


class Remote(Storage):
    """A directory of a file system of fsspec. On object stores a file appears whole, when its writer is closed."""

    def __init__(self, url: str, options: Mapping[str, Any]):
        self.url = url.rstrip("/")
        self._token = ""
        try:
            fsspec: Any = importlib.import_module("fsspec.core")
        except ImportError as error:
            raise MXNetError(f'checkpoints at {url} require fsspec: pip install "neomx[remote]"') from error
        with self._told("open", ""):
            self._fs, self._root = fsspec.url_to_fs(self.url, **options)

    @contextmanager
    def _told(self, what: str, path: str) -> Iterator[None]:
        """Raise errors of the file system, which may have any type, as a CheckpointError."""
        try:
            yield
        except (MXNetError, FileNotFoundError):
            raise
        except ImportError as error:  # fsspec names the package, such as s3fs
            raise MXNetError(f"cannot open {self.url}: {error}. Install the package for this kind of URL") from error
        except Exception as error:
            raise CheckpointError(
                f"cannot {what} {self.shown(path)}: {type(error).__name__}: {error!s:.200}"
            ) from error

    def _at(self, path: str) -> str:
        return f"{self._root.rstrip('/')}/{path}" if path else self._root

    def names(self, folder: str = "") -> list[str]:
        """Return the names of the files and folders in a folder."""
        with self._told("list", folder), suppress(FileNotFoundError, NotADirectoryError):
            self._fs.invalidate_cache(self._at(folder))
            found = self._fs.ls(self._at(folder), detail=False)
            return sorted({each.rstrip("/").rpartition("/")[2] for each in found} - {""})
        return []

    def size(self, path: str) -> int | None:
        """Return the size of a file."""
        with self._told("read", path), suppress(FileNotFoundError):
            self._fs.invalidate_cache(self._at(path.rpartition("/")[0]))
            info = self._fs.info(self._at(path))
            return int(info["size"]) if info.get("type") == "file" else None
        return None

    def read(self, path: str, begin: int, into: memoryview) -> None:
        """Read bytes of a file."""
        try:
            with self._told("read", path):
                content = self._fs.cat_file(self._at(path), start=begin, end=begin + len(into)) if into else b""
        except (CheckpointError, FileNotFoundError) as error:
            raise DamagedError(f"cannot read {self.shown(path)}: {error}") from error
        if len(content) != len(into):
            raise DamagedError(f"{self.shown(path)} ends too early: {len(into) - len(content)} bytes are missing")
        into[:] = content

    def make(self, folder: str = "") -> None:
        """Create a folder, where the file system has them."""
        with self._told("create", folder):
            self._fs.makedirs(self._at(folder), exist_ok=True)

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        """Write a file."""
        with self._told("write", path), self._fs.open(self._at(path), "wb") as file:
            yield file

    def put(self, path: str, content: bytes) -> None:
        """Write a small file in one piece."""
        with self._told("write", path):
            self._fs.pipe_file(self._at(path), content)

    def remove(self, path: str) -> None:
        """Delete a file."""
        with self._told("delete", path), suppress(FileNotFoundError):
            self._fs.rm_file(self._at(path))

    def remove_folder(self, folder: str) -> None:
        """Delete a folder with all files in it."""
        with self._told("delete", folder), suppress(FileNotFoundError):
            self._fs.rm(self._at(folder), recursive=True)

    def claim(self, token: str) -> None:
        """Take over the directory. A job that still runs finds out before it publishes its next checkpoint, and stops.

        So no lock can outlive its owner.
        """
        self._token = token
        self.put(_OWNER, json.dumps({"token": token, "process": _this_process()}).encode())

    def check_claim(self) -> None:
        """Raise if another job has taken over."""
        owner: Any = None
        with suppress(ValueError):
            owner = json.loads(self.get(_OWNER, 1 << 16) or b"null")
        if isinstance(owner, dict) and owner.get("token") != self._token:
            raise _taken(self.url, str(owner.get("process", ""))[:200])

    def release(self) -> None:
        """Do nothing: the next job takes over."""


def _taken(url: str, holder: str) -> CheckpointError:
    return CheckpointError(
        f"another job writes checkpoints to {url}: {holder or 'unknown'}. Use a directory for each job, or end that "
        "job first"
    )


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"
