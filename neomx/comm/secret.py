"""The job's secret, where the launcher did not make one: given by the user, or derived from one that the user keeps."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
import tempfile
from collections.abc import Callable, Mapping

from ..base import MXNetError

SHORTEST = 16  # bytes
REMEDY = (
    "Give --secret-file FILE to neomx run or set NEOMX_SECRET, the same on every host (`openssl rand -hex 16` makes "
    "one); --insecure or NEOMX_INSECURE=1 does without, and lets everybody join who reaches the address"
)


def find(environ: Mapping[str, str], job: str, one_host: bool, insecure: bool = False) -> bytes:
    """The secret of a job: NEOMX_SECRET, on one host one that only this user can read, else a public one if allowed."""
    if "NEOMX_SECRET" in environ:
        return checked(environ["NEOMX_SECRET"], "NEOMX_SECRET")
    if one_host:
        return hmac.digest(_of_user(_directory(environ)), b"neomx job " + job.encode(), "sha256")
    if insecure or environ.get("NEOMX_INSECURE") == "1":
        return public(job)
    raise MXNetError(f"a job on several hosts needs a secret, and none was given for {job!r}. {REMEDY}")


def checked(text: str, source: str) -> bytes:
    """A secret that the user gave. Raises if it is too short to be one."""
    secret = text.strip().encode()
    if len(secret) < SHORTEST:
        raise MXNetError(
            f"{source} must hold a secret of at least {SHORTEST} bytes, received {len(secret)}: "
            "`openssl rand -hex 16` makes one"
        )
    return secret


def read(path: str, source: str) -> bytes:
    """A secret in a file that the user gave."""
    try:
        with open(path, encoding="utf-8") as file:
            return checked(file.read(), source)
    except UnicodeDecodeError:
        raise MXNetError(f"{source} must hold text, such as `openssl rand -hex 16` prints") from None
    except OSError as error:
        raise MXNetError(f"{source} cannot be read: {error.strerror}") from error


def public(job: str) -> bytes:
    """A secret that follows from the job's name: it keeps jobs apart, not people out."""
    return hashlib.sha256(b"neomx job " + job.encode()).digest()


def _directory(environ: Mapping[str, str]) -> str:
    """A directory that is this user's alone."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isdir(runtime):  # Slurm passes on the variable of another host
        runtime = ""
    path = os.path.join(runtime, "neomx") if runtime else os.path.join(tempfile.gettempdir(), f"neomx-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    _check_own(os.lstat(path), path, stat.S_ISDIR)
    return path


def _of_user(directory: str) -> bytes:
    """The secret in the user's directory, made by the first process that asks for it."""
    path = os.path.join(directory, "secret")
    if not os.path.exists(path):
        fd, made = tempfile.mkstemp(dir=directory)  # mode 0600
        try:
            with open(fd, "w") as file:
                file.write(secrets.token_hex(32))
            with contextlib.suppress(FileExistsError):
                os.link(made, path)  # whole or not at all; another process may have been first
        finally:
            os.unlink(made)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(fd) as file:
        _check_own(os.fstat(fd), path, stat.S_ISREG)
        return checked(file.read(), path)


def _check_own(found: os.stat_result, path: str, is_kind: Callable[[int], bool]) -> None:
    """Raise unless only this user can have written it, and only this user can read it."""
    if not is_kind(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise MXNetError(
            f"{path} holds the secret of this user's jobs, but others could have read or written it: expected owner "
            f"{os.getuid()} and no rights for others, found owner {found.st_uid} and {stat.filemode(found.st_mode)}. "
            "Remove it, or set NEOMX_SECRET"
        )
