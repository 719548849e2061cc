"""Datasets: indexed items, which can be transformed, filtered, sampled and sharded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ... import recordio
from ...ndarray import NDArray
from .sampler import FilterSampler, Sampler, SequentialSampler


class Dataset:
    """The base of datasets, which map indices to items. Subclasses define `__getitem__` and `__len__`."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def filter(self, fn: Callable[[Any], Any]) -> Dataset:
        """Return a dataset of the items for which `fn(item)` is true. They are selected immediately."""
        return _SampledDataset(self, FilterSampler(fn, self))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Return shard `index` of `num_shards` contiguous shards. If uneven, the first ones have one item more."""
        assert index < num_shards, f"Shard index out of bounds: {index} out of {num_shards}"
        assert num_shards > 0, f"Number of shards must be greater than 0, received {num_shards}"
        assert index >= 0, f"Index must be non-negative, received {index}"
        length, rest = divmod(len(self), num_shards)
        start = length * index + min(rest, index)
        return _SampledDataset(self, SequentialSampler(length + (index < rest), start))

    def take(self, count: int | None) -> Dataset:
        """Return a dataset of the first `count` items, or of all items for None."""
        if count is not None and count < 0:
            raise ValueError(f"count must not be negative, received {count}")
        length = len(self)
        return _SampledDataset(self, SequentialSampler(length if count is None else min(count, length)))

    def sample(self, sampler: Sampler) -> Dataset:
        """Return a dataset of the items that a sampler selects, in its order. It is iterated once, now."""
        if not isinstance(sampler, Sampler):
            raise TypeError(f"Invalid sampler type: {type(sampler)}. Expected gluon.data.Sampler instead.")
        return _SampledDataset(self, sampler)

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Return a dataset with `fn` applied to each item (`fn(*item)` for a tuple): on access if `lazy`, else now."""
        transformed = _LazyTransformDataset(self, fn)
        return transformed if lazy else SimpleDataset([transformed[i] for i in range(len(self))])

    def transform_first(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Return a dataset with `fn` applied to the first element of each item, such as the image but not its label."""
        return self.transform(_TransformFirstClosure(fn), lazy)


class SimpleDataset(Dataset):
    """A dataset of the items of a list, or of any object with a length and indexing."""

    def __init__(self, data: Any):
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: Any) -> Any:
        return self._data[idx]


class _LazyTransformDataset(Dataset):
    """A dataset that applies a function to the items of another dataset."""

    def __init__(self, data: Any, fn: Callable[..., Any]):
        self._data, self._fn = data, fn

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        item = self._data[idx]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)


class _TransformFirstClosure:
    """A class instead of a closure, so that it can be pickled for worker processes."""

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn

    def __call__(self, x: Any, *args: Any) -> Any:
        return (self._fn(x), *args) if args else self._fn(x)


class _SampledDataset(Dataset):
    """A subset of the items of another dataset."""

    def __init__(self, dataset: Dataset, sampler: Sampler):
        self._dataset, self._sampler = dataset, sampler
        self._indices = list(sampler)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, idx: int) -> Any:
        return self._dataset[self._indices[idx]]


class ArrayDataset(Dataset):
    """A dataset whose items are tuples of the elements of several arrays, lists or datasets of equal length."""

    def __init__(self, *args: Any):
        assert args, "Needs at least 1 arrays"
        self._length = len(args[0])
        self._data = []
        for i, data in enumerate(args):
            assert len(data) == self._length, (
                f"All arrays must have the same length; array[0] has length {self._length} while "
                f"array[{i}] has {len(data)}."
            )
            # The elements of a vector are numpy scalars, not arrays with one element.
            self._data.append(data.asnumpy() if isinstance(data, NDArray) and data.ndim == 1 else data)

    def __getitem__(self, idx: Any) -> Any:
        return self._data[0][idx] if len(self._data) == 1 else tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length


class RecordFileDataset(Dataset):
    """The records of a RecordIO file `x.rec` with its index file `x.idx`. Each item is of type bytes."""

    def __init__(self, filename: str | os.PathLike[str]):
        self.filename = os.fspath(filename)
        self.idx_file = os.path.splitext(self.filename)[0] + ".idx"
        self._record = recordio.MXIndexedRecordIO(self.idx_file, self.filename, "r")

    def __getitem__(self, idx: int) -> Any:
        return self._record.read_idx(self._record.keys[idx])

    def __len__(self) -> int:
        return len(self._record.keys)


class _DownloadedDataset(Dataset):
    """Images and labels, which `_get_data` reads from files in `root` into `_data` and `_label`."""

    def __init__(self, root: str, transform: Callable[..., Any] | None):
        self._transform = transform
        self._data: Any = None
        self._label: Any = None
        self._root = os.path.expanduser(root)
        self._get_data()

    def __getitem__(self, idx: Any) -> Any:
        item = self._data[idx], self._label[idx]
        return item if self._transform is None else self._transform(*item)

    def __len__(self) -> int:
        return len(self._label)

    def _get_data(self) -> None:
        raise NotImplementedError
