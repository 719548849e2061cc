"""The worker's side of the connection to parameter servers: keys, and where their segments are.

Gradients are copied to the position of their slots in this worker's copy of a chunk. If the server shares that memory,
a small frame announces them; otherwise the memory is sent. Pushes do not wait for a reply, but a slot is overwritten
only after the server has used its previous push.
"""

from __future__ import annotations

import contextlib
import functools
import json
import select
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar, cast

import torch

from ...base import MXNetError
from ..buckets import Courier
from ..store import NEWS, PeerError, StoreClient
from ..wire import Connection, Frame, Into, TimedOut, WireError, as_bytes, connect
from ..world import World
from . import messages as m
from .arena import Chunk, attach, view
from .messages import Key, KeySpec, Segment, Settings, SparseRows

_NOTHING: Settings = {}
Method = TypeVar("Method", bound=Callable[..., Any])
_GRACE = 10.0  # seconds beyond the timeout after which a server that does not report late workers is itself late


def _in_turn(method: Method) -> Method:
    """Decorator for methods of Client that only one thread may run at a time."""

    @functools.wraps(method)
    def turn(self: Client, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast(Method, turn)


class RemoteSlot:
    """One segment of a key: its slot on a server, and its memory on this worker."""

    def __init__(self, spec: KeySpec, segment: Segment, server: Server, number: int, chunk: int, offset: int):
        self.spec, self.segment, self.server = spec, segment, server
        self.number, self.chunk, self.offset = number, chunk, offset
        shape = spec.shape_of(segment)
        self.gradient = view(server.gradients[chunk].bytes, offset, shape, spec.dtype)
        self.weight = view(server.weights[chunk], offset, shape, spec.dtype)
        self.nbytes = self.weight.numel() * self.weight.element_size()
        self.pending = False  # whether the server may not have read the gradient yet
        self.open = False  # whether a push was not committed yet

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this segment's elements of a tensor that contains the whole array, in its shape or flat."""
        if len(self.spec.segments) == 1:
            return whole
        if whole.shape == self.spec.shape:
            return whole[self.spec.rows_of(self.segment)]
        return whole[self.segment.start : self.segment.stop]

    def copy(self, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (target, source) for copying the weight into a tensor of the whole array, in its shape or flat."""
        part = self.part(whole)
        return part, self.weight if self.weight.shape == part.shape else self.weight.view(part.shape)


class Server:
    """The connection to one server."""

    def __init__(self, number: int, connection: Connection, is_near: bool):
        self.number, self.connection, self.is_near = number, connection, is_near
        self.name = f"server {number}"
        self._courier = None if is_near else Courier(f"to {self.name}")
        self._sent: Future[None] | None = None
        self.slots: dict[int, RemoteSlot] = {}  # by number
        self.gradients: dict[int, Chunk] = {}
        self.weights: dict[int, torch.Tensor] = {}
        self.writes: set[int] = set()  # chunks whose gradients the server can read directly
        self.reads: set[int] = set()  # chunks whose weights this worker can read directly
        self.told: Settings = {}  # settings that the server has

    def send(self, kind: int, meta: Any, *buffers: Any) -> None:
        """Send a frame. To another host it is sent in a thread, in order, so that backward continues meanwhile."""
        if self._courier is None:
            self.connection.send(kind, meta, *buffers)
            return
        if self._sent is not None and self._sent.done():
            self._sent.result()
        self._sent = self._courier.send(lambda: self.connection.send(kind, meta, *buffers))

    def close(self) -> None:
        """Disconnect after all pending frames are sent."""
        with contextlib.suppress(WireError, TimeoutError):
            self.send(m.BYE, None)
            if self._sent is not None:
                self._sent.result(_GRACE)
        if self._courier is not None:
            self._courier.close()
        self.connection.close()

    def news(self, settings: Settings) -> dict[str, Any]:
        """Return the fields that tell the server about changed settings."""
        told = self.told
        changed = {
            name: value
            for name, value in settings.items()
            if (known := told.get(name, self)) is not value and known != value
        }
        self.told.update(changed)
        return {"s": changed} if changed else {}


class Client:
    """The connections of one worker to all servers of a store. Thread-safe."""

    def __init__(self, servers: list[Server], store: StoreClient, timeout: float, rank: int):
        self.servers, self.rank = servers, rank
        self._store, self._timeout = store, timeout
        self._failure: MXNetError | None = None
        self._turn = threading.RLock()
        self.keys: dict[Key, list[RemoteSlot]] = {}

    # ---- communication ----

    def _send(self, server: Server, kind: int, meta: Any, *buffers: Any) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        try:
            server.send(kind, meta, *buffers)
        except WireError as error:
            self._hear_last_words(server)
            raise self._lost(server, error) from error

    def _hear_last_words(self, server: Server) -> None:
        """Raise the reason that a server sends before it closes the connection."""
        with contextlib.suppress(WireError):
            self._receive(server, None, 0.2)

    def _receive(self, server: Server, into: Into | None, timeout: float) -> Frame:
        frame = server.connection.receive(into, timeout)
        if frame.kind != m.FAILED:
            return frame
        message = f"{server.name}: {frame.meta['message']}"
        raise PeerError(message) if frame.meta["peer"] else MXNetError(message)

    def _answer(self, server: Server, into: Into | None = None) -> Frame:
        """Receive the next frame from a server. Raises if the timeout expires or the server is gone."""
        deadline = time.monotonic() + self._timeout + _GRACE
        while True:
            try:
                return self._receive(server, into, 0.5)
            except TimedOut as error:
                if time.monotonic() > deadline or server.name in self._store.gone:
                    raise self._lost(server, error) from error
            except WireError as error:
                raise self._lost(server, error) from error
            except PeerError as error:
                self._failure = error
                raise

    def _lost(self, server: Server, error: WireError) -> PeerError:
        what = "does not answer" if isinstance(error, TimedOut) else "is gone"
        if what == "is gone":
            self._await_news(server)
        self._failure = PeerError(f"{server.name} {what}: {error}. {self._store.missing([server.name])}")
        return self._failure

    def _await_news(self, server: Server) -> None:
        """Wait until the roll call knows why a server is gone, which is later than the broken connection."""
        deadline = time.monotonic() + NEWS
        with contextlib.suppress(PeerError, KeyError):
            while time.monotonic() < deadline and self._store.roster()[server.name]["state"] == "here":
                time.sleep(0.02)

    def _ask(self, server: Server, kind: int, meta: Any, *buffers: Any) -> Frame:
        self._send(server, kind, meta, *buffers)
        return self._answer(server)

    def _ask_all(self, kind: int, meta: Any, payloads: Iterable[bytes] | None = None) -> list[Frame]:
        given = [(payload,) for payload in payloads] if payloads is not None else [()] * len(self.servers)
        for server, payload in zip(self.servers, given, strict=True):
            self._send(server, kind, meta, *payload)
        return self._gather()

    def _gather(self) -> list[Frame]:
        """Collect a reply from every server, then raise the first refusal."""
        frames, refusals = [], []
        for server in self.servers:
            try:
                frames.append(self._answer(server, _anywhere))
            except PeerError:
                raise
            except MXNetError as error:
                refusals.append(error)
        if refusals:
            raise refusals[0]
        return frames

    def close(self) -> None:
        """Disconnect from all servers."""
        for server in self.servers:
            server.close()

    # ---- keys ----

    @_in_turn
    def declare(self, specs: Sequence[KeySpec], values: Sequence[torch.Tensor]) -> None:
        """Declare keys. Worker 0 provides their initial values, flat and contiguous."""
        told = {"keys": [spec.told() for spec in specs]}
        for server in self.servers:
            held = [(v, p) for e, v in zip(specs, values, strict=True) for p in e.segments if p.server == server.number]
            self._send(server, m.DECLARE, told, *(v[p.start : p.stop] for v, p in held if self.rank == 0))
        found: dict[Key, list[RemoteSlot]] = {spec.key: [] for spec in specs}
        for server, answer in zip(self.servers, self._gather(), strict=True):
            self._take_slots(server, specs, answer.meta, found)
        for spec in specs:
            for old in self.keys.get(spec.key, ()):
                del old.server.slots[old.number]
            self.keys[spec.key] = found[spec.key]
            for slot in found[spec.key]:
                slot.server.slots[slot.number] = slot

    def _take_slots(
        self, server: Server, specs: Sequence[KeySpec], told: Any, found: dict[Key, list[RemoteSlot]]
    ) -> None:
        for number, (nbytes, name) in told["chunks"].items():
            if int(number) not in server.weights:
                self._attach(server, int(number), nbytes, name)
        held = [(e, p) for e in specs for p in e.segments if p.server == server.number]
        for (spec, segment), (number, chunk, offset) in zip(held, told["slots"], strict=True):
            found[spec.key].append(RemoteSlot(spec, segment, server, number, chunk, offset))

    def _attach(self, server: Server, chunk: int, nbytes: int, name: str) -> None:
        """Share a chunk with its server if both are on one host and have enough memory."""
        weights = attach(name, nbytes) if name and server.is_near else None
        gradients = Chunk(nbytes, shared=weights is not None)
        told = {"chunk": chunk, "name": gradients.name, "reads": weights is not None}
        if self._ask(server, m.ATTACH, told).meta["shared"]:
            server.writes.add(chunk)
        if weights is not None:
            server.reads.add(chunk)
        gradients.close()
        server.gradients[chunk] = gradients
        server.weights[chunk] = torch.zeros(nbytes, dtype=torch.uint8) if weights is None else weights

    # ---- pushing ----

    @_in_turn
    def push(
        self, keys: Sequence[Key], tensors: Sequence[torch.Tensor], commit: bool, settings: Settings = _NOTHING
    ) -> None:
        """Push gradients in the shape of their keys, or flat. If `commit`, the step is complete for these keys.

        Replaces gradients of an earlier push that was not committed.
        """
        slots = [slot for key in keys for slot in self.keys[key]]
        self._await_use([slot for slot in slots if not slot.open])
        parts = [slot.part(t) for key, t in zip(keys, tensors, strict=True) for slot in self.keys[key]]
        memory = [
            p.gradient if p.gradient.shape == part.shape else p.gradient.view(-1)
            for p, part in zip(slots, parts, strict=True)
        ]
        with torch.no_grad():
            torch._foreach_copy_(memory, parts)
        for server, mine in self._by_server(slots):
            self._push_to(server, mine, commit, settings)

    def _push_to(self, server: Server, slots: list[RemoteSlot], commit: bool, settings: Settings) -> None:
        near = [slot for slot in slots if slot.chunk in server.writes]
        runs = ([near] if near else []) + _runs([slot for slot in slots if slot.chunk not in server.writes])
        for run in runs:
            meta = {"k": [slot.number for slot in run], "c": int(commit), **server.news(settings)}
            payload = () if run is near else (_memory_of(run),)
            self._send(server, m.PUSH, meta, *payload)
        for slot in slots:
            slot.pending, slot.open = True, not commit

    @_in_turn
    def push_rows(self, key: Key, rows: SparseRows, commit: bool, settings: Settings = _NOTHING) -> None:
        """Push some rows of a gradient. If `commit`, the step is complete for this key."""
        slots = self.keys[key]
        self._await_use([slot for slot in slots if not slot.open])
        row = slots[0].spec.row
        for slot in slots:
            low, high = (int(torch.searchsorted(rows.indices, end // row)) for end in slot.segment[1:])
            meta = {"k": [slot.number], "c": int(commit), "rows": high - low, **slot.server.news(settings)}
            indices, values = rows.indices[low:high] - slot.segment.start // row, rows.values[low:high].contiguous()
            self._send(slot.server, m.PUSH_ROWS, meta, indices, values)
            slot.pending, slot.open = True, not commit

    @_in_turn
    def push_coded(
        self,
        key: Key,
        segments: Sequence[tuple[dict[str, Any], torch.Tensor]],
        commit: bool,
        settings: Settings = _NOTHING,
    ) -> None:
        """Push a compressed gradient, (codec, bytes) for each segment.

        If `commit`, the step is complete for this key.
        """
        slots = self.keys[key]
        self._await_use([slot for slot in slots if not slot.open])
        for slot, (codec, data) in zip(slots, segments, strict=True):
            meta = {"k": [slot.number], "c": int(commit), "codec": codec, **slot.server.news(settings)}
            self._send(slot.server, m.PUSH_CODED, meta, data)
            slot.pending, slot.open = True, not commit

    @_in_turn
    def commit(self, keys: Sequence[Key], settings: Settings = _NOTHING, follows: bool = False) -> None:
        """Complete the step for these keys. Gradients that were not pushed count as zero.

        If `follows`, this worker only takes part in a step of others, whose settings apply.
        """
        slots = [slot for key in keys for slot in self.keys[key]]
        self._await_use([slot for slot in slots if not slot.open])
        for server, mine in self._by_server(slots):
            how = {"f": 1} if follows else server.news(settings)
            self._send(server, m.COMMIT, {"k": [slot.number for slot in mine], **how})
            for slot in mine:
                slot.pending, slot.open = True, False

    def _await_use(self, slots: list[RemoteSlot]) -> None:
        """Wait until the servers have used earlier pushes."""
        pending = [slot for slot in slots if slot.pending]
        if any(slot.open for slot in pending):
            raise MXNetError(f"key {next(p for p in pending if p.open).spec.key!r} was pushed twice without a commit")
        if pending:
            self._pull(pending, lambda ready: None, waits=True)

    def _by_server(self, slots: list[RemoteSlot]) -> list[tuple[Server, list[RemoteSlot]]]:
        grouped = [(server, [slot for slot in slots if slot.server is server]) for server in self.servers]
        return [(server, mine) for server, mine in grouped if mine]

    # ---- pulling ----

    @_in_turn
    def pull(self, keys: Sequence[Key], outs: Sequence[Sequence[torch.Tensor]]) -> None:
        """Copy the arrays of keys into the tensors given for each, in their shape or flat, as they become ready."""
        targets = {slot: tensors for key, tensors in zip(keys, outs, strict=True) for slot in self.keys[key]}

        def copy(ready: list[RemoteSlot]) -> None:
            pairs = [slot.copy(tensor) for slot in ready for tensor in targets[slot]]
            if pairs:
                torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])

        with torch.no_grad():
            self._pull(list(targets), copy)

    def _pull(self, slots: list[RemoteSlot], take: Callable[[list[RemoteSlot]], None], waits: bool = False) -> None:
        """Ask all servers concurrently, and process slots as soon as their servers report them ready."""
        waiting = {}
        for server, mine in self._by_server(slots):
            self._send(server, m.PULL, {"k": [slot.number for slot in mine], **({"w": 1} if waits else {})})
            waiting[server] = len(mine)
        while waiting:
            for server in self._talking(waiting):
                told = self._answer(server, functools.partial(self._room, server))
                ready = [server.slots[number] for number in told.meta["k"]]
                for slot in ready:
                    slot.pending = slot.open
                take(ready)
                waiting[server] -= len(ready)
                if not waiting[server]:
                    del waiting[server]

    def _talking(self, waiting: dict[Server, int]) -> list[Server]:
        """Return the servers with data to receive. After half a second without data, return all of them."""
        if len(waiting) == 1:
            return list(waiting)
        poll = select.poll()
        of_file = {server.connection.fileno(): server for server in waiting}
        for file in of_file:
            poll.register(file, select.POLLIN)
        return [of_file[file] for file, _ in poll.poll(500)] or list(waiting)

    def _room(self, server: Server, kind: int, meta: Any, nbytes: int) -> memoryview:
        if kind != m.READY or not nbytes:
            return memoryview(bytearray(min(nbytes, 1 << 20)))
        return as_bytes(server.slots[meta["k"][0]].weight)

    @_in_turn
    def pull_rows(self, key: Key, indices: torch.Tensor) -> torch.Tensor:
        """Return some rows of a key. `indices` must be ascending."""
        slots = self.keys[key]
        spec = slots[0].spec
        out = torch.empty(len(indices), *spec.shape[1:], dtype=spec.dtype)
        parts = []
        for slot in slots:
            low, high = (int(torch.searchsorted(indices, end // spec.row)) for end in slot.segment[1:])
            if low < high:
                parts.append((slot, out[low:high]))
                wanted = indices[low:high] - slot.segment.start // spec.row
                self._send(slot.server, m.PULL_ROWS, {"k": [slot.number]}, wanted)
        for slot, part in parts:
            self._answer(slot.server, functools.partial(_rows_into, part))
        return out

    # ---- the optimizer ----

    @_in_turn
    def set_optimizer(self, description: bytes, generation: int) -> None:
        """Set the optimizer of the servers; only that of worker 0 is used."""
        self._ask_all(
            m.OPTIMIZER, {"generation": generation}, [description if self.rank == 0 else b""] * len(self.servers)
        )

    @_in_turn
    def states(self) -> list[bytes]:
        """Return the optimizer's states on each server."""
        return [bytes(frame.payload) for frame in self._ask_all(m.STATES, {})]

    @_in_turn
    def restore(self, states: Sequence[bytes], generation: int) -> None:
        """Set the optimizer's states on each server; only those of worker 0 are used."""
        self._ask_all(m.RESTORE, {"generation": generation}, states if self.rank == 0 else [b""] * len(self.servers))


def _rows_into(rows: torch.Tensor, kind: int, meta: Any, nbytes: int) -> memoryview:
    return as_bytes(rows) if kind == m.READY else memoryview(bytearray(nbytes))


def _anywhere(kind: int, meta: Any, nbytes: int) -> memoryview:
    return memoryview(bytearray(nbytes))


def _runs(slots: list[RemoteSlot]) -> list[list[RemoteSlot]]:
    """Group slots that are adjacent in memory."""
    runs: list[list[RemoteSlot]] = []
    for slot in sorted(slots, key=lambda slot: (slot.chunk, slot.offset)):
        last = runs[-1][-1] if runs else None
        if last is not None and last.chunk == slot.chunk and slot.offset - last.offset - last.nbytes < 64:
            runs[-1].append(slot)
        else:
            runs.append([slot])
    return runs


def _memory_of(run: list[RemoteSlot]) -> torch.Tensor:
    memory = run[0].server.gradients[run[0].chunk].bytes
    return memory[run[0].offset : run[-1].offset + run[-1].nbytes]


def open_client(world: World, store: StoreClient, space: int, staleness: int | None) -> Client:
    """Connect to all servers of the job, whose addresses are in the job's store."""
    servers = []
    hello = {"name": world.name, "rank": world.rank, "space": space, "staleness": staleness, **m.host_of(world)}
    for number in range(world.servers):
        address = store.get_from(f"server {number}", f"server/{number}").decode()
        theirs = json.loads(store.get_from(f"server {number}", f"server/{number}/host"))
        try:
            connection = connect(
                address, world.secret, hello, world.tls, min(world.timeout, 30.0), m.service_name(number, address)
            )
        except WireError as error:
            raise PeerError(f"server {number}: {error}. {store.missing([f'server {number}'])}") from error
        servers.append(Server(number, connection, m.are_near(hello, theirs)))
    return Client(servers, store, world.timeout, world.rank)
