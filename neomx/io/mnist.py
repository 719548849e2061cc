"""Batches of digits from MNIST's own files."""

from __future__ import annotations

import logging
import operator
import os
import warnings
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats import idx
from ..ndarray import NDArray, array
from .io import DataBatch, DataDesc, DataIter

_LOG = logging.getLogger(__name__)


class MNISTIter(DataIter):
    """Batches of the images and labels in two IDX files, gzipped or not: float32, the pixels divided by 256.

    With `num_parts` it reads the part `part_index` of the samples alone: the parts are disjoint stretches of the files
    which differ in length by one at most. `shuffle` orders the part's samples once, by `seed`. Samples that do not
    fill a last batch are left out. Images are (1, height, width), or vectors when `flat`.
    """

    def __init__(
        self,
        image: str = "./train-images-idx3-ubyte",
        label: str = "./train-labels-idx1-ubyte",
        batch_size: int = 128,
        shuffle: bool = True,
        flat: bool = False,
        seed: int = 0,
        silent: bool = False,
        num_parts: int = 1,
        part_index: int = 0,
        prefetch_buffer: int = 4,
        ctx: str = "gpu",
        dtype: str | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        input_shape: Any = None,
        **unknown: Any,
    ) -> None:
        super().__init__(_int("batch_size", batch_size))
        if unknown:
            warnings.warn(f"MNISTIter does not know and ignores {sorted(unknown)}", stacklevel=2)
        _check(self.batch_size >= 1, f"batch_size must be at least 1, received {batch_size}")
        _check(dtype in (None, "None", "float32"), f"dtype must be None or 'float32', received {dtype!r}")
        _check(ctx in ("cpu", "gpu"), f"ctx must be 'cpu' or 'gpu', received {ctx!r}")
        images, labels = _read(image, label)
        rows = _part(len(images), _int("num_parts", num_parts), _int("part_index", part_index))
        _check(
            len(rows) >= self.batch_size,
            f"part {part_index} of {num_parts} has {len(rows)} samples, not enough for one batch of {self.batch_size}",
        )
        part = slice(rows.start, rows.stop)
        self._images, self._labels, self._rows = images[part], labels[part], np.arange(len(rows))
        numbers = np.random.RandomState(_int("seed", seed) & 0xFFFFFFFF)
        if _bool("shuffle", shuffle):
            numbers.shuffle(self._rows)
        self._shape = (-1, images[0].size) if _bool("flat", flat) else (-1, 1, *images.shape[1:])
        self._position = 0
        self.provide_data = [DataDesc(data_name, self.getdata().shape)]
        self.provide_label = [DataDesc(label_name, self.getlabel().shape)]
        self.reset()
        if not _bool("silent", silent):
            _LOG.info(
                "MNISTIter: %d of %d images, in batches of %s", len(rows), len(images), self.provide_data[0].shape
            )

    def reset(self) -> None:
        self._position = -self.batch_size

    def iter_next(self) -> bool:
        self._position += self.batch_size
        return self._position + self.batch_size <= len(self._rows)

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return DataBatch([self.getdata()], [self.getlabel()], self.getpad(), self.getindex())

    def getdata(self) -> NDArray:
        return array(self._images[self._batch()].reshape(self._shape).astype(np.float32) / 256)

    def getlabel(self) -> NDArray:
        return array(self._labels[self._batch()].astype(np.float32))

    def getindex(self) -> np.ndarray:
        """Zeros: as in MXNet, this iterator does not number its samples."""
        return np.zeros(self.batch_size, np.uint64)

    def getpad(self) -> int:
        return 0

    def _batch(self) -> np.ndarray:
        """Which samples are in this batch: the first ones before it was asked for."""
        start = max(self._position, 0)
        _check(start + self.batch_size <= len(self._rows), "there is no batch after the last: call reset() first")
        return self._rows[start : start + self.batch_size]


def _check(holds: bool, message: str) -> None:
    if not holds:
        raise MXNetError(f"MNISTIter: {message}")


def _int(name: str, value: Any) -> int:
    try:
        return int(value) if isinstance(value, str) else operator.index(value)
    except (TypeError, ValueError):
        raise MXNetError(f"MNISTIter: {name} must be an integer, received {value!r}") from None


def _bool(name: str, value: Any) -> bool:
    text = str(value).lower()
    _check(text in ("true", "false", "1", "0"), f"{name} must be True or False, received {value!r}")
    return text in ("true", "1")


def _read(image: str | os.PathLike[str], label: str | os.PathLike[str]) -> tuple[np.ndarray, np.ndarray]:
    images, labels = idx.read(image), idx.read(label)
    _check(images.ndim == 3, f"{image} must hold images in three dimensions, its shape is {images.shape}")
    _check(
        labels.shape == images.shape[:1],
        f"{label} must hold one label for each of the {len(images)} images, its shape is {labels.shape}",
    )
    return images, labels


def _part(samples: int, num_parts: int, part_index: int) -> range:
    """The samples of one part."""
    _check(num_parts >= 1, f"num_parts must be at least 1, received {num_parts}")
    _check(0 <= part_index < num_parts, f"part_index must be in [0, {num_parts}), received {part_index}")
    return range(samples * part_index // num_parts, samples * (part_index + 1) // num_parts)
