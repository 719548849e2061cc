"""The connections of this process to the rest of its job: one session, opened at first use and closed at exit.

All state of this package that belongs to the process, not to an object, is here:

- `_session`, the open session, and `_opening`, its lock;
- `_groups`, the number of groups of all workers opened so far: sessions of one job need different names in its store;
- `_ending`, the background threads that must end before the interpreter does;
- `warn_once`, the warnings already logged, and `gloo_device`, the communication thread of all gloo groups;
- the environment variable GLOO_SOCKET_IFNAME and torch's default process group, set for programs that use
  torch.distributed themselves: torch reads the interface of its gloo groups only from there;
- a handler in `atexit`, and those of `exits` for a program that fails.

Elsewhere there are only tables that are filled at import: the compressors in `compress`, and torch's table of backends,
to which `engine` adds one.
"""

from __future__ import annotations

import atexit
import itertools
import json
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
from ..process import state
from . import exits, network, secret, wire
from .descriptors import raise_limit
from .generations import Generations
from .store import PeerError, StoreServer
from .torch_store import TorchStore
from .transaction import transaction
from .world import World, discover, store_place

if TYPE_CHECKING:  # imported when the session first needs them
    from .group import Group
    from .rounds import Rounds

_log = logging.getLogger("neomx")


class Session:
    """The world, the store and, created on demand, the group of all workers and their rounds."""

    is_whole = True  # whether it includes all workers of the job

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
                _log.warning("NEOMX_INSECURE=1 and no secret: any process that reaches %s can join this job", address)
            self.store = TorchStore(address, world.secret, world.timeout, world.tls)
            world = _placed(world, self.store)
            self.store.join(world.name)
        self._world = world
        self.generations: Generations | None = None  # of an elastic job
        self._seen = 0  # the generation that `_world` describes
        if world.is_elastic:
            assert self.store is not None
            self.generations = Generations(self.store, world)
            if self.generations.admitted:
                self.generations.begin()
        self.failed = False
        self.at_close: list[Callable[[], object]] = []  # called after the last round, before this process leaves
        self.kept: dict[str, Any] = {}  # objects that other modules create once per session

    @property
    def world(self) -> World:
        """The place of this process among the workers. In an elastic job it changes with the generation."""
        generations = self.generations
        if generations is not None and generations.number != self._seen:
            self._world, self._seen = generations.world(self._world), generations.number
        return self._world

    def scale_batches(self, scales: bool) -> None:
        """Set whether the batch of all workers changes with their number, in an elastic job."""
        assert self.world.limits is not None
        self._world = replace(self.world, limits=replace(self.world.limits, scales=scales))

    @cached_property
    def group(self) -> Group:
        """The group of all workers. Opening it also opens torch's default group, for programs that use it."""
        from .group import open_group
        from .surviving import SurvivingGroup

        name = f"all#{next(_groups)}"
        if self.generations is not None:  # torch's group is that of a fixed set of workers
            places = self.generations.places(with_followers=False)
            return SurvivingGroup(self.world, self.store, places, name, generations=self.generations)
        group = open_group(self.world, self.store, name)
        if group.size > 1 and self.store is not None:
            with group.named("open torch's group"), network.translated(self.world.timeout):
                _open_torch(self.world, self.store, one_host=len(set(group.hosts)) == 1)
        return group

    @cached_property
    def rounds(self) -> Rounds:
        """The rounds in which workers step together and wait for each other."""
        from .rounds import Rounds

        return Rounds(self.group)

    def close(self) -> None:
        """Leave the job after all workers have ended their programs. After a failure, end immediately."""
        if self.failed:
            self._end_threads()
            return
        self._warn_of_unread_layout()
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

    def _warn_of_unread_layout(self) -> None:
        """Log if the job was started with a layout that splits the model and the program did not ask for it."""
        layout = os.environ.get("NEOMX_LAYOUT", "")
        if self.world.rank == 0 and not state.layout_read and any(c != "data" for c in _dimensions(layout)):
            _log.warning(
                "--layout %s had no effect: the program did not call mx.parallel.Layout.from_env(). Each worker had "
                "the whole model",
                layout,
            )

    def _part(self) -> None:
        """Wait for all workers while taking part in the remaining steps of others."""
        if "rounds" in vars(self):
            self.rounds.leave()

    def _let_go(self) -> None:
        """Close what was opened among the workers."""
        for act in self.at_close:
            act()
        if "group" in vars(self):
            self.group.close()

    def tell_failure(self, why: str, error: str = "") -> None:
        """Tell the other processes immediately that this one fails: exiting may take long.

        `error` is the exception, by which the launcher of an elastic job recognizes that it repeats.
        """
        self.failed = True
        if self.store is not None:
            with suppress(PeerError):  # the store may already have ended
                if self.generations is not None and not _is_loss(error):
                    said = {"step": transaction().steps, "error": error or why}
                    self.store.set(f"elastic/failed/{self.world.number}", json.dumps(said))
                self.store.report_gone(self.world.name, why)

    def _end_threads(self) -> None:
        """End the threads that wait for other workers, with a timeout of one second.

        A thread that is inside torch when the interpreter exits crashes the process.
        """
        if self.store is not None:
            self.store.give_up()
        limit = time.monotonic() + 1.0
        for thread in list(_ending):
            thread.end(max(0.0, limit - time.monotonic()))

    def _outlast(self) -> None:
        """Serve the store until all others have left."""
        assert self._hosted is not None
        wait = threading.Event()
        for _ in range(int(self.world.timeout / 0.05)):
            if all(member.state != "here" for member in self._hosted.roster().values()):
                return
            wait.wait(0.05)


