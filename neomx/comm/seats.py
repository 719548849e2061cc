"""Where the workers of an elastic job sit in its layout: replicas of the model, and places in a replica.

A worker has a *place*: its coordinates along all dimensions except `data`, which determine its part of the model. The
workers of all places are a replica. `data` is the number of replicas, which changes; places never do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Seats:
    """The places of a layout, in the order of ranks. Without a layout, each worker is a replica."""

    outer: int = 1  # the number of workers along the dimensions outside of `data` in the mesh
    inner: int = 1  # along those inside of it
    heads: tuple[int, ...] = (0,)  # for each place, the first place in the replica that has the same samples
    layout: str = ""  # at the start, for messages

    @property
    def places(self) -> int:
        """The number of workers in a replica."""
        return self.outer * self.inner

    def rank(self, replica: int, place: int, replicas: int) -> int:
        """Return the rank of a place in a replica, if there are so many replicas."""
        outside, inside = divmod(place, self.inner)
        return (outside * replicas + replica) * self.inner + inside

    def place(self, rank: int, replicas: int) -> int:
        """Return the place of a rank."""
        return rank // (replicas * self.inner) * self.inner + rank % self.inner

    def replicas(self, members: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the members of each replica by place, from all members in the order of their ranks."""
        count = len(members) // self.places
        return [
            tuple(members[self.rank(replica, place, count)] for place in range(self.places)) for replica in range(count)
        ]

    def members(self, replicas: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the members of replicas in the order of their ranks."""
        count = len(replicas)
        found = [0] * (count * self.places)
        for number, replica in enumerate(replicas):
            for place, member in enumerate(replica):
                found[self.rank(number, place, count)] = member
        return tuple(found)

    def sharers(self, members: Sequence[int]) -> tuple[int, ...]:
        """Return the members among whom samples are divided: of those that have the same samples, the first."""
        count = len(members) // self.places
        places = [self.place(rank, count) for rank in range(len(members))]
        return tuple(member for member, place in zip(members, places, strict=True) if self.heads[place] == place)

    def replica_of(self, members: Sequence[int], member: int) -> tuple[int, ...]:
        """Return the replica of a member."""
        return next(each for each in self.replicas(members) if member in each)

    def beside(self, members: Sequence[int], member: int) -> list[int]:
        """Return the members that have the same part of the model as a member, including it."""
        place = self.replica_of(members, member).index(member)
        return [replica[place] for replica in self.replicas(members)]


def complete(waiting: Sequence[tuple[int, int]], places: int, most: int) -> list[tuple[int, ...]]:
    """Return up to `most` new replicas of workers that wait, given as (member, place) in the order of requests."""
    by_place = [[member for member, its in waiting if its == place] for place in range(places)]
    return list(zip(*by_place, strict=False))[: max(0, most)]


def whole(replicas: Sequence[tuple[int, ...]], here: Collection[int]) -> list[tuple[int, ...]]:
    """Return the replicas of which all members are here."""
    return [replica for replica in replicas if all(member in here for member in replica)]
