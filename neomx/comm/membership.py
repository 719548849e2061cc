"""The members of a group: who they are, whether they are still there, and errors that name who is missing."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import torch.distributed as dist

from ..base import MXNetError
from .network import Broken, Network
from .session import gloo_device, lazy_gloo_device, warn_once
from .store import NEWS, THE_STORE, PeerError
from .torch_store import TorchStore
from .transport import Absent, Check, Late, Mismatch
from .waiting import Stuck
from .world import World


class _Gone(MXNetError):
    """These members of the group are gone."""

    def __init__(self, members: list[int]) -> None:
        super().__init__(f"gone: {members}")
        self.members = members


class Membership:
    """Some of the workers, from their first meeting to the end of their connections.

    `nodes` maps the members' ranks in the world, in the order of the group, to the host that each is on. `tasks` names
    what the members are working on, in which one may fail and live on: then it counts as gone for this group.
    """

    def __init__(
        self, world: World, store: TorchStore | None, nodes: dict[int, int], name: str, tasks: list[str]
    ) -> None:
        self.world, self._store, self.name, self.tasks = world, store, name, tasks
        self.generation = 0
        self.failed = ""  # why the group must be rebuilt, if it must
        self._meetings = 0
        self._networks: list[Network] = []
        self._enrol(nodes)

    def _enrol(self, nodes: dict[int, int]) -> None:
        self.nodes, self.ranks, self.size = nodes, list(nodes), len(nodes)
        self.rank = self.ranks.index(self.world.rank)
        mine = nodes[self.world.rank]
        self.local = [member for member, rank in enumerate(self.ranks) if nodes[rank] == mine]  # those on this host

    @property
    def store(self) -> TorchStore:
        """The job's store, which every group of several workers has."""
        assert self._store is not None
        return self._store

    def rejoin(self, ranks: Sequence[int] | None) -> None:
        """Begin another generation with all members, or only with `ranks` of this group."""
        self.close()
        kept = self.ranks if ranks is None else [self.ranks[rank] for rank in ranks]
        self._enrol({rank: self.nodes[rank] for rank in kept})
        self.generation += 1
        self.failed, self._meetings = "", 0

    # ---- connections ----

    def roll_call(self) -> None:
        """Wait until all members are there and about to connect, so that connecting waits for nobody in vain."""
        self.announce("here")
        for member in range(self.size):
            self.await_announced("here", member)

    def announce(self, what: str) -> None:
        """Tell the other members that this one has come to `what`."""
        self.set(self.key(what, self.rank), b"")

    def await_announced(self, what: str, member: int) -> None:
        """Wait until a member has announced `what`."""
        self.get(self.key(what, member), [member])

    def connect(self, name: str, members: list[int], lazy: bool = False) -> Network:
        """A connection among some members, of which this is one. If `lazy`, each pair connects at its first use."""
        store = dist.PrefixStore(self.key(name), self.store)
        place, timeout = members.index(self.rank), self.world.timeout
        host = self.world.host
        device = lazy_gloo_device(host) if lazy else gloo_device(host, os.environ.get("GLOO_SOCKET_IFNAME", ""))
        made = Network(store, place, len(members), device, timeout, self.check_among(members))
        self._networks.append(made)
        return made

    def tell_fallback(self, why: str) -> None:
        """Warn that this host's members do without shared memory, if there is a reason `why` they must."""
        if why and self.local[0] == self.rank:
            warn_once(f"no shared memory among the workers of this host ({why}): they talk by TCP, which is slower")

    def close(self) -> None:
        """Close the connections. Whoever waits for this member now learns that it is gone."""
        for network in self._networks:
            network.close()
        self._networks = []

    # ---- values in the store ----

    def key(self, *parts: object) -> str:
        """A key in the store that belongs to this generation of the group."""
        return "/".join(map(str, (f"g{self.generation}", self.name, *parts)))

    def set(self, key: str, value: bytes | str) -> None:
        """Leave a value for the other members."""
        self.store.set(key, value)

    def get(self, key: str, members: list[int] | None = None) -> bytes:
        """A value that another member leaves; `members` are those who might."""
        others = [member for member in range(self.size) if member != self.rank] if members is None else members
        deadline = time.monotonic() + self.world.timeout
        while True:
            try:
                return self.store.get(key, timeout=min(1.0, self.world.timeout))
            except PeerError:
                self._check(lambda: others, known=members is not None)
                if time.monotonic() > deadline:
                    raise Absent(others, self.world.timeout) from None

    def wait_for_all(self, what: str) -> None:
        """Wait until all members have come, however long they work elsewhere: only the end of one ends the wait."""
        if self.size == 1:
            return
        self._meetings += 1
        keys = [self.key("meeting", self._meetings, member) for member in range(self.size)]
        self.set(keys[self.rank], b"")
        with self.named("wait", what):
            while late := [member for member, key in enumerate(keys) if not self.store.check([key])]:
                self._check(lambda: late)
                with suppress(PeerError):  # not there yet; the check finds a store that is lost
                    self.store.get(keys[late[0]], timeout=1.0)

    # ---- who is gone ----

    def check_among(self, members: list[int]) -> Check:
        """A check for a transport among these members, who are numbered from 0 there."""
        return lambda late: self._check(lambda: [members[place] for place in late()])

    def check_everyone(self, late: Late) -> None:
        """A check for a wait that the end of any member ends."""
        self._check(lambda: [member for member in range(self.size) if member != self.rank], known=False)

    def _check(self, late: Late, known: bool = True) -> None:
        """Raise if the wait can never end. Unless `known`, only some of `late` are waited for, nobody knows which."""
        if not self.tasks:  # whose ranks are numbers among few
            self.store.waits(self.world.rank).look(lambda: [self.ranks[member] for member in late()], known)
        gone = self.store.gone  # read before `late`: a member that came and then went is not late
        if not gone:
            return
        lost = [member for member in late() if self._is_gone(member)]
        if lost or THE_STORE in gone:
            raise _Gone(lost)

    def member(self, rank: int) -> str:
        """A member's name in the roll call."""
        return f"worker {self.ranks[rank]}"

    def _names(self, member: int) -> list[str]:
        """The names under which the roll call may know that a member will not come."""
        return [self.member(member), *(f"{task} of {self.member(member)}" for task in self.tasks)]

    def _is_gone(self, member: int) -> bool:
        return any(name in self.store.gone for name in self._names(member))

    def leave_task(self, task: str, why: str) -> None:
        """Tell all members that this one failed in a task: whoever waits for it in one of its groups raises."""
        if self._store is not None:
            self._store.report_gone(f"{task} of {self.member(self.rank)}", why)

    # ---- errors ----

    def doing(self, what: str) -> AbstractContextManager[None]:
        """A block of which other workers are told, if they wait for this one in vain, that this one is in `what`."""
        return nullcontext() if self._store is None else self._store.waits(self.world.rank).during(what)

    @contextmanager
    def named(self, call: str, what: str = "") -> Iterator[None]:
        """Turn a failure into an error that names the call and who is missing."""
        doing = what or call
        if what:  # headers are no calls that a program makes
            call = what if call == "all_gather_small" else f"{call} of {what}"
        if self.failed:
            raise PeerError(f"{call}: the group {self.name!r} failed before, and must be rebuilt: {self.failed}")
        try:
            with self.doing(doing):
                yield
        except Stuck as error:
            self._give_up(f"{doing} can never complete, because the workers are at different places: {error}")
            raise PeerError(
                f"{self.failed}. All workers must make the same calls in the same order. This is "
                f"{self.member(self.rank)}"
            ) from None
        except _Gone as error:
            raise self._failure(call, error.members) from None
        except Absent as error:
            late = error.ranks or self._unheard()
            raise self._failure(call, late, f" within {error.seconds:g} s") from None
        except Broken as error:
            raise self._failure(call, self._wait_for_news(), f" ({error})") from None
        except Mismatch as error:
            self.failed = "its members called different things"
            said = "; ".join(f"{self.member(i)}: {note}" for i, note in enumerate(error.notes))
            raise MXNetError(
                f"the workers must make the same calls in the same order, but made these: {said}"
            ) from None

    def _failure(self, call: str, members: list[int], detail: str = "") -> PeerError:
        gone = self.store.gone
        names = [next((n for n in self._names(member) if n in gone), self.member(member)) for member in members]
        states = self.store.missing(names)
        self._give_up(f"{call} did not complete{detail}: {states}")
        return PeerError(f"{self.failed}. This is {self.member(self.rank)}, in a group of {self.size}")

    def _give_up(self, why: str) -> None:
        self.failed = why
        for network in self._networks:
            network.abandon()

    def _wait_for_news(self) -> list[int]:
        """Who is gone. The roll call learns of it when the connection breaks; on a busy machine some seconds later."""
        limit = time.monotonic() + NEWS
        while THE_STORE not in self.store.gone and time.monotonic() < limit:
            gone = [member for member in range(self.size) if self._is_gone(member)]
            if gone:
                return gone
            time.sleep(0.1)
        return [member for member in range(self.size) if member != self.rank]

    def _unheard(self) -> list[int]:
        """Who does not wait: all members that do time out together, and say so in the store."""
        self.set(self.key("waited", self.rank), b"")
        time.sleep(min(1.0, self.world.timeout))
        silent = [member for member in range(self.size) if not self.store.check([self.key("waited", member)])]
        return silent or [member for member in range(self.size) if member != self.rank]
