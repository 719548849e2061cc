"""Functions that combine samples into a batch, for `DataLoader(batchify_fn=...)`: stack, pad, or both for tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base import MXNetError
from ....context import cpu
from ....ndarray import NDArray, array
from ...kinds import of_kind


@dataclass(frozen=True)
class Stack:
    """Stacks numbers or arrays of equal shape into one array: labels, for example."""

    dtype: Any = None

    def __call__(self, data: Sequence[Any]) -> NDArray:
        rows = [_as_numpy(item) for item in data]
        if len({row.shape for row in rows}) > 1:
            shapes = ", ".join(map(str, sorted({row.shape for row in rows})))
            raise MXNetError(f"Stack cannot combine items of different shapes: {shapes}. Use Pad")
        return _batch(np.stack(rows), self.dtype)


@dataclass(frozen=True)
class Pad:
    """Pads arrays with `pad_val` along `axis` to the longest of them, and stacks them.

    With `ret_length`, returns the original lengths too, as int32. `round_to` makes the padded length a multiple of a
    number, so that there are fewer different shapes.
    """

    axis: int = 0
    pad_val: float = 0
    ret_length: bool = False
    dtype: Any = None
    round_to: int = 1

    def __post_init__(self) -> None:
        if self.round_to < 1:
            raise ValueError(f"round_to must be at least 1, received {self.round_to!r}")

    def __call__(self, data: Sequence[Any]) -> Any:
        rows = [_as_numpy(item) for item in data]
        axis = self.axis
        shapes = {(*row.shape[:axis], 0, *row.shape[axis + 1 :]) if row.ndim > axis >= 0 else () for row in rows}
        if len(shapes) != 1 or shapes == {()}:
            found = ", ".join(map(str, sorted({row.shape for row in rows})))
            raise MXNetError(f"Pad needs items whose shapes differ only in axis {axis}, received {found}")
        lengths = [row.shape[axis] for row in rows]
        longest = -(-max(lengths) // self.round_to) * self.round_to
        shape = list(rows[0].shape)
        shape[axis] = longest
        made = np.full((len(rows), *shape), self.pad_val, np.result_type(*rows))
        for place, row in zip(made, rows, strict=True):
            np.moveaxis(place, axis, 0)[: row.shape[axis]] = np.moveaxis(row, axis, 0)
        batch = _batch(made, self.dtype)
        return (batch, _batch(np.array(lengths, np.int32), None)) if self.ret_length else batch


class Tuple:
    """Applies the i-th function to the i-th element of all samples: `Tuple(Pad(), Stack())` for (sequence, label)."""

    def __init__(self, *functions: Callable[[Sequence[Any]], Any]):
        if len(functions) == 1 and isinstance(functions[0], (list, tuple)):  # as in gluonnlp
            functions = tuple(functions[0])
        self._functions = functions

    def __call__(self, data: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
        for item in data:
            if len(item) != len(self._functions):
                raise MXNetError(
                    f"Tuple has {len(self._functions)} functions, received a sample of {len(item)} elements"
                )
        parts = zip(*data, strict=True)
        return tuple(function(list(part)) for function, part in zip(self._functions, parts, strict=True))


def _as_numpy(item: Any) -> np.ndarray:
    if isinstance(item, NDArray):
        return item.asnumpy()
    made = np.asarray(item)
    if made.dtype.kind in "OUS":
        raise MXNetError(f"expected numbers or arrays, received {item!r:.80}. Encode texts first")
    if made.dtype.kind == "i" and made.size and max(-made.min(), made.max()) > np.iinfo(np.int32).max:
        return made
    # Python's numbers have 64 bits. Half of that suffices for tokens and labels, and is what mx.nd creates from lists.
    return made.astype({"i": np.int32, "f": np.float32}.get(made.dtype.kind, made.dtype)) if made is not item else made


def _batch(values: np.ndarray, dtype: Any) -> NDArray:
    with cpu():  # loader processes must not use the program's device
        return of_kind(array(values, dtype=dtype or values.dtype))
