"""Collectives on torch tensors among workers. Every call returns a result or raises an error naming the missing worker.

Workers of one host use shared memory (`memory`), others gloo or NCCL (`network`). gloo accepts connections without
authentication, so on one host it is opened only for what shared memory does not support: messages between two workers,
and tensors on devices.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch

from . import memory
from .flat import call_note, dense, packs, put_back, reducible, whole
from .generations import Generations
from .membership import Choose, Membership
from .messages import Messages
from .network import Network
from .staging import Stager, Staging
from .torch_store import TorchStore
from .transport import Alone, Transport
from .world import World

_ALONE = Alone()
_NOTHING = torch.empty(0)


class Group:
    """Some of the workers, and their collectives. Use it in one thread at a time; `clone` it for another thread.

    All members must call the same methods in the same order. Ranks, in arguments and results, are ranks within the
    group. Every method accepts `what=`, a description of the exchanged data for error messages. After an error the
    group is unusable until all remaining members `rebuild` it.
    """

    def __init__(
        self,
        world: World,
        store: TorchStore | None,
        nodes: dict[int, int],
        name: str = "all",
        tasks: list[str] | None = None,
        generations: Generations | None = None,
        choose: Choose | None = None,
        with_followers: bool = False,
    ) -> None:
        """`nodes` maps the members' ranks in the world, in the order of the group, to the host of each.

        `tasks` names the current tasks of the members. A member that fails in a task but keeps running counts as gone
        for this group and for groups made from it, which share the list. With `generations`, the group always has the
        members of the current generation, or those that `choose` returns. `with_followers` adds those that follow them.
        It opens at its first call in each.
        """
        self.store, self.name = store, name
        self._generations, self._choose, self._with_followers = generations, choose, with_followers
        how = (generations, choose, with_followers)
        self._members = Membership(world, store, nodes, name, [] if tasks is None else tasks, *how)
        self._made: Counter[str] = Counter()
        self._closed = False
        self._is_open = False
        if generations is None:
            self._open()

    # ---- opening, closing, creating other groups ----

    def _open(self) -> None:
        members = self._members
        self._closed = False
        self._network: Network | None = None
        self._channel: memory.Channel | None = None
        if self.size > 1:
            with members.named(f"open the group {self.name!r}"):
                members.roll_call()
                if len(members.local) == self.size:
                    self._channel = self._open_channel()
                if self._channel is None:
                    self._network = members.connect("world", list(range(self.size)))
        self._messages = Messages(members, self._network)
        self._stager = Stager(members, self._by(_NOTHING))
        self._is_open = True

    def _open_channel(self) -> memory.Channel | None:
        members = self._members
        channel, why = memory.open_channel(
            self.rank,
            self.size,
            members,
            members.key("channel"),
            self.world.timeout,
            members.check_among(members.local),
            members.creator,
        )
        members.tell_fallback(why)
        return channel

    def _current(self) -> Membership:
        """The members, of the current generation if the job is elastic. Opens nothing."""
        generations = self._generations
        is_old = generations is not None and generations.number != self._members.generation and not self._closed
        if generations is not None and is_old and not (self._is_open and self._members.remain(generations)):
            self._members.follow(generations)
            self._is_open = False
        return self._members

    def refresh(self) -> None:
        """Take over the current generation before another thread uses memory of this group."""
        self._current()

    def _ready(self) -> Membership:
        """The members, after opening the group in this generation if it is not open yet."""
        members = self._current()
        if not self._is_open and not self._closed:
            self._open()
        return members

    @property
    def world(self) -> World:
        """The place of this process in its job."""
        return self._current().world

    @property
    def generation(self) -> int:
        """A number that changes with the members."""
        return self._current().generation

    @property
    def rank(self) -> int:
        """The rank of this worker in the group."""
        return self._current().rank

    @property
    def size(self) -> int:
        """The number of members."""
        return self._current().size

    @property
    def ranks(self) -> list[int]:
        """The ranks of the members in the job; in an elastic job, their numbers."""
        return self._current().ranks

    @property
    def hosts(self) -> list[int]:
        """The host number of each member."""
        return list(self._current().nodes.values())

    @property
    def tasks(self) -> list[str]:
        """The current tasks of the members. A member that fails in one of them counts as gone."""
        return self._members.tasks

    @tasks.setter
    def tasks(self, tasks: list[str]) -> None:
        self._members.tasks = tasks

    def leave_task(self, task: str, why: str) -> None:
        """Report to all members that this one failed in a task. Members that wait for it in one of its groups raise."""
        self._members.leave_task(task, why)

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        """Create a group of some members, in this order. Return None on workers that are not among them."""
        chosen = [int(rank) for rank in ranks]
        if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= rank < self.size for rank in chosen):
            raise ValueError(f"a group needs distinct ranks from 0 to {self.size - 1}, received {list(ranks)}")
        name = self._numbered("-".join(map(str, chosen)))
        if self.rank not in chosen:
            return None
        nodes = {self.ranks[rank]: self._members.nodes[self.ranks[rank]] for rank in chosen}
        return Group(self.world, self.store, nodes, name, self.tasks)

    @property
    def followers(self) -> int:
        """The number of members that only follow the others, in an elastic job. They have the last ranks."""
        return self._current().followers

    def clone(self, name: str, with_followers: bool = False) -> Group:
        """Create a group of the same members, whose calls are independent of the order of calls in this one.

        In an elastic job, workers that follow the members can belong to it too.
        """
        members, generations = self._current(), self._generations
        follow = with_followers or self._with_followers
        nodes = members.nodes if generations is None or self._choose else generations.places(follow)
        name = self._numbered(name)
        return Group(members.world, self.store, nodes, name, self.tasks, generations, self._choose, follow)

    def _numbered(self, name: str) -> str:
        self._made[name] += 1
        return f"{self.name}/{name}#{self._made[name]}"

    def close(self) -> None:
        """Close the connections. Members that wait for this one raise."""
        self._members.close()
        self._network = self._channel = None
        self._closed, self._is_open = True, False

    def rebuild(self, ranks: Sequence[int] | None = None) -> None:
        """Reconnect after a failure.

        All members must call it, or all remaining ones, given as `ranks` in this group.
        """
        self._members.rejoin(ranks)
        self._open()

    def named(self, call: str, what: str = "") -> AbstractContextManager[None]:
        """Context manager that turns failures into errors naming the call and the missing workers."""
        return self._ready().named(call, what)

    def doing(self, what: str) -> AbstractContextManager[None]:
        """Context manager that reports `what` as the current activity to workers that wait for this one in vain."""
        return self._current().doing(what)

    # ---- collectives ----

    def _by(self, tensor: torch.Tensor) -> Transport:
        if self.size == 1:
            return _ALONE
        if self._channel is not None and tensor.device.type == "cpu":
            return self._channel
        assert not self._closed, "this group is closed"
        if self._network is None:
            self._network = self._messages.network_of_all()
        return self._network

    def all_reduce_(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """Reduce over all members (sum, mean, min, max, prod), in place, with bitwise identical results.

        Booleans: sum and max are `any`, prod and min are `all`. The mean of integers is truncated.
        """
        flat = dense(tensor)
        number, op_of_it = reducible(flat, op)
        with self.named("all_reduce", what):
            self._by(flat).all_reduce_(number, op_of_it, call_note("all_reduce", tensor, op, what))
        return put_back(flat, tensor)

    def broadcast_(self, tensor: torch.Tensor, root: int = 0, what: str = "") -> torch.Tensor:
        """Copy the values of `root` to all members, in place."""
        self._check_rank("root", root)
        flat = dense(tensor)
        with self.named("broadcast", what):
            self._by(flat).broadcast_(flat, root, call_note("broadcast", tensor, f"from {root}", what))
        return put_back(flat, tensor)

    def broadcast_all_(self, tensors: Sequence[torch.Tensor], root: int = 0, what: str = "") -> None:
        """Copy the values of `root` to all members, in place. Small tensors are sent together."""
        for same in packs([tensor.data for tensor in tensors]):
            flat = self.broadcast_(torch.cat([tensor.reshape(-1) for tensor in same]), root, what)
            for tensor, part in zip(same, flat.split_with_sizes([tensor.numel() for tensor in same]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        """Return the tensors of all members, whose sizes may differ in the first dimension."""
        flat, rows = dense(tensor), tensor.shape[0] if tensor.dim() else 1
        with self.named("all_gather", what):
            note = call_note("all_gather", tensor, "", what, any_rows=True)
            lengths = self._small(torch.tensor([rows]), note).flatten().tolist()
            shapes = [(length, *tensor.shape[1:]) if tensor.dim() else () for length in lengths]
            outs = [torch.empty(shape, dtype=tensor.dtype, device=tensor.device) for shape in shapes]
            outs[self.rank].view(-1).copy_(flat)
            if any(out.numel() for out in outs):
                self._by(flat).all_gather([out.view(-1) for out in outs])
        return outs

    def all_gather_into(self, out: torch.Tensor, tensor: torch.Tensor, what: str = "") -> None:
        """Concatenate the tensors of all members, which have one shape, in `out`."""
        flat, parts = dense(tensor), whole(out, tensor.numel() * self.size).view(self.size, -1)
        parts[self.rank].copy_(flat)
        with self.named("all_gather", what):
            self._by(flat).all_gather(parts.unbind(), call_note("all_gather", tensor, "", what))

    def reduce_scatter(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """Reduce over all members (sum, mean, min, max, prod) and return this member's part of the first dimension."""
        rows = self._rows(tensor, "reduce_scatter")
        out = tensor.new_empty(rows, *tensor.shape[1:])
        self.reduce_scatter_into(out, tensor, op, what)
        return out

    def reduce_scatter_into(self, out: torch.Tensor, tensor: torch.Tensor, op: str = "sum", what: str = "") -> None:
        """Like `reduce_scatter`, but write the result to `out`."""
        flat = dense(tensor)
        number, op_of_it = reducible(flat, op)
        target = whole(out, flat.numel() // self.size).view(number.dtype)
        with self.named("reduce_scatter", what):
            parts = number.view(self.size, -1).unbind()
            self._by(flat).reduce_scatter(parts, op_of_it, target, call_note("reduce_scatter", tensor, op, what))

    def all_to_all(
        self, tensor: torch.Tensor, splits: Sequence[int] | None = None, what: str = ""
    ) -> tuple[torch.Tensor, list[int]]:
        """Send `splits[i]` rows of `tensor` to member i, or an equal part to each.

        Return the received rows, and how many came from each member.
        """
        sent = self._splits(tensor, splits)
        flat, width = dense(tensor), math.prod(tensor.shape[1:])
        with self.named("all_to_all", what):
            table = self._small(torch.tensor(sent), call_note("all_to_all", tensor, "", what, any_rows=True))
            received = table[:, self.rank].tolist()
            out = torch.empty((sum(received), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
            outs = out.view(-1).split_with_sizes([rows * width for rows in received])
            longest = int(table.max()) * width * tensor.itemsize
            if longest:
                self._by(flat).all_to_all(flat.split_with_sizes([rows * width for rows in sent]), outs, longest)
        return out, received

    def all_gather_small(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        """Stack the tensors of all members, of one shape and a few hundred bytes on the CPU. Meant for headers."""
        with self.named("all_gather_small", what):
            return self._small(tensor.contiguous(), call_note("all_gather_small", tensor, "", what))

    def _small(self, tensor: torch.Tensor, note: bytes) -> torch.Tensor:
        if tensor.numel() * tensor.itemsize > memory.CHUNK or tensor.device.type != "cpu":
            raise ValueError(f"expected a small CPU tensor, received {tuple(tensor.shape)} on {tensor.device}")
        return self._by(tensor).all_gather_small(tensor.detach(), note)

    def barrier(self, what: str = "") -> None:
        """Wait for all members."""
        with self.named("barrier", what):
            self._by(_NOTHING).barrier(b"barrier")

    def wait_for_all(self, what: str) -> None:
        """Wait for all members without a timeout, however long they are busy. Raises if a member is gone."""
        self._current().wait_for_all(what)

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0, what: str = "") -> None:
        """Send to one member and wait until it has received a tensor of the same size with the same tag."""
        self.start_send(tensor, to, tag, what)()

    def recv(self, tensor: torch.Tensor, from_: int, tag: int = 0, what: str = "") -> torch.Tensor:
        """Receive from one member, in place."""
        return self.start_recv(tensor, from_, tag, what)()

    def start_send(self, tensor: torch.Tensor, to: int, tag: int = 0, what: str = "") -> Callable[[], None]:
        """Start sending. Return a function that waits for completion, in any thread. Not ordered with collectives."""
        self._check_other("to", to)
        flat, call = dense(tensor), f"send to {self._members.member(to)}"
        return self._started(call, what, to, lambda net: net.send(flat, to, tag))

    def start_recv(self, tensor: torch.Tensor, from_: int, tag: int = 0, what: str = "") -> Callable[[], torch.Tensor]:
        """Start receiving in place.

        Return a function that waits for completion, in any thread. Not ordered with collectives.
        """
        self._check_other("from_", from_)
        flat, call = dense(tensor), f"recv from {self._members.member(from_)}"
        finish = self._started(call, what, from_, lambda net: net.recv(flat, from_, tag))

        def finish_all() -> torch.Tensor:
            finish()
            return put_back(flat, tensor)

        return finish_all

    def _started(
        self, call: str, what: str, other: int, begin: Callable[[Network], Callable[[], None]]
    ) -> Callable[[], None]:
        assert not self._closed, "this group is closed"
        with self.named(call, what):
            wait = self._messages.start(other, begin)

        def finish() -> None:
            with self.named(call, what):
                wait()

        return finish

    # ---- arguments ----

    def _check_rank(self, name: str, rank: int) -> None:
        if not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ValueError(f"{name} must be a rank from 0 to {self.size - 1}, received {rank!r}")

    def _check_other(self, name: str, rank: int) -> None:
        self._check_rank(name, rank)
        if rank == self.rank:
            raise ValueError(f"{name} must be another worker, received this worker's own rank, {rank}")

    def _rows(self, tensor: torch.Tensor, call: str) -> int:
        if not tensor.dim() or tensor.shape[0] % self.size:
            raise ValueError(
                f"{call} among {self.size} workers needs a first dimension divisible by {self.size}, "
                f"received the shape {tuple(tensor.shape)}"
            )
        return tensor.shape[0] // self.size

    def _splits(self, tensor: torch.Tensor, splits: Sequence[int] | None) -> list[int]:
        if splits is None:
            return [self._rows(tensor, "all_to_all without splits")] * self.size
        sent = [int(rows) for rows in splits]
        if not tensor.dim() or len(sent) != self.size or min(sent) < 0 or sum(sent) != tensor.shape[0]:
            raise ValueError(
                f"splits must be {self.size} row counts whose sum is the first dimension of {tuple(tensor.shape)}, "
                f"received {sent}"
            )
        return sent

    # ---- buckets ----

    def staging(self, count: int, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Staging:
        """Return memory for a bucket of `count` elements that is summed repeatedly. All members must call it alike.

        Buckets may be summed in another thread than that of the group, sequentially, in the same order on all members.
        """
        self._ready()
        return self._stager.open(count, dtype, device)


def open_group(world: World, store: TorchStore | None, name: str = "all") -> Group:
    """Open the group of all workers, under a name that was not used in this store before."""
    if world.size == 1 or store is None:
        return Group(world, store, {world.rank: world.node})
    store.set(f"node/{world.rank}", str(world.node))
    nodes = {rank: int(store.get_from(f"worker {rank}", f"node/{rank}")) for rank in range(world.size)}
    return Group(world, store, nodes, name)
