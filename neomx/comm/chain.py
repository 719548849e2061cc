"""Which server processes hold a shard of the parameters, as they agree in the job's store.

The holders of a shard form a chain. Workers talk to the first one. Each passes the operations on to the next, so a
holder has every operation that the ones after it have. All changes are compare-and-set operations on one key, so
processes that suspect each other agree on which of them remains. This module does not import torch: launchers use it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from ..base import MXNetError
from .store import MemberInfo

_KEPT = 16  # lost holders that a chain remembers for errors


class Holder(NamedTuple):
    """A server process: its number, and a token that differs for each process with that number."""

    server: int
    life: str

    @property
    def name(self) -> str:
        """Its name in the roll call."""
        return f"server {self.server}"


@dataclass(frozen=True)
class Chain:
    """The holders of a shard in order, and when others were lost. The version makes each change unique."""

    holders: tuple[Holder, ...]
    lost: tuple[str, ...] = ()
    version: int = 0

    @property
    def head(self) -> Holder:
        """The holder that workers talk to."""
        return self.holders[0]

    @property
    def tail(self) -> Holder:
        """The holder that fills a new one."""
        return self.holders[-1]

    def before(self, holder: Holder) -> Holder | None:
        """Return the holder from which this one receives operations, if any."""
        at = self.holders.index(holder)
        return self.holders[at - 1] if at else None

    def after(self, holder: Holder) -> Holder | None:
        """Return the holder to which this one passes operations on, if any."""
        at = self.holders.index(holder) + 1
        return self.holders[at] if at < len(self.holders) else None

    def with_(self, holder: Holder) -> Chain:
        """Return the chain with a new last holder."""
        return self._changed((*self.holders, holder))

    def without(self, holder: Holder) -> Chain:
        """Return the chain without a lost holder."""
        when = time.strftime("%H:%M:%S UTC", time.gmtime())
        rest = tuple(each for each in self.holders if each != holder)
        return replace(self._changed(rest), lost=(*self.lost, f"{holder.name} until {when}")[-_KEPT:])

    def led_by(self, holder: Holder) -> Chain:
        """Return the chain with one of its holders moved to the beginning."""
        return self._changed((holder, *(each for each in self.holders if each != holder)))

    def _changed(self, holders: tuple[Holder, ...]) -> Chain:
        return replace(self, holders=holders, version=self.version + 1)

    def dumps(self) -> bytes:
        """Return the chain as JSON."""
        return json.dumps([self.version, self.holders, self.lost]).encode()

    @staticmethod
    def loads(data: bytes) -> Chain:
        """Return the chain from the result of `dumps`."""
        try:
            version, holders, lost = json.loads(data)
            return Chain(tuple(Holder(int(number), str(life)) for number, life in holders), tuple(lost), int(version))
        except (ValueError, TypeError) as error:
            raise MXNetError(f"invalid chain in the job's store: {data!r:.80} ({error})") from None


class Values(Protocol):
    """The part of the job's store that chains need."""

    gone: dict[str, str]

    def check(self, keys: Collection[str]) -> bool:
        """Whether all keys have values."""

    def get(self, key: str) -> bytes:
        """Return a value."""

    def compare_set(self, key: str, expected: bytes, desired: bytes) -> bytes:
        """Set a value if the current one is as expected. Return the current value."""

    def roster(self) -> dict[str, MemberInfo]:
        """Return all processes that ever joined, by name."""


class Chains:
    """The chains of all shards in the job's store."""

    def __init__(self, store: Values):
        self._store = store
        self._begun: set[str] = set()

    def read(self, shard: int) -> Chain | None:
        """Return the chain of a shard, or None if it has not begun."""
        key = key_of(shard)
        if key not in self._begun and not self._store.check([key]):
            return None
        self._begun.add(key)
        return Chain.loads(self._store.get(key))

    def begin(self, shard: int, holder: Holder) -> None:
        """Begin the chain of a shard, unless it exists."""
        self._store.compare_set(key_of(shard), b"", Chain((holder,)).dumps())

    def change(self, shard: int, before: Chain, after: Chain) -> bool:
        """Replace a chain. Return False if it is no longer as it was before."""
        return self._store.compare_set(key_of(shard), before.dumps(), after.dumps()) == after.dumps()

    def is_silent(self, holder: Holder) -> bool:
        """Whether a holder that is connected may have stopped, according to the last heartbeat."""
        return holder.name in self._store.gone

    def is_here(self, holder: Holder) -> bool:
        """Whether the process of a holder runs, according to the roll call."""
        member = self._store.roster().get(holder.name)
        return member is not None and member["state"] == "here" and self.life(holder.server) == holder.life

    def life(self, server: int) -> str:
        """Return the token of the newest process of a server, or an empty string."""
        key = host_key(server)
        return _life(self._store.get(key)) if self._store.check([key]) else ""


def key_of(shard: int) -> str:
    """Return the key of a shard's chain."""
    return f"server/chain/{shard}"


def host_key(server: int) -> str:
    """Return the key under which a server says where it runs."""
    return f"server/{server}/host"


def survives(get: Callable[[str], bytes | None], dead: set[Holder], server: int) -> bool:
    """Add the process of a server that has ended to the `dead`. Return whether each shard has a living holder.

    `get` returns a value of the job's store, or None. Without replicas there are no chains, and no server may end.
    """
    dead.add(Holder(server, _life(get(host_key(server)) or b"{}")))
    shard = 0
    while (told := get(key_of(shard))) is not None:
        if not set(Chain.loads(told).holders) - dead:
            return False
        shard += 1
    return shard > 0


def _life(host: bytes) -> str:
    return str(json.loads(host).get("life", ""))
