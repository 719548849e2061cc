"""Messages between two members of a group, over a network that is opened by the first message."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future

from .buckets import Courier
from .membership import Membership
from .network import Network

Finish = Callable[[], None]
_OPEN = "network"


class Messages:
    """The messages of one member. `network` is the network of the group if it is already open."""

    def __init__(self, members: Membership, network: Network | None) -> None:
        self._members, self._network = members, network
        self._waits = network is None  # whether other members may open the network later than this one
        self._begun: dict[int, Future[None]] = {}  # by member: the last message that had to wait for it
        self._couriers: dict[int, Courier] = {}

    def network_of_all(self) -> Network:
        """Return the network, open on all members. All members must call this."""
        network = self._opened()
        for member in range(self._members.size):
            self._members.await_announced(_OPEN, member)
        return network

    def _opened(self) -> Network:
        if self._network is None:
            self._network = self._members.connect("world", list(range(self._members.size)), lazy=True)
            self._members.announce(_OPEN)
        return self._network

    def start(self, other: int, begin: Callable[[Network], Finish]) -> Finish:
        """Start a message to or from a member. Return a function that waits for its completion.

        The other member may open its side of the connection much later, possibly only after something that this member
        must do first. Until then messages start in a thread, one per member, in order.
        """
        network, before = self._opened(), self._begun.get(other)
        if not self._waits or before is not None and before.done() and before.exception() is None:
            if (idle := self._couriers.pop(other, None)) is not None:
                idle.close()
            return begin(network)
        if other not in self._couriers:
            self._couriers[other] = Courier("messages")
        begun: list[Finish] = []  # emptied by `finish`: pending work of gloo keeps its connections open

        def errand() -> None:
            self._members.await_announced(_OPEN, other)
            begun.append(begin(network))

        future = self._begun[other] = self._couriers[other].send(errand)

        def finish() -> None:
            future.result()
            begun.pop()()

        return finish
