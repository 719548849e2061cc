"""The position in a pass over the batches of a plain sampler: where it started, and the number of batches.

A pass draws its order at its start, from `numpy.random`. Its origin is the state of that generator before the draw. To
resume, the order is drawn again from the origin, and the batches before the position are skipped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...base import MXNetError
from .place import Pass, Position
from .sampler import BatchSampler, FilterSampler, RandomSampler, SequentialSampler, SplitSampler

_ORDERS = (SequentialSampler, RandomSampler, SplitSampler, FilterSampler, list, tuple, range)


class SamplerPass(Pass):
    """A pass over the lists of a batch sampler, from its beginning or from a position."""

    def __init__(self, sampler: Any, number: int, steps: int | None, position: Position | None = None):
        super().__init__(iter(sampler), number, steps)
        self._sampler = sampler
        self._skip = 0
        self._origin: dict[str, Any] | None = None  # unknown until the first list is drawn
        if position is not None and position["origin"] is not None:
            self._origin, self._skip = position["origin"], int(position["batches"])
            self._seed, self._seen = position["seed"], int(position["seen"])
            self._lists = self._remaining()

    def __next__(self) -> Any:
        if self._origin is None and _is_known(self._sampler):
            self._origin = {"numpy": _numpy_state(), "rest": [int(i) for i in self._sampler._rest]}
        return super().__next__()

    def _remaining(self) -> Iterator[Any]:
        """Draw the order again, and skip what was processed. The program's generator does not change."""
        assert self._origin is not None
        now = np.random.get_state()
        np.random.set_state(_from_json(self._origin["numpy"]))
        self._sampler._rest = list(self._origin["rest"])
        lists = iter(self._sampler)
        try:
            first = next(lists, None)
        finally:
            np.random.set_state(now)
        skipped = self._skip
        if first is not None and not skipped:
            yield first
        for _ in range(skipped - 1):
            next(lists, None)
        yield from lists

    def has_ended(self) -> bool:
        """Whether there are no batches after the position. The sampler then knows what the next pass begins with."""
        if not self._skip:
            return False
        first = next(self._lists, None)
        if first is not None:
            self._lists = itertools.chain([first], self._lists)
        return first is None

    def _at(self, step: int, samples: int | None) -> Any:
        return super()._at(self._skip + step, samples)

    def position(self) -> Position:
        """Return the position after the batches that the program has received."""
        if not _is_known(self._sampler):
            raise MXNetError(refusal(self._sampler))
        done = self._skip + self.delivered
        seen = min(done * self._sampler._batch_size, self._seen)
        return position_of(self.number, done, self._origin, self._seed, seen)


def position_of(
    epoch: int, batches: int = 0, origin: dict[str, Any] | None = None, seed: int | None = None, seen: int = 0
) -> Position:
    """Return a position as plain JSON values."""
    return {"kind": "sampler", "epoch": epoch, "batches": batches, "origin": origin, "seed": seed, "seen": seen}


def refusal(sampler: Any) -> str:
    """Return why the position of a sampler is unknown, or '' if it is known."""
    if _is_known(sampler):
        return ""
    inner = type(sampler._sampler if type(sampler) is BatchSampler else sampler).__name__
    return (
        f"the position in the data of a DataLoader with a {inner} cannot be saved: its order may depend on anything. "
        "Use shuffle=True, a sampler of gluon.data, or mx.dist.shard(dataset, shuffle=True)"
    )


def _is_known(sampler: Any) -> bool:
    return type(sampler) is BatchSampler and type(sampler._sampler) in _ORDERS


def _numpy_state() -> list[Any]:
    state: Any = np.random.get_state()
    name, keys, *numbers = state
    return [name, keys.tolist(), *numbers]


def _from_json(state: list[Any]) -> Any:
    name, keys, *numbers = state
    return (name, np.array(keys, dtype=np.uint32), *numbers)
