"""`mx.dist`: ranks, and collective calls on NDArrays and torch tensors.

Importing the module opens no connection; the first call that needs other workers connects to them. Everything also
works in a single process, as one worker. All workers must make the same calls in the same order. Autograd does not
record these calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from .base import MXNetError
from .comm import session as _session
from .comm.buckets import Courier
from .gluon.data.shard import shard
from .ndarray import NDArray
from .programs import SERVER, STARTUP

if TYPE_CHECKING:
    from .comm.group import Group

__all__ = [
    "Handle",
    "Workers",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_workers",
    "barrier",
    "broadcast",
    "init",
    "is_initialized",
    "launch",
    "local_rank",
    "local_size",
    "new_group",
    "node",
    "nodes",
    "rank",
    "recv",
    "reduce_scatter",
    "send",
    "shard",
    "shutdown",
    "size",
]

Array = TypeVar("Array", NDArray, torch.Tensor)


class Handle:
    """The future result of a call with `async_op=True`."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def wait(self) -> Any:
        """Wait for the result and return it, or raise the error of the call."""
        return self._future.result()

    def is_done(self) -> bool:
        """Whether `wait` would return immediately."""
        return self._future.done()


class Workers:
    """A subset of the workers, passed as `group=`. `rank` is the rank of this worker in it, or -1 if not a member."""

    def __init__(self, ranks: Sequence[int], group: Group | None) -> None:
        self.ranks = list(ranks)
        self.size = len(self.ranks)
        self.rank = -1 if group is None else group.rank
        self._group = group
        self._courier: Courier | None = None

    def __contains__(self, rank: int) -> bool:
        return rank in self.ranks

    def __repr__(self) -> str:
        return f"<workers {self.ranks}>"

    def _place(self, name: str, rank: int) -> int:
        if rank not in self.ranks:
            raise ValueError(f"{name} must be the rank of a worker among {self.ranks}, received {rank!r}")
        return self.ranks.index(rank)

    def _members(self) -> Any:
        if self._group is None:
            raise MXNetError(f"this worker, rank {rank()}, is not in the group of workers {self.ranks}")
        return self._group

    def _do(self, action: Callable[[Any], Any], async_op: bool) -> Any:
        """Run `action` on the group: now, or in its thread after all pending calls."""
        group = self._members()
        if async_op and self._courier is None:
            self._courier = Courier("mx.dist")
        if self._courier is None:
            return action(group)
        handle = Handle(self._courier.send(lambda: action(group)))
        return handle if async_op else handle.wait()

    def _end_calls(self) -> None:
        if self._courier is not None:
            self._courier.close()

    def close(self) -> None:
        """Close the connections of the group. All its workers must call this; it cannot be used afterwards."""
        self._end_calls()
        if self._group is not None:
            self._group.close()


def init() -> None:
    """Connect to the other workers. Calls that need them do this implicitly. Repeated calls do nothing."""
    _workers(None)


def shutdown() -> None:
    """Disconnect from the other workers once all have called this. A later call connects again."""
    _session.close()


def is_initialized() -> bool:
    """Whether this process is connected to the other workers."""
    return _session.is_open() and "workers" in _session.session().kept


def rank() -> int:
    """The rank of this worker, from 0."""
    return _session.session().world.rank


def size() -> int:
    """The number of workers."""
    return _session.session().world.size


def local_rank() -> int:
    """The rank of this worker among those on this host."""
    return _session.session().world.local_rank


def local_size() -> int:
    """The number of workers on this host."""
    return _session.session().world.local_size


def node() -> int:
    """The index of this host, from 0."""
    return _session.session().world.node


def nodes() -> int:
    """The number of hosts."""
    return _session.session().world.nodes


def all_workers() -> Workers:
    """Return the group of all workers."""
    return _workers(None)


def new_group(ranks: Sequence[int]) -> Workers:
    """Create a group of some workers, for `group=`. All workers must call it, including those not in `ranks`."""
    ranks = [int(rank) for rank in ranks]
    made = Workers(ranks, _workers(None)._do(lambda group: group.subgroup(ranks), False))
    _session.session().at_close.append(made.close)
    return made


def barrier(group: Workers | None = None) -> None:
    """Wait until all workers reach the barrier.

    While a worker waits for all others, it joins the Trainer steps of workers that still have data.
    """
    if group is None:
        init()
        _session.session().rounds.barrier()
    else:
        group._do(lambda group: group.barrier(), False)


def all_reduce(
    x: Array, op: str = "sum", inplace: bool = False, group: Workers | None = None, async_op: bool = False
) -> Any:
    """The sum over all workers, or the mean, min, max or prod. The result is bitwise equal on all workers.

    The result is a new array, or `x` itself if `inplace`. The mean of integers drops the fraction. With `async_op`, a
    Handle is returned immediately; do not use `x` until it is done.
    """
    return _on_copy(x, inplace, group, async_op, lambda group, data: group.all_reduce_(data, op))


def broadcast(
    x: Array, root: int = 0, inplace: bool = False, group: Workers | None = None, async_op: bool = False
) -> Any:
    """The values of `x` on the worker `root`, in a new array of the same kind, or in `x` itself if `inplace`."""
    place = _workers(group)._place("root", root)
    return _on_copy(x, inplace, group, async_op, lambda group, data: group.broadcast_(data, place))


