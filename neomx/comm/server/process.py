"""A server process: the replicas that it holds, and the connections of workers and other servers to it."""

from __future__ import annotations

import logging
import secrets
from typing import Any

from ..chain import Chains, Holder
from ..generations import OVER
from ..store import StoreClient
from ..wire import Connection, Refused, connect
from ..world import World
from . import messages as m
from .keeper import Job, Keeper
from .replica import Replica
from .service import Service
from .space import MakeRule

_log = logging.getLogger("neomx")
_ATTEMPT = 2.0  # seconds to connect to another server


class Process:
    """Serves the stores of a job's workers. Call `handle` in a separate thread for each connection."""

    def __init__(
        self, world: World, store: StoreClient, make_rule: MakeRule, returns: bool = False, is_elastic: bool = False
    ):
        """`returns`: an earlier process with this number was lost. `is_elastic`: workers come and go."""
        self._returns, self._is_elastic = returns, is_elastic
        self._world, self._store, self._make_rule = world, store, make_rule
        self.host = {**m.host_of(world), "life": secrets.token_hex(8)}
        self._service: Service | None = None
        self._keepers: dict[int, Keeper] = {}
        self._failure: Exception | None = None
        if world.replicas <= 1:
            self._service = Service(self._make(world.rank), self.host)
            return
        self._held: set[int] = set()  # shards of which this process has all updates
        job = Job(self.host, self._make, self._dial, self._lost, self.is_over, self._join, self._leave, self._fail)
        me = Holder(world.rank, self.host["life"])
        for distance in range(world.replicas):
            home = (world.rank - distance) % world.servers
            self._keepers[home] = Keeper(home, me, Chains(store), job)

    def start(self) -> None:
        """Begin to hold replicas. Other processes can connect to this one before."""
        for keeper in self._keepers.values():
            keeper.start()

    def handle(self, connection: Connection) -> None:
        """Serve a worker, or another server that holds the same shard."""
        if self._service is not None:
            self._service.handle(connection)
            return
        hello = connection.peer
        keeper = self._keepers.get(m.field(hello, "follow" if "follow" in hello else "server", int))
        if keeper is None:
            raise Refused(f"{connection} asked for a shard that this server does not hold: {hello!r:.80}")
        if "follow" in hello:
            keeper.feed(connection)
        else:
            keeper.serve(connection)

    def lose(self, rank: int, why: str) -> None:
        """Handle the loss of a worker's process, as reported by the roll call."""
        if self._service is not None:
            self._service.replica.lose(rank, why)
        for keeper in self._keepers.values():
            keeper.lose(rank, why)

    def close(self) -> None:
        """Release the memory."""
        if self._service is not None:
            self._service.replica.close()
        for keeper in self._keepers.values():
            keeper.end()

    def is_over(self) -> bool:
        """Whether no worker is left. Raises an error of this process."""
        if self._failure is not None:
            raise self._failure
        members = self._store.roster()
        if self._is_elastic:  # others may come until the program has ended
            here = any(each["state"] == "here" for name, each in members.items() if name.startswith("worker "))
            return not here and self._store.check([OVER])
        workers = [members.get(f"worker {rank}") for rank in range(self._world.size)]
        return all(worker is not None and worker["state"] != "here" for worker in workers)

    # ---- for keepers ----

    def _make(self, home: int) -> Replica:
        world = self._world
        where = lambda rank: self._store.missing([f"worker {rank}"])  # noqa: E731
        size, replicas = world.size, world.replicas
        return Replica(home, world.servers, size, world.timeout, self._make_rule, where, replicas, self._is_elastic)

    def _join(self, home: int) -> None:
        self._held.add(home)
        if self._returns and len(self._held) == len(self._keepers):
            self._returns = False
            _log.warning("%s has all updates of the parameters that it holds again", self._world.name)

    def _leave(self, home: int) -> None:
        if not self._returns:
            _log.warning("%s was silent, so others hold its shards: it gets all updates again", self._world.name)
        self._returns = True
        self._held.discard(home)

    def _fail(self, error: Exception) -> None:
        self._failure = error

    def _dial(self, holder: Holder, asked: dict[str, Any]) -> Connection:
        address = self._store.get_from(holder.name, f"server/{holder.server}").decode()
        hello = {"name": self._world.name, **asked}
        service = m.service_name(holder.server, address)
        return connect(address, self._world.secret, hello, self._world.tls, _ATTEMPT, service, retries=False)

    def _lost(self) -> dict[int, str]:
        return {
            int(name.removeprefix("worker ")): member["why"] or "it has ended its program"
            for name, member in self._store.roster().items()
            if name.startswith("worker ") and member["state"] != "here"
        }
