"""Part: what one rank holds of an array that several ranks hold together, and sums over all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..base import MXNetError
from ..context import Context
from ..ndarray import NDArray

Total = Callable[[torch.Tensor], torch.Tensor]


class Part(NDArray):
    """This rank's part of an array that several ranks hold together.

    `split` says which rows, columns, ... of the whole it has; `slice(None)` is a dimension that no rank has cut.
    `total` sums a small tensor over the ranks that hold the different parts (of an array that all hold whole, it gives
    the tensor itself); parts of one group of ranks should share one `total`, whose sums then travel together.
    """

    __slots__ = ("_total", "whole_shape", "split")

    def __init__(
        self, data: torch.Tensor, ctx: Context, whole_shape: Sequence[int], split: Sequence[slice], total: Total
    ):
        super().__init__(data, ctx)
        self.whole_shape, self.split, self._total = tuple(whole_shape), tuple(split), total
        _check_split(tuple(data.shape), self.whole_shape, self.split)

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """The sum of a small tensor over the ranks that hold the parts: all of them call it, in the same order."""
        return self._total(x)

    def same_part(self, array: NDArray) -> Part:
        """An array that belongs to this part, such as its copy in another precision, as a Part."""
        return Part(array._data, array._ctx, self.whole_shape, self.split, self._total)

    def cut(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of a whole tensor, a view; a dimension of length 1 is for all of the part's."""
        if whole.dim() != len(self.split):
            raise MXNetError(f"expected {len(self.split)} dimensions, as {self.whole_shape}, got {tuple(whole.shape)}")
        rows = zip(whole.shape, self.whole_shape, self.split, strict=True)
        return whole[tuple(cut if size == of else slice(None) for size, of, cut in rows)]


def _check_split(shape: tuple[int, ...], whole: tuple[int, ...], split: tuple[slice, ...]) -> None:
    if len(whole) == len(split) and shape == tuple(
        len(range(*cut.indices(size))) for cut, size in zip(split, whole, strict=True)
    ):
        return
    raise MXNetError(
        f"a part of shape {shape} is not {_written(split)} of an array of shape {whole}. Expected one slice for each "
        "dimension, as long as the part is there"
    )


def _written(split: Sequence[Any]) -> str:
    return f"[{', '.join(f'{s.start}:{s.stop}' if isinstance(s, slice) else repr(s) for s in split)}]"
