"""Samplers: the order in which the items of a dataset are visited, and how they are grouped into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any

import numpy as np


class Sampler:
    """The base of samplers, which iterate over indices. Subclasses define `__iter__` and `__len__`."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """Samples `length` consecutive indices, beginning with `start`."""

    def __init__(self, length: int, start: int = 0):
        self._length, self._start = length, start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """Samples the indices below `length` in a new random order each time, using `numpy.random`."""

    def __init__(self, length: int):
        self._length = length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self._length).tolist())

    def __len__(self) -> int:
        return self._length


class SplitSampler(Sampler):
    """Samples part `part_index` of `num_parts` contiguous parts of the indices below `length`, in random order.

    All parts have the same size, so that workers have the same number of batches. Up to `num_parts` - 1 indices are
    therefore in no part; `mx.dist.shard` omits none. The order is new each time and uses `numpy.random`.
    """

    def __init__(self, length: int, num_parts: int = 1, part_index: int = 0):
        if not 0 <= part_index < num_parts:
            raise ValueError(
                f"part_index must be from 0 to num_parts - 1, received part_index={part_index}, num_parts={num_parts}"
            )
        self._length = length // num_parts
        self._start = self._length * part_index

    def __iter__(self) -> Iterator[int]:
        return iter((self._start + np.random.permutation(self._length)).tolist())

    def __len__(self) -> int:
        return self._length


class FilterSampler(Sampler):
    """Samples the indices of the items for which `fn(item)` is true. They are determined once."""

    def __init__(self, fn: Callable[[Any], Any], dataset: Any):
        self._indices = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class BatchSampler(Sampler):
    """Groups the indices of another sampler into lists of `batch_size`.

    `last_batch` determines what happens to an incomplete last batch: 'keep' it, 'discard' it, or 'rollover' its indices
    to the next epoch.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep"):
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, received {batch_size}")
        self._sampler: Sized = sampler
        self._batch_size, self._last_batch = batch_size, last_batch
        self._rest: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        self._check()
        batch, self._rest = self._rest, []
        for i in self._sampler:  # type: ignore[attr-defined]
            batch.append(i)
            if len(batch) == self._batch_size:
                yield batch
                batch = []
        if self._last_batch == "rollover":
            self._rest = batch
        elif batch and self._last_batch == "keep":
            yield batch

    def __len__(self) -> int:
        self._check()
        items = len(self._rest) + len(self._sampler)
        return -(-items // self._batch_size) if self._last_batch == "keep" else items // self._batch_size

    def _check(self) -> None:
        if self._last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(f"last_batch must be 'keep', 'discard' or 'rollover', received {self._last_batch!r}")
