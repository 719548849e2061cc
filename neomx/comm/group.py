"""Collectives on torch tensors among workers, that end: by a result, or by an error that names who is missing.

Workers of one host meet in shared memory (`memory`), others over gloo or NCCL (`network`). Buckets of gradients go two
levels: summed within each host, then slice by slice between hosts.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from typing import Any

import torch
import torch.distributed as dist

from ..base import MXNetError
from . import memory, network
from .memory import OPS, Absent, Late, Mismatch
from .store import NEWS, THE_STORE, PeerError
from .torch_store import TorchStore
from .world import World

_log = logging.getLogger("neomx")
_PACK = 64 << 20  # bytes that travel together


class _Gone(MXNetError):
    """These members of the group are gone."""

    def __init__(self, members: list[int]) -> None:
        super().__init__(f"gone: {members}")
        self.members = members


class _Alone:
    """The collectives of a group of one."""

    def barrier(self, note: bytes = b"") -> None:
        pass

    def all_gather_small(self, tensor: torch.Tensor, note: bytes = b"") -> torch.Tensor:
        return tensor.clone().unsqueeze(0)

    def all_reduce_(self, flat: torch.Tensor, op: str, note: bytes = b"") -> None:
        pass

    def broadcast_(self, flat: torch.Tensor, root: int, note: bytes = b"") -> None:
        pass

    def all_gather(self, outs: Sequence[torch.Tensor], note: bytes = b"") -> None:
        pass

    def reduce_scatter(self, parts: Sequence[torch.Tensor], op: str, out: torch.Tensor, note: bytes = b"") -> None:
        out.copy_(parts[0])

    def all_to_all(
        self, parts: Sequence[torch.Tensor], outs: Sequence[torch.Tensor], longest: int, note: bytes = b""
    ) -> None:
        outs[0].copy_(parts[0])


class Group:
    """Some of the workers, and what they do together. For one thread at a time; `clone` gives another thread its own.

    All members call the same methods in the same order. Ranks, in arguments and results, count within the group. Every
    method takes `what=`, the name of what is exchanged, for the error if one is raised. An error leaves the group
    broken until all members that remain `rebuild` it.
    """

    def __init__(
        self,
        world: World,
        store: TorchStore | None,
        nodes: dict[int, int],
        name: str = "all",
        tasks: list[str] | None = None,
    ) -> None:
        """`nodes` tells the ranks in the world that are members, in their order, and the host that each is on.

        `tasks` names what the members do now, in which one may fail and live on: then it is gone for this group, and
        for those made from it, which share the list.
        """
        self.world, self.store, self.name = world, store, name
        self.tasks = [] if tasks is None else tasks
        self.ranks = list(nodes)
        self.rank, self.size = self.ranks.index(world.rank), len(nodes)
        self._nodes = nodes
        self._generation = 0
        self._made: Counter[str] = Counter()
        self._open()

    # ---- opening, closing, making others ----

    def _open(self) -> None:
        self._failed = ""
        self._stages = self._meetings = 0
        self._network: network.Network | None = None
        self._cross: network.Network | None = None  # for slices of buckets, with the other hosts
        self._aside: network.Network | None = None  # for whole buckets: they leave while other calls are made
        self._channel: memory.Channel | None = None
        if self.size == 1:
            return
        with self._named("open the group", self.name):
            self._roll_call()
            self._network = self._connect("world", list(range(self.size)))
            if len(self._local) == self.size:
                channel, why = memory.open_channel(self.rank, self.size, self, self._key("channel"), **self._waiting())
                self._channel = channel
                self._tell_fallback(why)

    @property
    def _local(self) -> list[int]:
        """The members on this host."""
        mine = self._nodes[self.world.rank]
        return [member for member, rank in enumerate(self.ranks) if self._nodes[rank] == mine]

    def _key(self, *parts: Any) -> str:
        return "/".join(map(str, (f"g{self._generation}", self.name, *parts)))

    def _roll_call(self) -> None:
        """All members are there and about to connect: what follows waits for nobody who never comes."""
        self.set(self._key("here", self.rank), b"")
        for member in range(self.size):
            self.get(self._key("here", member), [member])

    def _connect(self, name: str, members: list[int]) -> network.Network:
        assert self.store is not None
        store = dist.PrefixStore(self._key(name), self.store)
        waiting = self._waiting(members)
        return network.Network(store, members.index(self.rank), len(members), self.world.host, **waiting)

    def _waiting(self, members: list[int] | None = None) -> dict[str, Any]:
        """The limit of a wait, and the look at who is gone, among the members of this host or those given."""
        among = self._local if members is None else members
        return {"timeout": self.world.timeout, "check": lambda late: self._check(lambda: [among[i] for i in late()])}

    def _check(self, late: Late) -> None:
        assert self.store is not None
        gone = self.store.gone  # looked at first: who came and then went is not late
        if not gone:
            return
        lost = [member for member in late() if self._is_gone(member)]
        if lost or THE_STORE in gone:
            raise _Gone(lost)

    def _member(self, member: int) -> str:
        return f"worker {self.ranks[member]}"

    def _is_gone(self, member: int) -> bool:
        assert self.store is not None
        return any(name in self.store.gone for name in self._names(member))

    def _names(self, member: int) -> list[str]:
        """The names under which the roll call may know that a member will not come."""
        return [self._member(member), *(f"{task} of {self._member(member)}" for task in self.tasks)]

    def leave_task(self, task: str, why: str) -> None:
        """Tell all members that this one failed in a task: whoever waits for it in one of its groups raises."""
        if self.store is not None:
            self.store.report_gone(f"{task} of {self._member(self.rank)}", why)

    @property
    def hosts(self) -> list[int]:
        """The number of the host that each member is on."""
        return [self._nodes[rank] for rank in self.ranks]

    def _tell_fallback(self, why: str) -> None:
        if why and self._local[0] == self.rank:
            _warn_once(f"no shared memory among the workers of this host ({why}): they talk by TCP, which is slower")

    def set(self, key: str, value: bytes | str) -> None:
        """Leave a value for the other members."""
        assert self.store is not None
        self.store.set(key, value)

    def get(self, key: str, members: list[int] | None = None) -> bytes:
        """A value that another member leaves; `members` are those who might."""
        assert self.store is not None
        deadline = time.monotonic() + self.world.timeout
        while True:
            try:
                return self.store.get(key, timeout=min(1.0, self.world.timeout))
            except PeerError:
                others = list(range(self.size)) if members is None else members
                self._check(lambda: others)  # noqa: B023
                if time.monotonic() > deadline:
                    raise Absent(others, self.world.timeout) from None

    def subgroup(self, ranks: Sequence[int]) -> Group | None:
        """A group of some members, in this order; None for those who are not among them."""
        chosen = [int(rank) for rank in ranks]
        if not chosen or len(set(chosen)) < len(chosen) or not all(0 <= rank < self.size for rank in chosen):
            raise ValueError(f"a group needs different ranks from 0 to {self.size - 1}, received {list(ranks)}")
        name = self._numbered("-".join(map(str, chosen)))
        if self.rank not in chosen:
            return None
        nodes = {self.ranks[r]: self._nodes[self.ranks[r]] for r in chosen}
        return Group(self.world, self.store, nodes, name, self.tasks)

    def clone(self, name: str) -> Group:
        """The same members with a channel of their own: it does not disturb the order of this one's calls."""
        return Group(self.world, self.store, self._nodes, self._numbered(name), self.tasks)

    def _numbered(self, name: str) -> str:
        self._made[name] += 1
        return f"{self.name}/{name}#{self._made[name]}"

    def close(self) -> None:
        """End the connections. Whoever waits for this member now learns that it is gone."""
        for part in self._networks():
            part.close()
        self._network = self._cross = self._aside = self._channel = None

    def _networks(self) -> list[network.Network]:
        return [part for part in (self._network, self._cross, self._aside) if part is not None]

    def rebuild(self, ranks: Sequence[int] | None = None) -> None:
        """Connect anew after a failure: all members call it, or all of `ranks`, ranks in this group, that remain."""
        self.close()
        kept = self.ranks if ranks is None else [self.ranks[rank] for rank in ranks]
        self._nodes = {rank: self._nodes[rank] for rank in kept}
        self.ranks, self.size, self.rank = kept, len(kept), kept.index(self.world.rank)
        self._generation += 1
        self._open()

    # ---- errors ----

    @contextmanager
    def _named(self, call: str, what: str = "") -> Iterator[None]:
        """Turn whatever fails into an error that names the call and who is missing."""
        call = f"{call} of {what}" if what else call
        if self._failed:
            raise PeerError(f"{call}: the group {self.name!r} failed before, and must be rebuilt: {self._failed}")
        try:
            yield
        except _Gone as error:
            raise self._failure(call, error.members) from None
        except Absent as error:
            late = error.ranks or self._unheard()
            raise self._failure(call, late, f" within {error.seconds:g} s") from None
        except network.Broken as error:
            raise self._failure(call, self._wait_for_news(), f" ({error})") from None
        except Mismatch as error:
            self._failed = "its members called different things"
            said = "; ".join(f"{self._member(i)}: {note}" for i, note in enumerate(error.notes))
            raise MXNetError(
                f"the workers must make the same calls in the same order, but made these: {said}"
            ) from None

    def _failure(self, call: str, members: list[int], detail: str = "") -> PeerError:
        assert self.store is not None
        gone = self.store.gone
        names = [next((n for n in self._names(member) if n in gone), self._member(member)) for member in members]
        states = self.store.missing(names)
        self._failed = f"{call} did not complete{detail}: {states}"
        for part in self._networks():
            part.abandon()
        return PeerError(f"{self._failed}. This is {self._member(self.rank)}, in a group of {self.size}")

    def _wait_for_news(self) -> list[int]:
        """Who is gone. The roll call learns of it when the connection breaks; on a busy machine some seconds later."""
        assert self.store is not None
        limit = time.monotonic() + NEWS
        while THE_STORE not in self.store.gone and time.monotonic() < limit:
            gone = [member for member in range(self.size) if self._is_gone(member)]
            if gone:
                return gone
            time.sleep(0.1)
        return [member for member in range(self.size) if member != self.rank]

    def _unheard(self) -> list[int]:
        """Who does not wait: all that do, and lose patience together, leave word in the store."""
        assert self.store is not None
        self.set(self._key("waited", self.rank), b"")
        time.sleep(min(1.0, self.world.timeout))
        silent = [member for member in range(self.size) if not self.store.check([self._key("waited", member)])]
        return silent or [member for member in range(self.size) if member != self.rank]

    # ---- collectives ----

    def _by(self, tensor: torch.Tensor) -> Any:
        if self.size == 1:
            return _ALONE
        if self._channel is not None and tensor.device.type == "cpu":
            return self._channel
        return self._network

    def all_reduce_(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """The sum (mean, min, max, prod) over all members, in place and the same bits everywhere.

        Booleans: any, for sum and max, and all, for prod and min. The mean of integers drops the fraction.
        """
        flat = _dense(tensor)
        number, op_of_it = _reducible(flat, op)
        with self._named("all_reduce", what):
            self._by(flat).all_reduce_(number, op_of_it, _note("all_reduce", tensor, op, what))
        return _put_back(flat, tensor)

    def broadcast_(self, tensor: torch.Tensor, root: int = 0, what: str = "") -> torch.Tensor:
        """The values of `root` everywhere, in place."""
        self._check_rank("root", root)
        flat = _dense(tensor)
        with self._named("broadcast", what):
            self._by(flat).broadcast_(flat, root, _note("broadcast", tensor, f"from {root}", what))
        return _put_back(flat, tensor)

    def broadcast_all_(self, tensors: Sequence[torch.Tensor], root: int = 0, what: str = "") -> None:
        """The values of `root` everywhere, in place, many small ones in one go."""
        for same in _packs([tensor.data for tensor in tensors]):
            flat = self.broadcast_(torch.cat([tensor.reshape(-1) for tensor in same]), root, what)
            for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same]), strict=True):
                tensor.copy_(part.view(tensor.shape))

    def all_gather(self, tensor: torch.Tensor, what: str = "") -> list[torch.Tensor]:
        """Every member's tensor; the sizes of the first dimension may differ."""
        flat, rows = _dense(tensor), tensor.shape[0] if tensor.dim() else 1
        with self._named("all_gather", what):
            note = _note("all_gather", tensor, "", what, any_rows=True)
            lengths = self._small(torch.tensor([rows]), note).flatten().tolist()
            shapes = [(length, *tensor.shape[1:]) if tensor.dim() else () for length in lengths]
            outs = [torch.empty(shape, dtype=tensor.dtype, device=tensor.device) for shape in shapes]
            outs[self.rank].view(-1).copy_(flat)
            if any(out.numel() for out in outs):
                self._by(flat).all_gather([out.view(-1) for out in outs])
        return outs

    def all_gather_into(self, out: torch.Tensor, tensor: torch.Tensor, what: str = "") -> None:
        """Every member's tensor, all of one shape, one after the other in `out`."""
        flat, parts = _dense(tensor), _whole(out, tensor.numel() * self.size).view(self.size, -1)
        parts[self.rank].copy_(flat)
        with self._named("all_gather", what):
            self._by(flat).all_gather(parts.unbind(), _note("all_gather", tensor, "", what))

    def reduce_scatter(self, tensor: torch.Tensor, op: str = "sum", what: str = "") -> torch.Tensor:
        """This member's part, by the first dimension, of the sum (mean, min, max, prod) over all members."""
        rows = self._rows(tensor, "reduce_scatter")
        out = tensor.new_empty(rows, *tensor.shape[1:])
        self.reduce_scatter_into(out, tensor, op, what)
        return out

    def reduce_scatter_into(self, out: torch.Tensor, tensor: torch.Tensor, op: str = "sum", what: str = "") -> None:
        """The same, into `out`."""
        flat = _dense(tensor)
        number, op_of_it = _reducible(flat, op)
        target = _whole(out, flat.numel() // self.size).view(number.dtype)
        with self._named("reduce_scatter", what):
            parts = number.view(self.size, -1).unbind()
            self._by(flat).reduce_scatter(parts, op_of_it, target, _note("reduce_scatter", tensor, op, what))

    def all_to_all(
        self, tensor: torch.Tensor, splits: Sequence[int] | None = None, what: str = ""
    ) -> tuple[torch.Tensor, list[int]]:
        """To each member its `splits` rows of `tensor`, or an equal part: the rows from all, and how many from each."""
        sent = self._splits(tensor, splits)
        flat, width = _dense(tensor), math.prod(tensor.shape[1:])
        with self._named("all_to_all", what):
            table = self._small(torch.tensor(sent), _note("all_to_all", tensor, "", what, any_rows=True))
            received = table[:, self.rank].tolist()
            out = torch.empty((sum(received), *tensor.shape[1:]), dtype=tensor.dtype, device=tensor.device)
            outs = out.view(-1).split([rows * width for rows in received])
            longest = int(table.max()) * width * tensor.itemsize
            if longest:
                self._by(flat).all_to_all(flat.split([rows * width for rows in sent]), outs, longest)
        return out, received

    def all_gather_small(self, tensor: torch.Tensor, what: str = "") -> torch.Tensor:
        """All members' tensors of one shape, some hundred bytes on the CPU, stacked: made for headers."""
        with self._named("all_gather_small", what):
            return self._small(tensor.contiguous(), _note("all_gather_small", tensor, "", what))

    def _small(self, tensor: torch.Tensor, note: bytes) -> torch.Tensor:
        if tensor.numel() * tensor.itemsize > memory.CHUNK or tensor.device.type != "cpu":
            raise ValueError(f"expected a small CPU tensor, received {tuple(tensor.shape)} on {tensor.device}")
        return self._by(tensor).all_gather_small(tensor.detach(), note)

    def barrier(self, what: str = "") -> None:
        """Wait until all members have come."""
        with self._named("barrier", what):
            self._by(_NOTHING).barrier(b"barrier")

    def wait_for_all(self, what: str) -> None:
        """Wait until all members have come, however long they work elsewhere: only the end of one ends the wait."""
        if self.size == 1:
            return
        assert self.store is not None
        self._meetings += 1
        keys = [self._key("meeting", self._meetings, member) for member in range(self.size)]
        self.set(keys[self.rank], b"")
        with self._named("wait", what):
            while late := [member for member, key in enumerate(keys) if not self.store.check([key])]:
                self._check(lambda: late)
                with suppress(PeerError):  # not there yet; a store that is lost is found by the check
                    self.store.get(keys[late[0]], timeout=1.0)

    def send(self, tensor: torch.Tensor, to: int, tag: int = 0, what: str = "") -> None:
        """Send to one member, and wait until it receives a tensor of the same size with the same tag."""
        self.start_send(tensor, to, tag, what)()

    def recv(self, tensor: torch.Tensor, from_: int, tag: int = 0, what: str = "") -> torch.Tensor:
        """Receive what one member sends, in place."""
        return self.start_recv(tensor, from_, tag, what)()

    def start_send(self, tensor: torch.Tensor, to: int, tag: int = 0, what: str = "") -> Callable[[], None]:
        """Begin to send; the way to wait for the end, in any thread. Not in order with collectives."""
        self._check_other("to", to)
        return self._started(f"send to {self._member(to)}", what, lambda net: net.send(_dense(tensor), to, tag))

    def start_recv(self, tensor: torch.Tensor, from_: int, tag: int = 0, what: str = "") -> Callable[[], torch.Tensor]:
        """Begin to receive in place; the way to wait for the end, in any thread. Not in order with collectives."""
        self._check_other("from_", from_)
        flat, call = _dense(tensor), f"recv from {self._member(from_)}"
        finish = self._started(call, what, lambda net: net.recv(flat, from_, tag))

        def finish_all() -> torch.Tensor:
            finish()
            return _put_back(flat, tensor)

        return finish_all

    def _started(
        self, call: str, what: str, start: Callable[[network.Network], Callable[[], None]]
    ) -> Callable[[], None]:
        assert self._network is not None
        with self._named(call, what):
            wait = start(self._network)

        def finish() -> None:
            with self._named(call, what):
                wait()

        return finish

    # ---- arguments ----

    def _check_rank(self, name: str, rank: int) -> None:
        if not isinstance(rank, int) or not 0 <= rank < self.size:
            raise ValueError(f"{name} must be a rank from 0 to {self.size - 1}, received {rank!r}")

    def _check_other(self, name: str, rank: int) -> None:
        self._check_rank(name, rank)
        if rank == self.rank:
            raise ValueError(f"{name} must be another worker, received this one's rank, {rank}")

    def _rows(self, tensor: torch.Tensor, call: str) -> int:
        if not tensor.dim() or tensor.shape[0] % self.size:
            raise ValueError(
                f"{call} among {self.size} workers needs a first dimension that {self.size} divides, "
                f"received the shape {tuple(tensor.shape)}"
            )
        return tensor.shape[0] // self.size

    def _splits(self, tensor: torch.Tensor, splits: Sequence[int] | None) -> list[int]:
        if splits is None:
            return [self._rows(tensor, "all_to_all without splits")] * self.size
        sent = [int(rows) for rows in splits]
        if not tensor.dim() or len(sent) != self.size or min(sent) < 0 or sum(sent) != tensor.shape[0]:
            raise ValueError(
                f"splits must be {self.size} numbers of rows, in all the first dimension of {tuple(tensor.shape)}, "
                f"received {sent}"
            )
        return sent

    # ---- buckets ----

    def staging(self, count: int, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Staging:
        """Memory for a bucket of `count` numbers that is summed again and again. All members ask for the same.

        Buckets may be summed in another thread than the group's, one after the other, in the same order everywhere.
        """
        self._stages += 1
        with self._named("staging"):
            self._by(_NOTHING).barrier(f"staging of {count} {dtype}".encode())
            bucket = self._shared(count, dtype) if torch.device(device).type == "cpu" else None
            return Staging(self, bucket or self._plain(count, dtype, device))

    def _plain(self, count: int, dtype: torch.dtype, device: str | torch.device) -> network.Bucket:
        if self._aside is None and self.size > 1:
            self._aside = self._connect("aside", list(range(self.size)))
        return network.Bucket(self._aside, count, dtype, device)

    def _shared(self, count: int, dtype: torch.dtype) -> memory.Bucket | None:
        """A bucket in shared memory, if all hosts have the same number of members, several, and memory for it."""
        members = Counter(self._nodes.values())
        if self.size == 1 or len(set(members.values())) > 1 or len(self._local) == 1:
            return None
        local = self._local
        key = self._key("staging", self._stages, self._nodes[self.world.rank])
        cross = self._across() if len(members) > 1 else None
        waiting = self._waiting()
        if cross:  # any member's end is the end of it, not only that of one who is late on this host
            waiting["check"] = lambda late: self._check(lambda: list(range(self.size)))
        bucket, why = memory.open_bucket(
            count, dtype, local.index(self.rank), len(local), self, key, cross=cross, **waiting
        )
        self._tell_fallback(why)
        if cross is None:
            return bucket
        everywhere = self._small(torch.tensor([bucket is not None]), b"shared memory")
        return bucket if bool(everywhere.all()) else None

    def _across(self) -> Callable[[torch.Tensor], None]:
        """Sums a slice with the members of the other hosts that have this one's place on theirs."""
        if self._cross is None:
            place = self._local.index(self.rank)
            by_node: dict[int, list[int]] = {}
            for member, rank in enumerate(self.ranks):
                by_node.setdefault(self._nodes[rank], []).append(member)
            self._cross = self._connect(f"cross/{place}", [members[place] for members in by_node.values()])
        cross = self._cross

        def reduce(part: torch.Tensor) -> None:
            if part.numel():
                cross.all_reduce_(part, "sum")

        return reduce


class Staging:
    """Memory for one bucket: fill `local`, call `reduce()`, read `result`, which may be the same memory.

    `local` may be filled again once `reduce` has returned and `result` was read; `result` holds until the next `reduce`
    where it is memory of its own (`result is not local`).
    """

    def __init__(self, group: Group, bucket: memory.Bucket | network.Bucket) -> None:
        self._group, self._bucket, self._generation = group, bucket, group._generation
        self.local, self.result = bucket.local, bucket.result

    @property
    def waited(self) -> float:
        """Seconds spent waiting for workers of this host, all in all."""
        return self._bucket.waited

    def reduce(self, what: str = "a bucket") -> torch.Tensor:
        """Sum what all members have in `local` into `result`. Waits for them: call it in a thread of its own."""
        if self._generation != self._group._generation:
            raise MXNetError(f"all_reduce of {what}: its group was rebuilt, and needs new staging")
        with self._group._named("all_reduce", what):
            try:
                return self._bucket.reduce()
            except Absent as error:
                local = self._group._local
                raise Absent([local[place] for place in error.ranks], error.seconds) from None


_ALONE = _Alone()
_NOTHING = torch.empty(0)
_opened = itertools.count()  # who parts and meets again must not find what was left in the store the first time


@cache
def _warn_once(message: str) -> None:
    _log.warning(message)


def _note(call: str, tensor: torch.Tensor, how: str = "", what: str = "", any_rows: bool = False) -> bytes:
    """What a member says it is calling, so that all can see whether they call the same."""
    shape = f"(*{''.join(f', {n}' for n in tensor.shape[1:])})" if any_rows and tensor.dim() else tuple(tensor.shape)
    return f"{call} {what} {how} {tensor.dtype} {shape}".encode()


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """The values in one row: the tensor's own memory, or a copy where they are scattered."""
    if tensor.layout != torch.strided:
        raise MXNetError(f"expected a dense tensor, received one of layout {tensor.layout}: convert it first")
    return tensor.detach().contiguous().view(-1)


def _packs(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Tensors of one type and device together, as far as a copy of them may take memory."""
    by_kind: dict[Any, list[torch.Tensor]] = {}
    for tensor in tensors:
        pack = by_kind.setdefault((tensor.dtype, tensor.device), [])
        pack.append(tensor)
        if sum(each.nbytes for each in pack) > _PACK:
            yield by_kind.pop((tensor.dtype, tensor.device))
    yield from by_kind.values()


def _whole(out: torch.Tensor, count: int) -> torch.Tensor:
    """The memory of `out` in one row, which must have so many elements."""
    if not out.is_contiguous() or out.numel() != count:
        raise ValueError(f"expected memory in one piece for {count} elements, received the shape {tuple(out.shape)}")
    return out.detach().view(-1)


def _put_back(flat: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Write the result to the tensor if `flat` was a copy of it."""
    if flat.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(flat.view(tensor.shape))
    return tensor


def _reducible(flat: torch.Tensor, op: str) -> tuple[torch.Tensor, str]:
    """The same memory as numbers, and the op on those: booleans are combined as 0 and 1."""
    if op not in OPS:
        raise ValueError(f"op must be one of {', '.join(OPS)}, received {op!r}")
    if flat.is_complex() and op in ("min", "max"):
        raise ValueError(f"complex numbers have no {op}")
    if flat.dtype != torch.bool:
        return flat, op
    if op == "mean":
        raise ValueError("booleans have no mean: convert them to numbers first")
    return flat.view(torch.uint8), {"sum": "max", "prod": "min"}.get(op, op)


def open_group(world: World, store: TorchStore | None) -> Group:
    """The group of all workers. torch's default group is made on the way, for programs that use torch.distributed."""
    if world.size == 1 or store is None:
        return Group(world, store, {world.rank: world.node})
    store.set(f"node/{world.rank}", str(world.node))
    nodes = {rank: int(store.get_from(f"worker {rank}", f"node/{rank}")) for rank in range(world.size)}
    group = Group(world, store, nodes, f"all#{next(_opened)}")
    with group._named("open torch's group"), network.translated(world.timeout):
        _open_default(world, store)
    return group


def _open_default(world: World, store: TorchStore) -> None:
    if dist.is_initialized():
        return
    if "GLOO_SOCKET_IFNAME" not in os.environ and (interface := network.interface_of(world.host)):
        os.environ["GLOO_SOCKET_IFNAME"] = interface  # by itself gloo takes the address that the host's name has
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo",
        store=dist.PrefixStore("torch", store),
        rank=world.rank,
        world_size=world.size,
        timeout=timedelta(seconds=world.timeout),
    )
