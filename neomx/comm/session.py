"""What this process has open to the rest of its job: one session, opened at first use, closed at exit.

All of this room's state that belongs to the process and not to an object is here:

- `_session`, the session that is open, and `_opening`, its lock;
- `_groups`, how many groups of all workers were opened: sessions of one job need different names in its store;
- `_ending`, the background threads that must end before the interpreter does;
- `warn_once`, the warnings that were given, and `gloo_device`, the thread by which all gloo groups talk;
- the environment variable GLOO_SOCKET_IFNAME and torch's default process group, set for programs that use
  torch.distributed themselves: torch takes the interface of its gloo groups from nowhere else;
- a handler in `atexit`, and those of `exits` for a program that fails.

Elsewhere there are only tables that are filled when modules are imported: the compressors in `compress`, and torch's
table of backends, to which `engine` adds one.
"""

from __future__ import annotations

import atexit
import itertools
import logging
import os
import socket
import sys
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Protocol

import torch
import torch.distributed as dist

from ..base import MXNetError
from . import exits, network, secret, wire
from .descriptors import raise_limit
from .store import PeerError, StoreServer
from .torch_store import TorchStore
from .world import World, discover, store_place

if TYPE_CHECKING:  # loaded when the session first needs them
    from .group import Group
    from .rounds import Rounds

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
            if world.secret == secret.public(world.job):
                _log.warning("NEOMX_INSECURE=1 and no secret: whoever reaches %s can join this job", address)
            self.store = TorchStore(address, world.secret, world.timeout, world.tls)
            world = _placed(world, self.store)
            self.store.join(world.name)
        self.world = world
        self.failed = False
        self.at_close: list[Callable[[], object]] = []  # called after the last round, before this process leaves
        self.kept: dict[str, Any] = {}  # what others make once for a session

    @cached_property
    def group(self) -> Group:
        """Collectives among all workers. torch's default group is opened too, for programs that use it."""
        from .group import open_group

        group = open_group(self.world, self.store, f"all#{next(_groups)}")
        if group.size > 1 and self.store is not None:
            with group.named("open torch's group"), network.translated(self.world.timeout):
                _open_torch(self.world, self.store, one_host=len(set(group.hosts)) == 1)
        return group

    @cached_property
    def rounds(self) -> Rounds:
        """The rounds in which workers step together, and wait for each other."""
        from .rounds import Rounds

        return Rounds(self.group)

    def close(self) -> None:
        """Leave the job once all workers have come to their ends. After a failure, end at once without leave."""
        if self.failed:
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

    def tell_failure(self, why: str) -> None:
        """Tell the other processes now that this one fails: it may take long to end."""
        self.failed = True
        if self.store is not None:
            with suppress(PeerError):  # the store may have ended before us
                self.store.report_gone(self.world.name, why)

    def _end_threads(self) -> None:
        """End the threads that wait for other workers, as far as they do within a second.

        A thread that is inside torch when the interpreter goes away ends the process by a crash.
        """
        if self.store is not None:
            self.store.give_up()
        limit = time.monotonic() + 1.0
        for thread in list(_ending):
            thread.end(max(0.0, limit - time.monotonic()))

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

    def __init__(self, outer: Session, group: Group):
        self.outer, self.store, self.group = outer, outer.store, group
        self.world = _narrowed(outer.world, group)
        self.failed = False
        self.at_close = []
        self.kept = {}

    def tell_failure(self, why: str) -> None:
        self.failed = True
        self.outer.tell_failure(why)

    def close(self) -> None:
        raise MXNetError("a task cannot end the session of its worker: return from it instead")


def _narrowed(world: World, group: Group) -> World:
    """The world as it is for the members of a group alone. The job's servers serve all workers, so they have none."""
    hosts = group.hosts
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


def _open_torch(world: World, store: TorchStore, one_host: bool) -> None:
    """Open torch's default group, unless the program has. On one host it listens only once it is used."""
    from .on_demand import register

    if dist.is_initialized():
        return
    if "GLOO_SOCKET_IFNAME" not in os.environ and (interface := network.interface_of(world.host)):
        os.environ["GLOO_SOCKET_IFNAME"] = interface  # by itself gloo takes the address that the host's name has
    hook = sys.excepthook
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else register() if one_host else "gloo",
        store=dist.PrefixStore("torch", store),
        rank=world.rank,
        world_size=world.size,
        timeout=timedelta(seconds=world.timeout),
    )
    sys.excepthook = hook  # torch's writes the rank before every line of a traceback, and so does the launcher


class BackgroundThread(Protocol):
    """A thread that works for this process until it is told to end."""

    def end(self, seconds: float) -> None:
        """End, if it does within so many seconds."""


_session: Session | None = None
_opening = threading.RLock()
_groups = itertools.count()
_ending: weakref.WeakSet[BackgroundThread] = weakref.WeakSet()


def end_with_process(thread: BackgroundThread) -> None:
    """End a thread before the interpreter ends, should this process fail while it runs."""
    _ending.add(thread)


@cache
def warn_once(message: str) -> None:
    """Log a warning, the first time that it is given."""
    _log.warning(message)


@cache
def gloo_device(host: str, interface: str) -> object:
    """The one thread and address by which the gloo groups of this process talk. It listens from now on."""
    return _gloo_device(host, interface, lazy=False)


def lazy_gloo_device(host: str) -> object:
    """A thread and an address for one gloo group that is made without waiting for the other members.

    Each pair of members connects at its first use. gloo cannot tell groups apart that share such a device.
    """
    return _gloo_device(host, os.environ.get("GLOO_SOCKET_IFNAME", ""), lazy=True)


def _gloo_device(host: str, interface: str, lazy: bool) -> object:
    if interface:
        return dist.ProcessGroupGloo.create_device(interface=interface.split(",")[0], lazy_init=lazy)
    return dist.ProcessGroupGloo.create_device(hostname=host, lazy_init=lazy)


def session() -> Session:
    """This process's session, opened now if it was not."""
    global _session
    with _opening:
        if _session is None:
            raise_limit()
            _session = Session(discover())
            _end_well()
        return _session


def world() -> World:
    """Who this process is among the workers, without opening a session."""
    return discover() if _session is None else _session.world


@contextmanager
def within(group: Group) -> Iterator[Session]:
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


def fail(why: str = "its program ended by an error") -> None:
    """Tell the other processes that this one fails: it will end without leave."""
    if _session is not None:
        _session.tell_failure(why)


@cache
def _end_well() -> None:
    """Leave the job when the program ends, and tell the others at once if it fails."""
    atexit.register(close)
    exits.on_failure(fail)