def all_gather(x: Array, group: Workers | None = None, async_op: bool = False) -> Any:
    """A list with the `x` of every worker. The first dimensions may differ."""
    data = _data(x)
    return _workers(group)._do(lambda group: [_like(x, out) for out in group.all_gather(data)], async_op)


def reduce_scatter(x: Array, op: str = "sum", group: Workers | None = None, async_op: bool = False) -> Any:
    """This worker's part of the sum (mean, min, max, prod) over all workers, split along the first dimension."""
    data = _data(x)
    return _workers(group)._do(lambda group: _like(x, group.reduce_scatter(data, op)), async_op)


def all_to_all(
    x: Array, splits: Sequence[int] | None = None, group: Workers | None = None, async_op: bool = False
) -> Any:
    """Send a part of the rows of `x` to each worker, and return the rows received, in rank order.

    The parts are equal, or `splits` gives the number of rows for each worker. In that case the result is a pair: the
    rows, and the list of the numbers received from each worker.
    """
    data, sent = _data(x), None if splits is None else [int(rows) for rows in splits]

    def action(group: Group) -> Any:
        out, received = group.all_to_all(data, sent)
        return _like(x, out) if sent is None else (_like(x, out), received)

    return _workers(group)._do(action, async_op)


def send(x: Array, to: int, tag: int = 0, group: Workers | None = None, async_op: bool = False) -> Any:
    """Send to one worker. Wait until it receives the same number of elements of the same dtype with the same tag.

    With `async_op` the call does not wait. Workers that send to each other at the same time need this.
    """
    place, data = _workers(group)._place("to", to), _data(x)
    return _ended(_workers(group)._members().start_send(data, place, tag), async_op)


def recv(x: Array, from_: int, tag: int = 0, group: Workers | None = None, async_op: bool = False) -> Any:
    """Receive into `x` what one worker sends, and return `x`."""
    place, data = _workers(group)._place("from_", from_), _data(x)
    data = x._writable_data() if isinstance(x, NDArray) else data
    finish = _workers(group)._members().start_recv(data, place, tag)

    def received() -> Any:
        finish()
        return x

    return _ended(received, async_op)


def _ended(finish: Callable[[], Any], async_op: bool) -> Any:
    """Wait for the result here, or in a new thread: point-to-point messages need no order with other calls."""
    if not async_op:
        return finish()
    courier = Courier("mx.dist message")
    handle = Handle(courier.send(finish))
    courier.close()
    return handle


def _workers(group: Workers | None) -> Workers:
    """The group, or the group of all workers, connecting to them if necessary."""
    if group is not None:
        if not isinstance(group, Workers):
            raise TypeError(f"group must come from mx.dist.new_group, received {group!r}")
        return group
    opened = _session.session()
    made = opened.kept.get("workers")
    if made is None or (made.size, made.rank) != (opened.group.size, opened.group.rank):  # or a new generation
        if opened.world.role != "worker":
            raise MXNetError(f"this process is a {opened.world.role}: only workers can exchange arrays")
        made = opened.kept["workers"] = Workers(range(opened.group.size), opened.group)
        opened.at_close.append(made._end_calls)
    return opened.kept["workers"]


def _data(x: Any) -> torch.Tensor:
    """The values of an array or a tensor."""
    if isinstance(x, NDArray):
        if x.stype != "default":
            raise MXNetError(
                f"expected a dense array, received storage type {x.stype}. Convert it with x.tostype('default')"
            )
        return x._data.detach()
    if isinstance(x, torch.Tensor):
        return x.detach()
    raise TypeError(f"expected an NDArray or a torch tensor, received {type(x).__name__}")


def _like(x: Any, data: torch.Tensor) -> Any:
    """A tensor as the same kind of object as `x`: an array on its context, or a tensor."""
    return x._kind(data, x.context) if isinstance(x, NDArray) else data


def _on_copy(
    x: Any, inplace: bool, group: Workers | None, async_op: bool, action: Callable[[Any, torch.Tensor], Any]
) -> Any:
    """Run `action` in place on the values of `x`, or on a copy of them."""
    data = _data(x)
    if not inplace:
        data = data.clone(memory_format=torch.contiguous_format)
        out = _like(x, data)
    else:
        data = x._writable_data() if isinstance(x, NDArray) else data
        out = x

    def act(group: Group) -> Any:
        action(group, data)
        return out

    return _workers(group)._do(act, async_op)


def launch(
    fn: Callable[..., Any], n: int = 1, args: Sequence[Any] = (), servers: int = 0, timeout: float | None = None
) -> list[Any]:
    """Run `fn(*args)` on `n` new worker processes on this machine, and return the results in rank order.

    `servers` parameter servers are started too. `fn` may be defined anywhere: in a notebook cell, at the top level of a
    script, or inside another function. It and the globals that it uses are sent to new processes, so they must be
    picklable, and changes to them are not visible here. If a worker fails, an MXNetError with its traceback is raised.
    No process is left behind, then or after Ctrl-C. `timeout` is the number of seconds that a worker waits for another.
    """
    from .comm.call import launch as start  # only starting processes requires Unix

    return start(fn, n, args, servers, timeout, SERVER, STARTUP)
