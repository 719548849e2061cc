"""Bucketing: batches of samples of similar length, so that they need little padding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ....comm import session
from ..shard import ShardedBatches, ShardedDataset


class BucketSampler(ShardedBatches):
    """Lists of `batch_size` indices of samples of similar length, to be the `batch_sampler` of a DataLoader.

    `lengths` has the length of each sample of the dataset. `buckets` has the maximum lengths of the buckets, or is the
    number of buckets, which then have about equally many samples. Samples that do not fill a batch of their bucket move
    to the next longer bucket, so that only the last batch of an epoch may be smaller. With `last_batch='discard'`, that
    one is dropped.

    At each step, all workers of a job have samples of the same bucket, and together the batch of a single process with
    N times the `batch_size`. The order depends only on `seed` and the number of the epoch, and so do the random numbers
    of each sample, as for `mx.dist.shard`. Set `epoch` to resume an interrupted training.
    """

    def __init__(
        self,
        lengths: Sequence[int] | np.ndarray,
        batch_size: int,
        buckets: int | Sequence[int] = 10,
        shuffle: bool = True,
        seed: int = 0,
        last_batch: str = "keep",
        rank: int | None = None,
        size: int | None = None,
    ):
        if last_batch not in ("keep", "discard"):
            raise ValueError(f"last_batch must be 'keep' or 'discard', received {last_batch!r}")
        if (rank is None) != (size is None):
            raise ValueError(f"pass both rank and size, or neither of them, received rank={rank}, size={size}")
        workers = session.session() if rank is None else None
        lengths = np.asarray(lengths)
        if lengths.ndim != 1:
            raise ValueError(
                f"lengths must have one number for each sample, received an array of shape {lengths.shape}"
            )
        super().__init__(ShardedDataset(lengths, shuffle, seed, rank or 0, size or 1, workers), batch_size, last_batch)
        self.buckets = _bounds(lengths, buckets)
        self._bucket_of = np.searchsorted(self.buckets, lengths)

    @property
    def epoch(self) -> int:
        """The number of the next epoch."""
        return self.shard.epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self.shard.epoch = number

    @property
    def needs_same_size(self) -> bool:
        """Whether a position is valid only for the same number of samples in a batch of all workers."""
        return True

    def indices(self, epoch: int, start: int = 0) -> np.ndarray:
        """Return the indices that all workers process in an epoch: one batch of all workers after the other."""
        order = self.shard.order(epoch)
        batches: list[np.ndarray] = []
        rest = order[:0]
        for bucket in range(len(self.buckets)):
            row = np.concatenate([rest, order[self._bucket_of[order] == bucket]])
            full = len(row) // self.at_once
            batches += np.split(row[: full * self.at_once], full) if full else []
            rest = row[full * self.at_once :]
        if self.shard.shuffle:
            # The key is not that of a sample: (seed, epoch, index).
            random = np.random.Generator(np.random.PCG64([self.shard.seed, epoch, len(order)]))
            batches = [batches[i] for i in random.permutation(len(batches))]
        return np.concatenate([*batches, rest])[start : self._total(epoch, start)]


def _bounds(lengths: np.ndarray, buckets: int | Sequence[int]) -> list[int]:
    """Return the maximum length of each bucket, in increasing order."""
    if isinstance(buckets, (int, np.integer)):
        if buckets < 1:
            raise ValueError(f"buckets must be at least 1, received {buckets}")
        places = -(-len(lengths) * np.arange(1, buckets + 1) // buckets) - 1
        return np.unique(np.sort(lengths)[places]).tolist() if len(lengths) else [0]
    bounds = sorted(set(buckets))
    longest = lengths.max(initial=0)
    if not bounds or longest > bounds[-1]:
        raise ValueError(f"the longest sample has length {longest}, but the buckets are {bounds}. Add a longer one")
    return bounds
