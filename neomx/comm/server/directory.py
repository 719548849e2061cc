"""How a worker finds the processes of the servers of its job."""

from __future__ import annotations

import json
import time
from typing import NoReturn

from ..chain import Chain, Chains, Holder, host_key
from ..store import THE_STORE, PeerError, StoreClient
from ..wire import WireError, connect
from ..world import World
from . import messages as m
from .elastic_shard import Generation
from .remote import Link

_PAUSE = 0.02  # seconds until the chain of a server is read again
_ATTEMPT = 2.0  # seconds to connect to a process that may be lost, and for its reply
_START = 30.0  # seconds to connect to a server


class Directory:
    """Connects a worker, for one of its stores, to the processes that lead the servers of its job."""

    def __init__(self, world: World, store: StoreClient, space: int, staleness: int | None):
        self.store = store
        self.is_replicated, self.is_elastic = world.replicas > 1, world.is_elastic
        self._world, self._chains = world, Chains(store)
        self._hello = {
            "name": world.name,
            "rank": world.number,
            "space": space,
            "staleness": staleness,
            **m.host_of(world),
        }

    def follow(self, generation: Generation) -> None:
        """Connect as a member of this generation from now on."""
        self._hello["generation"] = generation.told()

    def connect(self, number: int, again: bool = False) -> Link:
        """Connect to a server; `again` if this worker was connected before. Raises PeerError if no process holds it."""
        if not self.is_replicated:
            try:
                return self._dial(number, {}, min(self._world.timeout, _START))
            except WireError as error:
                raise PeerError(f"server {number}: {error}. {self.store.missing([f'server {number}'])}") from error
        deadline = time.monotonic() + self._world.timeout
        if not again:
            self._await_holders(number, deadline)
        why = "none answers"
        while time.monotonic() < deadline:
            chain = self._chains.read(number)
            assert chain is not None
            try:
                if (link := self._try(number, chain.head, again)) is not None:
                    return link
            except WireError as error:
                why = str(error)
                self._check(number, chain)
            time.sleep(_PAUSE)
        raise PeerError(
            f"timed out after {self._world.timeout:g} s waiting for a server that leads shard {number} of the "
            f"parameters: {why}. {self.store.missing()}"
        )

    def _try(self, number: int, holder: Holder, again: bool) -> Link | None:
        """Connect to a process if it leads the server."""
        link = self._dial(holder.server, {"server": number, "again": again}, _ATTEMPT, retries=False)
        try:
            if link.connection.receive(timeout=_ATTEMPT).kind == m.DONE:
                return link
        except BaseException:
            link.drop()
            raise
        link.drop()
        return None

    def _dial(self, process: int, asked: dict[str, object], timeout: float, retries: bool = True) -> Link:
        name = f"server {process}"
        address = self.store.get_from(name, f"server/{process}").decode()
        theirs = json.loads(self.store.get_from(name, host_key(process)))
        service = m.service_name(process, address)
        hello = {**self._hello, **asked}
        connection = connect(address, self._world.secret, hello, self._world.tls, timeout, service, retries)
        return Link(name, connection, m.are_near(self._hello, theirs))

    def _await_holders(self, number: int, deadline: float) -> None:
        """Wait until all servers that shall hold a shard do, except those that are gone."""
        candidates = [(number + i) % self._world.servers for i in range(self._world.replicas)]
        while True:
            chain = self._chains.read(number)
            there = set() if chain is None else {holder.server for holder in chain.holders}
            missing = [f"server {each}" for each in candidates if each not in there]
            awaited = [name for name in missing if name not in self.store.gone]
            if chain is not None and not awaited:
                return
            if THE_STORE in self.store.gone or not awaited or time.monotonic() > deadline:
                raise PeerError(
                    f"shard {number} of the parameters is not ready: it needs {', '.join(missing)}. "
                    f"{self.store.missing(missing)}"
                )
            time.sleep(_PAUSE)

    def _check(self, number: int, chain: Chain) -> None:
        """Raise if no process holds a shard any more."""
        is_lost = not any(map(self._chains.is_here, chain.holders))
        if THE_STORE in self.store.gone or (is_lost and self._chains.read(number) == chain):  # none was added meanwhile
            self._give_up(number, chain)

    def _give_up(self, number: int, chain: Chain) -> NoReturn:
        now = time.strftime("%H:%M:%S UTC", time.gmtime())
        lost = "; ".join([*chain.lost, self.store.missing([holder.name for holder in chain.holders])])
        raise PeerError(
            f"shard {number} of the parameters is lost: no server that held it is left at {now}: {lost}. Resume from a "
            "checkpoint"
        )
