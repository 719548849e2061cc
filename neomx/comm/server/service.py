"""The server's side of the connection: validates each worker's frames and turns them into calls of a Shard.

An invalid message ends the connection of that worker and is logged; other workers are not affected.
"""

from __future__ import annotations

import contextlib
import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import torch

from ...base import MXNetError
from .. import compress
from ..store import PeerError
from ..wire import Connection, Frame, Refused, WireError, as_bytes
from . import messages as m
from .arena import Arena, attach, view
from .messages import KeySpec, SparseRows, field
from .shard import Rule, Shard, Slot

_log = logging.getLogger("neomx")
_SAMPLE = 256  # elements of a gradient that are checked for NaN
_OPTIMIZER_LIMIT = 1 << 24  # maximum bytes of an optimizer's description
MakeRule = Callable[[bytes], Rule]


class Space:
    """One store of the workers on this server: its shard and its memory."""

    def __init__(self, shard: Shard, shared: bool):
        self.shard = shard
        self.arena = Arena(shared)
        self.declaring = threading.Lock()
        self.slots_made = 0


class Service:
    """Serves the stores of a job's workers. Call `handle` in a separate thread for each connection."""

    def __init__(
        self,
        number: int,
        servers: int,
        workers: int,
        host: dict[str, Any],
        timeout: float,
        make_rule: MakeRule,
        whereabouts: Callable[[int], str] = str,
    ):
        self.number, self.servers, self.workers, self.host, self.timeout = number, servers, workers, host, timeout
        self.make_rule, self.whereabouts = make_rule, whereabouts
        self._spaces: dict[int, Space] = {}
        self._guard = threading.Lock()

    def handle(self, connection: Connection) -> None:
        """Serve one worker until it disconnects."""
        try:
            rank, space = self._welcome(connection.peer)
            stay = space.shard.join(rank)
        except Refused as error:
            _tell(connection, error)
            raise
        why = "its connection to the server broke"
        try:
            Guest(self, space, rank, connection).talk()
            why = "it has closed its store, as at the end of a program"
        except Refused as error:
            _tell(connection, error)
            why = f"the server refused its message: {error}"
            raise
        except WireError:
            raise
        except Exception as error:  # an internal error with one worker must not end the others
            _log.exception("server %d failed while serving %s", self.number, connection)
            why = f"the server failed while serving it: {error!r}"
        finally:
            space.shard.gone(rank, why, stay)

    def _welcome(self, hello: dict[str, Any]) -> tuple[int, Space]:
        try:
            rank, number = m.whole(hello["rank"]), m.whole(hello["space"])
            staleness = None if hello["staleness"] is None else m.whole(hello["staleness"])
        except (KeyError, ValueError) as error:
            raise Refused(f"expected the rank and store of a worker, received {hello!r:.80}: {error!r}") from None
        if rank >= self.workers or number > 1 << 16:
            raise Refused(f"a peer claims to be worker {rank} of {self.workers}, with store {number}")
        with self._guard:
            if number not in self._spaces:
                shard = Shard(self.workers, staleness, self.timeout, self.whereabouts)
                self._spaces[number] = Space(shard, shared=True)
            space = self._spaces[number]
        if space.shard.staleness != staleness:
            raise Refused(
                f"worker {rank} created a store of kind {_kind(staleness)}, others one of kind "
                f"{_kind(space.shard.staleness)}. Pass the same kvstore on all workers"
            )
        return rank, space

    def lost(self, rank: int, why: str) -> None:
        """Handle the loss of a worker's process, as reported by the roll call."""
        with self._guard:
            spaces = list(self._spaces.values())
        for space in spaces:
            space.shard.gone(rank, why)

    def close(self) -> None:
        """Release the memory."""
        for space in self._spaces.values():
            space.arena.close()


