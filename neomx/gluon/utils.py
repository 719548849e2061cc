"""Utilities for training programs: splitting batches over devices, clipping gradients, downloading files."""

from __future__ import annotations

import hashlib
import http.client
import os
import ssl
import sys
import urllib.error
import urllib.request
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, BinaryIO

import numpy as np
import torch

from ..base import MXNetError
from ..context import Context, current_context
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..ndarray.distributed import is_distributed
from .kinds import make_array

__all__ = ["check_sha1", "clip_global_norm", "download", "replace_file", "split_and_load", "split_data"]


def split_data(data: Any, num_slice: int, batch_axis: int = 0, even_split: bool = True) -> list[Any]:
    """Split `data` into `num_slice` parts along `batch_axis`. With `even_split=False`, sizes may differ by one."""
    if num_slice < 1 or not -len(data.shape) <= batch_axis < len(data.shape):
        raise ValueError(
            f"expected at least one slice along an axis of data with shape {data.shape}, received "
            f"num_slice={num_slice}, batch_axis={batch_axis}"
        )
    size = data.shape[batch_axis]
    if even_split and size % num_slice:
        raise ValueError(
            f"data with shape {data.shape} cannot be evenly split into {num_slice} slices along axis {batch_axis}. "
            f"Use a batch size that's multiple of {num_slice} or set even_split=False to allow uneven partitioning."
        )
    length, longer = divmod(size, num_slice)
    ends = [length * (i + 1) + min(i + 1, longer) for i in range(num_slice)]
    pieces = [slice(start, end) for start, end in zip([0, *ends], ends, strict=False)]
    before = (slice(None),) * (batch_axis % len(data.shape))
    return [data[(*before, piece) if before else piece] for piece in pieces]  # sparse arrays do not accept tuples


def split_and_load(
    data: Any, ctx_list: Sequence[Context], batch_axis: int = 0, even_split: bool = True
) -> list[NDArray]:
    """Split `data` into one part per context and move each part to its context."""
    ctx_list = contexts(ctx_list)
    if not isinstance(data, NDArray):
        data = make_array(data, ctx_list[0])
    if len(ctx_list) == 1:
        return [data.as_in_context(ctx_list[0])]
    slices = split_data(data, len(ctx_list), batch_axis, even_split)
    if not all(part.size for part in slices):
        raise MXNetError(
            f"data with shape {data.shape} has too few samples along axis {batch_axis} for {len(ctx_list)} contexts. "
            "Use fewer contexts, or a DataLoader with last_batch='discard' or 'rollover'"
        )
    return [part.as_in_context(ctx) for part, ctx in zip(slices, ctx_list, strict=True)]


def clip_global_norm(arrays: Sequence[NDArray], max_norm: float, check_isfinite: bool = True) -> Any:
    """Scale `arrays` in place so that their joint norm is at most `max_norm`. Return the original norm.

    The norm is a number, or an array if `check_isfinite` is False, which avoids waiting for a GPU.
    """
    assert len(arrays) > 0, "clip_global_norm needs at least one array"
    if any(is_distributed(array._data) for array in arrays):
        raise MXNetError("these gradients are sharded over workers. Use mx.parallel.clip_global_norm")
    norm = torch.nn.utils.get_total_norm([a._data.detach() for a in arrays]).reshape(1).float()
    scale = (max_norm / (norm + 1e-8)).clamp_(max=1.0)
    for a in arrays:
        a *= a._kind(scale.to(a._data.device, a._data.dtype), a.context)
    if not check_isfinite:
        return arrays[0]._kind(norm, arrays[0].context)
    total = np.float32(norm.item())
    if not np.isfinite(total):
        warnings.warn("nan or inf is detected. Clipping results will be undefined.", stacklevel=2)
    return total


