"""The options of `neomx run` about checkpoints, as variables for the workers."""

from __future__ import annotations

import dataclasses
import math
import os

from ..base import MXNetError
from ..comm.supervision import GRACE
from .errors import ConfigurationError

_DIRECTORY = "NEOMX_CHECKPOINT"


@dataclasses.dataclass(frozen=True)
class Saving:
    """Where a job saves checkpoints, how often, and from where it resumes.

    `grace` is the number of seconds that the workers have to save one after a signal.
    """

    directory: str | None = None
    every: int | None = None
    keep: int | None = None
    resume: str | None = None
    grace: float | None = None

    def __post_init__(self) -> None:
        for flag, count in (("--every", self.every), ("--keep", self.keep)):
            if count is not None and not self._has_directory:
                raise ConfigurationError(f"{flag} needs --checkpoint DIR, the directory of the checkpoints")
            if count is not None and count < 1:
                raise ConfigurationError(f"{flag} must be at least 1; received {count}")
        if self.resume == "auto" and not self._has_directory:
            raise ConfigurationError(
                "--resume auto continues from the directory of --checkpoint DIR, which is missing. To read another "
                "directory, pass --resume DIR"
            )
        for flag, path in (("--checkpoint", self.directory), ("--resume", self.resume)):
            if path == "":
                raise ConfigurationError(f"{flag} needs the name of a directory; received an empty one")
        if self.grace is not None and not 0 <= self.grace < math.inf:
            raise ConfigurationError(f"--grace must be a number of seconds, 0 or more; received {self.grace:g}")

    @property
    def _has_directory(self) -> bool:
        return self.directory is not None or bool(os.environ.get(_DIRECTORY))

    @property
    def patience(self) -> float | None:
        """Seconds that the workers have to save after a signal; None: the job does not save checkpoints."""
        return GRACE if self.grace is None and self._has_directory else self.grace

    def variables(self) -> tuple[tuple[str, str], ...]:
        """The variables of the workers, with absolute paths."""
        told = {
            _DIRECTORY: self.directory and _absolute(self.directory),
            "NEOMX_CHECKPOINT_EVERY": self.every and str(self.every),
            "NEOMX_CHECKPOINT_KEEP": self.keep and str(self.keep),
            "NEOMX_RESUME": self._source or self.resume,
        }
        return tuple((name, value) for name, value in told.items() if value)

    @property
    def _source(self) -> str | None:
        """The directory or address to resume from, if it is given explicitly."""
        return None if self.resume in (None, "auto") else _absolute(str(self.resume))

    def check_directories(self) -> None:
        """Raise if this machine cannot write to the directory, or has no checkpoint to resume from."""
        if self.directory is not None and not _is_remote(self.directory):
            _check_writable(_absolute(self.directory))
        if self._source is not None and not _is_remote(self._source):
            _check_resumable(self._source)


def _is_remote(path: str) -> bool:
    return "://" in path


def _absolute(path: str) -> str:
    return path if _is_remote(path) else os.path.abspath(path)


def _check_writable(path: str) -> None:
    existing = path
    while not os.path.lexists(existing):
        existing = os.path.dirname(existing)
    if not os.path.isdir(existing):
        raise ConfigurationError(f"--checkpoint {path}: expected a directory, but {existing} is not one")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ConfigurationError(f"--checkpoint {path}: no permission to write to {existing}")


def _check_resumable(path: str) -> None:
    """Raise if there is no checkpoint in a directory, or the newest one has a format that is too new.

    Damaged ones are found by the workers, which may use older ones.
    """
    from ..checkpoint import folder, manifest  # only if a job resumes
    from ..checkpoint.storage import open_storage

    try:
        storage = open_storage(path)
        steps = folder.steps(storage)
        if not steps:
            raise ConfigurationError(f"--resume {path}: there is no checkpoint in this directory")
        manifest.read(storage, folder.name_of(steps[-1]))
    except manifest.DamagedError:
        return
    except MXNetError as error:
        raise ConfigurationError(f"--resume: {error}") from None
