"""The members of a group: which they are, which are gone, and errors that name the missing ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress

import torch.distributed as dist

from ..base import MXNetError
from .generations import Generation, Generations
from .memory import FIRST, Creator
from .network import Broken, Network
from .session import gloo_device, lazy_gloo_device, warn_once
from .store import NEWS, THE_STORE, PeerError
from .torch_store import TorchStore
from .transport import Absent, Check, Late, Mismatch
from .waiting import Stuck
from .world import World

Choose = Callable[[Generation], dict[int, int]]  # the nodes of some members of a generation, by their numbers

_GLANCE = 0.1  # in an elastic job, whose workers go on when one is lost
_SLOW = ". If a worker is only slow, raise --timeout. Ctrl-C shows where every worker is"


class _Gone(MXNetError):
    """These members of the group are gone."""

    def __init__(self, members: list[int]) -> None:
        super().__init__(f"gone: {members}")
        self.members = members


class Membership:
    """Some of the workers, from the roll call until their connections close.

    `nodes` maps the members' ranks in the world, in the order of the group, to the host of each. `tasks` names the
    current tasks of the members. A member that fails in a task but keeps running counts as gone for this group.
    """

    def __init__(
        self,
        world: World,
        store: TorchStore | None,
        nodes: dict[int, int],
        name: str,
        tasks: list[str],
        generations: Generations | None = None,
        choose: Choose | None = None,
        with_followers: bool = False,
    ) -> None:
        self.world, self._store, self.name, self.tasks = world, store, name, tasks
        self._generations = generations  # of an elastic job, if the members change with them
        self._choose = choose  # which members of a generation the group has: all if None
        self._with_followers = with_followers  # whether it also has those that follow them
        self.generation = 0 if generations is None else generations.number
        self.opened_in = self.generation  # the generation in which it has these members for the first time
        self.failed = ""  # why the group must be rebuilt, or ""
        self._glance = _GLANCE if world.is_elastic else 1.0  # seconds between two looks for lost members
        self._meetings = 0
        self._networks: list[Network] = []
        self._enrol(nodes)

    def _enrol(self, nodes: dict[int, int]) -> None:
        self.nodes, self.ranks, self.size = nodes, list(nodes), len(nodes)
        self.rank = self.ranks.index(self.world.number)
        mine = nodes[self.world.number]
        self.local = [member for member, rank in enumerate(self.ranks) if nodes[rank] == mine]  # members on this host

    @property
    def followers(self) -> int:
        """The number of members that only follow the others. They have the last ranks."""
        if self._generations is None or not self._with_followers:
            return 0
        return len(self._generations.current.followers)

    @property
    def store(self) -> TorchStore:
        """The job's store. Every group of several workers has one."""
        assert self._store is not None
        return self._store

    def follow(self, generations: Generations) -> None:
        """Consist of the members of the current generation from now on."""
        self.close()
        self.world = generations.world(self.world)
        places = generations.places(self._with_followers)
        self._enrol(places if self._choose is None else self._choose(generations.current))
        self.generation = self.opened_in = generations.number
        self.failed, self._meetings = "", 0

    def remain(self, generations: Generations) -> bool:
        """Go on in the current generation without connecting again, if that is possible. Return whether it is."""
        if not (self._with_followers and generations.current.continues and self.generation == generations.number - 1):
            return False
        self.world, self.generation = generations.world(self.world), generations.number
        return True

    def rejoin(self, ranks: Sequence[int] | None) -> None:
        """Start a new generation of the group with all members, or with only `ranks` of this group."""
        self.close()
        kept = self.ranks if ranks is None else [self.ranks[rank] for rank in ranks]
        self._enrol({rank: self.nodes[rank] for rank in kept})
        self.generation += 1
        self.opened_in = self.generation
        self.failed, self._meetings = "", 0

    @property
    def creator(self) -> Creator:
        """The member of this host that creates shared memory: one that joins, which has prepared it."""
        if self._generations is None:
            return FIRST
        now = self._generations.current
        new = (*now.new, *now.followers)
        places = [place for place, member in enumerate(self.local) if self.ranks[member] in new]
        return Creator(places[0] if places else 0, self._generations.stock)

    # ---- connections ----

    def roll_call(self) -> None:
        """Wait until all members are about to connect, so that connecting never waits for a missing member."""
        self.announce("here")
        for member in range(self.size):
            self.await_announced("here", member)

    def announce(self, what: str) -> None:
        """Tell the other members that this one has reached `what`."""
        self.set(self.key(what, self.rank), b"")

    def await_announced(self, what: str, member: int) -> None:
        """Wait until a member has announced `what`."""
        self.get(self.key(what, member), [member])

    def connect(self, name: str, members: list[int], lazy: bool = False) -> Network:
        """Connect some members, including this one. If `lazy`, each pair connects at its first use."""
        store = dist.PrefixStore(self.key(name), self.store)
        place, timeout = members.index(self.rank), self.world.timeout
        host = self.world.host
        device = lazy_gloo_device(host) if lazy else gloo_device(host, os.environ.get("GLOO_SOCKET_IFNAME", ""))
        watches = self._choose is not None
        made = Network(store, place, len(members), device, timeout, self.check_among(members), watches)
        self._networks.append(made)
        return made

    def tell_fallback(self, why: str) -> None:
        """Log a warning if `why` gives a reason why this host's members cannot use shared memory."""
        if why and self.local[0] == self.rank:
            warn_once(f"no shared memory among the workers of this host ({why}): using TCP instead, which is slower")

    def close(self) -> None:
        """Close the connections. Members that wait for this one raise."""
        for network in self._networks:
            network.close()
        self._networks = []

    # ---- values in the store ----

    def key(self, *parts: object) -> str:
        """Return a key in the store for this generation of the group."""
        among = () if self._choose is None else (f"of {self.ranks[0]}",)  # other members have a group of this name
        return "/".join(map(str, (f"g{self.generation}", self.name, *among, *parts)))

    def set(self, key: str, value: bytes | str) -> None:
        """Set a value for the other members."""
        self.store.set(key, value)

    def get(self, key: str, members: list[int] | None = None) -> bytes:
        """Wait for a value that another member sets. `members` are those that may set it."""
        others = [member for member in range(self.size) if member != self.rank] if members is None else members
        deadline = time.monotonic() + self.world.timeout
        while True:
            try:
                return self.store.get(key, timeout=min(self._glance, self.world.timeout))
            except PeerError:
                self._check(lambda: others, known=members is not None)
                if time.monotonic() > deadline:
                    raise Absent(others, self.world.timeout) from None

    def wait_for_all(self, what: str) -> None:
        """Wait for all members without a timeout, however long they are busy. Raises if a member is gone."""
        if self.size == 1:
            return
        self._meetings += 1
        keys = [self.key("meeting", self._meetings, member) for member in range(self.size)]
        self.set(keys[self.rank], b"")
        with self.named("wait", what):
            while late := [member for member, key in enumerate(keys) if not self.store.check([key])]:
                self._check(lambda: late)
                with suppress(PeerError):  # not there yet; `_check` detects a lost store
                    self.store.get(keys[late[0]], timeout=self._glance)

    # ---- missing members ----

    def check_among(self, members: list[int]) -> Check:
        """Return a check for a transport among these members, which it numbers from 0."""
        return lambda late: self._check(lambda: [members[place] for place in late()])

    def check_everyone(self, late: Late) -> None:
        """A check for a wait that must end if any member is gone."""
        self._check(lambda: [member for member in range(self.size) if member != self.rank], known=False)

    def _check(self, late: Late, known: bool = True) -> None:
        """Raise if the wait can never end. Unless `known`, it is unknown which of `late` the wait depends on."""
        if not self.tasks:  # with tasks, ranks are relative to a subset of workers
            self.store.waits(self.world.number).look(lambda: [self.ranks[member] for member in late()], known)
        generations = self._generations
        if generations is not None and self._choose is None:
            self._check_generation(generations)
            return
        if generations is not None and generations.number != self.generation:
            raise _Gone([])
        gone = self.store.gone  # read before `late`: a member that arrived and then left is not late
        if not gone and generations is None:
            return
        missing = late()
        lost = [member for member in missing if self._is_gone(member)]
        if generations is not None:  # those that have noticed a loss do not come any more
            lost += [member for member in missing if generations.has_asked(self.ranks[member])]
        if lost or THE_STORE in gone:
            raise _Gone(lost)

    def _check_generation(self, generations: Generations) -> None:
        """Raise if any member is gone or asks for the next generation: then it is over for all, not only the late."""
        if generations.number != self.generation:
            raise _Gone([])
        lost = [self.ranks.index(number) for number in generations.gone()]
        if lost or THE_STORE in self.store.gone or generations.is_called():
            raise _Gone(lost)

    def member(self, rank: int) -> str:
        """Return the name of a member in the roll call."""
        return f"worker {self.ranks[rank]}"

    def _names(self, member: int) -> list[str]:
        """Return the names under which the roll call may report that a member is gone."""
        return [self.member(member), *(f"{task} of {self.member(member)}" for task in self.tasks)]

    def _is_gone(self, member: int) -> bool:
        return any(name in self.store.gone for name in self._names(member))

    def leave_task(self, task: str, why: str) -> None:
        """Report to all members that this one failed in a task. Members that wait for it in one of its groups raise."""
        if self._store is not None:
            self._store.report_gone(f"{task} of {self.member(self.rank)}", why)

    # ---- errors ----

    def doing(self, what: str) -> AbstractContextManager[None]:
        """Context manager that reports `what` as the current activity to workers that wait for this one in vain."""
        return nullcontext() if self._store is None else self._store.waits(self.world.number).during(what)

    @contextmanager
    def named(self, call: str, what: str = "") -> Iterator[None]:
        """Turn failures into errors naming the call and the missing workers."""
        doing = what or call
        if what:  # programs do not call all_gather_small themselves
            call = what if call == "all_gather_small" else f"{call} of {what}"
        if self.failed:
            raise PeerError(f"{call}: the group {self.name!r} failed earlier and must be rebuilt: {self.failed}")
        try:
            with self.doing(doing):
                yield
        except Stuck as error:
            self._give_up(f"{doing} can never complete, because the workers are in different calls: {error}")
            raise PeerError(
                f"{self.failed}. All workers must make the same calls in the same order. This is "
                f"{self.member(self.rank)}"
            ) from None
        except _Gone as error:
            raise self._failure(call, error.members) from None
        except Absent as error:
            late = error.ranks or self._unheard()
            raise self._failure(call, late, f" within {error.seconds:g} s", _SLOW) from None
        except Broken as error:
            raise self._failure(call, self._wait_for_news(), f" ({error})") from None
        except Mismatch as error:
            self.failed = "its members made different calls"
            said = "; ".join(f"{self.member(i)}: {note}" for i, note in enumerate(error.notes))
            raise MXNetError(
                f"the workers must make the same calls in the same order, but made these: {said}"
            ) from None

    def _failure(self, call: str, members: list[int], detail: str = "", remedy: str = "") -> PeerError:
        if self._generations is not None and not members:
            self._give_up(f"{call} did not complete: another worker has lost a member of the group")
            return PeerError(f"{self.failed}. This is {self.member(self.rank)}, in a group of {self.size}")
        gone = self.store.gone
        names = [next((n for n in self._names(member) if n in gone), self.member(member)) for member in members]
        states = self.store.missing(names)
        self._give_up(f"{call} did not complete{detail}: {states}")
        return PeerError(f"{self.failed}. This is {self.member(self.rank)}, in a group of {self.size}{remedy}")

    def _give_up(self, why: str) -> None:
        self.failed = why
        for network in self._networks:
            network.abandon()

    def _wait_for_news(self) -> list[int]:
        """Wait until the roll call reports which members are gone, and return them.

        It detects a broken connection immediately, but on a busy machine only after some seconds.
        """
        limit = time.monotonic() + NEWS
        while THE_STORE not in self.store.gone and time.monotonic() < limit:
            gone = [member for member in range(self.size) if self._is_gone(member)]
            if gone:
                return gone
            time.sleep(0.1)
        return [member for member in range(self.size) if member != self.rank]

    def _unheard(self) -> list[int]:
        """Return the members that are not waiting: those that wait all time out together and say so in the store."""
        self.set(self.key("waited", self.rank), b"")
        time.sleep(min(1.0, self.world.timeout))
        silent = [member for member in range(self.size) if not self.store.check([self.key("waited", member)])]
        return silent or [member for member in range(self.size) if member != self.rank]
