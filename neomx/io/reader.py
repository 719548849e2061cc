"""Base class of the iterators that read files, and the order in which samples in memory are batched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from . import arguments
from .arguments import DataPart, check, check_part
from .dealt import Dealt, Samples, dealer
from .io import DataBatch, DataDesc, DataIter


class MXDataIter(DataIter):
    """Base class of the iterators that read files (MNISTIter, CSVIter, ImageRecordIter, ...), for `isinstance`.

    A subclass lists its arguments in `takes` and yields the batches of an epoch from `_epoch`, each with one array of
    data and one of labels. `getdata` and the related methods refer to the batch that `iter_next` advanced to, or to the
    first batch if `iter_next` was not called yet.
    """

    takes: tuple[type, ...] = ()

    def __init_subclass__(cls) -> None:
        cls.__signature__ = arguments.signature(*cls.takes)  # type: ignore[attr-defined]

    def __init__(self, batch_size: int, names: arguments.Names) -> None:
        super().__init__(batch_size)
        check(self._who, batch_size >= 1, f"batch_size must be at least 1, received {batch_size}")
        check(self._who, names.ctx in ("cpu", "gpu"), f"ctx must be 'cpu' or 'gpu', received {names.ctx!r}")
        self._names = names
        self._batches: Iterator[DataBatch] = iter(())
        self._current: DataBatch | None = None
        self._started = False
        self._origin: Any = None  # where the current epoch started
        self._count = 0  # the batches of it that were read
        self._dealt: Dealt | None = None

    def _part(self, part: DataPart, given: Mapping[str, Any]) -> DataPart:
        """Return the part of the data to read: all of it if `_deal` will deal the samples to the workers of the job."""
        found = dealer()
        if found is None or "num_parts" not in given:
            check_part(self._who, part)
            return part
        found.check(self._who, part.num_parts)
        self.is_dealt = True
        return DataPart()

    def _deal(self, samples: Samples) -> None:
        """Let the job deal the samples, if it does. They are those of the part that `_part` has returned."""
        found = dealer()
        if self.is_dealt and found is not None:
            self._dealt = found.deal(samples)

    @property
    def _who(self) -> str:
        return type(self).__name__

    def _epoch(self, skip: int = 0) -> Iterator[DataBatch]:
        """Yield the batches of an epoch, without the first `skip`, which were read before."""
        raise NotImplementedError(f"{self._who} does not implement _epoch")

    def _describe(self, data: tuple[int, ...], label: tuple[int, ...], dtype: Any, label_dtype: Any) -> None:
        """Set `provide_data` and `provide_label` from the shape and dtype of one sample."""
        self.provide_data = [DataDesc(self._names.data_name, (self.batch_size, *data), dtype)]
        self.provide_label = [DataDesc(self._names.label_name, (self.batch_size, *label), label_dtype)]

    def _start(self) -> Any:
        """Return where the next epoch starts, as JSON, if that depends on earlier epochs."""
        return None

    def _start_at(self, start: Any) -> None:
        """Start the next epoch there."""

    def reset(self) -> None:
        if not self._restarts():
            return
        if self._dealt is not None:
            self._dealt.restart()
            self._begin(self._dealt)
        else:
            self._origin, self._count = self._start(), 0
            self._begin(self._epoch())

    def _begin(self, batches: Iterator[DataBatch]) -> None:
        self._batches, self._current, self._started = batches, None, False

    def _position(self) -> dict[str, Any]:
        if self._dealt is not None:
            return {"dealt": self._dealt.state()}
        return {"start": self._origin, "batches": self._count}

    def _go_to(self, state: dict[str, Any]) -> None:
        if self._dealt is not None:
            self._dealt.load_state(state["dealt"])
            self._begin(iter(()) if self._is_at_end else self._dealt)
            return
        self._origin, self._count = state["start"], int(state["batches"])
        self._begin(iter(()))  # ends the current epoch
        self._start_at(self._origin)
        self._begin(self._epoch(self._count))
        if self._is_at_end:
            next(self._batches, None)  # the next epoch may depend on the end of this one

    def _peek(self) -> DataBatch:
        if self._current is None and not self._started:
            self._current = next(self._batches, None)
        check(self._who, self._current is not None, "the iterator is at its end: call reset() first")
        assert self._current is not None
        return self._current

    def iter_next(self) -> bool:
        if self._started or self._current is None:
            self._current = next(self._batches, None)
        self._started = True
        self._count += self._current is not None
        return self._note(self._current is not None)

    def next(self) -> DataBatch:
        if not self.iter_next():
            raise StopIteration
        return self._peek()

    def getdata(self) -> Any:
        """Return the data of the current batch: one array."""
        return self._peek().data[0]  # type: ignore[index]

    def getlabel(self) -> Any:
        """Return the labels of the current batch: one array."""
        return self._peek().label[0]  # type: ignore[index]

    def getindex(self) -> Any:
        return self._peek().index

    def getpad(self) -> Any:
        return self._peek().pad


class BatchOrder:
    """Splits `samples` into batches, epoch after epoch.

    With `wrap` the last batch of an epoch is filled from the beginning and the next epoch continues after it. Otherwise
    the unused rows of the last batch repeat those of the batch before.
    """

    def __init__(self, samples: int, batch_size: int, wrap: bool):
        self._samples, self._batch_size, self._wrap = samples, batch_size, wrap
        self.start = 0  # the first sample of the next epoch

    def epoch(self) -> Iterator[tuple[np.ndarray, int]]:
        """Yield the sample indices of each batch, and the number of padding samples at its end."""
        first, self.start = self.start, 0
        rows = np.zeros(self._batch_size, np.int64)
        for position in range(first, self._samples, self._batch_size):
            pad = max(0, position + self._batch_size - self._samples)
            full = self._batch_size - pad
            before, rows = rows, np.arange(position, position + self._batch_size)
            if pad and self._wrap:
                rows, self.start = rows % self._samples, pad % self._samples
            elif pad:
                rows[full:] = before[full:]
            yield rows, pad
