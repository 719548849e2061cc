"""What this process has open to the rest of its job: one session, opened at first use, closed at exit."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from typing import Any, NoReturn

import torch.distributed as dist

from ..base import MXNetError
from . import buckets, wire
from .store import PeerError, StoreServer
from .torch_store import TorchStore
from .world import World, derived_secret, discover, store_place

_log = logging.getLogger("neomx")


class Session:
    """The world, the store and, once asked for, the group of all workers and their rounds."""

    is_whole = True  # whether its workers are all of the job

    def __init__(self, world: World):
        self._hosted: StoreServer | None = None
        if world.hosts_store:
            self._hosted = StoreServer(*store_place(world), world.secret, world.tls).start()
        self.store: TorchStore | None = None
        if not world.is_alone:
            address = self._hosted.address if self._hosted else world.store
            address = _exchanged(world, address) if world.agent else address
            assert address is not None
            if not wire.is_loopback(wire.split_address(address)[0]) and world.secret == derived_secret(world.job):
                _log.warning(
                    "no NEOMX_SECRET was given: whoever reaches %s can join this job. Set it to the same value for all "
                    "processes, or start the job with `neomx run`",
                    address,
                )
            self.store = TorchStore(address, world.secret, world.timeout, world.tls)
            world = _placed(world, self.store)
            self.store.join(world.name)
        self.world = world
        self.failed = False
        self.at_close: list[Callable[[], Any]] = []  # called after the last round, before leave is taken
        self.kept: dict[str, Any] = {}  # what others make once for a session

    @cached_property
    def group(self) -> Any:
        """Collectives among all workers."""
        from .group import open_group

        return open_group(self.world, self.store)

    @cached_property
    def rounds(self) -> Any:
        """The rounds in which workers step together, and wait for each other."""
        from .rounds import Rounds

        return Rounds(self.group)

    def close(self) -> None:
        """Take leave: when all workers have come to their ends. After a failure, at once: the others must know."""
        if self.failed:
            self.tell_failure()
            self._end_threads()
            return
        try:
            self._part()
        except PeerError as error:
            _log.error("while ending: %s", error)
            self._end_threads()
        self._let_go()
        if self.store is not None:
            self.store.close()
        if self._hosted is not None:
            self._outlast()
            self._hosted.close()

    def _part(self) -> None:
        """Wait for all workers, taking part in the steps of those that still have some."""
        if "rounds" in vars(self):
            self.rounds.leave()

    def _let_go(self) -> None:
        """Give up what was opened among the workers."""
        for act in self.at_close:
            act()
        if "group" in vars(self):
            self.group.close()

    def tell_failure(self) -> None:
        """Have the others know now: this process may take long to end."""
        self.failed = True
        if self.store is not None:
            with suppress(PeerError):  # the store may have ended before us
                self.store.report_gone(self.world.name, "its program ended by an error")

    def _end_threads(self) -> None:
        """Have threads that wait for other workers wait no more."""
        if self.store is not None:
            self.store.give_up()
        buckets.end_all()

    def _outlast(self) -> None:
        """Serve the store until the others have left."""
        assert self._hosted is not None
        wait = threading.Event()
        for _ in range(int(self.world.timeout / 0.05)):
            if all(member.state != "here" for member in self._hosted.roster().values()):
                return
            wait.wait(0.05)


class _Inner(Session):
    """The session of some workers who are among themselves for a while: a world of their own in the same job."""

    is_whole = False

    def __init__(self, outer: Session, group: Any):
        self.outer, self.store, self.group = outer, outer.store, group
        self.world = _narrowed(outer.world, group)
        self.failed = False
        self.at_close = []
        self.kept = {}

    def tell_failure(self) -> None:
        self.failed = True
        self.outer.tell_failure()

    def close(self) -> None:
        raise MXNetError("a task cannot end the session of its worker: return from it instead")


def _narrowed(world: World, group: Any) -> World:
    """The world as it is for the members of a group alone. The job's servers serve all workers, so they have none."""
    hosts = list(group.hosts)
    mine = hosts[group.rank]
    names = list(dict.fromkeys(hosts))
    return replace(
        world,
        rank=group.rank,
        size=group.size,
        local_rank=hosts[: group.rank].count(mine),
        local_size=hosts.count(mine),
        node=names.index(mine),
        nodes=len(names),
        servers=0,
    )


def _exchanged(world: World, mine: str | None) -> str:
    """The address of the job's store, by way of the store that torchrun has."""
    assert world.agent is not None
    host, port = wire.split_address(world.agent)
    agent = dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
    key = f"neomx/{world.job}/store/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if mine is not None:
        agent.set(key, mine)
    return agent.get(key).decode()


def _placed(world: World, store: TorchStore) -> World:
    """The world with what its launcher left open: a rank from the store, nodes by comparing host names."""
    if world.rank < 0:
        world = replace(world, rank=store.add(f"{world.role}s", 1) - 1)
    if world.node >= 0 or world.role != "worker":
        return world
    store.set(f"host/{world.rank}", socket.gethostname())
    hosts = [store.get_from(f"worker {rank}", f"host/{rank}").decode() for rank in range(world.size)]
    names = list(dict.fromkeys(hosts))
    mine = hosts[world.rank]
    return replace(
        world,
        node=names.index(mine),
        nodes=len(names),
        local_rank=hosts[: world.rank].count(mine),
        local_size=Counter(hosts)[mine],
    )


_session: Session | None = None
_opening = threading.RLock()


def session() -> Session:
    """This process's session, opened now if it was not."""
    global _session
    with _opening:
        if _session is None:
            _session = Session(discover())
            atexit.register(close)
            _notice_failures()
        return _session


@contextmanager
def within(group: Any) -> Iterator[Session]:
    """Have `session()` mean the members of a group until the block ends, as if the job had no other workers.

    The block's end waits for all of them, as a program's end does. After an error it does not. The group is closed.
    """
    global _session
    outer = session()
    inner = _session = _Inner(outer, group)
    try:
        yield inner
        inner._part()
    finally:
        _session = outer
        outer.failed |= inner.failed
        inner._let_go()


def is_open() -> bool:
    """Whether a session is open."""
    return _session is not None


def close() -> None:
    """End the session; the next use opens another."""
    global _session
    with _opening:
        if _session is not None:
            _session.close()
            _session = None


def fail() -> None:
    """Say that this process ends by an error: it takes no leave, so that the others learn of it."""
    if _session is not None:
        _session.tell_failure()


@functools.cache
def _notice_failures() -> None:
    previous = sys.excepthook

    def hook(kind: Any, value: Any, trace: Any) -> None:
        fail()
        previous(kind, value, trace)

    sys.excepthook = hook
    sys.exit = functools.partial(_exit, sys.exit)


def _exit(leave: Callable[[Any], NoReturn], status: Any = None, /) -> NoReturn:
    """`sys.exit`, of which no hook is told: a status other than success is a failure, once the program has ended."""
    in_main = threading.current_thread() is threading.main_thread()  # in others it ends only them
    if _session is not None and in_main and status not in (None, 0):
        _session.failed = True
    leave(status)
