"""Memory for the buckets of a group, summed within each host and then slice by slice between hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch

from ..base import MXNetError
from . import memory
from .buckets import LIMIT
from .membership import Membership
from .network import Network, NetworkArea
from .transport import Absent, StagingArea, Transport


class Staging:
    """Memory for one bucket: fill `local`, call `reduce()`, read `result`, which may be the same memory.

    `local` may be filled again once `reduce` has returned and `result` was read. If `result` is separate memory
    (`result is not local`), it is valid until the next `reduce`.
    """

    def __init__(self, members: Membership, area: StagingArea) -> None:
        self._members, self._area, self._generation = members, area, members.opened_in
        self.local, self.result = area.local, area.result

    @property
    def waited(self) -> float:
        """Total seconds spent waiting for workers of this host."""
        return self._area.waited

    def reduce(self, what: str = "a bucket") -> torch.Tensor:
        """Sum the `local` of all members into `result`. Waits for them, so call it in a separate thread."""
        if self._generation != self._members.opened_in:
            raise MXNetError(f"all_reduce of {what}: its group was rebuilt, and needs new staging")
        with self._members.named("all_reduce", what):
            try:
                return self._area.reduce()
            except Absent as error:
                local = self._members.local
                raise Absent([local[place] for place in error.ranks], error.seconds) from None


def needed(nbytes: int, size: int, groups: int) -> int:
    """Return about how much memory the `size` members of a host share, in `groups`, to sum `nbytes` in buckets."""
    buckets = nbytes // LIMIT + groups
    area = memory.SharedArea.nbytes(-(-nbytes // buckets), torch.uint8, size)
    return buckets * area + groups * memory.Channel.nbytes(size)


class Stager:
    """Opens the staging memory of a group. Its members agree on the kind of memory over `transport`."""

    def __init__(self, members: Membership, transport: Transport) -> None:
        self._members, self._transport = members, transport
        self._opened = 0
        self._cross: Network | None = None  # to the other hosts, for slices of buckets
        self._aside: Network | None = None  # for whole buckets, which are summed while the group makes other calls

    def open(self, count: int, dtype: torch.dtype, device: str | torch.device) -> Staging:
        """Open memory for `count` elements. All members must make the same call."""
        self._opened += 1
        with self._members.named("staging"):
            self._transport.barrier(f"staging of {count} {dtype}".encode())
            area = self._shared(count, dtype) if torch.device(device).type == "cpu" else None
            return Staging(self._members, area or self._plain(count, dtype, device))

    def _plain(self, count: int, dtype: torch.dtype, device: str | torch.device) -> NetworkArea:
        members = self._members
        if self._aside is None and members.size > 1:
            self._aside = members.connect("aside", list(range(members.size)))
        return NetworkArea(self._aside, count, dtype, device)

    def _shared(self, count: int, dtype: torch.dtype) -> memory.SharedArea | None:
        """Open shared memory if all hosts have the same number of members, more than one, and enough memory."""
        members = self._members
        per_host = Counter(members.nodes.values())
        if members.size == 1 or len(set(per_host.values())) > 1 or len(members.local) == 1:
            return None
        cross = self._across() if len(per_host) > 1 else None
        area, why = memory.open_area(
            count,
            dtype,
            members.local.index(members.rank),
            len(members.local),
            members,
            members.key("staging", self._opened, members.nodes[members.world.number]),
            members.world.timeout,
            # Between hosts, the loss of any member breaks the sum, not only of a late one on this host.
            members.check_everyone if cross else members.check_among(members.local),
            cross,
            members.creator,
        )
        members.tell_fallback(why)
        if cross is None:
            return area
        everywhere = self._transport.all_gather_small(torch.tensor([area is not None]), b"shared memory")
        return area if bool(everywhere.all()) else None

    def _across(self) -> Callable[[torch.Tensor], None]:
        """Return a function that sums a slice with the members of the same local rank on the other hosts."""
        if self._cross is None:
            members = self._members
            place = members.local.index(members.rank)
            by_node: dict[int, list[int]] = {}
            for member, rank in enumerate(members.ranks):
                by_node.setdefault(members.nodes[rank], []).append(member)
            self._cross = members.connect(f"cross/{place}", [found[place] for found in by_node.values()])
        cross = self._cross

        def reduce(part: torch.Tensor) -> None:
            if part.numel():
                cross.all_reduce_(part, "sum")

        return reduce
