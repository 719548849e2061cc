"""This worker's part of the data as an iterator: of a dataset (`mx.dist.shard`), or of every batch of an iterator."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..base import MXNetError
from ..gluon.data import DataLoader
from ..gluon.data.dataloader import default_batchify_fn
from ..gluon.data.place import Seeds
from ..gluon.data.shard import ShardedDataset
from ..gluon.data.workers import make_batch
from ..io import DataBatch, DataDesc, DataIter
from ..ndarray import NDArray, arange, concat, take

BATCH_SIZE = 128  # of one worker, if neither the shard nor the model defines it; FeedForward has the same default


class ShardIter(DataIter):
    """The batches of a shard as float32 arrays. Every `reset` begins the next epoch.

    The last batch of an epoch may be smaller, or missing on some workers. With `pads`, its last sample is repeated.
    """

    def __init__(
        self,
        shard: ShardedDataset,
        data_names: Sequence[str],
        label_names: Sequence[str],
        batch_size: int = BATCH_SIZE,
        pads: bool = False,
    ) -> None:
        most = -(-len(shard.dataset) // shard.shares)  # of one worker; the same on all, so that all divide by it
        if not most:
            raise ValueError("the dataset of the shard is empty. Training needs at least one sample")
        super().__init__(min(shard.batch_size or batch_size, most))
        self.is_divided, self.num_data, self._pads = shard.has_others, most, pads
        self._loader = DataLoader(shard, self.batch_size)
        self._batches: Iterator[Any] | None = None
        first = make_batch(shard.dataset, default_batchify_fn, [0], Seeds((0,)))
        shapes = [array.shape for array in _arrays(first)]
        names = [*data_names, *label_names]
        if len(shapes) not in (len(names), len(data_names)):
            raise ValueError(
                f"the model expects {', '.join(names)}, but a sample of the shard has {len(shapes)} array(s). Pass "
                "data and label to ScatterDataShard, or a dataset whose items are (data, label)"
            )
        described = [DataDesc(n, (self.batch_size, *s[1:])) for n, s in zip(names, shapes, strict=False)]
        self.provide_data, self.provide_label = described[: len(data_names)], described[len(data_names) :]

    def reset(self) -> None:
        if self._restarts():
            self._batches = None

    def _position(self) -> dict[str, Any]:
        return {"loader": self._loader.state()}

    def _go_to(self, state: dict[str, Any]) -> None:
        self._loader.load_state(state["loader"])
        self._batches = iter(()) if self._is_at_end else None

    def next(self) -> DataBatch:
        if self._batches is None:
            self._batches = self._loader.unreported()
        batch = next(self._batches, None)
        if not self._note(batch is not None):
            raise StopIteration
        arrays = [array.astype("float32", copy=False) for array in _arrays(batch)]
        count = len(self.provide_data)
        pad = self.batch_size - len(arrays[0]) if self._pads else 0
        arrays = [concat(each, *[each[-1:]] * pad, dim=0) for each in arrays] if pad else arrays
        return DataBatch(arrays[:count], arrays[count:], pad)


class PartIter(DataIter):
    """Every `size`-th row of each batch of an iterator, starting with row `rank`.

    The iterator must have the same batches on all workers, which together then process exactly these batches.
    """

    def __init__(self, source: DataIter, rank: int, size: int) -> None:
        super().__init__(_share(source.batch_size, size))
        self.source, self.rank, self.shards, self.is_divided = source, rank, size, size > 1
        if hasattr(source, "default_bucket_key"):
            self.default_bucket_key = source.default_bucket_key

    @property
    def provide_data(self) -> list[DataDesc]:
        """Names and shapes of this worker's part of the data."""
        return self._described(self.source.provide_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Names and shapes of this worker's part of the labels."""
        return self._described(self.source.provide_label)

    def reset(self) -> None:
        self.source.reset()

    def state(self) -> dict[str, Any]:
        """Return the position of the source, which is the same on all workers."""
        return self.source.state()

    def load_state(self, state: dict[str, Any], keeps: bool = True) -> None:
        """Continue at a position."""
        self.source.load_state(state, keeps)

    def next(self) -> DataBatch:
        batch = self.source.next()
        data, labels = (getattr(batch, name, None) for name in ("provide_data", "provide_label"))
        real = len(range(self.rank, self.source.batch_size - (batch.pad or 0), self.shards))
        return DataBatch(
            self._parts(batch.data, data or self.source.provide_data),
            self._parts(batch.label, labels or self.source.provide_label),
            pad=self.batch_size - real,
            bucket_key=getattr(batch, "bucket_key", None),
            provide_data=data and self._described(data),
            provide_label=labels and self._described(labels),
        )

    def _parts(self, arrays: Any, descs: Any) -> list[NDArray]:
        return [self._part(array, axis) for array, axis in zip(arrays or (), _axes(descs), strict=False)]

    def _part(self, array: NDArray, axis: int) -> NDArray:
        rows = arange(self.rank, array.shape[axis], self.shards, dtype="int64", ctx=array.context)
        return take(array, rows, axis=axis)

    def _described(self, descs: Any) -> list[DataDesc]:
        made = []
        for desc, axis in zip((_desc(each) for each in descs or ()), _axes(descs), strict=True):
            shape = (*desc.shape[:axis], _share(desc.shape[axis], self.shards), *desc.shape[axis + 1 :])
            made.append(DataDesc(desc.name, shape, desc.dtype, desc.layout))
        return made


def is_divided(data: Any) -> bool:
    """Whether an iterator has only this worker's part of the data, so that all workers must train one model."""
    return isinstance(data, (ShardIter, PartIter)) and data.is_divided


def _arrays(batch: Any) -> list[Any]:
    return list(batch) if isinstance(batch, (list, tuple)) else [batch]


def _desc(given: Any) -> DataDesc:
    return given if isinstance(given, DataDesc) else DataDesc(*given)


def _axes(descs: Any) -> list[int]:
    return [max(DataDesc.get_batch_axis(_desc(each).layout), 0) for each in descs or ()]


def _share(rows: int, size: int) -> int:
    if rows % size:
        raise MXNetError(
            f"the iterator has batches of {rows} samples, which {size} workers cannot divide evenly. Create it with a "
            f"batch_size that is a multiple of {size}"
        )
    return rows // size
