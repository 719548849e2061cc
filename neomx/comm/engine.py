"""torch's own parallelism (DeviceMesh, DTensor, fully_shard, pipelines) on this room's groups.

torch lets a Python class be a process group. This one hands each collective to a `Group`: workers of one host meet in
shared memory, and an error names the worker that is missing and the call. It is registered as the backend "neomx".
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, Work

from ..base import MXNetError
from .group import Group
from .session import session

BACKEND = "neomx"
_ProcessGroup: Any = ProcessGroup  # torch's stubs know other signatures than the calls that it makes
_OPS = {"SUM": "sum", "AVG": "mean", "MIN": "min", "MAX": "max", "PRODUCT": "prod"}


class _Ended(Work):
    """A collective that is over: all but messages are when they are called."""

    def __init__(self, results: Any = None) -> None:
        super().__init__()
        self._results = results

    def wait(self, timeout: Any = None) -> bool:
        return True

    def is_completed(self) -> bool:
        return True

    def result(self) -> Any:
        return self._results

    def get_future(self) -> Any:
        future: Any = torch.futures.Future()
        future.set_result(self._results)
        return future


class _Message(Work):
    """A message between two workers that has begun."""

    def __init__(self, group: EngineGroup, finish: Callable[[], Any]) -> None:
        super().__init__()
        self._group = group
        self._finish: Callable[[], Any] | None = finish

    def wait(self, timeout: Any = None) -> bool:
        finish, self._finish = self._finish, None
        if finish is not None:
            began = time.perf_counter()
            finish()
            self._group.waited += time.perf_counter() - began
        return True

    def is_completed(self) -> bool:
        return self._finish is None


class EngineGroup(_ProcessGroup):  # type: ignore[misc]
    """A `Group` as torch's process group: collectives are over when the call returns."""

    def __init__(self, group: Group) -> None:
        super().__init__(group.rank, group.size)
        self.group = group
        self.what = ""  # what the layout says this group exchanges, for errors
        self.messages: dict[int, str] = {}  # the same for messages with these tags
        self.waited = 0.0  # seconds that messages have taken to come, or to be taken, all in all
        self._name = ""

    @property
    def group_name(self) -> str:
        """The name under which torch finds it again."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        """The same, for torch's own calls."""
        return self._name

    def getBackendName(self) -> str:
        """The name that torch looks for."""
        return BACKEND

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce over all members, in place."""
        for tensor in tensors:
            self.group.all_reduce_(tensor, _op(opts), self.what)
        return _Ended(tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce several."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        """The values of one member everywhere."""
        for tensor in tensors:
            self.group.broadcast_(tensor, 0 if opts is None else opts.rootRank, self.what)
        return _Ended(tensors)

    def allgather(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Every member's tensor, in a list."""
        for parts, tensor in zip(outs, tensors, strict=True):
            for part, got in zip(parts, self.group.all_gather(tensor, self.what), strict=True):
                part.copy_(got.view(part.shape))
        return _Ended(outs)

    def _allgather_base(self, out: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """Every member's tensor, one after the other in `out`."""
        self.group.all_gather_into(out, tensor, self.what)
        return _Ended([out])

    def all_gather_single(self, out: torch.Tensor, tensor: torch.Tensor, *args: Any) -> Work:
        """The same by its newer name."""
        return self._allgather_base(out, tensor)

    def allgather_into_tensor_coalesced(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Gather several."""
        for out, tensor in zip(outs, tensors, strict=True):
            self._allgather_base(out, tensor)
        return _Ended(outs)

    def reduce_scatter(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """This member's part of the sums of lists."""
        for out, parts in zip(outs, tensors, strict=True):
            self._reduce_scatter_base(out, torch.cat([part.reshape(-1) for part in parts]), opts)
        return _Ended(outs)

    def _reduce_scatter_base(self, out: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """This member's part of the sum over all."""
        self.group.reduce_scatter_into(out, tensor, _op(opts), self.what)
        return _Ended([out])

    def reduce_scatter_single(self, out: torch.Tensor, tensor: torch.Tensor, opts: Any = None, *args: Any) -> Work:
        """The same by its newer name."""
        return self._reduce_scatter_base(out, tensor, opts)

    def reduce_scatter_tensor_coalesced(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Reduce and scatter several."""
        for out, tensor in zip(outs, tensors, strict=True):
            self._reduce_scatter_base(out, tensor, opts)
        return _Ended(outs)

    def alltoall_base(
        self, out: torch.Tensor, tensor: torch.Tensor, received: Any, sent: Any, opts: Any = None
    ) -> Work:
        """Rows to each member, rows from each."""
        got, _ = self.group.all_to_all(tensor, sent or None, self.what)
        out.copy_(got.view(out.shape))
        return _Ended([out])

    def alltoall(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """A tensor to each member, one from each."""
        flat = torch.cat([each.reshape(-1) for each in tensors])
        got, sizes = self.group.all_to_all(flat, [each.numel() for each in tensors], self.what)
        for out, part in zip(outs, got.split_with_sizes(sizes), strict=True):
            out.copy_(part.view(out.shape))
        return _Ended(outs)

    def scatter(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """One member's list, a part to each."""
        root = 0 if opts is None else opts.rootRank
        whole = outs[0].new_empty(self.group.size, *outs[0].shape)
        if self.group.rank == root:
            torch.stack(list(tensors[0]), out=whole)
        outs[0].copy_(self.group.broadcast_(whole, root, self.what)[self.group.rank])
        return _Ended(outs)

    def gather(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Every member's tensor at one of them."""
        got = self.group.all_gather(tensors[0], self.what)
        if self.group.rank == (0 if opts is None else opts.rootRank):
            for out, part in zip(outs[0], got, strict=True):
                out.copy_(part)
        return _Ended(outs)

    def reduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce at one member; here at all."""
        return self.allreduce(tensors, opts)

    def barrier(self, opts: Any = None) -> Work:
        """Wait until all members have come."""
        self.group.barrier(self.what)
        return _Ended()

    def send(self, tensors: Any, to: int, tag: int = 0) -> Work:
        """Begin to send to one member."""
        return _Message(self, self.group.start_send(tensors[0], to, tag, self.messages.get(tag, self.what)))

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        """Begin to receive from one member."""
        return _Message(self, self.group.start_recv(tensors[0], source, tag, self.messages.get(tag, self.what)))


def _op(opts: Any) -> str:
    name = "SUM" if opts is None else opts.reduceOp.op.name
    if name not in _OPS:
        raise MXNetError(f"workers can reduce by {', '.join(_OPS)}, received {name}")
    return _OPS[name]


def _create(options: Any, _: Any = None) -> EngineGroup:
    everyone = session().group
    hosts = dict(zip(everyone.ranks, everyone.hosts, strict=True))
    nodes = {rank: hosts[rank] for rank in options.global_ranks_in_group or everyone.ranks}
    return EngineGroup(Group(everyone.world, everyone.store, nodes, f"torch/{options.group_id}"))


@cache
def register() -> str:
    """Tell torch of the backend; its name. All workers have been found then, and torch's default group is open."""
    assert session().group is not None
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu"])
    return BACKEND
