"""One store of the workers on a server: its shard, and the memory of its slots."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import torch

from ..wire import Refused, as_bytes
from . import messages as m
from .arena import Arena, Chunk, view
from .messages import KeySpec, Segment, SparseRows
from .shard import Rule, Shard
from .slot import Slot

MakeRule = Callable[[bytes], Rule]


class Space:
    """The part of a store that belongs to server `home`, in this process or in another one that holds it too."""

    def __init__(self, number: int, home: int, shard: Shard, make_rule: MakeRule, is_replicated: bool):
        """If it is replicated, sums of gradients are in shared memory, from which another holder reads them."""
        self.number, self.home, self.shard = number, home, shard
        self.arena = Arena(shared=True)
        self.declaring = threading.Lock()
        self.batches: list[list[KeySpec]] = []  # keys in the order in which memory was reserved for them
        self._make_rule, self._is_replicated = make_rule, is_replicated
        self._slots_made = 0
        self.of_workers: dict[tuple[int, int], tuple[str, torch.Tensor]] = {}  # shared gradients by rank and chunk
        self._sums: dict[int, Chunk] = {}
        self._guard = threading.Lock()

    # ---- memory ----

    def sums(self, chunk: int) -> torch.Tensor:
        """Return the memory for sums of gradients, laid out like a chunk of weights."""
        with self._guard:
            if chunk not in self._sums:
                self._sums[chunk] = Chunk(self.arena.chunks[chunk].nbytes, shared=True)
            return self._sums[chunk].bytes

    def memory(self, chunk: int, rank: int | None) -> tuple[str, torch.Tensor] | None:
        """Return the name and the memory of a worker's gradients, or with None, of sums, if they are shared."""
        if rank is not None:
            return self.of_workers.get((rank, chunk))
        sums = self._sums.get(chunk)
        return (sums.name, sums.bytes) if sums is not None and sums.name else None

    def close(self) -> None:
        """Make its memory unreachable for other processes."""
        self.arena.close()
        for chunk in list(self._sums.values()):
            chunk.close()

    # ---- keys ----

    def held(self, specs: Sequence[KeySpec]) -> list[tuple[KeySpec, Segment]]:
        """Return the segments of keys that belong here."""
        return [(spec, segment) for spec in specs for segment in spec.segments if segment.server == self.home]

    def sizes(self, specs: Sequence[KeySpec]) -> list[int]:
        """Return the bytes of these segments."""
        return [(segment.stop - segment.start) * spec.dtype.itemsize for spec, segment in self.held(specs)]

    def create(self, specs: list[KeySpec], values: memoryview, sender: object, number: int | None = None) -> None:
        """Create those of the keys that are new, with their values here. `number` is that of the leader's operation."""
        sizes = self.sizes(specs)
        if values.nbytes != sum(sizes):
            raise Refused(f"{sender} sent {values.nbytes} bytes, expected {sum(sizes)} for these keys")
        with self.declaring:
            new = self.shard.new(specs)
            starts = [sum(sizes[:i]) for i in range(len(sizes))]
            held = zip(self.held(specs), starts, sizes, strict=True)
            fresh = [values[at : at + size] for (spec, _), at, size in held if spec in new]
            slots = self._reserve(new)
            for slot, value in zip(slots, fresh, strict=True):
                if value.nbytes:
                    as_bytes(slot.weight)[:] = value
            self.shard.create(slots, new, fresh, number)

    def restore_keys(self, batches: Sequence[list[KeySpec]]) -> None:
        """Create keys of another holder, without values, at the same places as there."""
        for batch in batches:
            self.shard.add(self._reserve(batch), batch)

    def _reserve(self, new: list[KeySpec]) -> list[Slot]:
        self.batches.append(new)
        sizes = self.sizes(new)
        places = self.arena.reserve(sizes) if sizes else []
        slots, sums = [], self.sums if self._is_replicated else None
        for (spec, segment), (chunk, offset) in zip(self.held(new), places, strict=True):
            weight = view(self.arena.chunks[chunk].bytes, offset, spec.shape_of(segment), spec.dtype)
            slots.append(Slot(self._slots_made, spec, segment, chunk, offset, weight, sums))
            self._slots_made += 1
        return slots

    # ---- the rule ----

    def act(self, what: str, generation: int, data: bytes, number: int | None = None) -> None:
        """Run an action of worker 0: set the optimizer, or its states."""
        self.shard.act(what, generation, self.action(what, data), data, number)

    def action(self, what: str, data: bytes) -> Callable[[], None]:
        """Return an action of worker 0."""
        return {m.SET_OPTIMIZER: lambda: self.set_rule(data), m.LOAD_STATES: lambda: self._restore(data)}[what]

    def set_rule(self, description: bytes) -> None:
        """Create the rule that a worker, or another holder, described."""
        self.shard.rule = self._make_rule(description)

    def _restore(self, data: bytes) -> None:
        slots = {slot.spec.key: slot for slot in self.shard.slots.values()}.values()  # the last generation of each key
        self.shard.required_rule().restore(data, [slot.spec for slot in slots], [slot.weight for slot in slots])

    def shared_state(self) -> bytes:
        """Return the state of the rule that belongs to no slot, or nothing without a rule."""
        return b"" if self.shard.rule is None else self.shard.rule.part(())


def rows_of(payload: memoryview, count: int, slot: Slot, sender: object) -> SparseRows:
    """Return rows of a slot from their indices and values. Raises Refused if they are not rows of it."""
    width = slot.nbytes // max(1, slot.weight.shape[0]) if slot.weight.dim() else 0
    if count < 0 or not slot.weight.dim() or payload.nbytes != count * (8 + width):
        raise Refused(f"{sender} pushed {payload.nbytes} bytes as {count} rows of {width} bytes")
    indices = indices_of(payload[: 8 * count], slot, sender)
    values = torch.empty(count, *slot.weight.shape[1:], dtype=slot.weight.dtype)
    if values.numel():
        as_bytes(values)[:] = payload[8 * count :]
    return SparseRows(indices, values)


def indices_of(payload: memoryview, slot: Slot, sender: object) -> torch.Tensor:
    """Return row indices of a slot. Raises Refused if they are not ascending, or not below the number of its rows."""
    if payload.nbytes % 8:
        raise Refused(f"{sender} sent row indices that are not 64-bit integers")
    found = torch.empty(0, dtype=torch.int64)
    if payload.nbytes:
        found = torch.frombuffer(bytearray(payload), dtype=torch.int64)
    ends_well = not len(found) or (found[0] >= 0 and found[-1] < slot.weight.shape[0])
    if not ends_well or bool((found[1:] <= found[:-1]).any()):
        raise Refused(
            f"{sender}: row indices of key {slot.spec.key!r:.40} must be ascending and below {slot.weight.shape[0]}"
        )
    return found
