"""Deals the samples of iterators of `mx.io` to the workers of the job, as `mx.dist.shard` deals those of a dataset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..base import MXNetError
from ..comm import session
from ..gluon.data import DataLoader
from ..gluon.data.dataset import Dataset
from ..gluon.data.shard import shard
from ..io.dealt import Samples
from ..ops.random import python_source

_SEED_BITS = 32


class IteratorDealer:
    """Deals the samples of iterators that are created with `num_parts`."""

    def check(self, who: str, num_parts: int) -> None:
        """Raise MXNetError if an iterator has another number of parts than there are workers."""
        world = session.session().world
        assert world.limits is not None
        if num_parts not in (world.size, world.limits.initial):
            raise MXNetError(
                f"{who}: an elastic job deals samples to all of its workers, so num_parts must be their number, "
                f"{world.size}; received {num_parts}. Pass num_parts=kv.num_workers, or leave out num_parts and "
                "part_index if each worker must read all of the data"
            )

    def deal(self, samples: Samples) -> DealtBatches:
        """Return this worker's batches."""
        return DealtBatches(samples)


class DealtBatches(Iterator[Any]):
    """This worker's batches of the samples of an iterator."""

    def __init__(self, samples: Samples):
        self._loader = DataLoader(
            shard(_Numbers(samples.count, samples.threads > 0), samples.shuffle, samples.seed),
            samples.batch_size,
            last_batch=samples.last_batch,
            batchify_fn=lambda items: samples.make(*map(list, zip(*items, strict=True))),
            num_workers=samples.threads,
            thread_pool=True,
            prefetch=samples.ahead,
        )
        self._batches: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._loader.unreported()
        return next(self._batches)

    def restart(self) -> None:
        """Begin the next pass."""
        self._batches = None

    def state(self) -> dict[str, Any]:
        """Return the position in the data of all workers."""
        return self._loader.state()

    def load_state(self, position: dict[str, Any]) -> None:
        """Continue at a position."""
        self._batches = None
        self._loader.load_state(position)


class _Numbers(Dataset):
    """The numbers of samples, each with a seed for its augmentation if that `is_random`."""

    def __init__(self, count: int, is_random: bool):
        self._count, self._is_random = count, is_random

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, idx: int) -> tuple[int, int]:
        return idx, python_source().getrandbits(_SEED_BITS) if self._is_random else 0
