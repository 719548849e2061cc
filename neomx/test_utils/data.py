"""Data for examples: MNIST, CIFAR-10, downloads and archives; and an iterator for benchmarks."""

from __future__ import annotations

import bz2
import os
import shutil
import warnings
import zipfile
from typing import Any

import numpy as np

from ..base import MXNetError
from ..context import num_gpus
from ..formats import idx
from ..formats.atomic import replacing
from ..gluon import utils
from ..gluon.data.vision import MNIST
from ..io import DataIter, MNISTIter

_CIFAR10 = "https://data.mxnet.io/mxnet/data/cifar10.zip"
_CIFAR10_SHA1 = "b9ac287012f2dad9dfb49d8271c39ecdd7db376c"
_MODELS = "https://data.mxnet.io/models/imagenet/"


def download(
    url: str,
    fname: str | None = None,
    dirname: str | None = None,
    overwrite: bool = False,
    retries: int = 5,
    sha1_hash: str | None = None,
) -> str:
    """Download `url` to the file `fname` (default: the last part of the URL) in `dirname`, and return the file's path.

    An existing file is kept unless `overwrite` is set or its SHA-1 differs. Pass `sha1_hash` unless you download over
    https from a host that you trust.
    """
    name = os.path.join(dirname or "", fname or url.split("/")[-1])
    return utils.download(url, name, overwrite=overwrite, retries=retries, sha1_hash=sha1_hash)


def list_gpus() -> list[int]:
    """Return the indices of the available GPUs."""
    return list(range(num_gpus()))