def check_sha1(filename: str | os.PathLike[str], sha1_hash: str) -> bool:
    """Return whether a file has this SHA-1, given as lowercase hexadecimal digits."""
    digest = hashlib.sha1(usedforsecurity=False)
    with open(filename, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest() == sha1_hash


def download(
    url: str,
    path: str | None = None,
    overwrite: bool = False,
    sha1_hash: str | None = None,
    retries: int = 5,
    verify_ssl: bool = True,
) -> str:
    """Download `url` to the file or directory `path` (default: the current directory) and return the file name.

    An existing file is kept unless `overwrite` is set or its SHA-1 differs. A failed download is retried up to
    `retries` times and resumes where it stopped. The file appears under its name only when it is complete.
    """
    assert retries >= 0, f"Number of retries should be at least 0, received {retries}"
    name = _target(url, path)
    if not overwrite and os.path.exists(name) and (not sha1_hash or check_sha1(name, sha1_hash)):
        return name
    os.makedirs(os.path.dirname(os.path.abspath(name)), exist_ok=True)
    print(f"Downloading {name} from {url}...")
    with replacing(name) as file:
        try:
            _fetch(url, file, retries, verify_ssl)
        except (OSError, http.client.HTTPException) as error:
            raise MXNetError(f"cannot download {url}: {error}") from error
        file.flush()
        if sha1_hash and not check_sha1(file.name, sha1_hash):
            raise MXNetError(f"{url} does not have the expected SHA-1 {sha1_hash}: it was modified or corrupted")
    return name


def _target(url: str, path: str | None) -> str:
    """The path of the downloaded file."""
    base = url.split("/")[-1]
    path = os.path.expanduser(path) if path else "."
    if not os.path.isdir(path):
        return path
    assert base, f"Can't construct file-name from {url}. Please set the `path` option manually."
    return os.path.normpath(os.path.join(path, base))


def _fetch(url: str, file: BinaryIO, retries: int, verify_ssl: bool) -> None:
    """Download `url`. A retry resumes where the previous attempt stopped."""
    context = None
    if not verify_ssl:
        warnings.warn("Unverified HTTPS request is being made (verify_ssl=False).", stacklevel=4)
        context = ssl._create_unverified_context()
    for left in range(retries, -1, -1):
        try:
            return _fetch_rest(url, file, context)
        except (OSError, http.client.HTTPException) as error:
            if left == 0 or _is_final(error):
                raise
            print(f"download failed due to {error!r}, retrying, {left} attempt{'s' if left > 1 else ''} left")


def _is_final(error: Exception) -> bool:
    """Whether a retry is useless, because the server says that the file is missing or not accessible."""
    return isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500 and error.code not in (408, 416, 429)


def _fetch_rest(url: str, file: BinaryIO, context: ssl.SSLContext | None) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "neomx"})
    if have := file.tell():
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=60, context=context) as response:
        if have and response.status != 206:  # the server ignored the range and sends the whole file
            file.seek(0)
            file.truncate()
        length = response.headers.get("Content-Length")
        end = file.tell() + int(length) if length else None
        while chunk := response.read(1 << 16):
            file.write(chunk)
            _show_progress(file.tell(), end)
    if end is not None and file.tell() < end:
        raise ConnectionError(f"the connection ended after {file.tell()} of {end} bytes")


def _show_progress(done: int, end: int | None) -> None:
    if sys.stderr.isatty():
        share = f"{100 * done // end:3d} % of {end >> 10} KB" if end else f"{done >> 10} KB"
        print(f"\r{share}", end="\n" if done == end else "", file=sys.stderr, flush=True)


def replace_file(src: str, dst: str) -> None:
    """Rename a file to `dst`, atomically replacing an existing file."""
    os.replace(src, dst)


def _get_repo_url() -> str:
    """The base URL of datasets and models: MXNET_GLUON_REPO, or MXNet's own store."""
    url = os.environ.get("MXNET_GLUON_REPO", "https://apache-mxnet.s3-accelerate.dualstack.amazonaws.com/")
    return url if url.endswith("/") else url + "/"


def _get_repo_file_url(namespace: str, filename: str) -> str:
    """The URL of a file in that store."""
    return f"{_get_repo_url()}{namespace}/{filename}"


def contexts(ctx: Context | Sequence[Context] | None) -> list[Context]:
    """Convert the `ctx` argument of MXNet's functions to a list."""
    if ctx is None:
        return [current_context()]
    listed = [ctx] if isinstance(ctx, Context) else list(ctx)
    for each in listed:
        if not isinstance(each, Context):
            raise TypeError(f"ctx must be a Context or a list of them, received {ctx!r}")
    if not listed:
        raise ValueError("ctx must name at least one context, received an empty list")
    return listed


def shape_is_known(shape: Sequence[int] | None) -> bool:
    """Return whether every dimension of a shape is known. 0 means unknown."""
    if not shape:
        return False
    for size in shape:
        assert size >= 0, f"dimensions cannot be negative, received {size} in {tuple(shape)}"
    return 0 not in shape


def _indent(s_: str, numSpaces: int) -> str:
    """Indent all lines of a text except the first."""
    return s_.replace("\n", "\n" + " " * numSpaces)


def _brief_print_list(lst: Sequence[Any], limit: int = 7) -> str:
    """Quoted names, joined by commas. Of more than `limit` names, only the first and last ones."""
    names = [f"'{name}'" for name in lst]
    if len(names) > limit:
        names = [*names[: limit // 2], "...", *names[-limit // 2 :]]
    return ", ".join(names)


class HookHandle:
    """The handle of a registered hook. `detach()`, or the end of a `with` block, removes the hook."""

    def __init__(self) -> None:
        self._hooks: Any = None
        self._id: int | None = None

    def attach(self, hooks_dict: Any, hook: Any) -> None:
        """Add `hook` to an OrderedDict of hooks."""
        assert self._hooks is None, "The same handle cannot be attached twice."
        self._id = id(hook)
        hooks_dict[self._id] = hook
        self._hooks = weakref.ref(hooks_dict)

    def detach(self) -> None:
        """Remove the hook if it is still registered."""
        hooks = self._hooks() if self._hooks is not None else None
        if hooks is not None:
            hooks.pop(self._id, None)

    def __enter__(self) -> HookHandle:
        return self

    def __exit__(self, ptype: Any, value: Any, trace: Any) -> None:
        self.detach()
