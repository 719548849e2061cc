"""Files that are published in zip archives: found in a folder, or fetched into it."""

from __future__ import annotations

import os
import shutil
import zipfile

from ....base import MXNetError
from ....formats.atomic import replacing
from ...utils import _get_repo_file_url, download


def unpacked(root: str, file: str, folder: str, archive: str, sha1: str) -> str:
    """The path of `file` in the directory `root`; if it is not there, out of the archive of `folder` in MXNet's store.

    A file that is there is taken as it is.
    """
    root = os.path.expanduser(root)
    path = os.path.join(root, file)
    if not os.path.exists(path):
        os.makedirs(root, exist_ok=True)
        try:
            fetched = download(_get_repo_file_url(folder, archive), path=root, sha1_hash=sha1)
        except MXNetError as error:
            raise MXNetError(
                f"{file} is expected in {root}; it is not there, and {archive} cannot be downloaded ({error}). "
                f"Without a network, put {file} or {archive} into {root} by hand"
            ) from error
        _extract(fetched, file, path)
    return path


def _extract(archive: str, file: str, path: str) -> None:
    """Write the one file of that name, in whatever directory of the archive, to `path`."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            name = next((name for name in zipped.namelist() if os.path.basename(name) == file), None)
            if name is None:
                raise MXNetError(f"{archive} has no {file}. It has: {', '.join(zipped.namelist()[:20])}")
            with zipped.open(name) as source, replacing(path) as target:
                shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, EOFError, OSError) as error:
        raise MXNetError(f"cannot unpack {archive}: {error}. Remove it to have it downloaded again") from error
