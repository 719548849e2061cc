"""CSVIter: batches of the rows of CSV files."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats.records import files_of
from ..ndarray import array
from .arguments import DataPart, Names, Shape, check, part_of, read
from .dealt import Samples
from .io import DataBatch
from .reader import BatchOrder, MXDataIter


@dataclass
class CSVArguments:
    """The paths of the CSV files, and the shapes and dtype of their rows."""

    data_csv: str
    data_shape: Shape
    batch_size: int
    label_csv: str = "NULL"
    label_shape: Shape = (1,)
    round_batch: bool = True
    dtype: str | None = None


class CSVIter(MXDataIter):
    """Iterate over batches of rows of a CSV file, of all files in a folder, or of several files separated by ';'.

    Each row is a sample. Without `label_csv` the labels are 0. With `round_batch` the last batch is filled with samples
    from the start of the data and the next epoch continues after them. `dtype` is float32, int32 or int64. All rows are
    read into memory. With `num_parts`, which MXNet lacks, only the part `part_index` of the rows is read.
    """

    takes = (CSVArguments, DataPart, Names)

    def __init__(self, **given: Any) -> None:
        rows, part, names = read(self._who, given, *self.takes)
        super().__init__(rows.batch_size, names)
        part = self._part(part, given)
        dtypes = (None, "float32", "int32", "int64")
        check(self._who, rows.dtype in dtypes, f"dtype must be one of {dtypes}, received {rows.dtype!r}")
        dtype = np.dtype(rows.dtype or "float32")
        self._data = _table("data", rows.data_csv, rows.data_shape, dtype)
        self._labels = self._read_labels(rows, dtype)
        mine = part_of(len(self._data), part)
        self._data, self._labels = self._data[mine.start : mine.stop], self._labels[mine.start : mine.stop]
        samples = len(self._data)
        check(
            self._who,
            samples > 0 and (rows.batch_size <= 2 * samples or not rows.round_batch),
            f"the number of samples, {samples}, must be bigger than batch_size, {rows.batch_size}",
        )
        self._order = BatchOrder(samples, rows.batch_size, rows.round_batch)
        self._describe(rows.data_shape, self._labels.shape[1:], dtype.type, dtype.type)
        self._deal(Samples(samples, self.batch_size, lambda numbers, _: self._batch(np.array(numbers))))
        self.reset()

    def _read_labels(self, rows: CSVArguments, dtype: np.dtype) -> np.ndarray:
        shape = () if math.prod(rows.label_shape) == 1 else rows.label_shape
        if rows.label_csv == "NULL":
            return np.zeros(len(self._data), dtype)  # label_shape is ignored, as in MXNet
        labels = _table("label", rows.label_csv, shape, dtype)
        check(
            self._who,
            len(labels) >= len(self._data),
            f"{rows.data_csv} has {len(self._data)} rows, {rows.label_csv} only {len(labels)}",
        )
        return labels

    def _start(self) -> Any:
        return self._order.start

    def _start_at(self, start: Any) -> None:
        self._order.start = int(start)

    def _epoch(self, skip: int = 0) -> Iterator[DataBatch]:
        for rows, pad in islice(self._order.epoch(), skip, None):
            yield self._batch(rows, pad)

    def _batch(self, rows: np.ndarray, pad: int = 0) -> DataBatch:
        data, label = self._data[rows], self._labels[rows]
        return DataBatch(
            [array(data, dtype=data.dtype)], [array(label, dtype=label.dtype)], pad, rows.astype(np.uint64)
        )


def _table(what: str, uri: str, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the rows of the files, each reshaped to `shape`."""
    tables = [_read_table(path, dtype) for path in files_of(uri) if os.path.getsize(path)]
    for table in tables:
        if table.shape[1] != math.prod(shape):
            raise MXNetError(
                f"CSVIter: {what}_shape={shape} has {math.prod(shape)} values, the rows of {uri} have {table.shape[1]}"
            )
    return np.concatenate(tables).reshape(-1, *shape) if tables else np.empty((0, *shape), dtype)


def _read_table(path: str, dtype: np.dtype) -> np.ndarray:
    convert = _truncated if dtype.kind == "i" else None
    try:
        with open(path, encoding="utf-8") as file:  # given a path, numpy would decompress the file
            return np.loadtxt(file, dtype, delimiter=",", ndmin=2, comments=None, converters=convert)
    except (ValueError, OverflowError, OSError) as error:
        raise MXNetError(f"cannot read {path} as rows of {dtype.name} of equal length: {error}") from error


def _truncated(text: str) -> int:
    """Convert a decimal to an integer by truncation, as MXNet does: `2.7` is 2."""
    return int(text) if text.strip("+- ").isdecimal() else int(float(text))
