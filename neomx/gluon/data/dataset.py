"""Datasets: items by number, and new datasets made of old ones by transforming, filtering, sampling and sharding."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ... import recordio
from ...ndarray import NDArray
from .sampler import FilterSampler, Sampler, SequentialSampler


class Dataset:
    """Items by number. Write `__getitem__` and `__len__` to make one."""

    def __getitem__(self, idx: int) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def filter(self, fn: Callable[[Any], Any]) -> Dataset:
        """The items of which `fn(item)` is true; looked for now."""
        return _SampledDataset(self, FilterSampler(fn, self))

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Part `index` of `num_shards` neighbouring parts; the first ones have one item more if it does not divide."""
        assert index < num_shards, f"Shard index out of bounds: {index} out of {num_shards}"
        assert num_shards > 0, f"Number of shards must be greater than 0, received {num_shards}"
        assert index >= 0, f"Index must be non-negative, received {index}"
        length, rest = divmod(len(self), num_shards)
        start = length * index + min(rest, index)
        return _SampledDataset(self, SequentialSampler(length + (index < rest), start))

    def take(self, count: int | None) -> Dataset:
        """The first `count` items; all of them for None."""
        if count is not None and count < 0:
            raise ValueError(f"count must not be negative, received {count}")
        length = len(self)
        return _SampledDataset(self, SequentialSampler(length if count is None else min(count, length)))

    def sample(self, sampler: Sampler) -> Dataset:
        """The items that a sampler gives, in its order; drawn once."""
        if not isinstance(sampler, Sampler):
            raise TypeError(f"Invalid sampler type: {type(sampler)}. Expected gluon.data.Sampler instead.")
        return _SampledDataset(self, sampler)

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """`fn` of each item, `fn(*item)` if it is a tuple; computed when asked for, or all now if not `lazy`."""
        transformed = _LazyTransformDataset(self, fn)
        return transformed if lazy else SimpleDataset([transformed[i] for i in range(len(self))])

    def transform_first(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """`fn` of the first part of each item (the image, say, and not its label)."""
        return self.transform(_TransformFirstClosure(fn), lazy)


class SimpleDataset(Dataset):
    """The items of a list, or of anything with a length and numbered items."""

    def __init__(self, data: Any):
        self._data = data

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: Any) -> Any:
        return self._data[idx]


class _LazyTransformDataset(Dataset):
    """Another dataset's items through a function."""

    def __init__(self, data: Any, fn: Callable[..., Any]):
        self._data, self._fn = data, fn

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, idx: int) -> Any:
        item = self._data[idx]
        return self._fn(*item) if isinstance(item, tuple) else self._fn(item)


class _TransformFirstClosure:
    """A class and not a closure, so that it can be pickled for worker processes."""

    def __init__(self, fn: Callable[..., Any]):
        self._fn = fn

    def __call__(self, x: Any, *args: Any) -> Any:
        return (self._fn(x), *args) if args else self._fn(x)


class _SampledDataset(Dataset):
    """Some of another dataset's items."""

    def __init__(self, dataset: Dataset, sampler: Sampler):
        self._dataset, self._sampler = dataset, sampler
        self._indices = list(sampler)

    def __len__(self) -> int:
        return len(self._indices)

    def __getitem__(self, idx: int) -> Any:
        return self._dataset[self._indices[idx]]


class ArrayDataset(Dataset):
    """Items of several arrays, lists or datasets of one length, side by side."""

    def __init__(self, *args: Any):
        assert args, "Needs at least 1 arrays"
        self._length = len(args[0])
        self._data = []
        for i, data in enumerate(args):
            assert len(data) == self._length, (
                f"All arrays must have the same length; array[0] has length {self._length} while "
                f"array[{i}] has {len(data)}."
            )
            # Numbers of a vector come as numbers of numpy, not as arrays of one element.
            self._data.append(data.asnumpy() if isinstance(data, NDArray) and data.ndim == 1 else data)

    def __getitem__(self, idx: Any) -> Any:
        return self._data[0][idx] if len(self._data) == 1 else tuple(data[idx] for data in self._data)

    def __len__(self) -> int:
        return self._length


class RecordFileDataset(Dataset):
    """The records of a RecordIO file `x.rec`, found by its index `x.idx` beside it; each item is bytes."""

    def __init__(self, filename: str | os.PathLike[str]):
        self.filename = os.fspath(filename)
        self.idx_file = os.path.splitext(self.filename)[0] + ".idx"
        self._record = recordio.MXIndexedRecordIO(self.idx_file, self.filename, "r")

    def __getitem__(self, idx: int) -> Any:
        return self._record.read_idx(self._record.keys[idx])

    def __len__(self) -> int:
        return len(self._record.keys)


class _DownloadedDataset(Dataset):
    """Images and labels that `_get_data` puts into `_data` and `_label`, from files below `root`."""

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
