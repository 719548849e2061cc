"""An elastic job on hosts that are reached over ssh. They may be lost and come back, and a script may name others."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Mapping

from ..comm import guard
from ..comm.child import Child, Failure
from ..comm.store import StoreServer
from ..comm.wire import is_loopback, split_address
from .council import GOODBYE
from .crew import Crew, Host
from .discovery import Discovery
from .elastic import Elastic, Processes, There

START = 60.0  # seconds that a host has until its launcher has connected
RETRY = 5.0  # seconds until a host that failed is tried again


class Fleet(Elastic):
    """The verdict of an elastic job on hosts with launchers of their own.

    `launch(node, host)` starts one. `discovery` knows which hosts the job has; without it, they do not change.
    """

    def __init__(
        self,
        store: StoreServer,
        crew: Crew,
        grace: float,
        timeout: float,
        saves: bool,
        tree: Processes,
        launch: Callable[[int, Host], Child],
        discovery: Discovery | None,
    ):
        super().__init__(store, crew, grace, timeout, saves)
        self._tree = tree
        self._launch, self._discovery = launch, discovery
        self._numbers = itertools.count()
        self._launchers: dict[int, Child] = {}  # by node
        self._limits: dict[int, float] = {}  # when launchers are killed that have not connected, or not ended, by node
        self._troubles: dict[Host, tuple[Failure, str]] = {}  # hosts whose launchers did not connect, and why
        self._started = time.monotonic()
        self._refused: set[str] = set()
        self._has_said = False

    def expect(self, hosts: Mapping[str, int]) -> None:
        """Change the hosts of the job and their numbers of workers."""
        for host in list(self._crew.hosts):
            if host.name not in hosts:
                self._dismiss(host)
        known = {host.name: host for host in self._crew.hosts}
        for name, room in hosts.items():
            if name in known:
                known[name].room = room
            elif self._can_reach_us(name):
                self._crew.hosts.append(Host(name, room))
                if self._crew.size:
                    self._news.append(f"{name} joins the job, with room for {room} workers")

    def ended(self, child: Child) -> None:
        """Handle the end of a launcher."""
        assert self._tree is not None
        node = int(child.name.removeprefix("node "))
        self._launchers.pop(node, None)
        self._limits.pop(node, None)
        failure = child.failure() if child.code else Failure(child.name, 0, "", [])
        self._tree.bury(child)
        host = self._crew.host_with(node)
        if host is None:  # it was let go before
            return
        words = next(reversed(failure.lines), "")
        why = f"its launcher ended with {failure.why}" + (f": {words}" if words else "")
        if host.is_ready:
            self._lose(host, why)
        else:
            self._note_trouble(host, failure, why)

    def tick(self) -> None:
        """Follow the list of hosts, start launchers, and do what every elastic job does."""
        if self._discovery is not None:
            if problem := self._discovery.poll():
                self._news.append(problem)
            self.expect(self._discovery.hosts)
        self._start_launchers()
        self._welcome()
        super().tick()
        if not self._crew.size and self._cause is None:
            self._try_to_begin()

    # ---- launchers ----

    def _start_launchers(self) -> None:
        now = time.monotonic()
        retries = self._crew.size or self._discovery is not None
        for host in self._crew.hosts if not self._crew.closing else ():
            if host.node is None and now >= host.out_until and (retries or host not in self._troubles):
                host.node = next(self._numbers)
                self._limits[host.node] = now + START
                self._launchers[host.node] = self._launch(host.node, host)

    def _welcome(self) -> None:
        now = time.monotonic()
        for host in self._crew.hosts:
            if host.node is not None and not host.is_ready and self.server.get(f"launch/node/{host.node}"):
                del self._limits[host.node]
                self._troubles.pop(host, None)
                self.add(host, There(self.server, host.node))
        for node, limit in self._limits.items():
            if now > limit and node in self._launchers:
                guard.signal_group(self._launchers[node].group, signal.SIGKILL)  # its end is handled in `ended`

    def _note_trouble(self, host: Host, failure: Failure, why: str) -> None:
        self._crew.leave(host)
        self._troubles[host] = failure, why
        self._set_aside(host)
        self._news.append(f"{host.name} cannot be used: {why}")
        self._note_failure(host)

    def _set_aside(self, host: Host) -> None:
        host.out_until = max(host.out_until, time.monotonic() + RETRY)

    def _lose(self, host: Host, why: str) -> None:
        child = self._launchers.pop(host.node, None) if host.node is not None else None
        if child is not None:  # only its connection to the store is lost
            guard.signal_group(child.group, signal.SIGKILL)
        super()._lose(host, why)
        self._set_aside(host)

    def _dismiss(self, host: Host) -> None:
        """End the workers of a host that is no longer in the list."""
        self._troubles.pop(host, None)
        members = sorted(host.workers)
        if host.node is not None:
            self._limits[host.node] = time.monotonic() + (GOODBYE if host.is_ready else 0.0)
            starter = self._starters.get(host.node)
            if isinstance(starter, There):
                starter.leave(kills=self._saves)  # SIGTERM would make all workers of the job save and end
            self._give_up(host, f"its host {host.name} has left the job")
        self._crew.hosts.remove(host)
        names = f": ending worker{'s' * (len(members) > 1)} {', '.join(map(str, members))}" if members else ""
        self._news.append(f"{host.name} has left the list of hosts{names}. {self._remaining()}")

    # ---- the start ----

    def _try_to_begin(self) -> None:
        crew, least = self._crew, self._crew.limits.least
        if any(host.node is not None and not host.is_ready for host in crew.hosts):
            return
        if crew.room >= least:
            assert self._tree is not None
            self.begin(self._tree)
            return
        said = f"the hosts have room for {crew.room} of at least {least} workers"
        if self._discovery is None or time.monotonic() - self._started > self._timeout:
            reasons = [f"{host.name}: {why}" for host, (_, why) in self._troubles.items()]
            cause = next((failure for failure, _ in self._troubles.values() if failure.code), Failure("", 1, "", []))
            self._fail(cause, "; ".join([f"nothing was started: {said}", *reasons]))
        elif not self._has_said:
            self._has_said = True
            self._news.append(f"waiting for hosts: {said}")

    def _can_reach_us(self, name: str) -> bool:
        if is_loopback(name) or not is_loopback(split_address(self.server.address)[0]):
            return True
        if name not in self._refused:
            self._refused.add(name)
            self._news.append(
                f"{name} cannot join: when the job began, all of its hosts were this machine, so it listens on loopback"
            )
        return False

    def _could_start(self) -> int:
        return self._crew.could_start(None if self._discovery is not None else self._crew.hosts)
