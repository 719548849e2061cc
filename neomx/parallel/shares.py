"""Sharded optimizer states: each worker updates its rows of every weight, and all workers gather the result."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch

from ..comm.group import Group
from ..ndarray import NDArray
from ..optimizer import Updater
from ..optimizer.part import Part, Total


def apply_in_shares(
    updater: Updater,
    indices: Sequence[int | str],
    sums: list[NDArray],
    weights: list[NDArray],
    parts: list[Part],
    group: Group,
) -> None:
    """Update this worker's rows (`parts`) of the weights, with states only for them, and gather the other rows."""
    rows = [share(weight._data, group.rank, group.size) for weight in weights]
    gradients = [NDArray(total._data.detach()[mine], total._ctx) for total, mine in zip(sums, rows, strict=True)]
    updater(indices, gradients, parts)
    gather([weight._data for weight in weights], group)


def share(tensor: torch.Tensor, rank: int, size: int) -> slice:
    """Return the rows of a tensor that belong to a worker."""
    rows = tensor.shape[0]
    width = -(-rows // size)
    return slice(min(rank * width, rows), min((rank + 1) * width, rows))


def share_of(weight: NDArray, group: Group) -> Part:
    """Return this worker's rows of a weight, which may itself be a part."""
    mine = share(weight._data, group.rank, group.size)
    whole, split = tuple(weight.shape), [slice(None)] * len(weight.shape)
    total: Total | None = None
    if isinstance(weight, Part):
        whole, split, total = weight.whole_shape, list(weight.split), weight._total
    start = split[0].start or 0
    split[0] = slice(start + mine.start, start + mine.stop)
    return Part(weight._data.detach()[mine], weight._ctx, whole, split, _sum_over(group, total))


@cache
def _sum_over(group: Group, total: Total | None) -> Total:
    """Return a function that sums over a group and then by `total`. Equal arguments share one function."""

    def sum_all(x: torch.Tensor) -> torch.Tensor:
        x = group.all_reduce_(x.clone(), what="norms")
        return x if total is None else total(x)

    return sum_all


def gather(tensors: list[torch.Tensor], group: Group) -> None:
    """Gather the rows of every worker in place, with one call per dtype."""
    by_kind: dict[Any, list[torch.Tensor]] = defaultdict(list)
    for tensor in tensors:
        by_kind[tensor.dtype, tensor.device].append(tensor.detach())
    for same in by_kind.values():
        mine = torch.cat([tensor[share(tensor, group.rank, group.size)].reshape(-1) for tensor in same])
        for rank, part in enumerate(group.all_gather(mine, "updated weights")):
            if rank != group.rank:
                _spread(same, part, rank, group.size)


def _spread(tensors: list[torch.Tensor], part: torch.Tensor, rank: int, size: int) -> None:
    rows = [tensor[share(tensor, rank, size)] for tensor in tensors]
    for row, values in zip(rows, torch.split(part, [row.numel() for row in rows]), strict=True):
        row.copy_(values.view(row.shape))
