"""Sharding a dataset over N workers so that together they see the same batches as a single process.

The order of an epoch depends only on the seed and the epoch number. With N workers and batches of B samples, worker r
takes every N-th sample, starting with the r-th. Its batch t is then its share of `order[t * B * N : (t + 1) * B * N]`,
which is the batch that a single process with batches of B * N samples has at that step.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from ...base import MXNetError
from ...comm import session
from ...comm.world import World
from .dataset import Dataset, SimpleDataset
from .place import Batch, Pass, Position, Seeds
from .sampler import Sampler

_SAID = {
    "seed": "seed",
    "shuffle": "shuffle",
    "samples": "number of samples",
    "last_batch": "last_batch",
    "at_once": "number of samples in a batch of all workers",
}  # the names in errors


def shard(dataset: Any, shuffle: bool = False, seed: int = 0) -> ShardedDataset:
    """Return this worker's shard of a dataset, for a DataLoader whose batch_size is that of one worker.

    All workers together see every sample once per epoch. With `shuffle`, each epoch has a different order, which
    depends only on `seed` and the epoch number. In each step, N workers together have the samples of a single process
    with N times the batch size. With a single worker, the shard is the whole dataset.
    """
    return ShardedDataset(dataset, shuffle, seed, workers=session.session())


class Sharers(Protocol):
    """The workers among whom samples are divided."""

    @property
    def world(self) -> World:
        """The place of this worker among them."""


class ShardedDataset(Dataset):
    """One worker's shard of a dataset, as `mx.dist.shard` returns it, for use in a DataLoader.

    Each iteration of the loader is the next epoch. `epoch` is the number of that epoch. Set it to resume an interrupted
    training. The length and the items of this dataset are those of this worker in that epoch. `batch_size` is the
    number of samples of this worker in a batch, for `Module.fit` and `FeedForward.fit`. A DataLoader has its own.
    """

    batch_size: int | None = None

    def __init__(
        self,
        dataset: Any,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        size: int = 1,
        workers: Sharers | None = None,
        together: Callable[[], int] = lambda: 1,
    ):
        """`workers`, such as the session of a job, replaces `rank` and `size`: in an elastic job they change.

        `together` returns the number of neighboring samples of a batch that stay on one worker.
        """
        if not 0 <= rank < size:
            raise ValueError(f"rank must be from 0 to size - 1, received rank={rank}, size={size}")
        if seed < 0:
            raise ValueError(f"seed must not be negative, received {seed}")
        if isinstance(dataset, ShardedDataset):
            raise ValueError("the dataset is already a shard: call shard once, on the whole dataset")
        self.dataset = dataset if isinstance(dataset, Dataset) else SimpleDataset(dataset)
        self.shuffle, self.seed, self._place, self._workers = shuffle, seed, (rank, size), workers
        self.together = together
        self.epoch = 0
        self._drawn: tuple[int, np.ndarray] | None = None

    @property
    def rank(self) -> int:
        """The rank of this worker."""
        return self._place[0] if self._workers is None else self._workers.world.rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._place[1] if self._workers is None else self._workers.world.size

    @property
    def has_others(self) -> bool:
        """Whether other workers have, or may have, a part of the data."""
        return self.size > 1 or self._workers is not None and self._workers.world.is_elastic

    @property
    def shares(self) -> int:
        """The number of workers whose batches are the batch of all: in an elastic job, the number at its start."""
        return self.size if self._workers is None else self._workers.world.shares

    def __len__(self) -> int:
        return len(range(self.rank, len(self.dataset), self.size))

    def __getitem__(self, idx: int) -> Any:
        return self.dataset[int(self.order(self.epoch)[self.rank :: self.size][idx])]

    def order(self, epoch: int) -> np.ndarray:
        """Return the indices of the whole dataset in the order in which all workers process them in an epoch."""
        if self._drawn is None or self._drawn[0] != epoch:
            count = len(self.dataset)
            random = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            self._drawn = epoch, random.permutation(count) if self.shuffle else np.arange(count)
        return self._drawn[1]

    def batches(self, batch_size: int, last_batch: str = "keep") -> ShardedBatches:
        """Return lists of `batch_size` indices into the whole dataset for this worker. Each iteration is an epoch."""
        return ShardedBatches(self, batch_size, last_batch)

    def _of(self, dataset: Dataset) -> ShardedDataset:
        made = ShardedDataset(dataset, self.shuffle, self.seed, *self._place, self._workers, self.together)
        made.epoch, made.batch_size = self.epoch, self.batch_size
        return made

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> ShardedDataset:
        """Return this worker's shard of the transformed dataset."""
        return self._of(self.dataset.transform(fn, lazy))

    def filter(self, fn: Callable[[Any], Any]) -> ShardedDataset:
        """Return this worker's shard of the filtered dataset."""
        return self._of(self.dataset.filter(fn))

    def take(self, count: int | None) -> ShardedDataset:
        """Return this worker's shard of the first `count` items of the whole dataset."""
        return self._of(self.dataset.take(count))

    def sample(self, sampler: Sampler) -> ShardedDataset:
        """Return this worker's shard of the sampled dataset. The sampler must be the same on all workers."""
        return self._of(self.dataset.sample(sampler))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Raise an error: a shard cannot be sharded again."""
        raise ValueError("the dataset is already a shard: call shard once, on the whole dataset")


class ShardedBatches(Sampler):
    """One worker's batches of a sharded dataset.

    Samples at the end of an epoch that do not fill a batch on all workers are split evenly ('keep'), dropped
    ('discard'), or moved to the start of the next epoch ('rollover').
    """

    def __init__(self, shard: ShardedDataset, batch_size: int, last_batch: str = "keep"):
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, received {batch_size}")
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(f"last_batch must be 'keep', 'discard' or 'rollover', received {last_batch!r}")
        self.shard, self.batch_size, self._last_batch = shard, batch_size, last_batch
        self._begin_at = 0  # samples of all workers that the next epoch omits, because they are already processed
        self._at_once = 0  # the number of samples in a batch of all workers, if another worker has determined it

    def __len__(self) -> int:
        """The number of batches that this worker has in the next epoch."""
        return self.count(self._total(self.shard.epoch))

    def count(self, samples: int) -> int:
        """Return the number of batches that this worker has of `samples` of all workers."""
        full, rest = divmod(samples, self.at_once)
        first = self.shard.rank * self.shard.together()  # the first sample of a batch that this worker has
        return full * (first < self.at_once) + (first < rest)

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self.start()
        self.shard.epoch += 1
        return epoch

    def start(self) -> Epoch:
        """Return the next epoch for a loader. The epoch number advances in `follow`, so batches can be prefetched."""
        start, self._begin_at = self._begin_at, 0
        return Epoch(self, self.shard.epoch, start)

    @property
    def needs_same_size(self) -> bool:
        """Whether a position is valid only for the same number of samples in a batch of all workers."""
        return self._last_batch == "rollover"

    def position(self, epoch: int, index: int) -> Position:
        """Return the position after the first `index` samples of all workers in an epoch."""
        shard = self.shard
        return {
            "kind": "shard",
            "seed": shard.seed,
            "shuffle": shard.shuffle,
            "samples": len(shard.dataset),
            "last_batch": self._last_batch,
            "at_once": self.at_once,
            "epoch": epoch,
            "index": index,
        }

    def begin_at(self, position: Position) -> None:
        """Start the next epoch at a position that `position` returned, for any number of workers."""
        expected = self.position(0, 0)
        for name in ("seed", "shuffle", "samples", "last_batch", *(["at_once"] if self.needs_same_size else [])):
            if position.get(name) != expected[name]:
                raise MXNetError(
                    f"the position is in other data: its {_SAID[name]} is {position.get(name)!r}, but that of this "
                    f"loader is {expected[name]!r}. Create the loader as for the run that saved the position"
                )
        self.shard.epoch, self._begin_at = int(position["epoch"]), int(position["index"])

    @property
    def at_once(self) -> int:
        """The number of samples of all workers in a full batch."""
        return self._at_once or self.batch_size * self.shard.shares

    def keep_at_once(self, samples: int) -> None:
        """Use this number of samples in a full batch of all workers, whatever the batch size of this worker is."""
        self._at_once = samples

    def _rest(self, epoch: int) -> int:
        """The number of samples that previous epochs left for this one."""
        return epoch * len(self.shard.dataset) % self.at_once if self._last_batch == "rollover" else 0

    def _total(self, epoch: int, start: int = 0) -> int:
        total = self._rest(epoch) + len(self.shard.dataset)
        return total if self._last_batch == "keep" else total - max(0, total - start) % self.at_once

    def indices(self, epoch: int, start: int = 0) -> np.ndarray:
        """Return the indices that all workers process in an epoch, in order, without the first `start`."""
        shard, rest = self.shard, self._rest(epoch)
        back = -(-rest // max(len(shard.dataset), 1))  # a small dataset may leave samples over several epochs
        row = np.concatenate([shard.order(number) for number in range(epoch - back, epoch + 1)])
        begin = back * len(shard.dataset) - rest
        return row[begin + start : begin + self._total(epoch, start)]


class Epoch(Pass):
    """One worker's pass over its shard, without the first `start` samples of all workers."""

    is_dealt = True

    def __init__(self, batches: ShardedBatches, number: int, start: int = 0):
        super().__init__(iter(()), number)
        self._of, self._shard = batches, batches.shard
        self._committed = start  # samples of all workers that are trained
        self._has_more = False  # whether batches of lost workers were added
        self._deal()

    def _deal(self) -> None:
        """Divide what is left of the epoch among the workers."""
        batches, rank, size = self._of, self._shard.rank, self._shard.size
        self._start, self._at_once = self._committed, batches.at_once
        indices = batches.indices(self.number, self._start)
        starts = range(0, len(indices), self._at_once)
        together = self._shard.together()
        shares = (_share(indices[at : at + self._at_once].tolist(), rank, size, together) for at in starts)
        self._lists = (share for share in shares if share)
        self._first = -(-self._start // self._at_once)  # the number of the first batch
        self.steps, self.samples = self._first + len(starts), self._start + len(indices)
        self._batches = batches.count(len(indices))  # of this worker
        self.delivered = 0
        self._sizes.clear()

    def has_ended(self) -> bool:
        """Whether no worker has batches after the position. The next pass is then that of the next epoch."""
        has_ended = 0 < self._start == self.samples
        if has_ended:
            self._begin()
        return has_ended

    def commit(self, index: int) -> None:
        """Note that the first `index` samples of all workers are trained."""
        self._committed = index

    def deal_again(self) -> None:
        """Divide what is not trained yet among the current workers."""
        self.deals += 1
        self._deal()

    def deal_from(self, index: int) -> None:
        """Divide what follows the first `index` samples of all workers among the current workers."""
        self._committed = index
        self.deal_again()

    def inherit(self, members: Sequence[Sequence[int]], me: int, anew: bool = False) -> None:
        """Process a part of what lost workers should have processed, in a pass in which nothing is trained."""
        mine = self._duties(members)[me]
        if anew:
            self.deals += 1
            self._lists, self.delivered = iter(mine), 0
            self._sizes.clear()
        else:
            known = self._duties(members[:-1])[me]
            self._lists = itertools.chain(self._lists, mine[len(known) :])
            self._has_more |= len(mine) > len(known)

    def _duties(self, members: Sequence[Sequence[int]]) -> dict[int, list[list[int]]]:
        """Return the batches of each worker, by its number, in a pass in which nothing is trained."""
        indices, at_once, first = self._of.indices(self.number, self._start), self._at_once, members[0]
        chunks = [indices[at : at + at_once] for at in range(0, len(indices), at_once)]
        shares = [[chunk[rank :: len(first)].tolist() for chunk in chunks] for rank in range(len(first))]
        found = {each: [share for share in of if share] for each, of in zip(first, shares, strict=True)}
        width = max(1, at_once // len(first))
        for now in members[1:]:
            lost = [i for each in list(found) if each not in now for share in found.pop(each) for i in share]
            for rank, each in enumerate(now):
                share = lost[rank :: len(now)]
                found.setdefault(each, []).extend(share[at : at + width] for at in range(0, len(share), width))
        return found

    def seeds(self, indices: Any) -> Seeds:
        """Return the seeds of a batch. They are the same for any number of workers."""
        return Seeds((self._shard.seed, self.number))

    def _begin(self) -> None:
        self._shard.epoch = self.number + 1

    def _at(self, step: int, samples: int | None) -> Batch:
        assert self.samples is not None and samples is not None
        total = min(self._at_once, self.samples - self._start - step * self._at_once)
        return Batch(self.number, self._first + step, self.steps, samples, total)

    def position(self) -> Position:
        """Return the position after the batches that the program has received: samples of all workers."""
        return self._of.position(self.number, self.index)

    @property
    def index(self) -> int:
        """The number of samples of all workers up to the last batch that the program has received."""
        assert self.samples is not None
        return min(self._start + self.delivered * self._at_once, self.samples)

    def _finish(self) -> bool:
        """Wait for workers with one more batch, and join their step in the meantime.

        Return whether samples were dealt again, because a worker was lost.
        """
        deals, self._has_more = self.deals, False
        if not self._shard.has_others or not session.is_open():
            return False
        opened = session.session()
        waits = opened.world.servers == 0 or "rounds" in vars(opened)  # asynchronous workers do not
        if waits and opened.rounds.pause(lacks=1, batches=self._batches):
            return False  # all workers have ended the pass, even if one was lost afterwards
        return self.deals != deals or self._has_more


def _share(batch: list[int], rank: int, size: int, together: int) -> list[int]:
    """Return a worker's share of a batch of all workers, which is divided in pieces of so many samples."""
    if together == 1:
        return batch[rank::size]
    pieces = [batch[at : at + together] for at in range(0, len(batch), together)]
    return [index for piece in pieces[rank::size] for index in piece]
