"""Image datasets: MNIST, CIFAR and similar, downloaded if necessary, and images in local files."""

from __future__ import annotations

import os
import tarfile
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .... import image, recordio
from ....base import MXNetError, data_dir
from ....formats import idx
from ....formats.atomic import replacing
from ....ndarray import array
from ....sample import digits
from ... import utils
from ...kinds import of_kind
from .. import dataset

Transform = Callable[..., Any] | None


class MNIST(dataset._DownloadedDataset):
    """Handwritten digits: (uint8 image (28, 28, 1), int32 label), 60,000 for training and 10,000 for testing.

    The four files (`train-images-idx3-ubyte.gz`, ..., gzipped or not) are read from `root`, and downloaded if missing.
    `sample=True` returns the 5,000 and 1,000 digits that are included in neomx instead.
    """

    _namespace = "mnist"
    _checksums = {
        "train-images-idx3-ubyte.gz": "6c95f4b05d2bf285e1bfb0e7960c31bd3b3f8a7d",
        "train-labels-idx1-ubyte.gz": "2a80914081dc54586dbdf242f9805a6b8d2a15fc",
        "t10k-images-idx3-ubyte.gz": "c3a25af1f52dad7f726cce8cacb138654b760d48",
        "t10k-labels-idx1-ubyte.gz": "763e7fa3757d93b0cdec073cef058b2004252c17",
    }

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "mnist"),
        train: bool = True,
        transform: Transform = None,
        sample: bool = False,
    ):
        self._train, self._sample = train, sample
        super().__init__(root, transform)

    def _get_data(self) -> None:
        if self._sample:
            images, labels = digits()[:2] if self._train else digits()[2:]
        else:
            files = list(self._checksums)
            images, labels = (self._read(file) for file in (files[:2] if self._train else files[2:]))
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise MXNetError(
                f"{self._root} has images of shape {images.shape} and labels of shape {labels.shape}: expected "
                "(n, 28, 28) and (n,)"
            )
        self._data = of_kind(array(images[..., None], dtype=images.dtype))
        self._label = labels.astype(np.int32)

    def _read(self, file: str) -> np.ndarray:
        """Read a file from `root`, gzipped or not. Download it if it is missing."""
        for name in (file, file.removesuffix(".gz")):
            if os.path.exists(path := os.path.join(self._root, name)):
                return idx.read(path)
        return idx.read(_download(self._namespace, file, self._checksums[file], self._root))


class FashionMNIST(MNIST):
    """Images of clothes in the format of MNIST: (uint8 image (28, 28, 1), int32 label)."""

    _namespace = "fashion-mnist"
    _checksums = {
        "train-images-idx3-ubyte.gz": "0cf37b0d40ed5169c6b3aba31069a9770ac9043d",
        "train-labels-idx1-ubyte.gz": "236021d52f1e40852b06a4c3008d8de8aef1e40b",
        "t10k-images-idx3-ubyte.gz": "626ed6a7c06dd17c0eec72fa3be1740f146a2863",
        "t10k-labels-idx1-ubyte.gz": "17f9ab60e7257a1620f4ad76bbbaf857c3920701",
    }

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "fashion-mnist"),
        train: bool = True,
        transform: Transform = None,
    ):
        super().__init__(root, train, transform)


