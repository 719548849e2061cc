"""DataBatch and DataDesc, iterators over arrays, and iterators that wrap other iterators."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import numpy as np
import torch

from ..base import MXNetError
from ..ndarray import NDArray, array, take
from .arguments import DataPart, check, check_part, part_of
from .dealt import Dealt, Samples, dealer
from .threads import Threads

_LAST_BATCH: dict[str, Literal["keep", "discard", "rollover"]] = {
    "pad": "keep",
    "discard": "discard",
    "roll_over": "rollover",
}  # of NDArrayIter, as those who deal samples call it


class DataDesc(namedtuple("DataDesc", ["name", "shape"])):
    """Name, shape, dtype and layout of one input. Compares as (name, shape)."""

    dtype: Any
    layout: str | None

    def __new__(cls, name: str, shape: Any, dtype: Any = np.float32, layout: str | None = "NCHW") -> DataDesc:
        self = super().__new__(cls, name, shape)
        self.dtype, self.layout = dtype, layout
        return self

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Return the position of N in the layout: 0 if there is no layout, -1 if the layout has no N."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(shapes: Iterable[tuple[str, Any]], types: Iterable[tuple[str, Any]] | None = None) -> list[DataDesc]:
        """Return descriptions for (name, shape) pairs; `types` may give (name, dtype) pairs for the same names."""
        if types is None:
            return [DataDesc(name, shape) for name, shape in shapes]
        dtypes = dict(types)
        return [DataDesc(name, shape, dtypes[name]) for name, shape in shapes]


class DataBatch:
    """One batch: lists of arrays, and `pad`, the number of samples at its end that are only padding."""

    def __init__(
        self,
        data: Sequence[NDArray] | None,
        label: Sequence[NDArray] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: list[DataDesc] | None = None,
        provide_label: list[DataDesc] | None = None,
    ) -> None:
        for kind, arrays in (("Data", data), ("Label", label)):
            assert arrays is None or isinstance(arrays, (list, tuple)), (
                f"{kind} must be list of NDArrays, received {type(arrays).__name__}"
            )
        self.data, self.label, self.pad, self.index = data, label, pad, index
        self.bucket_key, self.provide_data, self.provide_label = bucket_key, provide_data, provide_label

    def __str__(self) -> str:
        labels = [label.shape for label in self.label] if self.label else None
        return f"{type(self).__name__}: data shapes: {[data.shape for data in self.data or ()]} label shapes: {labels}"


class DataIter:
    """Base class of iterators. Subclasses define `provide_data`, `provide_label`, and `next` or the methods it uses.

    A subclass whose position a checkpoint can save also defines `state` and `load_state`.
    """

    provide_data: Any
    provide_label: Any
    is_dealt = False  # whether an elastic job deals its samples to the workers that are there
    _ends = 0  # how often the iterator has reached its end
    _is_at_end = False
    _keeps_position = False  # whether `load_state` was called, and nothing was read since

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> DataIter:
        return self

    def __next__(self) -> DataBatch:
        return self.next()

    def reset(self) -> None:
        """Restart from the first batch."""

    def next(self) -> DataBatch:
        """Return the next batch, or raise StopIteration at the end."""
        if not self.iter_next():
            raise StopIteration
        return DataBatch(data=self.getdata(), label=self.getlabel(), pad=self.getpad(), index=self.getindex())

    def iter_next(self) -> Any:
        """Advance to the next batch and return whether there is one."""

    def getdata(self) -> Any:
        """Return the data of the current batch."""

    def getlabel(self) -> Any:
        """Return the labels of the current batch."""

    def getindex(self) -> Any:
        """Return the indices of the samples in the current batch, if the iterator tracks them."""

    def getpad(self) -> Any:
        """Return the number of padding samples in the current batch."""

    # ---- resuming ----

    def state(self) -> dict[str, Any]:
        """Return the position after the batches that were read: JSON values and numpy arrays.

        'epoch' is the number of times that the iterator has reached its end. Raises MXNetError if the position is
        unknown, as for an iterator of the program that does not define this method.
        """
        fixed = {"kind": type(self).__name__, "batch_size": self.batch_size}
        return {**fixed, "epoch": self._ends, "is_at_end": self._is_at_end, **self._position()}

    def load_state(self, state: dict[str, Any], keeps: bool = True) -> None:
        """Continue at a position that `state` returned, with an iterator that was created in the same way.

        With `keeps`, a `reset` before the next batch is ignored, since many loops reset at the start of each epoch. It
        is not ignored at the end of the data.
        """
        expected = {"kind": type(self).__name__, "batch_size": self.batch_size}
        for name, value in expected.items():
            if not isinstance(state, dict) or state.get(name) != value:
                found = state.get(name) if isinstance(state, dict) else state
                raise MXNetError(
                    f"the position is in other data: its {name} is {found!r:.80}, but that of this iterator is "
                    f"{value!r}. Create the iterator as for the run that saved the position"
                )
        if self.is_dealt != ("dealt" in state):
            raise MXNetError(
                f"the position is that of {'parts of fixed workers' if self.is_dealt else 'an elastic job'}, which "
                "divide the data differently. Continue with --elastic as in the run that saved the position"
            )
        self._ends, self._is_at_end = int(state["epoch"]), bool(state["is_at_end"])
        self._go_to(state)
        self._keeps_position = keeps

    def _position(self) -> dict[str, Any]:
        """Return what `_go_to` needs."""
        raise MXNetError(
            f"the position of a {type(self).__name__} in its data cannot be saved. Use an iterator of mx.io, or define "
            "its methods state() and load_state(state)"
        )

    def _go_to(self, state: dict[str, Any]) -> None:
        """Continue at a position."""
        raise MXNetError(f"{type(self).__name__} cannot continue at a position: it does not define load_state(state)")

    def _restarts(self) -> bool:
        """Note a call of `reset`. Return whether it restarts the iterator, and does not follow `load_state`."""
        restarts = not self._keeps_position or self._is_at_end
        self._keeps_position = False
        if restarts:
            self._is_at_end = False
        return restarts

    def _note(self, has_batch: bool) -> bool:
        """Note whether there was another batch, and return it."""
        self._keeps_position = False
        if not has_batch and not self._is_at_end:
            self._is_at_end = True
            self._ends += 1
        return has_batch


class _CurrentBatch(DataIter):
    """An iterator whose `iter_next` fetches the batch from another object."""

    current_batch: Any = None

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return self.current_batch

    def getdata(self) -> Any:
        return self.current_batch.data

    def getlabel(self) -> Any:
        return self.current_batch.label

    def getindex(self) -> Any:
        return self.current_batch.index

    def getpad(self) -> Any:
        return self.current_batch.pad


class ResizeIter(_CurrentBatch):
    """Return exactly `size` batches per epoch from another iterator, restarting that iterator when it ends.

    With `reset_internal=False` an epoch continues where the last one stopped.
    """

    def __init__(self, data_iter: DataIter, size: int, reset_internal: bool = True) -> None:
        super().__init__(data_iter.batch_size)
        _refuse_dealt(self, data_iter)
        self.data_iter, self.size, self.reset_internal, self.cur = data_iter, size, reset_internal, 0
        self.provide_data, self.provide_label = data_iter.provide_data, data_iter.provide_label
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    def reset(self) -> None:
        if not self._restarts():
            return
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def _position(self) -> dict[str, Any]:
        return {"cur": self.cur, "inner": self.data_iter.state()}

    def _go_to(self, state: dict[str, Any]) -> None:
        self.cur = int(state["cur"])
        self.data_iter.load_state(state["inner"], keeps=False)

    def iter_next(self) -> bool:
        if not self._note(self.cur < self.size):
            return False
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            self.current_batch = self.data_iter.next()
        self.cur += 1
        return True


class PrefetchingIter(_CurrentBatch):
    """Fetch batches of one or several iterators in threads while the previous batch is in use.

    `rename_data` and `rename_label` hold, for each iterator, a dictionary from its array names to the new names.
    """

    def __init__(
        self,
        iters: DataIter | list[DataIter],
        rename_data: list[dict[str, str]] | None = None,
        rename_label: list[dict[str, str]] | None = None,
    ) -> None:
        self.iters = iters if isinstance(iters, list) else [iters]
        assert self.iters, "PrefetchingIter needs at least one iterator, received none"
        for source in self.iters:
            _refuse_dealt(self, source)
        self.n_iter, self.rename_data, self.rename_label = len(self.iters), rename_data, rename_label
        for what, renamed in (("rename_data", rename_data), ("rename_label", rename_label)):
            if renamed is not None and (not isinstance(renamed, (list, tuple)) or len(renamed) != self.n_iter):
                raise ValueError(
                    f"{what} must be a list with a dictionary for each of the {self.n_iter} iterators, "
                    f"received {renamed!r}"
                )
        super().__init__(self.provide_data[0].shape[0])
        self._threads = Threads(self.n_iter, "PrefetchingIter")
        self._coming = self._fetch()

    def _fetch(self) -> list[Future[DataBatch | None]]:
        try:
            self._before: list[dict[str, Any]] | None = [source.state() for source in self.iters]
        except MXNetError:  # an iterator whose position is unknown
            self._before = None
        return [self._threads.submit(_next_or_none, source) for source in self.iters]

    @property
    def provide_data(self) -> list[DataDesc]:
        """The data of all iterators."""
        return _renamed([source.provide_data for source in self.iters], self.rename_data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """The labels of all iterators."""
        return _renamed([source.provide_label for source in self.iters], self.rename_label)

    def reset(self) -> None:
        if not self._restarts():
            return
        self._wait()
        for source in self.iters:
            source.reset()
        self._coming = self._fetch()

    def _wait(self) -> None:
        """Wait for the threads: an iterator must not change while it is read. Their exceptions are obsolete."""
        self._threads.check_process()
        for batch in self._coming:
            batch.exception()

    def _position(self) -> dict[str, Any]:
        if self._before is None:
            for source in self.iters:
                source.state()  # raises
        return {"inner": self._before}

    def _go_to(self, state: dict[str, Any]) -> None:
        self._wait()
        for source, position in zip(self.iters, state["inner"], strict=True):
            source.load_state(position, keeps=False)
        self._coming = self._fetch()

    def iter_next(self) -> bool:
        self._threads.check_process()
        batches = [coming.result() for coming in self._coming]
        there = [batch for batch in batches if batch is not None]
        if not self._note(bool(there)):
            return False
        if len(there) < self.n_iter or len({batch.pad for batch in there}) > 1:
            pads = [batch and batch.pad for batch in batches]
            raise MXNetError(f"PrefetchingIter: the iterators end at different samples (padding of each: {pads})")
        self._coming = self._fetch()
        self.current_batch = DataBatch(
            [data for batch in there for data in batch.data or ()],
            [label for batch in there for label in batch.label or ()],
            there[0].pad,
            there[0].index,
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        return True


def _refuse_dealt(outer: DataIter, source: Any) -> None:
    """Raise if the samples of an iterator are dealt again when workers are lost: it must know where its reader is."""
    if getattr(source, "is_dealt", False):
        raise MXNetError(
            f"{type(outer).__name__} cannot read from an iterator with num_parts in an elastic job, which deals the "
            f"samples again when workers are lost or join. Use the {type(source).__name__} itself"
        )


def _next_or_none(source: DataIter) -> DataBatch | None:
    try:
        return source.next()
    except StopIteration:  # a future cannot hold a StopIteration
        return None


def _renamed(provided: list[list[DataDesc]], names: list[dict[str, str]] | None) -> list[DataDesc]:
    dictionaries = names or [{}] * len(provided)
    return [
        DataDesc(new.get(desc.name, desc.name), desc.shape, desc.dtype, desc.layout)
        for new, descs in zip(dictionaries, provided, strict=True)
        for desc in (d if isinstance(d, DataDesc) else DataDesc(*d) for d in descs)
    ]


class NDArrayIter(DataIter):
    """Iterate over batches of arrays in memory: one array, a list, or a dictionary by name, for data and for labels.

    Array-like objects, for example h5py datasets, are not loaded: each batch reads its rows.

    If the number of samples is not a multiple of `batch_size`, the last batch is padded from the beginning ('pad'),
    dropped ('discard'), or kept for the start of the next epoch ('roll_over'). `shuffle` draws a new order from numpy's
    random numbers at every `reset`, and converts NDArrays to float32. Samples are along the axis N of `layout`.

    With `num_parts` only the part `part_index` of the samples is read. In an elastic job, the samples are dealt to all
    workers instead, in an order that depends on `seed` and the epoch if `shuffle` is set, and the last batch is smaller
    instead of padded. MXNet does not have these three arguments.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str = "NCHW",
        num_parts: int | None = None,
        part_index: int = 0,
        seed: int = 0,
    ) -> None:
        super().__init__(batch_size)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, received {batch_size}")
        if last_batch_handle not in ("pad", "discard", "roll_over"):
            raise ValueError(
                f"last_batch_handle must be 'pad', 'discard' or 'roll_over', received {last_batch_handle!r}"
            )
        assert data is not None, "NDArrayIter needs data, received None"
        self.data, self.label = _named(data, data_name, shuffle), _named(label, label_name, shuffle)
        self._axis = max(DataDesc.get_batch_axis(layout), 0)
        self.num_data = _common_length(self.data + self.label, self._axis)
        self._first = 0  # the first sample of the part that is read
        self._dealt: Dealt | None = None
        self._mine = np.empty(0, np.int64)  # the samples of this batch, if they are dealt
        if num_parts is not None:
            self._divide(num_parts, part_index, shuffle, seed, last_batch_handle)
        self.data_list = [source for _, source in self.data + self.label]
        self.num_source = len(self.data_list)
        self.shuffle, self.last_batch_handle, self.layout = shuffle, last_batch_handle, layout
        self.idx = np.arange(self.num_data)
        self._order = self.idx.copy()
        self.hard_reset()

    def _divide(self, num_parts: int, part_index: int, shuffle: bool, seed: int, last_batch: str) -> None:
        """Read only a part of the samples, or those that are dealt to this worker."""
        who, found = type(self).__name__, dealer()
        part = DataPart(num_parts, part_index)
        if found is None:
            check_part(who, part)
            rows = part_of(self.num_data, part)
            check(who, len(rows) > 0, f"part {part_index} of {num_parts} has no samples")
            self._first, self.num_data = rows.start, len(rows)
            return
        found.check(who, num_parts)
        self.is_dealt = True
        self._dealt = found.deal(
            Samples(
                self.num_data, self.batch_size, lambda rows, _: np.array(rows), shuffle, seed, _LAST_BATCH[last_batch]
            )
        )
        self.num_data = -(-self.num_data // num_parts)  # of this worker

    @property
    def provide_data(self) -> list[DataDesc]:
        """Names and shapes of the data."""
        return self._describe(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Names and shapes of the labels."""
        return self._describe(self.label)

    def _describe(self, sources: list[tuple[str, Any]]) -> list[DataDesc]:
        return [
            DataDesc(
                name,
                (*source.shape[: self._axis], self.batch_size, *source.shape[self._axis + 1 :]),
                source.dtype if isinstance(source, NDArray) else np.float32,
                self.layout,
            )
            for name, source in sources
        ]

    def hard_reset(self) -> None:
        """Restart, and drop samples kept from the last epoch."""
        self._keeps_position = self._is_at_end = False
        self._restart(self._order[:0])

    def reset(self) -> None:
        """Restart. 'roll_over' keeps the samples that did not fill the last batch of the epoch."""
        if not self._restarts():
            return
        unfilled = self.last_batch_handle == "roll_over" and self._is_short()
        self._restart(self._rows() if unfilled else self._order[:0])

    def _restart(self, kept: np.ndarray) -> None:
        if self._dealt is not None:
            self._dealt.restart()
        elif self.shuffle:
            self.idx = self.idx.copy()  # `state` returns these arrays
            np.random.shuffle(self.idx)
            self._order = self._order[self.idx]
        # Positions count from 0 in the new order; samples kept from the last epoch have negative positions.
        self._kept, self.cursor = kept, -self.batch_size - len(kept)

    def _is_short(self) -> bool:
        return self._dealt is None and self.num_data - self.batch_size < self.cursor < self.num_data

    def _rows(self) -> np.ndarray:
        """Return the indices of the samples in this batch."""
        if self._dealt is not None:
            return self._mine
        end, kept = self.cursor + self.batch_size, len(self._kept)
        if self.cursor >= 0:
            return self._order[self.cursor : end]
        return np.concatenate([self._kept[kept + self.cursor :], self._order[:end]])

    def _position(self) -> dict[str, Any]:
        if self._dealt is not None:
            return {"dealt": self._dealt.state()}
        order = {"idx": self.idx, "order": self._order} if self.shuffle else {}
        return {"samples": self.num_data, "cursor": self.cursor, "kept": self._kept, **order}

    def _go_to(self, state: dict[str, Any]) -> None:
        if self._dealt is not None:
            self._dealt.load_state(state["dealt"])
            return
        if state["samples"] != self.num_data or self.shuffle != ("order" in state):
            raise MXNetError(
                f"the position is in other data: {state['samples']} samples{', shuffled' * ('order' in state)}, but "
                f"this iterator has {self.num_data}{', shuffled' * self.shuffle}. Create the iterator as for the run "
                "that saved the position"
            )
        self.cursor, self._kept = int(state["cursor"]), np.asarray(state["kept"])
        if self.shuffle:
            self.idx, self._order = np.asarray(state["idx"]), np.asarray(state["order"])

    def iter_next(self) -> bool:
        if self._dealt is not None:
            self._mine = next(self._dealt, self._order[:0])
            self.cursor = 0 if len(self._mine) else self.num_data
            return self._note(self.cursor < self.num_data)
        self.cursor += self.batch_size
        return self._note(self.cursor < self.num_data)

    def next(self) -> DataBatch:
        if not self.iter_next() or not self._note(self.last_batch_handle == "pad" or not self._is_short()):
            raise StopIteration
        return DataBatch(data=self.getdata(), label=self.getlabel(), pad=self.getpad())

    def getdata(self) -> list[NDArray]:
        return self._batch(self.data)

    def getlabel(self) -> list[NDArray]:
        return self._batch(self.label)

    def _batch(self, sources: list[tuple[str, Any]]) -> list[NDArray]:
        assert self.cursor < self.num_data, "DataIter needs reset."
        if self.cursor < -len(self._kept):
            raise MXNetError("there is no current batch: call next() or iter_next() first")
        rows = self._rows()
        if self.last_batch_handle == "pad" and len(rows) < self.batch_size and self._dealt is None:
            rows = np.concatenate([rows, np.resize(self._order, self.batch_size - len(rows))])
        return [_take_rows(source, rows + self._first, self._axis) for _, source in sources]

    def getpad(self) -> int:
        """Return how many samples pad the last batch; for 'roll_over', how many in this batch are of the last epoch."""
        if self._dealt is not None:
            return 0
        if self.last_batch_handle == "pad":
            return max(0, self.cursor + self.batch_size - self.num_data)
        if self.last_batch_handle == "roll_over" and -self.batch_size < self.cursor < 0:
            return -self.cursor
        return 0


def _named(data: Any, default: str, shuffle: bool) -> list[tuple[str, Any]]:
    """Return (name, array) pairs for the data of NDArrayIter; names of list items are numbered."""
    if data is None:
        return []
    if isinstance(data, (np.ndarray, NDArray)) or _is_like_an_array(data):
        data = [data]
    if isinstance(data, list):
        data = {default: data[0]} if len(data) == 1 else {f"_{i}_{default}": item for i, item in enumerate(data)}
    if not isinstance(data, dict):
        raise TypeError(
            f"expected an NDArray, a numpy array, a list of them or a dictionary with them, received {type(data)}"
        )
    return [(name, _as_array(name, data[name], shuffle)) for name in sorted(data)]


def _is_like_an_array(value: Any) -> bool:
    return all(hasattr(value, name) for name in ("shape", "dtype", "__getitem__", "__len__"))


def _as_array(name: str, value: Any, shuffle: bool) -> Any:
    if isinstance(value, NDArray):
        # MXNet converts shuffled arrays to float32, and float32 networks rely on it.
        return value.astype("float32", copy=False) if shuffle and value.stype != "csr" else value
    if _is_like_an_array(value) and not isinstance(value, np.ndarray):
        return value
    try:
        return array(value)
    except Exception as error:
        raise TypeError(f"{name} should be an NDArray or a numpy array, received {type(value)}") from error


def _common_length(sources: list[tuple[str, Any]], axis: int) -> int:
    shapes = {name: tuple(source.shape) for name, source in sources}
    if not shapes:
        raise ValueError("NDArrayIter needs data, received an empty list or dictionary")
    if any(len(shape) <= axis for shape in shapes.values()):
        raise ValueError(f"the layout has samples along axis {axis}, so every array needs it, received shapes {shapes}")
    lengths = {name: shape[axis] for name, shape in shapes.items()}
    if len(set(lengths.values())) > 1 or 0 in lengths.values():
        raise ValueError(f"data and labels must have the same number of samples and at least one, received {lengths}")
    return next(iter(lengths.values()))


def _take_rows(source: Any, rows: np.ndarray, axis: int) -> NDArray:
    """Return these samples as a dense array, as MXNet does."""
    if not isinstance(source, NDArray):
        wanted, places = np.unique(rows, return_inverse=True)  # h5py requires unique indices in ascending order
        index = (*[slice(None)] * axis, wanted)
        read = np.asarray(source[index] if axis else source[wanted])
        return array(np.take(read, places, axis))
    if source._sparse:
        return take(source, array(rows, dtype=np.int64, ctx=source.context), axis=axis).tostype("default")
    places_there = torch.from_numpy(rows).to(source._data.device)
    return NDArray(source._data.index_select(axis, places_there).detach(), source.context)