class Guest:
    """One worker: the memory of its gradients, and its requests."""

    def __init__(self, service: Service, space: Space, rank: int, connection: Connection):
        self.service, self.space, self.shard = service, space, space.shard
        self.rank, self.connection = rank, connection
        self.is_near = m.are_near(connection.peer, service.host)
        self.gradients: dict[int, torch.Tensor] = {}  # by chunk
        self.writes: set[int] = set()  # chunks whose gradients the worker writes directly
        self.reads: set[int] = set()  # chunks whose weights the worker reads directly
        self.views: dict[int, torch.Tensor] = {}  # by slot
        self.settings: m.Settings = {}
        self.pushes = 0
        self.reported: set[int] = set()  # slots whose NaN was already reported

    def talk(self) -> None:
        """Handle requests until the worker disconnects."""
        while True:
            frame = self.connection.receive(into=self._into)
            self.shard.hear(self.rank)
            if frame.kind == m.BYE:
                return
            try:
                _HANDLERS[frame.kind](self, frame)
            except WireError:
                raise
            except MXNetError as error:
                _tell(self.connection, error)

    # ---- memory for payloads ----

    def _into(self, kind: int, meta: Any, nbytes: int) -> memoryview:
        """Return memory for a payload, not larger than the frame requires."""
        if kind not in _HANDLERS and kind != m.BYE:
            raise Refused(f"{self.connection} sent a frame of unknown kind {kind}")
        if kind != m.BYE and not isinstance(meta, dict):
            raise Refused(f"{self.connection} sent {meta!r:.80}: expected fields by name")
        if kind == m.PUSH and nbytes:
            return self._run(self._slots(meta))
        limit = self._limit(kind, meta) if nbytes else 0
        if nbytes > limit:
            raise Refused(f"{self.connection} sent {nbytes} bytes in a frame of kind {kind}: expected at most {limit}")
        return memoryview(bytearray(nbytes))

    def _limit(self, kind: int, meta: Any) -> int:
        if kind == m.DECLARE:
            return self._declared_bytes(self._specs(meta))
        if kind == m.OPTIMIZER:
            return _OPTIMIZER_LIMIT
        if kind == m.RESTORE:  # an optimizer keeps at most a few arrays for each weight
            return _OPTIMIZER_LIMIT + 16 * sum(slot.nbytes for slot in self.shard.slots.values())
        if kind in (m.PUSH_ROWS, m.PULL_ROWS):
            slot = self._rowed(meta)
            return slot.weight.shape[0] * 8 + slot.nbytes
        return self._slots(meta, 1)[0].nbytes if kind == m.PUSH_CODED else 0

    def _rowed(self, meta: Any) -> Slot:
        (slot,) = self._slots(meta, 1)
        if not slot.weight.dim():
            raise Refused(f"{self.connection} requested rows of a scalar")
        return slot

    def _run(self, slots: list[Slot]) -> memoryview:
        """Return the memory of adjacent slots in this worker's gradients as one block."""
        first, last = slots[0], slots[-1]
        for slot, following in zip(slots, slots[1:], strict=False):
            if slot.chunk != following.chunk or following.offset - slot.offset - slot.nbytes not in range(64):
                raise Refused(f"{self.connection} pushed slots in one payload that are not adjacent")
        memory = self._gradients(first.chunk)
        return as_bytes(memory[first.offset : last.offset + last.nbytes])

    def _gradients(self, chunk: int) -> torch.Tensor:
        if chunk not in self.gradients:
            self.gradients[chunk] = torch.zeros(self.space.arena.chunks[chunk].nbytes, dtype=torch.uint8)
        return self.gradients[chunk]

    def _slots(self, meta: Any, count: int | None = None) -> list[Slot]:
        try:
            slots = [self.shard.slots[number] for number in field(meta, "k", list)]
        except (KeyError, TypeError):
            raise Refused(f"{self.connection} named slots that do not exist: {meta!r:.80}") from None
        if not slots or len(set(slots)) < len(slots) or len(slots) != (count or len(slots)):
            raise Refused(f"{self.connection} named a slot twice, or none: {meta!r:.80}")
        return slots

    # ---- keys and memory ----

    def _specs(self, meta: Any) -> list[KeySpec]:
        specs = [KeySpec.heard(told, self.service.servers) for told in field(meta, "keys", list)]
        if len({spec.key for spec in specs}) < len(specs):
            raise Refused(f"{self.connection} declared a key twice in one frame")
        return specs

    def _held(self, specs: list[KeySpec]) -> list[tuple[KeySpec, m.Segment]]:
        mine = self.service.number
        return [(spec, segment) for spec in specs for segment in spec.segments if segment.server == mine]

    def _declared_bytes(self, specs: list[KeySpec]) -> int:
        needed = sum((segment.stop - segment.start) * spec.dtype.itemsize for spec, segment in self._held(specs))
        if needed > _available_memory():
            raise Refused(f"{self.connection} declared keys of {needed} bytes, more than the available memory")
        return needed

    def declare(self, frame: Frame) -> None:
        """Create the slots that worker 0 declares; check that other workers declare the same ones."""
        specs = self._specs(frame.meta)
        if self.rank == 0:
            with self.space.declaring:
                self._create(specs, self.shard.new(specs), frame.payload)
        self.shard.agree(specs, self.rank)
        slots = [self.shard.of_key[spec.name] for spec, _ in self._held(specs)]
        told = [[slot.number, slot.chunk, slot.offset] for slot in slots]
        chunks = self.space.arena.chunks
        names = {str(n): [chunks[n].nbytes, chunks[n].name if self.is_near else ""] for n in {s.chunk for s in slots}}
        self.connection.send(m.DONE, {"slots": told, "chunks": names})

    def _create(self, specs: list[KeySpec], new: list[KeySpec], payload: memoryview) -> None:
        held = self._held(specs)
        sizes = [(segment.stop - segment.start) * spec.dtype.itemsize for spec, segment in held]
        if payload.nbytes != sum(sizes):
            raise Refused(f"{self.connection} sent {payload.nbytes} bytes, expected {sum(sizes)} for these keys")
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        fresh = [(e, p, payload[at : at + n]) for (e, p), at, n in zip(held, starts, sizes, strict=True) if e in new]
        places = self.space.arena.reserve([value.nbytes for _, _, value in fresh]) if fresh else []
        slots = []
        for (spec, segment, value), (chunk, offset) in zip(fresh, places, strict=True):
            weight = view(self.space.arena.chunks[chunk].bytes, offset, spec.shape_of(segment), spec.dtype)
            if value.nbytes:
                as_bytes(weight)[:] = value
            slots.append(Slot(self.space.slots_made, spec, segment, chunk, offset, weight))
            self.space.slots_made += 1
        self.shard.create(slots, new)

    def attach(self, frame: Frame) -> None:
        """Map the memory to which the worker writes its gradients of a chunk."""
        chunk, name = field(frame.meta, "chunk", int), field(frame.meta, "name", str)
        if not 0 <= chunk < len(self.space.arena.chunks):
            raise Refused(f"{self.connection} named a chunk that does not exist: {chunk}")
        if field(frame.meta, "reads", bool):
            self.reads.add(chunk)
        memory = attach(name, self.space.arena.chunks[chunk].nbytes) if name and self.is_near else None
        if memory is not None:
            self.gradients[chunk] = memory
            self.views = {}
            self.writes.add(chunk)
        self.connection.send(m.DONE, {"shared": memory is not None})

    # ---- gradients ----

    def _view(self, slot: Slot) -> torch.Tensor:
        """Return this worker's gradient of a slot."""
        found = self.views.get(slot.number)
        if found is None:
            found = view(self._gradients(slot.chunk), slot.offset, slot.weight.shape, slot.weight.dtype)
            self.views[slot.number] = found
        return found

    def push(self, frame: Frame) -> None:
        """Handle gradients that are in this worker's memory."""
        slots = self._slots(frame.meta)
        if not frame.payload.nbytes and any(slot.nbytes and slot.chunk not in self.writes for slot in slots):
            raise Refused(f"{self.connection} pushed through memory that is not shared")
        views = [self._view(slot) for slot in slots]
        self._sample(slots, views)
        self.shard.push(self.rank, slots, views)
        self._commit_with(frame, slots)

    def _sample(self, slots: list[Slot], gradients: list[torch.Tensor]) -> None:
        """Report NaN and infinity by checking some elements of one array in turn, since they spread over a whole array.

        They are not refused: loss scaling produces them, and the optimizer is applied to them as in MXNet.
        """
        self.pushes += 1
        at = self.pushes % len(slots)
        slot, gradient = slots[at], gradients[at]
        if slot.number in self.reported or not gradient.is_floating_point():
            return
        flat = gradient.view(-1)
        if not math.isfinite(flat[:: max(1, flat.numel() // _SAMPLE)].double().abs().sum()):
            self.reported.add(slot.number)
            _log.warning("%s pushed NaN or infinity in key %r (logged once per key)", self.connection, slot.spec.key)

    def push_rows(self, frame: Frame) -> None:
        """Handle rows of one slot's gradient: indices, then values."""
        slot, count = self._rowed(frame.meta), field(frame.meta, "rows", int)
        width = slot.nbytes // max(1, slot.weight.shape[0])
        if count < 0 or frame.payload.nbytes != count * (8 + width):
            raise Refused(f"{self.connection} pushed {frame.payload.nbytes} bytes as {count} rows of {width} bytes")
        indices = self._indices(frame.payload[: 8 * count], slot)
        values = torch.empty(count, *slot.weight.shape[1:], dtype=slot.weight.dtype)
        if values.numel():
            as_bytes(values)[:] = frame.payload[8 * count :]
        self.shard.push(self.rank, [slot], [SparseRows(indices, values)])
        self._commit_with(frame, [slot])

    def _indices(self, payload: memoryview, slot: Slot) -> torch.Tensor:
        if payload.nbytes % 8:
            raise Refused(f"{self.connection} sent row indices that are not 64-bit integers")
        found = (
            torch.frombuffer(bytearray(payload), dtype=torch.int64)
            if payload.nbytes
            else torch.empty(0, dtype=torch.int64)
        )
        ends_well = not len(found) or (found[0] >= 0 and found[-1] < slot.weight.shape[0])
        if not ends_well or bool((found[1:] <= found[:-1]).any()):
            raise Refused(
                f"{self.connection}: row indices of key {slot.spec.key!r:.40} must be ascending and below "
                f"{slot.weight.shape[0]}"
            )
        return found

    def push_coded(self, frame: Frame) -> None:
        """Handle a compressed gradient of one slot."""
        (slot,) = self._slots(frame.meta, 1)
        memory = torch.empty_like(slot.weight)
        try:
            codec = compress.make(frame.meta.get("codec"))
            codec.decode(torch.frombuffer(frame.payload, dtype=torch.uint8), memory)
        except (MXNetError, AssertionError, TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise Refused(f"{self.connection} pushed a gradient that cannot be decoded: {error!s:.200}") from error
        self.shard.push(self.rank, [slot], [memory])
        self._commit_with(frame, [slot])

    def commit(self, frame: Frame) -> None:
        """Complete the step for these slots."""
        self._commit_with(frame, self._slots(frame.meta), always=True)

    def _commit_with(self, frame: Frame, slots: list[Slot], always: bool = False) -> None:
        changed = frame.meta.get("s")
        if changed is not None:
            self.settings = {**self.settings, **m.settings(changed)}
        if always or frame.meta.get("c"):
            self.shard.commit(self.rank, slots, None if frame.meta.get("f") else self.settings)

    # ---- weights ----

    def pull(self, frame: Frame) -> None:
        """Report slots as soon as they are readable, and send those in memory that the worker does not share."""
        sends = not frame.meta.get("w")
        for slots in self.shard.ready(self.rank, self._slots(frame.meta)):
            near = [slot for slot in slots if not sends or slot.chunk in self.reads]
            if near:
                self.connection.send(m.READY, {"k": [slot.number for slot in near]})
            for slot in slots:
                if sends and slot.chunk not in self.reads:
                    self.connection.send(m.READY, {"k": [slot.number]}, slot.weight)

    def pull_rows(self, frame: Frame) -> None:
        """Send some rows of one slot."""
        slot = self._rowed(frame.meta)
        indices = self._indices(frame.payload, slot)
        for _ in self.shard.ready(self.rank, [slot]):
            self.connection.send(m.READY, {"k": [slot.number]}, slot.weight[indices])

    # ---- the optimizer ----

    def optimizer(self, frame: Frame) -> None:
        """Set the optimizer sent by worker 0; other workers wait for it."""
        self._once("set_optimizer", frame, lambda data: setattr(self.shard, "rule", self.service.make_rule(data)))

    def restore(self, frame: Frame) -> None:
        """Set the states sent by worker 0; other workers wait for them."""
        self._once("load_optimizer_states", frame, self._restore)

    def _restore(self, data: bytes) -> None:
        slots = {slot.spec.key: slot for slot in self.shard.slots.values()}.values()  # the last generation of each key
        self.shard.required_rule().restore(data, [slot.spec for slot in slots], [slot.weight for slot in slots])

    def _once(self, what: str, frame: Frame, act: Callable[[bytes], None]) -> None:
        generation, data = field(frame.meta, "generation", int), bytes(frame.payload)
        self.shard.once(what, generation, self.rank, (lambda: act(data)) if self.rank == 0 else None)
        self.connection.send(m.DONE, {})

    def states(self, frame: Frame) -> None:
        """Send the optimizer's states, after this worker's own pushes."""
        for _ in self.shard.ready(self.rank, list(self.shard.slots.values())):
            pass
        self.connection.send(m.DONE, {}, self.shard.states())


_HANDLERS: dict[int, Callable[[Guest, Frame], None]] = {
    m.DECLARE: Guest.declare,
    m.ATTACH: Guest.attach,
    m.PUSH: Guest.push,
    m.COMMIT: Guest.commit,
    m.PULL: Guest.pull,
    m.PUSH_ROWS: Guest.push_rows,
    m.PULL_ROWS: Guest.pull_rows,
    m.PUSH_CODED: Guest.push_coded,
    m.OPTIMIZER: Guest.optimizer,
    m.STATES: Guest.states,
    m.RESTORE: Guest.restore,
}


def _kind(staleness: int | None) -> str:
    """Return the kvstore with this staleness bound."""
    if staleness is None:
        return "'dist_async'"
    return f"'dist_stale' with staleness={staleness}" if staleness else "'dist_sync'"


def _tell(connection: Connection, error: MXNetError) -> None:
    """Send an error to a worker, if it is still connected."""
    with contextlib.suppress(WireError):
        connection.send(m.FAILED, {"peer": isinstance(error, PeerError), "message": str(error)})


def _available_memory() -> float:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return float("inf")
