"""Part: what one rank holds of an array that several ranks hold together, and sums over all of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import torch

from ..base import MXNetError
from ..context import Context
from ..ndarray import NDArray

Total = Callable[[torch.Tensor], torch.Tensor]
Share = tuple[NDArray, torch.Tensor]  # an array, and this rank's share of a sum over all of its ranks
Steps = Generator[list[Share], list[torch.Tensor], None]  # an update that stops where it needs such sums


class Part(NDArray):
    """This rank's part of an array that several ranks hold together.

    `split` says which rows, columns, ... of the whole it has; `slice(None)` is a dimension that no rank has cut.
    `total` sums a small tensor over the ranks that hold the different parts (of an array that all hold whole, it gives
    the tensor itself); parts of one group of ranks should share one `total`, whose sums then travel together.
    """

    __slots__ = ("_total", "whole_shape", "split")
    _total: Total
    whole_shape: tuple[int, ...]
    split: tuple[slice, ...]  # type: ignore[assignment]

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
        """An array that belongs to this part, as its gradient or its copy in another precision, as a Part."""
        return Part(array._data, array._ctx, self.whole_shape, self.split, self._total)

    def cut(self, whole: torch.Tensor) -> torch.Tensor:
        """This rank's part of a tensor like the whole array, a view; dimensions of another length stay as they are."""
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


def same_part(weight: NDArray, array: NDArray) -> NDArray:
    """An array that belongs to a weight: a Part where the weight is one."""
    return weight.same_part(array) if isinstance(weight, Part) else array


# ---- sums over whole arrays ----


def totals(shares: Sequence[Share]) -> list[torch.Tensor]:
    """The sums over all ranks of an array of what each gives, in one collective for each group of ranks."""
    result = [share for _, share in shares]
    together: dict[Any, list[int]] = {}
    for i, (array, share) in enumerate(shares):
        if isinstance(array, Part):
            together.setdefault((array._total, share.dtype, share.device), []).append(i)
    for (total, _, _), places in together.items():
        joined = total(torch.cat([result[i].reshape(-1) for i in places]))
        pieces = joined.split([result[i].numel() for i in places])
        for i, piece in zip(places, pieces, strict=True):
            result[i] = piece.reshape(result[i].shape)
    return result


def in_step(updates: Iterable[Steps]) -> None:
    """Run updates side by side: the sums that all of them need travel together."""
    stopped = [(update, shares) for update in updates if (shares := next(update, None)) is not None]
    while stopped:
        sums = iter(totals([share for _, shares in stopped for share in shares]))
        going, stopped = stopped, []
        for update, shares in going:
            given = [next(sums) for _ in shares]
            with contextlib.suppress(StopIteration):  # it came to its end
                stopped.append((update, update.send(given)))


def square(array: NDArray) -> torch.Tensor:
    """This rank's share of the sum of an array's squares, in float64; half precision is added up in float32."""
    dense = array.tostype("default")._data.detach()
    return torch.linalg.vector_norm(dense, dtype=torch.promote_types(dense.dtype, torch.float32)).double().square()


def total_square(arrays: Iterable[NDArray]) -> torch.Tensor:
    """The sum of the squares of all elements, of Parts those of all ranks; what all ranks hold whole counts once."""
    joined: dict[Any, Share] = {}
    for array in arrays:
        key = array._total if isinstance(array, Part) else None
        joined[key] = (array, joined[key][1] + square(array)) if key in joined else (array, square(array))
    return torch.stack(totals(list(joined.values()))).sum() if joined else torch.zeros((), dtype=torch.float64)


def total_norm(arrays: Iterable[NDArray]) -> float:
    """The root of `total_square`: one collective for each group of ranks, which all its ranks call."""
    return float(total_square(arrays).sqrt())
