"""MNISTIter: batches of images and labels from files in MNIST's format."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..formats import idx
from ..ndarray import array
from .arguments import DataPart, Names, Shape, check, part_of, read
from .dealt import Samples
from .io import DataBatch
from .reader import MXDataIter

_LOG = logging.getLogger(__name__)


@dataclass
class Digits:
    """The paths of the files, and the arguments that control reading."""

    image: str = "./train-images-idx3-ubyte"
    label: str = "./train-labels-idx1-ubyte"
    batch_size: int = 128
    shuffle: bool = True
    flat: bool = False
    seed: int = 0
    silent: bool = False
    dtype: str | None = None
    input_shape: Shape | None = None


class MNISTIter(MXDataIter):
    """Iterate over batches of the images and labels in two IDX files, gzipped or not: float32, pixels divided by 256.

    With `num_parts` only the part `part_index` is read. The parts are disjoint, contiguous, and their sizes differ by
    at most one. `shuffle` permutes the samples of the part once, by `seed`. Samples that do not fill the last batch are
    dropped. Images have shape (1, height, width), or are vectors if `flat` is set.
    """

    takes = (Digits, DataPart, Names)

    def __init__(self, **given: Any) -> None:
        digits, part, names = read(self._who, given, *self.takes)
        super().__init__(digits.batch_size, names)
        check(self._who, digits.dtype in (None, "float32"), f"dtype must be 'float32', received {digits.dtype!r}")
        part = self._part(part, given)
        images, labels = self._read(digits)
        rows = part_of(len(images), part)
        check(
            self._who,
            len(rows) >= self.batch_size,
            f"part {part.part_index} of {part.num_parts} has {len(rows)} samples, not enough for one batch of "
            f"{self.batch_size}",
        )
        self._images, self._labels = images[rows.start : rows.stop], labels[rows.start : rows.stop]
        self._rows = np.arange(len(rows))
        if digits.shuffle:
            np.random.RandomState(digits.seed & 0xFFFFFFFF).shuffle(self._rows)
        self._shape = (images[0].size,) if digits.flat else (1, *images.shape[1:])
        self._describe(self._shape, (), np.float32, np.float32)
        self._deal(Samples(len(rows), self.batch_size, lambda numbers, _: self._batch(numbers), last_batch="discard"))
        self.reset()
        if not digits.silent:
            _LOG.info("MNISTIter: %d of %d images, in batches of %d", len(rows), len(images), self.batch_size)

    def _read(self, digits: Digits) -> tuple[np.ndarray, np.ndarray]:
        images, labels = idx.read(digits.image), idx.read(digits.label)
        check(
            self._who,
            images.ndim == 3,
            f"{digits.image} must contain a 3-dimensional array of images, received shape {images.shape}",
        )
        check(
            self._who,
            labels.shape == images.shape[:1],
            f"{digits.label} must contain a label for each of the {len(images)} images, received shape {labels.shape}",
        )
        return images, labels

    def _epoch(self, skip: int = 0) -> Iterator[DataBatch]:
        size = self.batch_size
        for start in range(skip * size, len(self._rows) - size + 1, size):
            yield self._batch(slice(start, start + size))

    def _batch(self, numbers: list[int] | slice) -> DataBatch:
        rows = self._rows[numbers]
        data = self._images[rows].reshape(len(rows), *self._shape).astype(np.float32) / 256
        unnumbered = np.zeros(len(rows), np.uint64)  # as in MXNet, this iterator does not track sample indices
        return DataBatch([array(data)], [array(self._labels[rows])], 0, unnumbered)
