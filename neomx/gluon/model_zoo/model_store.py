"""Pretrained weights: finding and downloading the published file of a network."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from importlib import resources

from ...base import MXNetError, data_dir
from ...formats.atomic import replacing
from ..utils import _get_repo_file_url, check_sha1, download

__all__ = ["get_model_file", "purge"]

ROOT = os.path.join(data_dir(), "models")

# The SHA-1 of the `.params` files in MXNet's store, by name.
_model_sha1: dict[str, str] = json.loads((resources.files(__package__) / "published.json").read_text("ascii"))


def short_hash(name: str) -> str:
    """Return the eight hexadecimal digits in the name of the file with the weights of `name`."""
    if name not in _model_sha1:
        raise ValueError(
            f"Pretrained model for {name} is not available. Weights are available for {', '.join(_model_sha1)}"
        )
    return _model_sha1[name][:8]


def get_model_file(name: str, root: str = ROOT) -> str:
    """Return the path of the published weights of the network `name` in the directory `root`. Download if necessary."""
    stem = f"{name}-{short_hash(name)}"
    root = os.path.expanduser(root)
    path = os.path.join(root, f"{stem}.params")
    if os.path.exists(path) and check_sha1(path, _model_sha1[name]):
        return path
    state = "is corrupted" if os.path.exists(path) else "does not exist"
    url = _get_repo_file_url("gluon/models", f"{stem}.zip")
    os.makedirs(root, exist_ok=True)
    try:
        _download_unzipped(url, path, _model_sha1[name])
    except MXNetError as error:
        raise MXNetError(
            f"the weights of {name} are read from {path}, which {state} and could not be downloaded: {error}. "
            f"Without a network, copy the file there; it is in the archive {url}"
        ) from error
    return path


def _download_unzipped(url: str, path: str, sha1: str) -> None:
    """Extract the file with the name of `path` from the zip archive at `url`, and verify its SHA-1."""
    name = os.path.basename(path)
    with tempfile.TemporaryDirectory(dir=os.path.dirname(path)) as beside:
        archive = download(url, path=beside)
        try:
            with zipfile.ZipFile(archive) as zipped, zipped.open(name) as source, replacing(path) as target:
                shutil.copyfileobj(source, target)
                target.flush()
                if not check_sha1(target.name, sha1):
                    raise MXNetError(f"{name} in {url} does not have the expected SHA-1 {sha1}")
        except (zipfile.BadZipFile, KeyError) as error:
            raise MXNetError(f"{url} is not a zip archive that contains {name}: {error}") from error


def purge(root: str = ROOT) -> None:
    """Delete all `.params` files in the directory `root`."""
    root = os.path.expanduser(root)
    for name in os.listdir(root):
        if name.endswith(".params"):
            os.remove(os.path.join(root, name))
