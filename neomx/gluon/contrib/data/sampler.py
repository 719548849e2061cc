"""Additional samplers."""

from __future__ import annotations

from collections.abc import Iterator

from ...data.sampler import Sampler

__all__ = ["IntervalSampler"]


class IntervalSampler(Sampler):
    """Samples every `interval`-th index below `length`. With `rollover`, repeats from 1, 2, ... until all are used."""

    def __init__(self, length: int, interval: int, rollover: bool = True):
        assert interval <= length, f"Interval {interval} must be smaller than or equal to length {length}"
        self._length, self._interval, self._rollover = length, interval, rollover

    def __iter__(self) -> Iterator[int]:
        for start in range(self._interval if self._rollover else 1):
            yield from range(start, self._length, self._interval)

    def __len__(self) -> int:
        return self._length