def _digits(sample: bool) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return images (n, 28, 28) and labels by 'train' and 't10k': MNIST, or the sample if it cannot be downloaded."""
    try:
        sets = {kind: MNIST(train=kind == "train", sample=sample)[:] for kind in ("train", "t10k")}
    except MXNetError as error:
        if sample or "cannot download" not in str(error):
            raise
        warnings.warn(f"{error}. Using the 5,000 and 1,000 digits included in neomx instead", stacklevel=3)
        return _digits(sample=True)
    return {kind: (images.asnumpy()[..., 0], labels) for kind, (images, labels) in sets.items()}


def get_mnist(sample: bool = False) -> dict[str, np.ndarray]:
    """Return the MNIST digits: `train_data` and `test_data` (n, 1, 28, 28) in [0, 1], `train_label` and `test_label`.

    Missing files are downloaded. Without a network, or with `sample=True`, the 5,000 and 1,000 digits included in neomx
    are returned.
    """
    arrays: dict[str, np.ndarray] = {}
    for kind, (images, labels) in _digits(sample).items():
        name = "train" if kind == "train" else "test"
        arrays[f"{name}_data"] = images[:, None].astype(np.float32) / 255
        arrays[f"{name}_label"] = labels.astype(np.int8)
    return arrays


def get_mnist_ubyte() -> None:
    """Create MNIST's four files (train-images-idx3-ubyte, ...) in the directory `data`, unless they exist.

    They are downloaded. Without a network, the digits included in neomx are written.
    """
    paths = {
        (kind, part): os.path.join("data", f"{kind}-{part}-ubyte")
        for kind in ("train", "t10k")
        for part in ("images-idx3", "labels-idx1")
    }
    if all(map(os.path.exists, paths.values())):
        return
    os.makedirs("data", exist_ok=True)
    for kind, (images, labels) in _digits(sample=False).items():
        idx.write(paths[kind, "images-idx3"], images)
        idx.write(paths[kind, "labels-idx1"], labels.astype(np.uint8))


def get_mnist_iterator(
    batch_size: int, input_shape: tuple[int, ...], num_parts: int = 1, part_index: int = 0
) -> tuple[MNISTIter, MNISTIter]:
    """Return iterators over the MNIST digits, for training (one part, shuffled) and validation; see `get_mnist_ubyte`.

    Images are (1, 28, 28) if `input_shape` has three dimensions, else vectors.
    """
    get_mnist_ubyte()

    def iterator(kind: str, **kwargs: Any) -> MNISTIter:
        return MNISTIter(
            image=f"data/{kind}-images-idx3-ubyte",
            label=f"data/{kind}-labels-idx1-ubyte",
            input_shape=input_shape,
            batch_size=batch_size,
            flat=len(input_shape) != 3,
            **kwargs,
        )

    train = iterator("train", shuffle=True, num_parts=num_parts, part_index=part_index)
    return train, iterator("t10k", shuffle=False, num_parts=num_parts, part_index=part_index)


def get_zip_data(data_dir: str, url: str, data_origin_name: str, sha1_hash: str | None = None) -> None:
    """Download a zip file to `data_dir` as `data_origin_name`, check its SHA-1, and extract it there."""
    path = _fetched(data_dir, url, data_origin_name, sha1_hash)
    try:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(data_dir)
    except zipfile.BadZipFile as error:
        raise MXNetError(f"{path} is not a zip file: {error}. Remove it to download it again") from error


def get_bz2_data(data_dir: str, data_name: str, url: str, data_origin_name: str) -> None:
    """Download a bz2 file to `data_dir` as `data_origin_name`, and decompress it to `data_name` there."""
    target = os.path.join(data_dir, data_name)
    if os.path.exists(target):
        return
    path = _fetched(data_dir, url, data_origin_name)
    with bz2.open(path) as packed, replacing(target) as file:
        try:
            shutil.copyfileobj(packed, file)
        except (OSError, EOFError) as error:
            raise MXNetError(f"cannot unpack {path}: {error}. Remove it to download it again") from error


def _fetched(data_dir: str, url: str, name: str, sha1_hash: str | None = None) -> str:
    os.makedirs(data_dir, exist_ok=True)
    path = os.path.join(data_dir, name)
    if os.path.exists(path) and (sha1_hash is None or utils.check_sha1(path, sha1_hash)):
        return path
    return download(url, name, data_dir, sha1_hash=sha1_hash)


def get_cifar10() -> None:
    """Download CIFAR-10 as record files to the directory `data/cifar`, unless they exist."""
    names = ("train.rec", "test.rec", "train.lst", "test.lst")
    if not all(os.path.exists(os.path.join("data", "cifar", name)) for name in names):
        get_zip_data("data", _CIFAR10, "cifar10.zip", _CIFAR10_SHA1)


_KNOWN = {
    "imagenet1k-inception-bn": ("inception-bn/Inception-BN", 126),
    **{f"imagenet1k-resnet-{n}": (f"resnet/{n}-layers/resnet-{n}", 0) for n in (18, 34, 50, 101, 152)},
}


def download_model(
    model_name: str, dst_dir: str = "./", meta_info: dict[str, dict[str, str]] | None = None
) -> tuple[str | None, int]:
    """Download a model's symbol and parameters to `dst_dir`; return (prefix, epoch) for `mx.model.load_checkpoint`.

    `meta_info` maps names to URLs {'symbol': url, 'params': url}, and optionally checksums 'symbol_sha1' and
    'params_sha1'. For a name that it does not contain, the result is (None, 0). The parameters are stored as epoch 0,
    whatever their number was. MXNet's own models are not downloaded without `meta_info`, because their checksums are
    unknown.
    """
    if meta_info is None:
        if model_name in _KNOWN:
            path, epoch = _KNOWN[model_name]
            facts = {"symbol": f"{_MODELS}{path}-symbol.json", "params": f"{_MODELS}{path}-{epoch:04d}.params"}
            raise MXNetError(
                f"cannot download {model_name}: its checksum is unknown. If you trust the host, pass meta_info="
                f"{ {model_name: facts} }, with 'symbol_sha1' and 'params_sha1' if you have them, or use model_zoo"
            )
        return None, 0
    if model_name not in meta_info:
        return None, 0
    for key, ending in (("symbol", "-symbol.json"), ("params", "-0000.params")):
        assert key in meta_info[model_name], f"{model_name}: missing the URL of its {key} file"
        facts = meta_info[model_name]
        download(facts[key], model_name + ending, dst_dir, sha1_hash=facts.get(f"{key}_sha1"))
    return os.path.join(dst_dir, model_name), 0


class DummyIter(DataIter):
    """Returns the first batch of another iterator repeatedly, to benchmark code that uses it."""

    def __init__(self, real_iter: DataIter):
        super().__init__()
        self.real_iter = real_iter
        self.provide_data, self.provide_label = real_iter.provide_data, real_iter.provide_label
        self.batch_size = real_iter.batch_size
        self.the_batch = next(real_iter)

    def __iter__(self) -> DummyIter:
        return self

    def next(self) -> Any:
        """Return the batch."""
        return self.the_batch
