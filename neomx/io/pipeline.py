"""Threads that convert records to batches ahead of the consumer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
import torch

from ..base import MXNetError
from ..context import cpu
from ..formats.records import RecordPosition, RecordSource
from ..ndarray import NDArray
from .arguments import check
from .io import DataBatch
from .threads import Threads


class Decoder(Protocol):
    """Converts records to samples."""

    shape: tuple[int, ...]
    dtype: np.dtype
    label_shape: tuple[int, ...]

    def fill(self, place: RecordPosition, epoch: int, data: np.ndarray, label: np.ndarray, i: int) -> int:
        """Write the sample of a record to row `i` and return the record's id."""
        ...


@dataclass
class _Plan:
    """The records of a batch; for the last batch of an epoch also the padding and the pass it was taken from."""

    places: list[tuple[int, RecordPosition]]
    pad: int = 0
    begun: _Begun | None = None


@dataclass
class _Begun:
    """A pass of which the last epoch has used some records."""

    number: int
    used: int
    records: Iterator[tuple[int, RecordPosition]]


class RecordPipeline:
    """Converts records to batches, in threads that work ahead of the consumer."""

    def __init__(self, who: str, source: RecordSource, decoder: Decoder, records: Any, ahead: int, gives_ids: bool):
        self._who, self._source, self._decoder = who, source, decoder
        self.size, self._wrap, self._gives_ids = records.batch_size, records.round_batch, gives_ids
        self._threads, self._ahead = max(records.preprocess_threads, 1), max(ahead, 1)
        self._pool = Threads(self._threads, who)
        self.forget()

    def forget(self) -> None:
        """Restart with the first pass."""
        self._passes = 0
        self._begun: _Begun | None = None

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def make(self, places: list[RecordPosition], seeds: list[int]) -> DataBatch:
        """Return a batch of these records, in this thread. Each is augmented by its seed."""
        shape, labels = self._decoder.shape, self._decoder.label_shape
        data, label = np.empty((len(places), *shape), self._decoder.dtype), np.zeros((len(places), *labels), np.float32)
        ids = np.zeros(len(places), np.uint64)
        for i, (place, seed) in enumerate(zip(places, seeds, strict=True)):
            number = self._decoder.fill(place, seed, data, label, i)
            ids[i] = number if self._gives_ids else 0
        return _batch_of(data, label, 0, ids)

    def start(self) -> Any:
        """Return where the next epoch starts: the number of passes, and the records used of one that has begun."""
        begun = self._begun
        return [self._passes, None if begun is None else [begun.number, begun.used]]

    def start_at(self, start: Any) -> None:
        """Start the next epoch there."""
        passes, begun = start
        self._passes, self._begun = int(passes), None
        if begun is not None:
            number, used = map(int, begun)
            records = self._records(number)
            next(islice(records, used, used), None)
            self._begun = _Begun(number, used, records)

    def epoch(self, skip: int = 0) -> Iterator[DataBatch]:
        """Yield the batches of an epoch, without the first `skip`, whose records are not read."""
        self._pool.check_process()
        begun, self._begun = self._begun, None
        plans = self._plans(begun)
        for plan in islice(plans, skip):
            self._begun = plan.begun
        waiting: deque[_Batch | MXNetError] = deque()
        try:
            while True:
                while len(waiting) <= self._ahead and (batch := self._start_next(plans)) is not None:
                    waiting.append(batch)
                if not waiting:
                    return
                batch = waiting.popleft()
                if isinstance(batch, MXNetError):
                    raise batch
                given = batch.wait()
                self._begun = batch.plan.begun
                yield given
                self._pool.check_process()
        finally:
            for batch in waiting:
                if isinstance(batch, _Batch):
                    batch.cancel()

    def _start_next(self, plans: Iterator[_Plan]) -> _Batch | MXNetError | None:
        """Start the next batch. An error in the file is raised only after the batches before it were consumed."""
        try:
            plan = next(plans, None)
        except MXNetError as error:
            return error
        return (
            None if plan is None else _Batch(plan, self._decoder, self._pool, self.size, self._gives_ids, self._threads)
        )

    def _one_pass(self) -> Iterator[tuple[int, RecordPosition]]:
        self._passes += 1
        return self._records(self._passes - 1)

    def _records(self, number: int) -> Iterator[tuple[int, RecordPosition]]:
        return ((number, place) for place in self._source.one_pass(number))

    def _plans(self, begun: _Begun | None) -> Iterator[_Plan]:
        records = self._one_pass() if begun is None else begun.records
        places = list(islice(records, self.size))
        if not places and begun is not None:  # the previous batch used up this pass
            records = self._one_pass()
            places = list(islice(records, self.size))
        check(self._who, len(places) > 0, f"no records in this part of {self._source.uri}")
        while places:
            pad = self.size - len(places)
            yield self._filled(places, pad) if pad and self._wrap else _Plan(places, pad)
            places = list(islice(records, self.size))

    def _filled(self, places: list[tuple[int, RecordPosition]], pad: int) -> _Plan:
        records = self._one_pass()
        more = list(islice(records, pad))
        check(
            self._who,
            len(more) == pad,
            f"the number of records, {len(more)}, must be bigger than batch_size, {self.size}",
        )
        return _Plan(places + more, pad, _Begun(self._passes - 1, pad, records))


class _Batch:
    """A batch that is being filled by threads, each working on a range of rows."""

    def __init__(self, plan: _Plan, decoder: Decoder, pool: Threads, size: int, gives_ids: bool, threads: int):
        self.plan = plan
        make = np.empty if len(plan.places) == size else np.zeros
        self._data = make((size, *decoder.shape), decoder.dtype)
        self._label = make((size, *decoder.label_shape), np.float32)
        self._ids = np.zeros(size, np.uint64)
        self._gives_ids = gives_ids
        step = -(-len(plan.places) // threads)
        self._parts: list[Future[None]] = [
            pool.submit(self._work, decoder, range(start, min(start + step, len(plan.places))))
            for start in range(0, len(plan.places), step)
        ]

    def _work(self, decoder: Decoder, rows: range) -> None:
        for i in rows:
            if not threading.main_thread().is_alive():  # the program has ended and will not use this batch
                return
            epoch, place = self.plan.places[i]
            number = decoder.fill(place, epoch, self._data, self._label, i)
            if self._gives_ids:
                self._ids[i] = number

    def wait(self) -> DataBatch:
        """Wait for the batch and return it. Exceptions of the threads are raised here."""
        for part in self._parts:
            part.result()
        return _batch_of(self._data, self._label, self.plan.pad, self._ids)

    def cancel(self) -> None:
        """Cancel the work on this batch."""
        for part in self._parts:
            part.cancel()


def _batch_of(data: np.ndarray, label: np.ndarray, pad: int, ids: np.ndarray) -> DataBatch:
    arrays = [NDArray(torch.from_numpy(values), cpu()) for values in (data, label)]
    return DataBatch(arrays[:1], arrays[1:], pad, ids)
