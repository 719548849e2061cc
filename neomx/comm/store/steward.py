"""The leader's choice of the replicas that vote: an odd number, without those that do not answer."""

from __future__ import annotations

import math
from collections.abc import Collection

from ..wire import split_address
from .log import Log
from .messages import address_of

SILENT = 3.0  # seconds without an answer after which another replica takes the place of a voter


class Steward:
    """Changes the voters of a log step by step. A majority of the voters has to agree to each step."""

    def __init__(self, wanted: int, silent: float = SILENT):
        """There are `wanted` voters if there are as many replicas, otherwise the largest odd number of them."""
        self._wanted, self._silent = wanted, silent
        self._looked = self._began = -math.inf
        self._next: set[str] | None = None  # the voters after the next change
        self._since = 0.0  # since when this is the next change

    def tend(self, log: Log, offers: Collection[str], now: float) -> list[str]:
        """Take the next step, if the replica leads. Return the replicas that do not answer: their offers are void.

        `offers` are the replicas that may keep the log, with the leader. Other replicas are to be voters no longer.
        """
        if now - self._looked > self._silent / 3:  # this process did not run, or did not lead
            self._began = now
        self._looked = now
        if not log.may_change:
            return []
        known = [name for name in (*log.voters, *log.learners) if name != log.me]
        void = [name for name in known if name in offers and now - max(log.heard(name), self._began) > self._silent]
        if not void:
            self._change(log, self._choose(log, offers, now), now)
        return void

    def _change(self, log: Log, voters: set[str] | None, now: float) -> None:
        """Change the voters, once it is certain that those after the change can commit it.

        This needs answers to messages sent since the change was wanted: otherwise a replica that ended just before
        might count, and the log would stop for ever.
        """
        if voters != self._next:
            self._next, self._since = voters, now
        if voters is not None:
            answering = {name for name in voters if name == log.me or log.heard(name) >= self._since}
            if voters.difference(log.voters) <= answering and 2 * len(answering) > len(voters):
                log.change(voters, now)

    def _choose(self, log: Log, offers: Collection[str], now: float) -> set[str] | None:
        """Return the voters after the next change, or None if nothing is to be changed, or cannot be yet."""
        voters = set(log.voters)
        most = min(self._wanted, len(offers))
        goal = max(1, most - 1 + most % 2)
        leaving = voters.difference(offers)
        if len(voters) > 1 and (leaving or len(voters) > goal):  # the leader is the last one to leave
            others = (leaving or voters) - {log.me} or {log.me}
            return voters - {min(others, key=lambda name: name != log.me and log.heard(name))}
        spares = self._spares(voters, offers, goal - len(voters - leaving))
        for name in log.learners:
            if name not in spares:
                log.forget(name)
        for name in spares:
            log.teach(name, now)
        if not spares or not all(log.is_caught_up(name) for name in spares):
            return None
        return voters.union(spares if len(voters) == 1 else spares[:1])

    def _spares(self, voters: set[str], offers: Collection[str], count: int) -> list[str]:
        """Return the replicas to add, on hosts without a voter if possible."""
        if count <= 0:
            return []
        found: list[str] = []
        left = [name for name in offers if name not in voters]
        while left and len(found) < count:
            hosts = {_host(name) for name in voters.union(found)}
            found.append(min(left, key=lambda name: _host(name) in hosts))
            left.remove(found[-1])
        return found


def _host(name: str) -> str:
    return split_address(address_of(name))[0]
