"""Groups of workers for parts of a model: `init_group`, `get_group`, `finalize_group`, and collective calls in them."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import torch

from .. import dist
from ..base import MXNetError
from ..comm.session import session
from ..dist import Workers
from ..distributed.exchange import broadcast_values, reduce_values


def init_group(name: str | None = None, ranks: Sequence[int] | None = None) -> Workers:
    """Open a group of some workers, by default of all, and return it. All workers must call it with the same arguments.

    Until `finalize_group`, it is the group of `get_group`, `allreduce` and `broadcast` on its members. A worker may be
    in several groups; the one opened last counts. A second call with the same name and ranks returns the same group.
    """
    chosen = list(range(dist.size())) if ranks is None else _integers(ranks)
    _check_same(f"init_group(name={name!r}, ranks={ranks if chosen is None else chosen!r:.500})")
    if chosen is None:
        raise TypeError(f"ranks must be a list of integers, received {ranks!r:.80}")
    _check_ranks(chosen)
    opened = _opened()
    if name in opened:
        if opened[name].ranks != chosen:
            raise ValueError(
                f"the group {name!r} is already open, with the workers {opened[name].ranks}; received {chosen}. Call "
                "finalize_group first, or use another name"
            )
        return opened[name]
    made = dist.new_group(chosen)
    opened[_new_name() if name is None else name] = made
    return made


def get_group(name: str | None = None) -> Workers:
    """Return an open group by its name, or the one opened last that has this worker.

    If no group is open, return the group of all workers.
    """
    opened = _opened()
    if name is not None:
        return opened[_known(name)]
    if not opened:
        return dist.all_workers()
    mine = [group for group in opened.values() if group.rank >= 0]
    if not mine:
        listed = ", ".join(f"{name!r} with workers {group.ranks}" for name, group in opened.items())
        raise MXNetError(f"this worker, rank {dist.rank()}, is in none of the open groups: {listed}")
    return mine[-1]


def get_group_rank(name: str | None = None) -> int:
    """Return the rank of this worker in the group of `get_group`, or -1 if it is in none."""
    opened = _opened()
    if name is None and opened and all(group.rank < 0 for group in opened.values()):
        return -1
    return get_group(name).rank


def finalize_group(name: str | None = None) -> None:
    """Close a group by its name, by default the one opened last. All workers must call it for the same group."""
    opened = _opened()
    closed = next(reversed(opened), None) if name is None else name
    _check_same(f"finalize_group({'' if closed is None else repr(closed)})")
    if closed is None:
        raise MXNetError("finalize_group: no group is open. Call init_group first")
    opened.pop(_known(closed)).close()


def allreduce(x: Any = None, op: str = "mean") -> Any:
    """Replace `x` by its mean over the workers of `get_group()`, or its sum, max, min or prod, and return it.

    `x` is an array, a number, a list or dictionary of arrays, or a model (a Block or a torch module), whose gradients
    are reduced. Without `x`, wait for the workers.
    """
    group = _current()
    if x is None:
        dist.barrier(group)
        return None
    return reduce_values(x, op, group)


def broadcast(x: Any, root: int = 0) -> Any:
    """Replace `x` by its values on the worker of rank `root`, for the workers of `get_group()`, and return it.

    `root` is a rank among all workers. Of a model, the parameters are replaced.
    """
    return broadcast_values(x, root, _current())


def _current() -> Workers | None:
    """Return the group for a call; None means all workers, which may still train."""
    return get_group() if _opened() else None


def _opened() -> dict[str, Workers]:
    """Return the open groups of this session by name."""
    found: dict[str, Workers] = session().kept.setdefault("named groups", {})
    return found


def _new_name() -> str:
    opened = _opened()
    return next(name for name in (f"group{i}" for i in range(len(opened) + 1)) if name not in opened)


def _known(name: str) -> str:
    opened = _opened()
    if name not in opened:
        raise MXNetError(f"no group {name!r} is open. Open groups: {', '.join(map(repr, opened)) or 'none'}")
    return name


def _integers(ranks: Sequence[int]) -> list[int] | None:
    """Return ranks as a list, or None if they are not integers."""
    try:
        return [operator.index(rank) for rank in ranks]
    except TypeError:
        return None


def _check_ranks(chosen: Sequence[int]) -> None:
    size = dist.size()
    if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= rank < size for rank in chosen):
        raise ValueError(f"a group needs distinct ranks from 0 to {size - 1}, received {chosen}")


def _check_same(call: str) -> None:
    """Raise on all workers if their calls differ, before some of them raise or wait for others."""
    said = dist.all_gather(torch.tensor(list(call.encode()), dtype=torch.uint8))
    callers: dict[str, list[int]] = {}
    for rank, each in enumerate(said):
        callers.setdefault(bytes(each.tolist()).decode(), []).append(rank)
    if len(callers) > 1:
        listed = "; ".join(f"{text} on worker {', '.join(map(str, ranks))}" for text, ranks in callers.items())
        raise MXNetError(
            f"all workers must open and close the same groups in the same order, received {listed}. Make the same call "
            "on all workers, also on those outside the group"
        )
