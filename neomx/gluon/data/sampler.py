"""Samplers: in which order a dataset's items are visited, and how they are grouped into batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sized
from typing import Any

import numpy as np


class Sampler:
    """Gives indices. Write `__iter__` and `__len__` to make one."""

    def __len__(self) -> int:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError


class SequentialSampler(Sampler):
    """`start`, `start + 1`, ..., `length` of them."""

    def __init__(self, length: int, start: int = 0):
        self._length, self._start = length, start

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._start, self._start + self._length))

    def __len__(self) -> int:
        return self._length


class RandomSampler(Sampler):
    """0 to `length` - 1 in a new order each time, drawn from numpy's random numbers (`numpy.random.seed`)."""

    def __init__(self, length: int):
        self._length = length

    def __iter__(self) -> Iterator[int]:
        return iter(np.random.permutation(self._length).tolist())

    def __len__(self) -> int:
        return self._length


class SplitSampler(Sampler):
    """Part `part_index` of `num_parts` neighbouring parts of 0 to `length` - 1, in a new order each time.

    The parts are of one size, so that workers have as many batches: a rest of fewer than `num_parts` indices is in
    none. `mx.dist.shard` leaves out nothing. The order comes from numpy's random numbers, as RandomSampler's.
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
    """The indices of the items of which `fn(item)` is true, found once."""

    def __init__(self, fn: Callable[[Any], Any], dataset: Any):
        self._indices = [i for i in range(len(dataset)) if fn(dataset[i])]

    def __iter__(self) -> Iterator[int]:
        return iter(self._indices)

    def __len__(self) -> int:
        return len(self._indices)


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from another sampler.

    `last_batch` says what becomes of a rest: 'keep' it as a smaller batch, 'discard' it, or 'rollover' it into the
    next epoch.
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