def _is_loss(error: str) -> bool:
    """Whether a program has ended because another worker is gone."""
    return "PeerError" in error or "HorovodInternalError" in error


class _Inner(Session):
    """The session of a subset of the workers during a task, which is a separate world in the same job."""

    is_whole = False

    def __init__(self, outer: Session, group: Group):
        self.outer, self.store, self.group = outer, outer.store, group
        self._world, self.generations = _narrowed(outer.world, group), None
        self.failed = False
        self.at_close = []
        self.kept = {}

    def tell_failure(self, why: str, error: str = "") -> None:
        self.failed = True
        self.outer.tell_failure(why, error)

    def close(self) -> None:
        raise MXNetError("a task cannot end the session of its worker: return from it instead")


def _dimensions(layout: str) -> list[str]:
    """Return the names of dimensions with more than one worker, as in 'data=2,tensor=2'."""
    pairs = (each.partition("=") for each in layout.split(","))
    return [name.strip() for name, _, degree in pairs if degree.strip() not in ("", "1")]


def _narrowed(world: World, group: Group) -> World:
    """Return the world as seen by the members of a group.

    It has no servers, since those serve all workers of the job.
    """
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
    """Exchange the address of the job's store through the store of torchrun."""
    assert world.agent is not None
    host, port = wire.split_address(world.agent)
    agent = dist.TCPStore(host, port, is_master=False, wait_for_workers=False)
    key = f"neomx/{world.job}/store/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    if mine is not None:
        agent.set(key, mine)
    return agent.get(key).decode()


def _placed(world: World, store: TorchStore) -> World:
    """Return the world with what its launcher left open: a rank from the store, nodes by comparing host names."""
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
    """Open torch's default group, unless the program did. On one host it starts listening at its first use."""
    from .on_demand import register

    if dist.is_initialized():
        return
    if "GLOO_SOCKET_IFNAME" not in os.environ and (interface := network.interface_of(world.host)):
        os.environ["GLOO_SOCKET_IFNAME"] = interface  # by default gloo uses the address of the host name
    hook = sys.excepthook
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else register() if one_host else "gloo",
        store=dist.PrefixStore("torch", store),
        rank=world.rank,
        world_size=world.size,
        timeout=timedelta(seconds=world.timeout),
    )
    sys.excepthook = hook  # torch's hook prefixes each traceback line with the rank, as the launcher does


class BackgroundThread(Protocol):
    """A thread that works for this process until it is told to end."""

    def end(self, seconds: float) -> None:
        """Stop the thread and wait up to `seconds` for it."""


_session: Session | None = None
_opening = threading.RLock()
_groups = itertools.count()
_ending: weakref.WeakSet[BackgroundThread] = weakref.WeakSet()


def end_with_process(thread: BackgroundThread) -> None:
    """End a thread before the interpreter exits, if this process fails while the thread runs."""
    _ending.add(thread)


@cache
def warn_once(message: str) -> None:
    """Log a warning only once."""
    _log.warning(message)


@cache
def gloo_device(host: str, interface: str) -> object:
    """The thread and address shared by the gloo groups of this process. It listens from now on."""
    return _gloo_device(host, interface, lazy=False)


def lazy_gloo_device(host: str) -> object:
    """Create a thread and an address for one gloo group that opens without waiting for the other members.

    Each pair of members connects at its first use. gloo cannot distinguish groups that share such a device.
    """
    return _gloo_device(host, os.environ.get("GLOO_SOCKET_IFNAME", ""), lazy=True)


def _gloo_device(host: str, interface: str, lazy: bool) -> object:
    if interface:
        return dist.ProcessGroupGloo.create_device(interface=interface.split(",")[0], lazy_init=lazy)
    return dist.ProcessGroupGloo.create_device(hostname=host, lazy_init=lazy)


def session() -> Session:
    """Return the session of this process, opening it if necessary."""
    global _session
    with _opening:
        if _session is None:
            raise_limit()
            _session = Session(discover())
            _end_well()
        return _session


def world() -> World:
    """Return the place of this process among the workers, without opening a session."""
    return discover() if _session is None else _session.world


@contextmanager
def within(group: Group) -> Iterator[Session]:
    """Make `session()` refer to the members of a group within the block, as if the job had no other workers.

    The end of the block waits for all of them, like the end of a program, except after an error. Then the group is
    closed.
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
    """Close the session. The next use opens another one."""
    global _session
    with _opening:
        if _session is not None:
            _session.close()
            _session = None


def fail(why: str = "its program ended with an error", error: str = "") -> None:
    """Tell the other processes that this one fails and will end without leaving the job properly."""
    if _session is not None:
        _session.tell_failure(why, error)


@cache
def _end_well() -> None:
    """Leave the job when the program ends, and notify the others immediately if it fails."""
    atexit.register(close)
    exits.on_failure(fail)
