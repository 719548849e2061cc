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
            self._step(log, offers, now)
        return void

    def _step(self, log: Log, offers: Collection[str], now: float) -> None:
        voters = set(log.voters)
        most = min(self._wanted, len(offers))
        goal = max(1, most - 1 + most % 2)
        leaving = voters.difference(offers)
        if len(voters) > 1 and (leaving or len(voters) > goal):
            self._remove(log, leaving or voters, now)
            return
        spares = self._spares(voters, offers, goal - len(voters - leaving))
        for name in log.learners:
            if name not in spares:
                log.forget(name)
        for name in spares:
            log.teach(name, now)
        if spares and all(log.is_caught_up(name) and self._answers(log, name, now) for name in spares):
            log.change(voters.union(spares if len(voters) == 1 else spares[:1]), now)

    def _remove(self, log: Log, choice: set[str], now: float) -> None:
        """Remove one of some voters: another replica than the leader, the one that has been silent for longest."""
        first = min(choice, key=lambda name: (name == log.me, 0.0 if name == log.me else log.heard(name)))
        left = set(log.voters) - {first}
        if 2 * sum(self._answers(log, name, now) for name in left) > len(left):  # otherwise nothing can be committed
            log.change(left, now)

    def _answers(self, log: Log, name: str, now: float) -> bool:
        return name == log.me or now - log.heard(name) < self._silent / 3

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
