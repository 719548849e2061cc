"""torch's parallelism (DeviceMesh, DTensor, fully_shard, pipelines) on the groups of this package.

torch accepts a Python class as a process group. This one passes each collective to a `Group`, so that workers of one
host use shared memory and an error names the missing worker and the call. It is registered as the backend "neomx".
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
_ProcessGroup: Any = ProcessGroup  # torch's stubs differ from the calls that torch makes
_OPS = {"SUM": "sum", "AVG": "mean", "MIN": "min", "MAX": "max", "PRODUCT": "prod"}


class _Ended(Work):
    """A completed collective. All calls except messages complete before they return."""

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
    """A pending message between two workers."""

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
    """A `Group` as a process group of torch. Collectives have completed when the call returns."""

    def __init__(self, group: Group, rank: int | None = None, size: int | None = None) -> None:
        """`rank` and `size` are what torch sees, if they are not those of the group."""
        super().__init__(group.rank if rank is None else rank, group.size if size is None else size)
        self.group = group
        self.what = ""  # what the layout exchanges in this group, for errors
        self.messages: dict[int, str] = {}  # the same for messages, by tag
        self.waited = 0.0  # total seconds spent waiting for messages
        self._name = ""

    @property
    def group_name(self) -> str:
        """The name under which torch registered the group."""
        return self._name

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def getGroupName(self) -> str:
        """Return `group_name`, for torch."""
        return self._name

    def getBackendName(self) -> str:
        """Return the name of the backend, for torch."""
        return BACKEND

    def allreduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce over all members, in place."""
        for tensor in tensors:
            self.group.all_reduce_(tensor, _op(opts), self.what)
        return _Ended(tensors)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce several tensors over all members, in place."""
        return self.allreduce(tensors, opts)

    def broadcast(self, tensors: Any, opts: Any = None) -> Work:
        """Copy the values of one member to all members."""
        for tensor in tensors:
            self.group.broadcast_(tensor, 0 if opts is None else opts.rootRank, self.what)
        return _Ended(tensors)

    def allgather(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Gather the tensors of all members into a list."""
        for parts, tensor in zip(outs, tensors, strict=True):
            for part, got in zip(parts, self.group.all_gather(tensor, self.what), strict=True):
                part.copy_(got.view(part.shape))
        return _Ended(outs)

    def _allgather_base(self, out: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """Concatenate the tensors of all members in `out`."""
        self.group.all_gather_into(out, tensor, self.what)
        return _Ended([out])

    def all_gather_single(self, out: torch.Tensor, tensor: torch.Tensor, *args: Any) -> Work:
        """`_allgather_base`, under torch's newer name."""
        return self._allgather_base(out, tensor)

    def allgather_into_tensor_coalesced(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Gather several tensors."""
        for out, tensor in zip(outs, tensors, strict=True):
            self._allgather_base(out, tensor)
        return _Ended(outs)

    def reduce_scatter(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Reduce lists of tensors; this member gets its part."""
        for out, parts in zip(outs, tensors, strict=True):
            self._reduce_scatter_base(out, torch.cat([part.reshape(-1) for part in parts]), opts)
        return _Ended(outs)

    def _reduce_scatter_base(self, out: torch.Tensor, tensor: torch.Tensor, opts: Any = None) -> Work:
        """Reduce over all members; this member gets its part."""
        self.group.reduce_scatter_into(out, tensor, _op(opts), self.what)
        return _Ended([out])

    def reduce_scatter_single(self, out: torch.Tensor, tensor: torch.Tensor, opts: Any = None, *args: Any) -> Work:
        """`_reduce_scatter_base`, under torch's newer name."""
        return self._reduce_scatter_base(out, tensor, opts)

    def reduce_scatter_tensor_coalesced(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Reduce and scatter several tensors."""
        for out, tensor in zip(outs, tensors, strict=True):
            self._reduce_scatter_base(out, tensor, opts)
        return _Ended(outs)

    def alltoall_base(
        self, out: torch.Tensor, tensor: torch.Tensor, received: Any, sent: Any, opts: Any = None
    ) -> Work:
        """Send rows to each member and receive rows from each."""
        got, _ = self.group.all_to_all(tensor, sent or None, self.what)
        out.copy_(got.view(out.shape))
        return _Ended([out])

    def alltoall(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Send a tensor to each member and receive one from each."""
        flat = torch.cat([each.reshape(-1) for each in tensors])
        got, sizes = self.group.all_to_all(flat, [each.numel() for each in tensors], self.what)
        for out, part in zip(outs, got.split_with_sizes(sizes), strict=True):
            out.copy_(part.view(out.shape))
        return _Ended(outs)

    def scatter(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Scatter the list of one member."""
        root = 0 if opts is None else opts.rootRank
        whole = outs[0].new_empty(self.group.size, *outs[0].shape)
        if self.group.rank == root:
            torch.stack(list(tensors[0]), out=whole)
        outs[0].copy_(self.group.broadcast_(whole, root, self.what)[self.group.rank])
        return _Ended(outs)

    def gather(self, outs: Any, tensors: Any, opts: Any = None) -> Work:
        """Gather the tensors of all members on one of them."""
        got = self.group.all_gather(tensors[0], self.what)
        if self.group.rank == (0 if opts is None else opts.rootRank):
            for out, part in zip(outs[0], got, strict=True):
                out.copy_(part)
        return _Ended(outs)

    def reduce(self, tensors: Any, opts: Any = None) -> Work:
        """Reduce on one member; this implementation reduces on all."""
        return self.allreduce(tensors, opts)

    def barrier(self, opts: Any = None) -> Work:
        """Wait for all members."""
        self.group.barrier(self.what)
        return _Ended()

    def send(self, tensors: Any, to: int, tag: int = 0) -> Work:
        """Start sending to one member."""
        return _Message(self, self.group.start_send(tensors[0], to, tag, self.messages.get(tag, self.what)))

    def recv(self, tensors: Any, source: int, tag: int = 0) -> Work:
        """Start receiving from one member."""
        return _Message(self, self.group.start_recv(tensors[0], source, tag, self.messages.get(tag, self.what)))


def _op(opts: Any) -> str:
    name = "SUM" if opts is None else opts.reduceOp.op.name
    if name not in _OPS:
        raise MXNetError(f"the reduce op must be one of {', '.join(_OPS)}, received {name}")
    return _OPS[name]


def _create(options: Any, _: Any = None) -> EngineGroup:
    everyone = session().group
    if session().generations is not None:  # a layout replaces it by a group whose members change
        return EngineGroup(everyone, options.group_rank, options.group_size)
    hosts = dict(zip(everyone.ranks, everyone.hosts, strict=True))
    nodes = {rank: hosts[rank] for rank in options.global_ranks_in_group or everyone.ranks}
    return EngineGroup(Group(everyone.world, everyone.store, nodes, f"torch/{options.group_id}"))


def open_apart(rank: int, size: int) -> None:
    """Open torch's default group without contact to other workers, in an elastic job."""
    if not dist.is_initialized():
        dist.init_process_group(BACKEND, store=dist.HashStore(), rank=rank, world_size=size)


@cache
def register() -> str:
    """Register the backend with torch and return its name. Opens the group of all workers and torch's default group."""
    assert session().group is not None
    dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu"])
    return BACKEND
