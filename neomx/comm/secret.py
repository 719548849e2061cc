"""The secret of a job that has none from its launcher: given by the user, or derived from the user's own secret."""

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
    "Pass --secret-file FILE to neomx run or set NEOMX_SECRET, the same on every host (create one with "
    "`openssl rand -hex 16`). --insecure or NEOMX_INSECURE=1 runs without a secret: anyone who can connect may join"
)


def find(environ: Mapping[str, str], job: str, one_host: bool, insecure: bool = False) -> bytes:
    """Return the secret of a job.

    It is NEOMX_SECRET, or on one host derived from a file that only this user can read, or a public one if allowed.
    """
    if "NEOMX_SECRET" in environ:
        return checked(environ["NEOMX_SECRET"], "NEOMX_SECRET")
    if one_host:
        return hmac.digest(_of_user(_directory(environ)), b"neomx job " + job.encode(), "sha256")
    if insecure or environ.get("NEOMX_INSECURE") == "1":
        return public(job)
    raise MXNetError(f"a job on several hosts needs a secret, and none was given for {job!r}. {REMEDY}")


def checked(text: str, source: str) -> bytes:
    """Validate a secret given by the user. Raises if it is too short."""
    secret = text.strip().encode()
    if len(secret) < SHORTEST:
        raise MXNetError(
            f"{source} must contain a secret of at least {SHORTEST} bytes, received {len(secret)}: "
            "create one with `openssl rand -hex 16`"
        )
    return secret


def read(path: str, source: str) -> bytes:
    """Read a secret from a file given by the user."""
    try:
        with open(path, encoding="utf-8") as file:
            return checked(file.read(), source)
    except UnicodeDecodeError:
        raise MXNetError(f"{source} must contain text, such as the output of `openssl rand -hex 16`") from None
    except OSError as error:
        raise MXNetError(f"{source} cannot be read: {error.strerror}") from error


def public(job: str) -> bytes:
    """Return a secret derived from the job's name. It separates jobs, but is not confidential."""
    return hashlib.sha256(b"neomx job " + job.encode()).digest()


def _directory(environ: Mapping[str, str]) -> str:
    """Return a directory that only this user can access."""
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    if not os.path.isdir(runtime):  # Slurm passes on the variable of another host
        runtime = ""
    path = os.path.join(runtime, "neomx") if runtime else os.path.join(tempfile.gettempdir(), f"neomx-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    _check_own(os.lstat(path), path, stat.S_ISDIR)
    return path


def _of_user(directory: str) -> bytes:
    """Read the user's secret. The first process creates it."""
    path = os.path.join(directory, "secret")
    if not os.path.exists(path):
        fd, made = tempfile.mkstemp(dir=directory)  # mode 0600
        try:
            with open(fd, "w") as file:
                file.write(secrets.token_hex(32))
            with contextlib.suppress(FileExistsError):
                os.link(made, path)  # atomic; another process may have been first
        finally:
            os.unlink(made)
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with open(fd) as file:
        _check_own(os.fstat(fd), path, stat.S_ISREG)
        return checked(file.read(), path)


def _check_own(found: os.stat_result, path: str, is_kind: Callable[[int], bool]) -> None:
    """Raise unless only this user can read and write the file."""
    if not is_kind(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise MXNetError(
            f"{path} contains the secret of this user's jobs, but other users may have accessed it: expected owner "
            f"{os.getuid()} and no access for others, found owner {found.st_uid} and {stat.filemode(found.st_mode)}. "
            "Remove it, or set NEOMX_SECRET"
        )
