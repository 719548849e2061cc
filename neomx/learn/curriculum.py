"""Curriculum learning: begin with the easiest samples, and add harder ones in each epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ..comm.session import session
from ..gluon.data import Dataset
from ..gluon.data.shard import ShardedBatches, ShardedDataset
from ..ndarray import NDArray


class Curriculum(ShardedDataset):
    """This worker's shard of the samples of an epoch, for a DataLoader: the easiest ones first, in the end all.

    Epoch 0 has the fraction `first` of the dataset: the samples with the lowest `difficulty`, which is an array with a
    number for each sample, or a function that returns the number for an item. The fraction grows linearly, and all
    samples take part from epoch `epochs` on. Each epoch is shuffled. As for `mx.dist.shard`, N workers together have
    the batches of one process, and `epoch` is the number of the next epoch. If difficulties differ between workers,
    those of worker 0 count.
    """

    def __init__(
        self,
        dataset: Any,
        difficulty: Sequence[float] | np.ndarray | NDArray | Callable[[Any], float],
        first: float = 0.25,
        epochs: int = 5,
        seed: int = 0,
    ):
        if not isinstance(first, int | float) or not 0 < first <= 1:
            raise ValueError(f"first must be a fraction above 0 and at most 1, received {first!r}")
        if not isinstance(epochs, int) or isinstance(epochs, bool) or epochs < 1:
            raise ValueError(f"epochs must be a positive integer, received {epochs!r}")
        super().__init__(dataset, True, seed, workers=session())
        self.first, self.epochs = float(first), epochs
        ranked = torch.from_numpy(_ranked(self.dataset, difficulty))
        self.ranked: np.ndarray = session().group.broadcast_(ranked).numpy()  # indices, the easiest first

    def __len__(self) -> int:
        return len(range(self.rank, self.pool(self.epoch), self.size))

    def pool(self, epoch: int) -> int:
        """Return the number of samples of all workers in an epoch."""
        fraction = min(1.0, self.first + (1 - self.first) * epoch / self.epochs)
        return min(max(round(fraction * len(self.ranked)), 1), len(self.ranked))

    def order(self, epoch: int) -> np.ndarray:
        """Return the indices of the samples in the order in which all workers process them in an epoch."""
        if self._drawn is None or self._drawn[0] != epoch:
            random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            self._drawn = epoch, random.permutation(self.ranked[: self.pool(epoch)])
        return self._drawn[1]

    def batches(self, batch_size: int, last_batch: str = "keep") -> ShardedBatches:
        """Return lists of `batch_size` indices into the whole dataset for this worker. Each iteration is an epoch."""
        if last_batch == "rollover":
            raise ValueError("last_batch must be 'keep' or 'discard' for a Curriculum, received 'rollover'")
        return _Batches(self, batch_size, last_batch)

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Curriculum:
        """Return this worker's shard of the transformed dataset, in the same order."""
        made = Curriculum(self.dataset.transform(fn, lazy), np.argsort(self.ranked), self.first, self.epochs, self.seed)
        made.epoch = self.epoch
        return made

    def _of(self, dataset: Dataset) -> ShardedDataset:
        raise ValueError("select samples before creating the Curriculum, whose difficulties belong to all samples")


class _Batches(ShardedBatches):
    """One worker's batches of a Curriculum, whose epochs have different lengths."""

    shard: Curriculum

    def _rest(self, epoch: int) -> int:
        return 0

    def _total(self, epoch: int, start: int = 0) -> int:
        total = self.shard.pool(epoch)
        return total if self._last_batch == "keep" else total - max(0, total - start) % self.at_once


def _ranked(dataset: Dataset, difficulty: Any) -> np.ndarray:
    """Return the indices of a dataset, the easiest first. Samples of equal difficulty keep their order."""
    if callable(difficulty):
        difficulty = [difficulty(dataset[i]) for i in range(len(dataset))]
    if isinstance(difficulty, NDArray):
        difficulty = difficulty.asnumpy()
    try:
        numbers = np.asarray(difficulty, dtype="float64")
    except (TypeError, ValueError):
        raise TypeError(f"difficulty must be numbers, or a function of an item, received {difficulty!r:.80}") from None
    if numbers.shape != (len(dataset),) or not len(dataset):
        raise ValueError(f"expected a difficulty for each of {len(dataset)} samples, received shape {numbers.shape}")
    if np.isnan(numbers).any():
        raise ValueError(f"the difficulty of sample {int(np.isnan(numbers).argmax())} is NaN")
    return np.argsort(numbers, kind="stable").astype("int64")
