"""Dataset files that are published in zip archives: found in a directory, or downloaded to it."""

from __future__ import annotations

import os
import shutil
import zipfile

from ....base import MXNetError
from ....formats.atomic import replacing
from ...utils import _get_repo_file_url, download


def unpacked(root: str, file: str, folder: str, archive: str, sha1: str) -> str:
    """Return the path of `file` in the directory `root`. If missing, extract it from the archive in MXNet's store.

    An existing file is used unchanged.
    """
    root = os.path.expanduser(root)
    path = os.path.join(root, file)
    if not os.path.exists(path):
        os.makedirs(root, exist_ok=True)
        try:
            fetched = download(_get_repo_file_url(folder, archive), path=root, sha1_hash=sha1)
        except MXNetError as error:
            raise MXNetError(
                f"{file} is not in {root}, and {archive} cannot be downloaded ({error}). "
                f"Without a network, copy {file} or {archive} to {root} manually"
            ) from error
        _extract(fetched, file, path)
    return path


def _extract(archive: str, file: str, path: str) -> None:
    """Extract the file of that name, from any directory of the archive, to `path`."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            name = next((name for name in zipped.namelist() if os.path.basename(name) == file), None)
            if name is None:
                raise MXNetError(f"{archive} does not contain {file}. It contains: {', '.join(zipped.namelist()[:20])}")
            with zipped.open(name) as source, replacing(path) as target:
                shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise MXNetError(f"cannot unpack {archive}: {error}. Remove it to download it again") from error
