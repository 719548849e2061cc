"""`mx.parallel.datashard`: this worker's part of arrays, of a dataset or of an iterator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from .. import dist
from ..base import MXNetError
from ..comm import session
from ..gluon.data import ArrayDataset, DataLoader, Dataset
from ..gluon.data.shard import ShardedDataset
from ..io import DataIter
from ..module.shards import PartIter
from ..ndarray import NDArray

__all__ = ["ScatterDataShard"]


def ScatterDataShard(
    data: Any, label: Any = None, batch_size: int | None = None, shuffle: bool = False, seed: int = 0
) -> ShardedDataset | PartIter:
    """Return this worker's part of the data, for `FeedForward.fit`, `Module.fit` or a DataLoader.

    Arrays and datasets give the shard of `mx.dist.shard`: all workers together see every sample once per epoch.
    `batch_size` is the number of samples of this worker in a batch of `fit`. For an iterator, the result is an iterator
    with this worker's rows of each batch. `fit` with the result trains one model on all workers.
    """
    if isinstance(data, (DataIter, DataLoader)):
        return _part_of(data, label, batch_size, shuffle)
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, received {batch_size!r}")
    shard = dist.shard(_dataset(data, label), shuffle, seed)
    shard.batch_size = batch_size
    return shard


def _part_of(data: Any, label: Any, batch_size: int | None, shuffle: bool) -> PartIter:
    if isinstance(data, DataLoader):
        raise TypeError(
            "ScatterDataShard expects the dataset, received a DataLoader. Pass the shard to it instead: "
            "DataLoader(ScatterDataShard(dataset), batch_size)"
        )
    if label is not None or batch_size is not None or shuffle:
        raise ValueError(
            "an iterator has its own labels, batch_size and order: leave out label, batch_size and shuffle"
        )
    if session.world().is_elastic:
        raise MXNetError(
            "the rows of an iterator's batches cannot be dealt again to other workers of an elastic job. Pass the "
            "arrays or the dataset to ScatterDataShard, or create the iterator with num_parts=kv.num_workers"
        )
    return PartIter(data, dist.rank(), dist.size())


def _dataset(data: Any, label: Any) -> Any:
    """Return a dataset of arrays, or the given one."""
    if isinstance(data, ShardedDataset):
        return data  # `shard` says that it is one already
    if isinstance(data, Mapping) or not (hasattr(data, "__len__") and hasattr(data, "__getitem__")):
        raise TypeError(
            f"ScatterDataShard expects arrays, a dataset or an iterator of mx.io, received {type(data).__name__}"
        )
    if label is None and not isinstance(data, (np.ndarray, NDArray, torch.Tensor, tuple)):
        return data  # a dataset, or a list of items
    if isinstance(data, Dataset):
        raise TypeError("a dataset already contains its labels: leave out label, or pass arrays")
    arrays = [each for given in (data, label) if given is not None for each in _listed(given)]
    lengths = [len(each) for each in arrays]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"data and label must have the same number of samples, received {' and '.join(map(str, lengths))}"
        )
    return ArrayDataset(*arrays)


def _listed(given: Any) -> list[Any]:
    several = list(given) if isinstance(given, tuple) else [given]
    return [each.numpy() if isinstance(each, torch.Tensor) else _array(each) for each in several]


def _array(each: Any) -> Any:
    """Return an array or a dataset itself, and a list of numbers as an array."""
    return each if isinstance(each, (np.ndarray, NDArray, Dataset)) else np.asarray(each)
