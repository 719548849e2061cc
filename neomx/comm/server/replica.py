"""A replica: all stores of one server, in one of the processes that hold them.

The process that leads serves workers. It feeds the next holder with its operations, and that one the next. A new holder
is filled by the last one, a few slots at a time, while operations go on: those on slots that it already has are sent as
well, and the others are contained in what is still to be sent.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from ..wire import Frame, Refused, as_bytes
from . import messages as m
from .arena import attach, view
from .elastic_shard import ElasticShard, Generation
from .log import Feed, Operation, Outlet
from .messages import KeySpec, Settings, SparseRows, field
from .shard import Shard
from .slot import Offer, Pushed, Slot, groups
from .space import MakeRule, Space, rows_of

Answer = Callable[[int, Any], object]  # sends a frame to the previous holder
_PER_WEIGHT = 16  # an optimizer keeps at most a few arrays for each weight
_LIMIT = 1 << 24  # bytes of an optimizer without states, or of values that are no arrays


class Replica:
    """The stores of server `home` of a job with this many servers and workers."""

    def __init__(
        self,
        home: int,
        servers: int,
        workers: int,
        timeout: float,
        make_rule: MakeRule,
        whereabouts: Callable[[int], str] = str,
        replicas: int = 1,
        is_elastic: bool = False,
    ):
        self.home, self.servers, self.workers = home, servers, workers
        self.spaces: dict[int, Space] = {}
        self._timeout, self._make_rule, self._whereabouts = timeout, make_rule, whereabouts
        self.is_replicated, self.is_elastic = replicas > 1, is_elastic
        self._leads = not self.is_replicated
        self._guard = threading.RLock()
        self._outlet: Outlet | None = None
        self._is_followed = False
        # On the current connection to the previous holder: how to answer, and what it was told and has told.
        self._answer: Answer = lambda kind, meta: None
        self._acknowledged: dict[int, int] = {}
        self._settings: dict[int, Settings] = {}
        self._buffers: dict[tuple[int, int], torch.Tensor] = {}  # those of the previous holder by store and chunk

    def open(self, number: int, staleness: int | None) -> Space:
        """Return a store, after creating it if it is new."""
        with self._guard:
            if number not in self.spaces:
                kind = ElasticShard if self.is_elastic else Shard
                shard = kind(self.workers, staleness, self._timeout, self._whereabouts)
                if not self._leads:
                    shard.follow()
                self.spaces[number] = space = Space(number, self.home, shard, self._make_rule, self.is_replicated)
                if self._is_followed:
                    feed = Feed(space, self._outlet)
                    shard.log.attach(feed)
                    if self._outlet is not None:
                        self._outlet.send(m.SPACE, *_described(space))
            return self.spaces[number]

    def lose(self, rank: int, why: str) -> None:
        """Handle the loss of a worker."""
        for space in self._all():
            space.shard.gone(rank, why)

    def close(self) -> None:
        """Stop serving, and release the memory."""
        self.follow()
        for space in self._all():
            space.shard.end()
            space.close()

    def _all(self) -> list[Space]:
        with self._guard:
            return list(self.spaces.values())

    # ---- leading ----

    def lead(self, lost: Mapping[int, str]) -> None:
        """Serve workers from now on, except those that are lost."""
        with self._guard:
            self._leads = True
        for rank, why in lost.items():
            self.lose(rank, why)
        for space in self._all():
            space.shard.lead()

    def follow(self) -> None:
        """Stop serving workers."""
        with self._guard:
            self._leads = False
        for space in self._all():
            space.shard.follow()

    @property
    def is_settled(self) -> bool:
        """Whether all following holders have applied all operations."""
        return all(space.shard.log.held == space.shard.log.number for space in self._all())

    # ---- the next holder ----

    def fill(self, outlet: Outlet) -> Iterator[Any]:
        """Give a new holder everything, and the operations from now on. Yield what `send` returned for each part."""
        with self._guard:
            spaces = self._all()
            self._outlet, self._is_followed = outlet, True
            for space in spaces:
                with space.shard.applying:
                    space.shard.log.attach(Feed(space, outlet, set(space.shard.slots)))
                    outlet.send(m.SPACE, *_described(space))
        for space in spaces:
            feed = space.shard.log.feed
            if feed is None:
                return  # the new holder is gone
            for group in groups([slot for slot in list(space.shard.slots.values()) if not feed.covers(slot)]):
                with space.shard.applying:
                    if feed is not space.shard.log.feed:
                        return
                    sent = outlet.send(m.FILL, *_contents(space, group))
                    feed.unsent.difference_update(slot.number for slot in group)
                yield sent
        yield outlet.send(m.FULL, {})

    def resume(self, outlet: Outlet, have: Mapping[int, int]) -> bool:
        """Give another holder, which has operations up to these, the later ones. Return False if it lacks others."""
        with self._guard:
            spaces = self._all()
            if not all(space.shard.log.covers(have.get(space.number, 0)) for space in spaces):
                return False
            self._outlet, self._is_followed = outlet, True
            for space in spaces:
                with space.shard.applying:
                    if space.number not in have:
                        outlet.send(m.SPACE, *_described(space, empty=True))
                    space.shard.log.resume(Feed(space, outlet), have.get(space.number, 0))
            outlet.send(m.FULL, {})
            return True

    def await_holder(self) -> None:
        """Keep operations for another holder that is not connected yet. Nothing is acknowledged meanwhile."""
        with self._guard:
            if self._is_followed and self._outlet is None:
                return
            self._outlet, self._is_followed = None, True
            for space in self._all():
                with space.shard.applying:
                    space.shard.log.attach(Feed(space))

    def release(self) -> None:
        """Wait for no other holder any more: none follows."""
        with self._guard:
            if not self._is_followed:
                return
            self._outlet, self._is_followed = None, False
            for space in self._all():
                space.shard.release()
                self._report(space)

    def hear(self, frame: Frame) -> None:
        """Handle a message of the next holder: the operations that it has applied, or memory that it can read."""
        space = self._space(frame.meta)
        if frame.kind == m.HELD:
            space.shard.acknowledge(_whole(frame.meta, "n"))
            self._report(space)
        elif frame.kind == m.MAPPED and (feed := space.shard.log.feed) is not None:
            feed.mapped.add(field(frame.meta, "name", str))

    def _report(self, space: Space) -> None:
        """Acknowledge to the previous holder what this one and all after it have applied."""
        held = space.shard.log.held
        if held > self._acknowledged.get(space.number, 0):
            self._acknowledged[space.number] = held
            self._answer(m.HELD, {"space": space.number, "n": held})

    # ---- the previous holder ----

    def begin_following(self, answer: Answer) -> dict[int, int]:
        """Prepare for a new connection to the previous holder. Return the last operation of each store."""
        with self._guard:
            self._answer, self._acknowledged, self._settings, self._buffers = answer, {}, {}, {}
            return {space.number: space.shard.log.number for space in self._all()}

    def room(self, kind: int, meta: Any, nbytes: int) -> memoryview:
        """Return memory for the payload of a frame, not larger than the frame requires."""
        if kind not in TAKEN and kind not in (m.MOVED, m.FAILED):
            raise Refused(f"the previous holder sent a frame of unknown kind {kind}")
        limit = _LIMIT
        if nbytes and kind in (m.FILL, m.UPDATE, m.OFFER):
            slots = self._slots(self._space(meta), meta)
            limit += sum(_PER_WEIGHT * slot.nbytes + 8 * slot.weight.numel() for slot in slots)
        elif nbytes and kind == m.KEYS:
            limit = sum(self._space(meta).sizes(self._specs(meta["keys"])))
        elif nbytes and kind == m.ONCE:
            limit += _PER_WEIGHT * sum(slot.nbytes for slot in self._space(meta).shard.slots.values())
        if nbytes > limit:
            raise Refused(
                f"the previous holder sent {nbytes} bytes in a frame of kind {kind}, expected at most {limit}"
            )
        return memoryview(bytearray(nbytes))

    def take(self, frame: Frame) -> None:
        """Apply a frame of the previous holder."""
        if frame.kind == m.FULL:
            for space in self._all():
                self._report(space)
            return
        try:
            if frame.kind == m.SPACE:
                self._take_space(frame.meta, frame.payload)
                return
            space = self._space(frame.meta)
            _OF_SPACE[frame.kind](self, space, frame.meta, frame.payload)
        except (KeyError, TypeError, ValueError) as error:
            raise Refused(f"the previous holder sent {frame.meta!r:.80}: {error!r:.80}") from error
        self._report(space)

    def _space(self, meta: Any) -> Space:
        number = _whole(meta, "space")
        if number not in self.spaces:
            raise Refused(f"another server named store {number}, which does not exist")
        return self.spaces[number]

    def _slots(self, space: Space, meta: Any) -> list[Slot]:
        try:
            return [space.shard.slots[number] for number in field(meta, "k", list)]
        except (KeyError, TypeError):
            raise Refused(f"the previous holder named slots that do not exist: {meta!r:.80}") from None

    def _specs(self, told: Any) -> list[KeySpec]:
        return [KeySpec.heard(each, self.servers) for each in told]

    def _take_space(self, meta: Any, payload: memoryview) -> None:
        staleness = None if meta["staleness"] is None else m.whole(meta["staleness"])
        space = self.open(_whole(meta, "space"), staleness)
        space.restore_keys([self._specs(batch) for batch in meta["keys"]])
        if payload.nbytes:
            space.set_rule(bytes(payload))
        shard = space.shard
        shard.log.number = _whole(meta, "n")
        shard.generations.update({str(what): m.whole(count) for what, count in meta["generations"]})
        shard.failures.update({(str(what), m.whole(count)): str(why) for what, count, why in meta["failures"]})
        shard.broken, shard.joined = str(meta["broken"]), {m.whole(rank) for rank in meta["joined"]}
        if isinstance(shard, ElasticShard) and meta["generation"] is not None:
            shard.begin(Generation.heard(meta["generation"]))

    def _take_contents(self, space: Space, meta: Any, payload: memoryview) -> None:
        at = 0
        for slot, rounds, commits in zip(self._slots(space, meta), meta["round"], meta["commits"], strict=True):
            if slot.nbytes:
                as_bytes(slot.weight)[:] = payload[at : at + slot.nbytes]
            at += slot.nbytes
            slot.round = m.whole(rounds)
            slot.commits.update({m.whole(rank): m.whole(count) for rank, count in commits})
        for number, step, how in meta["offers"]:
            slot = space.shard.slots[number]
            gradient, at = self._gradient(space, slot, how, payload, at, None)
            slot.offers[None] = Offer(m.whole(step), gradient, _whole(meta, "n"))
        if at < payload.nbytes:
            space.shard.required_rule().join(bytes(payload[at:]))
        space.shard.log.number = _whole(meta, "n")  # those on other slots were not sent

    def _take_offer(self, space: Space, meta: Any, payload: memoryview) -> None:
        assert isinstance(space.shard, ElasticShard)
        slots, gradients, _ = self._gradients(space, meta, payload)
        offer = Operation(m.OFFER, {"t": _whole(meta, "t")}, (), slots, gradients)
        with space.shard.updating(slots, follows=True):
            space.shard.offer(offer, _whole(meta, "n"))

    def _take_generation(self, space: Space, meta: Any, payload: memoryview) -> None:
        assert isinstance(space.shard, ElasticShard)
        space.shard.regroup(Generation.heard(meta), _whole(meta, "n"))

    def _gradients(self, space: Space, meta: Any, payload: memoryview) -> tuple[list[Slot], list[Pushed], bytes]:
        """Return slots with their gradients, and the state of the rule that belongs to no slot."""
        slots, at = self._slots(space, meta), m.whole(meta.get("b", 0))
        shared, gradients = bytes(payload[:at]), []
        for slot, how in zip(slots, field(meta, "g", list), strict=True):
            gradient, at = self._gradient(space, slot, how, payload, at, meta.get("r"))
            gradients.append(gradient)
        return slots, gradients, shared

    def _take_update(self, space: Space, meta: Any, payload: memoryview) -> None:
        shard = space.shard
        slots, gradients, shared = self._gradients(space, meta, payload)
        kept = {name: m.whole(meta[name]) for name in ("r", "z") if name in meta}
        update = Operation(m.UPDATE, kept, (), slots, gradients, self._heard(space, meta))
        with shard.updating(slots, follows=True):
            if shared:
                shard.required_rule().join(shared)
            shard.apply(update, _whole(meta, "n"))

    def _heard(self, space: Space, meta: Any) -> Settings | None:
        """Return the settings of an update: those told before, with changes."""
        if meta.get("f"):
            return None
        told = self._settings.setdefault(space.number, {})
        if "s" in meta:
            told = self._settings[space.number] = {**told, **m.settings(meta["s"])}
        return told

    def _gradient(
        self, space: Space, slot: Slot, how: Any, payload: memoryview, at: int, rank: Any
    ) -> tuple[Pushed, int]:
        """Return a gradient, and where the next one begins in the payload."""
        if how is None:
            return None, at
        if how == "offer":
            return slot.offers[None].gradient, at
        if how in ("buffer", "worker"):
            chunk = slot.chunk
            memory = self._buffers[space.number, chunk] if how == "buffer" else space.of_workers[rank, chunk][1]
            return view(memory, slot.offset, slot.weight.shape, slot.weight.dtype), at
        if how == "sent":
            memory = torch.empty_like(slot.weight)
            if slot.nbytes:
                as_bytes(memory)[:] = payload[at : at + slot.nbytes]
            return memory, at + slot.nbytes
        count = m.whole(how)
        end = at + count * (8 + slot.nbytes // max(1, slot.weight.shape[0]))
        return rows_of(payload[at:end], count, slot, "the previous holder"), end

    def _take_keys(self, space: Space, meta: Any, payload: memoryview) -> None:
        space.create(self._specs(meta["keys"]), payload, "the previous holder", _whole(meta, "n"))

    def _take_action(self, space: Space, meta: Any, payload: memoryview) -> None:
        space.act(str(meta["what"]), _whole(meta, "generation"), bytes(payload), _whole(meta, "n"))

    def _take_join(self, space: Space, meta: Any, payload: memoryview) -> None:
        counts = {m.whole(slot): m.whole(count) for slot, count in meta["counts"]}
        space.shard.follow_join(_whole(meta, "rank"), counts, _whole(meta, "n"))

    def _take_leave(self, space: Space, meta: Any, payload: memoryview) -> None:
        space.shard.leave(_whole(meta, "rank"), str(meta["why"]), number=_whole(meta, "n"))

    def _take_memory(self, space: Space, meta: Any, payload: memoryview) -> None:
        chunk, nbytes = _whole(meta, "chunk"), _whole(meta, "nbytes")
        if chunk >= len(space.arena.chunks) or nbytes != space.arena.chunks[chunk].nbytes:
            raise Refused(f"the previous holder shares memory of a chunk that does not exist: {meta!r:.80}")
        name = field(meta, "name", str)
        memory = attach(name, nbytes)
        if memory is None:
            return
        if "rank" in meta:
            space.of_workers[_whole(meta, "rank"), chunk] = name, memory
        else:
            self._buffers[space.number, chunk] = memory
        self._answer(m.MAPPED, {"space": space.number, "name": name})


_OF_SPACE: dict[int, Callable[[Replica, Space, Any, memoryview], None]] = {
    m.FILL: Replica._take_contents,
    m.UPDATE: Replica._take_update,
    m.OFFER: Replica._take_offer,
    m.GENERATION: Replica._take_generation,
    m.KEYS: Replica._take_keys,
    m.ONCE: Replica._take_action,
    m.JOINED: Replica._take_join,
    m.LEFT: Replica._take_leave,
    m.MEMORY: Replica._take_memory,
}
TAKEN = frozenset([*_OF_SPACE, m.SPACE, m.FULL])  # frames of the previous holder


def _whole(meta: Any, name: str) -> int:
    """Return a nonnegative integer of a received message."""
    value: int = field(meta, name, int)
    if value < 0:
        raise Refused(f"a frame contains {meta!r:.80}: expected {name} >= 0")
    return value


def _described(space: Space, empty: bool = False) -> tuple[Any, ...]:
    """Return a frame with all of a store but weights and states. If `empty`, operations will bring the rest too."""
    shard = space.shard
    told: dict[str, Any] = {"space": space.number, "staleness": shard.staleness, "n": 0, "keys": []}
    told |= {"generations": [], "failures": [], "broken": "", "joined": [], "generation": None}
    if empty or not shard.log.number:
        return (told,)
    told |= {
        "n": shard.log.number,
        "keys": [[spec.told() for spec in batch] for batch in space.batches],
        "generations": list(shard.generations.items()),
        "failures": [[what, count, why] for (what, count), why in shard.failures.items()],
        "broken": shard.broken,
        "joined": sorted(shard.joined),
    }
    if isinstance(shard, ElasticShard) and shard.generation:
        told["generation"] = Generation(shard.generation, tuple(shard.members), 0).told()
    return told, b"" if shard.rule is None else shard.rule.part(None)


def _contents(space: Space, slots: Sequence[Slot]) -> tuple[Any, ...]:
    """Return a frame with copies of the weights of slots, and with their states."""
    keys = [slot.spec.key for slot in slots]
    rule = space.shard.rule
    offers: list[tuple[int, int, None | int | str]] = []
    offered: list[torch.Tensor] = []
    for slot in slots:
        for offer in slot.offers.values():
            if isinstance(offer.gradient, SparseRows):
                offers.append((slot.number, offer.step, len(offer.gradient.indices)))
                offered += offer.gradient
            else:
                offers.append((slot.number, offer.step, None if offer.gradient is None else "sent"))
                offered += [] if offer.gradient is None else [offer.gradient.clone()]
    meta = {
        "space": space.number,
        "n": space.shard.log.number,
        "k": [slot.number for slot in slots],
        "round": [slot.round for slot in slots],
        "commits": [list(slot.commits.items()) for slot in slots],
        "offers": offers,
    }
    return meta, *(slot.weight.clone() for slot in slots), *offered, b"" if rule is None else rule.part(keys)
