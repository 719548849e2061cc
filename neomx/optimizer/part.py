"""Part: one rank's part of an array that is sharded over ranks, and sums over all parts."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Sequence
from typing import Any

import torch

from ..base import MXNetError
from ..context import Context
from ..ndarray import NDArray

Total = Callable[[torch.Tensor], torch.Tensor]
Share = tuple[NDArray, torch.Tensor]  # an array, and this rank's term of a sum over its ranks
Steps = Generator[list[Share], list[torch.Tensor], None]  # an update that yields where it needs such sums


class Part(NDArray):
    """This rank's part of an array that is sharded over several ranks.

    `split` has one slice of the whole array for each dimension; `slice(None)` is a dimension that is not split.
    `total` sums a small tensor over the ranks with the different parts. For a replicated array, it returns the tensor
    itself. Parts of the same group of ranks should share one `total`, so that their sums need only one collective.
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
        """Return the sum of a small tensor over the ranks of the parts, which must all call it, in the same order."""
        return self._total(x)

    def same_part(self, array: NDArray) -> Part:
        """Return an array with the shape of this part, such as its gradient or a copy in another dtype, as a Part."""
        return Part(array._data, array._ctx, self.whole_shape, self.split, self._total)

    def cut(self, whole: torch.Tensor) -> torch.Tensor:
        """Return a view of this rank's part of a whole tensor. Dimensions with a different size are not split."""
        rows = zip(whole.shape, self.whole_shape, self.split, strict=True)
        return whole[tuple(cut if size == of else slice(None) for size, of, cut in rows)]


def _check_split(shape: tuple[int, ...], whole: tuple[int, ...], split: tuple[slice, ...]) -> None:
    if len(whole) == len(split) and shape == tuple(
        len(range(*cut.indices(size))) for cut, size in zip(split, whole, strict=True)
    ):
        return
    raise MXNetError(
        f"a part of shape {shape} is not {_written(split)} of an array of shape {whole}. Expected one slice for each "
        "dimension, with the size of the part"
    )


def _written(split: Sequence[Any]) -> str:
    return f"[{', '.join(f'{s.start}:{s.stop}' if isinstance(s, slice) else repr(s) for s in split)}]"


def same_part(weight: NDArray, array: NDArray) -> NDArray:
    """Return an array that belongs to a weight, as a Part if the weight is one."""
    return weight.same_part(array) if isinstance(weight, Part) else array


# ---- sums over whole arrays ----


def totals(shares: Sequence[Share]) -> list[torch.Tensor]:
    """Sum each share over the ranks of its array, in one collective for each group of ranks."""
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
    """Run updates in lockstep, so that the sums they need are computed in one collective."""
    stopped = [(update, shares) for update in updates if (shares := next(update, None)) is not None]
    while stopped:
        sums = iter(totals([share for _, shares in stopped for share in shares]))
        going, stopped = stopped, []
        for update, shares in going:
            given = [next(sums) for _ in shares]
            with contextlib.suppress(StopIteration):  # the update finished
                stopped.append((update, update.send(given)))


def square(array: NDArray) -> torch.Tensor:
    """Return this rank's share of the sum of squares of an array, in float64. Half precision sums in float32."""
    dense = array.tostype("default")._data.detach()
    return torch.linalg.vector_norm(dense, dtype=torch.promote_types(dense.dtype, torch.float32)).double().square()


def total_square(arrays: Iterable[NDArray]) -> torch.Tensor:
    """Return the sum of squares of all elements, for Parts over all ranks. Replicated arrays count once."""
    joined: dict[Any, Share] = {}
    for array in arrays:
        key = array._total if isinstance(array, Part) else None
        joined[key] = (array, joined[key][1] + square(array)) if key in joined else (array, square(array))
    return torch.stack(totals(list(joined.values()))).sum() if joined else torch.zeros((), dtype=torch.float64)


def total_norm(arrays: Iterable[NDArray]) -> float:
    """Return the square root of `total_square`. It is one collective per group of ranks, which all must call."""
    return float(total_square(arrays).sqrt())