class CIFAR10(dataset._DownloadedDataset):
    """Small photographs in ten classes: (uint8 image (32, 32, 3), int32 label)."""

    _namespace = "cifar10"
    _archive_file = "cifar-10-binary.tar.gz", "fab780a1e191a7eda0f345501ccd62d20f7ed891"
    _train_data = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
    _test_data: tuple[str, ...] = ("test_batch.bin",)
    _labels, _label_at = 1, 0  # bytes of labels in each record, and the offset of the label to use

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "cifar10"),
        train: bool = True,
        transform: Transform = None,
    ):
        self._train = train
        super().__init__(root, transform)

    def _get_data(self) -> None:
        files = [os.path.join(self._root, name) for name in (self._train_data if self._train else self._test_data)]
        if not all(map(os.path.exists, files)):
            self._unpack(_download(self._namespace, *self._archive_file, self._root))
        images, labels = zip(*map(self._read_batch, files), strict=True)
        data = np.concatenate(images)
        self._data = of_kind(array(data, dtype=data.dtype))
        self._label = np.concatenate(labels)

    def _unpack(self, archive: str) -> None:
        """Extract the data files of the archive directly into `root`."""
        try:
            with tarfile.open(archive) as tar:
                for member in tar:
                    name = os.path.basename(member.name)
                    source = tar.extractfile(member) if name in self._train_data + self._test_data else None
                    if source is not None:
                        with replacing(os.path.join(self._root, name)) as file:
                            file.write(source.read())
        except (tarfile.TarError, EOFError, OSError) as error:
            raise MXNetError(f"cannot unpack {archive}: {error}. Remove it to download it again") from error

    def _read_batch(self, filename: str) -> tuple[np.ndarray, np.ndarray]:
        """Read the images and labels of one data file."""
        if not os.path.exists(filename):
            raise MXNetError(f"{filename} does not exist, and {self._archive_file[0]} does not contain it")
        data = np.fromfile(filename, np.uint8)
        record = self._labels + 3072
        if not data.size or data.size % record:
            raise MXNetError(f"{filename} has {data.size} bytes, expected a multiple of {record}: truncated or damaged")
        data = data.reshape(-1, record)
        images = data[:, self._labels :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
        return images, data[:, self._label_at].astype(np.int32)


class CIFAR100(CIFAR10):
    """Small photographs in twenty classes, or in a hundred with `fine_label=True`."""

    _namespace = "cifar100"
    _archive_file = "cifar-100-binary.tar.gz", "a0bb982c76b83111308126cc779a992fa506b90b"
    _train_data = ("train.bin",)
    _test_data = ("test.bin",)
    _labels = 2

    def __init__(
        self,
        root: str = os.path.join(data_dir(), "datasets", "cifar100"),
        fine_label: bool = False,
        train: bool = True,
        transform: Transform = None,
    ):
        self._label_at = int(fine_label)
        super().__init__(root, train, transform)


def _download(namespace: str, file: str, sha1: str, root: str) -> str:
    """Download a file of MXNet's store to `root`. Return its path."""
    url = utils._get_repo_file_url(f"gluon/dataset/{namespace}", file)
    os.makedirs(root, exist_ok=True)
    try:
        return utils.download(url, path=root, sha1_hash=sha1)
    except MXNetError as error:
        remedy = "copy it there manually"
        if namespace == "mnist":
            remedy += ", or pass sample=True for the digits included in neomx"
        raise MXNetError(
            f"{file} is not in {root} and cannot be downloaded. Without a network, {remedy} ({error})"
        ) from error


class ImageRecordDataset(dataset.RecordFileDataset):
    """The decoded images of a RecordIO file `x.rec`, with its index `x.idx`: (image, label).

    `flag` is 1 for color and 0 for grayscale, as in `image.imdecode`.
    """

    def __init__(self, filename: str, flag: int = 1, transform: Transform = None):
        super().__init__(filename)
        self._flag, self._transform = flag, transform

    def __getitem__(self, idx: int) -> Any:
        header, encoded = recordio.unpack(super().__getitem__(idx))
        item = image.imdecode(encoded, self._flag), header.label
        return item if self._transform is None else self._transform(*item)


class ImageFolderDataset(dataset.Dataset):
    """Images in directories, one per class, such as `root/cat/1.jpg`. Each item is (image, class index).

    `synsets` has the class names in the order of their indices, `items` the files and their class indices.
    """

    def __init__(self, root: str, flag: int = 1, transform: Transform = None):
        self._root = os.path.expanduser(root)
        self._flag, self._transform = flag, transform
        self._exts = [".jpg", ".jpeg", ".png"]
        self._list_images(self._root)

    def _list_images(self, root: str) -> None:
        self.synsets: list[str] = []
        self.items: list[tuple[str, int]] = []
        for folder in sorted(os.listdir(root)):
            path = os.path.join(root, folder)
            if not os.path.isdir(path):
                warnings.warn(f"Ignoring {path}, which is not a directory.", stacklevel=4)
                continue
            label = len(self.synsets)
            self.synsets.append(folder)
            for name in sorted(os.listdir(path)):
                if os.path.splitext(name)[1].lower() in self._exts:
                    self.items.append((os.path.join(path, name), label))
                else:
                    warnings.warn(f"Ignoring {name} in {path}: supported are {', '.join(self._exts)}.", stacklevel=4)

    def __getitem__(self, idx: int) -> Any:
        path, label = self.items[idx]
        item = image.imread(path, self._flag), label
        return item if self._transform is None else self._transform(*item)

    def __len__(self) -> int:
        return len(self.items)
