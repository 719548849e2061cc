"""A shard in an elastic job, whose workers come and go: a round takes effect if its step of the training counts.

A complete round is an *offer* first: all holders of the shard keep its sums. When all workers know that all servers
have the offers of a step, they settle it, which applies them. If a worker is lost before, the others agree on whether
the step counts (`comm/generations.py`), connect again as members of a new generation, and drop or settle the offers.
What arrives on connections of an earlier generation is refused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ..wire import Closed, Refused
from . import messages as m
from .log import Operation
from .messages import Settings, field
from .shard import Shard
from .slot import Offer, Slot, groups

_MOST = 1 << 16  # members of a generation


@dataclass(frozen=True)
class Generation:
    """The workers that train together, in the order of their ranks, and the number of steps that count."""

    number: int
    members: tuple[int, ...]
    steps: int

    def told(self) -> dict[str, Any]:
        """Return it as the fields of a frame."""
        return {"number": self.number, "members": list(self.members), "steps": self.steps}

    @staticmethod
    def heard(said: Any) -> Generation:
        """Validate the fields of a frame."""
        members = field(said, "members", list)
        try:
            found = Generation(m.whole(said["number"]), tuple(map(m.whole, members)), m.whole(said["steps"]))
        except (KeyError, ValueError) as error:
            raise Refused(f"expected a generation of workers, received {said!r:.80}: {error!r:.80}") from None
        if not found.members or len(set(found.members)) < len(members) or len(members) > _MOST:
            raise Refused(f"expected distinct members of a generation, received {said!r:.80}")
        return found


class ElasticShard(Shard):
    """The slots of one store on one server, in an elastic job."""

    generation = 0
    actions: Sequence[tuple[str, int]] = ()  # how often each action had run when the generation began

    def regroup(self, now: Generation, number: int | None = None) -> None:
        """Go on with the workers of a new generation, unless it has begun: drop the offers of steps that do not count.

        `number` is that of the leader's operation.
        """
        with self.applying, self._changed:
            if now.number <= self.generation:
                return
            slots = list(self.slots.values())
            dropped = [slot for slot in slots if any(offer.step > now.steps for offer in slot.offers.values())]
            self.log.append(Operation(m.GENERATION, now.told(), (), dropped), number)
            self.begin(now)
            for slot in slots:
                slot.reset()
                slot.offers = {rank: offer for rank, offer in slot.offers.items() if offer.step <= now.steps}
                slot.commits = defaultdict(int, dict.fromkeys(now.members, slot.round + bool(slot.offers)))
            self._changed.notify_all()

    def begin(self, now: Generation) -> None:
        """Serve only workers that connect as members of this generation."""
        self.generation, self.members, self.actions = now.number, now.members, list(self.generations.items())
        self._dismissed = self.living | self._waits.keys()
        self._stays.clear()
        self.living.clear()

    def progress(self) -> dict[str, Any]:
        """Return what a worker must know that begins in this generation: the newest keys, and the actions before it."""
        newest = {spec.key: spec for spec in self.directory.values()}  # later generations come later
        return {"keys": [spec.told() for spec in newest.values()], "actions": self.actions}

    # ---- rounds ----

    def _complete(self, slots: list[Slot]) -> None:
        """Keep the sums of complete rounds. Without a rule they change no weights: workers read them at once."""
        if self.rule is None:
            super()._complete(slots)
            return
        for group in groups(self.log.ordered(slots)):
            with self.updating(group):
                taken = [slot for slot in group if slot.taken and None not in slot.offers]
                if taken:
                    gradients = [slot.sum for slot in taken]
                    self.offer(Operation(m.OFFER, {"t": taken[0].step}, (), taken, gradients))

    def offer(self, offer: Operation, number: int | None = None) -> None:
        """Keep gradients. Call it within `updating`."""
        at = self.log.number + 1 if number is None else number
        slots, step = list(offer.slots), offer.meta["t"]
        gradients = [slot.lasting(gradient, at) for slot, gradient in zip(slots, offer.gradients, strict=True)]
        offer.gradients = gradients
        self.log.append(offer, number)
        with self._changed:
            for slot, gradient in zip(slots, gradients, strict=True):
                slot.offers[None] = Offer(step, gradient, at)
            self._changed.notify_all()

    def offered(self, rank: int, slots: Sequence[Slot]) -> Iterator[list[Slot]]:
        """Yield slots as soon as all holders have the offer of the round to which this worker has committed."""
        return self._as_soon_as(self._is_offered, rank, slots)

    def _is_offered(self, slot: Slot, rank: int) -> bool:
        if slot.round >= slot.commits[rank]:
            return self._readable(slot, rank)
        offer = slot.offers.get(None)
        return offer is not None and offer.operation <= self.log.held

    def settle(self, rank: int, step: int, settings: Settings, stay: object) -> None:
        """Apply the offers of a step, unless another worker has done so. All workers have them."""
        with self._changed:
            self._check_stay(rank, stay)
            slots = [slot for slot in self.slots.values() if _has_offer(slot, step)]
            for slot in slots:
                slot.settings = settings
        for group in groups(self.log.ordered(slots)):
            with self.updating(group):
                if left := [slot for slot in group if _has_offer(slot, step)]:
                    self._change(left, [slot.offers[None].gradient for slot in left], settings)

    def hear(self, rank: int) -> None:
        """Note a message from a worker, if it belongs to the generation."""
        if rank in self._dismissed:
            raise Closed(f"worker {rank} must connect again, as a member of generation {self.generation}")
        super().hear(rank)


def _has_offer(slot: Slot, step: int) -> bool:
    return None in slot.offers and slot.offers[None].step == step
