"""Batches of sparse rows from files in LibSVM's format."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..base import MXNetError
from ..formats.records import files_of
from ..ndarray import array
from ..ndarray.sparse import csr_matrix
from .arguments import Names, Part, Shape, check, check_part, part_of, read
from .io import DataBatch
from .reader import MXDataIter, Rounds


@dataclass
class SparseRows:
    """Where the rows are and how wide."""

    data_libsvm: str
    data_shape: Shape
    batch_size: int
    label_libsvm: str = "NULL"
    label_shape: Shape = (1,)
    round_batch: bool = True
    dtype: str | None = None


class LibSVMIter(MXDataIter):
    """Batches of csr arrays from lines `label column:value column:value ...`, whose columns count from 0.

    The labels are the first numbers of the lines, or the sparse rows of a file of their own, `label_libsvm`, of width
    `label_shape`. The last batch is filled from the beginning and the next epoch goes on from there. With `num_parts`
    it reads the part `part_index` of the lines alone. The rows are read into memory.
    """

    takes = (SparseRows, Part, Names)

    def __init__(self, **given: Any) -> None:
        rows, part, names = read(self._who, given, *self.takes)
        super().__init__(rows.batch_size, names)
        self._check(rows, part)
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
        self._rounds = Rounds(samples, rows.batch_size, True)
        self._describe(rows.data_shape, rows.label_shape if self._labels else (), np.float32, np.float32)
        self.reset()

    def _check(self, rows: SparseRows, part: Part) -> None:
        for name in ("data_shape", "label_shape"):
            shape = getattr(rows, name)
            check(self._who, len(shape) == 1, f"{name} must have one dimension, received {shape}")
        check(
            self._who,
            rows.label_libsvm == "NULL" or rows.label_shape[0] > 1,
            "with label_libsvm, label_shape must be more than (1,)",
        )
        check(self._who, rows.dtype in (None, "float32"), f"dtype must be 'float32', received {rows.dtype!r}")
        check(self._who, rows.round_batch, "round_batch=False is not possible with sparse rows")
        check_part(self._who, part)

    def _epoch(self) -> Iterator[DataBatch]:
        for rows, pad in self._rounds.epoch():
            label = self._labels.take(rows) if self._labels else array(self._data.first[rows])
            yield DataBatch([self._data.take(rows)], [label], pad, rows.astype(np.uint64))


class _Matrix:
    """The sparse rows of a part of the files' lines, with their first numbers."""

    def __init__(self, uri: str, width: int, part: Part):
        lines = [(path, number, line) for path in files_of(uri) for number, line in _lines(path)]
        chosen = part_of(len(lines), part)
        self._width = width
        first, counts, columns, values = [], [0], [], []
        for path, number, line in lines[chosen.start : chosen.stop]:
            label, row = _parse(path, number, line, width)
            first.append(label)
            counts.append(len(row))
            columns += [column for column, _ in row]
            values += [value for _, value in row]
        self.first = np.array(first, np.float32)
        self._starts = np.cumsum(counts)
        self._columns, self._values = np.array(columns, np.int64), np.array(values, np.float32)

    def __len__(self) -> int:
        return len(self.first)

    def take(self, rows: np.ndarray) -> Any:
        """These rows, as a csr array."""
        starts, counts = self._starts[rows], self._starts[rows + 1] - self._starts[rows]
        ends = np.cumsum(counts)
        positions = np.arange(ends[-1]) + np.repeat(starts - (ends - counts), counts)
        return csr_matrix(
            (self._values[positions], self._columns[positions], np.concatenate([[0], ends])),
            shape=(len(rows), self._width),
            dtype=np.float32,
        )


def _lines(path: str) -> Iterator[tuple[int, str]]:
    with open(path) as file:
        for number, line in enumerate(file, 1):
            line = line.partition("#")[0].strip()
            if line:
                yield number, line


def _parse(path: str, number: int, line: str, width: int) -> tuple[float, list[tuple[int, float]]]:
    """The label and the row of a line, ordered by columns."""
    try:
        label, *pairs = line.split()
        cells = [pair.partition(":") for pair in pairs if not pair.startswith("qid:")]
        row = sorted((int(column), float(value) if colon else 1.0) for column, colon, value in cells)
        first = float(label.partition(":")[0])
    except ValueError as error:
        raise MXNetError(f"{path}, line {number}: expected 'label column:value ...', {error}") from None
    if row and not 0 <= row[0][0] <= row[-1][0] < width:
        raise MXNetError(
            f"{path}, line {number}: columns must be in [0, {width}), found {row[0][0]} to {row[-1][0]}; "
            "they count from 0"
        )
    return first, row
