"""LibSVMIter: batches of sparse rows from files in LibSVM format."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..base import MXNetError
from ..formats.records import files_of
from ..formats.text import numbered_lines
from ..ndarray import array
from ..ndarray.sparse import csr_matrix
from .arguments import DataPart, Names, Shape, check, part_of, read
from .dealt import Samples
from .io import DataBatch
from .reader import BatchOrder, MXDataIter

_BLOCK = 10_000  # number of lines to parse at a time


@dataclass
class LibSVMArguments:
    """The paths of the files, and the width of their rows."""

    data_libsvm: str
    data_shape: Shape
    batch_size: int
    label_libsvm: str = "NULL"
    label_shape: Shape = (1,)
    round_batch: bool = True
    dtype: str | None = None


class LibSVMIter(MXDataIter):
    """Iterate over batches of csr arrays from lines `label column:value column:value ...`; columns count from 0.

    The label is the first value of a line, or a sparse row of width `label_shape` from the separate file
    `label_libsvm`. The last batch is filled with samples from the start of the data and the next epoch continues after
    them. With `num_parts` only the part `part_index` of the lines is read. All rows are read into memory.
    """

    takes = (LibSVMArguments, DataPart, Names)

    def __init__(self, **given: Any) -> None:
        rows, part, names = read(self._who, given, *self.takes)
        super().__init__(rows.batch_size, names)
        self._check(rows)
        part = self._part(part, given)
        self._data = _Matrix(rows.data_libsvm, rows.data_shape[0], part)
        self._labels = None if rows.label_libsvm == "NULL" else _Matrix(rows.label_libsvm, rows.label_shape[0], part)
        samples = len(self._data)
        check(
            self._who,
            samples > 0 and rows.batch_size <= 2 * samples,
            f"the number of samples, {samples}, must be bigger than batch_size, {rows.batch_size}",
        )
        check(
            self._who,
            self._labels is None or len(self._labels) >= samples,
            f"{rows.data_libsvm} has more rows than {rows.label_libsvm}",
        )
        self._order = BatchOrder(samples, rows.batch_size, True)
        self._describe(rows.data_shape, rows.label_shape if self._labels else (), np.float32, np.float32)
        self._deal(Samples(samples, self.batch_size, lambda numbers, _: self._batch(np.array(numbers))))
        self.reset()

    def _check(self, rows: LibSVMArguments) -> None:
        for name in ("data_shape", "label_shape"):
            shape = getattr(rows, name)
            check(self._who, len(shape) == 1, f"{name} must have one dimension, received {shape}")
        own = rows.label_libsvm != "NULL"
        check(
            self._who,
            own == (rows.label_shape[0] > 1),
            f"label_shape must be {'more than (1,) with' if own else '(1,) without'} label_libsvm, received "
            f"{rows.label_shape}",
        )
        check(self._who, rows.dtype in (None, "float32"), f"dtype must be 'float32', received {rows.dtype!r}")
        check(self._who, rows.round_batch, "round_batch=False is not supported for sparse rows")

    def _start(self) -> Any:
        return self._order.start

    def _start_at(self, start: Any) -> None:
        self._order.start = int(start)

    def _epoch(self, skip: int = 0) -> Iterator[DataBatch]:
        for rows, pad in islice(self._order.epoch(), skip, None):
            yield self._batch(rows, pad)

    def _batch(self, rows: np.ndarray, pad: int = 0) -> DataBatch:
        label = self._labels.take(rows) if self._labels else array(self._data.first[rows])
        return DataBatch([self._data.take(rows)], [label], pad, rows.astype(np.uint64))


class _Matrix:
    """The sparse rows and the leading values of one part of the lines."""

    def __init__(self, uri: str, width: int, part: DataPart):
        chosen = _lines(uri)
        if part.num_parts > 1:
            mine = part_of(sum(1 for _ in _lines(uri)), part)
            chosen = islice(chosen, mine.start, mine.stop)
        blocks = [_numbers(block, width) for block in iter(lambda: list(islice(chosen, _BLOCK)), [])]
        self._width = width
        self.first = _joined([block.first for block in blocks], np.float32)
        self._starts = np.concatenate([[0], np.cumsum(_joined([block.counts for block in blocks], np.int64))])
        self._columns = _joined([block.columns for block in blocks], np.int64)
        self._values = _joined([block.values for block in blocks], np.float32)

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> Any:
        """Return these rows as a csr array."""
        starts, counts = self._starts[rows], self._starts[rows + 1] - self._starts[rows]
        ends = np.cumsum(counts)
        positions = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
        return csr_matrix(
            (self._values[positions], self._columns[positions], np.concatenate([[0], ends])),
            shape=(len(rows), self._width),
            dtype=np.float32,
        )


def _joined(arrays: list[np.ndarray], dtype: type) -> np.ndarray:
    return np.concatenate([np.empty(0, dtype), *(a.astype(dtype) for a in arrays)])


class _Line(NamedTuple):
    path: str
    number: int
    text: str


def _lines(uri: str) -> Iterator[_Line]:
    for path in files_of(uri):
        for number, line in numbered_lines(path):
            text = line.partition("#")[0].strip()
            if text:
                yield _Line(path, number, text)


class _Block(NamedTuple):
    """The parsed values of some lines: the leading values, the number of cells per line, and the cells."""

    first: np.ndarray
    counts: np.ndarray
    columns: np.ndarray
    values: np.ndarray


def _numbers(lines: list[_Line], width: int) -> _Block:
    """Parse all lines in one call if they are plain and sorted, which is many times faster; else line by line."""
    counts = np.array([line.text.count(":") for line in lines])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings about values that are not numbers
        try:
            numbers = np.fromstring(" ".join(line.text for line in lines).replace(":", " "), sep=" ")
        except ValueError:
            numbers = np.empty(0)
    if len(numbers) == len(lines) + 2 * counts.sum():
        starts = np.cumsum(1 + 2 * counts) - (1 + 2 * counts)
        cells = np.delete(numbers, starts).reshape(-1, 2)
        columns = cells[:, 0].astype(np.int64)
        row = np.repeat(np.arange(len(lines)), counts)
        ordered = bool((np.diff(columns + row * max(width, 1)) > 0).all())
        if ordered and (columns == cells[:, 0]).all() and ((columns >= 0) & (columns < width)).all():
            return _Block(numbers[starts], counts, columns, cells[:, 1])
    rows = [_parse(line, width) for line in lines]
    cells = np.array([cell for _, row in rows for cell in row], np.float64).reshape(-1, 2)
    first, lengths = np.array([label for label, _ in rows]), np.array([len(row) for _, row in rows])
    return _Block(first, lengths, cells[:, 0], cells[:, 1])


def _parse(line: _Line, width: int) -> tuple[float, list[tuple[int, float]]]:
    """Return the label and the row of a line, sorted by column."""
    try:
        label, *pairs = line.text.split()
        cells = [pair.partition(":") for pair in pairs if not pair.startswith("qid:")]
        row = sorted((int(column), float(value) if colon else 1.0) for column, colon, value in cells)
        first = float(label.partition(":")[0])
    except ValueError as error:
        raise MXNetError(f"{line.path}, line {line.number}: expected 'label column:value ...': {error}") from None
    if row and not 0 <= row[0][0] <= row[-1][0] < width:
        raise MXNetError(
            f"{line.path}, line {line.number}: columns must be in [0, {width}), received {row[0][0]} to {row[-1][0]}; "
            "columns count from 0"
        )
    return first, row
