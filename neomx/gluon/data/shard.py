"""A dataset for N workers: each has its part of one common order, so that N workers see what one process would.

An epoch's order depends on the seed and on the epoch's number alone. Of N workers with batches of B samples, worker r
takes every N-th sample from the r-th on. Its batch t is then its part of `order[t * B * N : (t + 1) * B * N]`, which
is the batch that one process with batches of B * N samples would have at that step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...comm import session
from .dataset import Dataset, SimpleDataset
from .place import Batch, Pass
from .sampler import Sampler


def shard(dataset: Any, shuffle: bool = False, seed: int = 0) -> ShardedDataset:
    """This worker's part of a dataset, for a DataLoader whose batch_size is that of one worker.

    Over all workers every sample comes once an epoch; with `shuffle` in another order each epoch, which depends on
    `seed` and the epoch alone. At each step N workers together have the samples that one process with N times the
    batch size has. Without other workers it is the whole dataset.
    """
    world = session.session().world
    return ShardedDataset(dataset, shuffle, seed, world.rank, world.size)


class ShardedDataset(Dataset):
    """A worker's part of a dataset: what `mx.dist.shard` makes, for a DataLoader.

    Each iteration of the loader is the next epoch; `epoch` is the number of the coming one, and may be set to go on
    where a training was interrupted. Its own length and items are those of this worker in that coming epoch.
    """

    def __init__(self, dataset: Any, shuffle: bool = False, seed: int = 0, rank: int = 0, size: int = 1):
        if not 0 <= rank < size:
            raise ValueError(f"rank must be from 0 to size - 1, received rank={rank}, size={size}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, received {seed}")
        if isinstance(dataset, ShardedDataset):
            raise ValueError("the dataset is a worker's part already: shard the whole dataset, once")
        self.dataset = dataset if isinstance(dataset, Dataset) else SimpleDataset(dataset)
        self.shuffle, self.seed, self.rank, self.size = shuffle, seed, rank, size
        self.epoch = 0
        self._drawn: tuple[int, np.ndarray] | None = None

    def __len__(self) -> int:
        return len(range(self.rank, len(self.dataset), self.size))

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[int(self.order(self.epoch)[self.rank :: self.size][idx])]

    def order(self, epoch: int) -> np.ndarray:
        """The whole dataset's indices, in the order in which all workers together go through them in an epoch."""
        if self._drawn is None or self._drawn[0] != epoch:
            count = len(self.dataset)
            random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            self._drawn = epoch, random.permutation(count) if self.shuffle else np.arange(count)
        return self._drawn[1]

    def batches(self, batch_size: int, last_batch: str = "keep") -> ShardedBatches:
        """Lists of indices of the whole dataset, `batch_size` for this worker; each iteration is the next epoch."""
        return ShardedBatches(self, batch_size, last_batch)

    def _of(self, dataset: Dataset) -> ShardedDataset:
        made = ShardedDataset(dataset, self.shuffle, self.seed, self.rank, self.size)
        made.epoch = self.epoch
        return made

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> ShardedDataset:
        """A worker's part of the transformed dataset."""
        return self._of(self.dataset.transform(fn, lazy))

    def filter(self, fn: Callable[[Any], Any]) -> ShardedDataset:
        """A worker's part of the filtered dataset."""
        return self._of(self.dataset.filter(fn))

    def take(self, count: int | None) -> ShardedDataset:
        """A worker's part of the whole dataset's first items."""
        return self._of(self.dataset.take(count))

    def sample(self, sampler: Sampler) -> ShardedDataset:
        """A worker's part of the items that a sampler gives, which must be the same on all workers."""
        return self._of(self.dataset.sample(sampler))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Refused: it would be a part of a part."""
        raise ValueError("the dataset is a worker's part already: shard the whole dataset, once")


class ShardedBatches(Sampler):
    """A worker's batches of a sharded dataset.

    The rest of an epoch that makes no full batch for all workers is split evenly ('keep'), left out ('discard'), or
    comes first in the next epoch ('rollover').
    """

    def __init__(self, shard: ShardedDataset, batch_size: int, last_batch: str = "keep"):
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, received {batch_size}")
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(f"last_batch must be 'keep', 'discard' or 'rollover', received {last_batch!r}")
        self.shard, self.batch_size, self._last_batch = shard, batch_size, last_batch

    def __len__(self) -> int:
        """How many batches this worker has in the coming epoch."""
        share = range(self.shard.rank, self._total(self.shard.epoch), self.shard.size)
        return -(-len(share) // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self.start()
        self.shard.epoch += 1
        return epoch

    def start(self) -> Epoch:
        """The coming epoch, for a loader: `follow` has it begin, so that batches can be made before."""
        return Epoch(self, self.shard.epoch)

    @property
    def at_once(self) -> int:
        """How many samples all workers together have in a full batch."""
        return self.batch_size * self.shard.size

    def _rest(self, epoch: int) -> int:
        """How many samples the epochs before have left for this one."""
        return epoch * len(self.shard.dataset) % self.at_once if self._last_batch == "rollover" else 0

    def _total(self, epoch: int) -> int:
        total = self._rest(epoch) + len(self.shard.dataset)
        return total if self._last_batch == "keep" else total - total % self.at_once

    def indices(self, epoch: int) -> np.ndarray:
        """What all workers go through in an epoch, in order."""
        shard, rest = self.shard, self._rest(epoch)
        back = -(-rest // max(len(shard.dataset), 1))  # a small dataset may leave its rest for several epochs
        row = np.concatenate([shard.order(number) for number in range(epoch - back, epoch + 1)])
        start = back * len(shard.dataset) - rest
        return row[start : start + self._total(epoch)]


class Epoch(Pass):
    """A worker's pass over its part."""

    def __init__(self, batches: ShardedBatches, number: int):
        indices = batches.indices(number)
        share = indices[batches.shard.rank :: batches.shard.size].tolist()
        lists = (share[at : at + batches.batch_size] for at in range(0, len(share), batches.batch_size))
        super().__init__(lists, number, -(-len(indices) // batches.at_once), len(indices))
        self._shard, self._at_once = batches.shard, batches.at_once

    def _begin(self) -> None:
        self._shard.epoch = self.number + 1

    def _at(self, step: int, samples: int | None) -> Batch:
        assert self.samples is not None and samples is not None
        return Batch(self.number, step, self.steps, samples, min(self._at_once, self.samples - step * self._at_once))

    def _finish(self) -> None:
        """Wait for the workers that have a batch more: meanwhile this one takes part in their step."""
        if self._shard.size == 1 or not session.is_open():
            return
        opened = session.session()
        if opened.world.servers == 0 or "rounds" in vars(opened):  # asynchronous workers wait for nobody
            opened.rounds.pause(expected=True)
