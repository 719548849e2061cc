"""A worker's side of the talk with its servers: keys, and where their segments are.

Gradients are copied to the place of their slots in this worker's memory of a chunk. Where a server shares that memory a
small frame says so; elsewhere the memory is sent. Pushes wait for no answer; one push of a slot must be known to be
used before the next is written over it.
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
_GRACE = 10.0  # seconds after which a server that should have told who is late is late itself


def _in_turn(method: Method) -> Method:
    """A method of Client that one thread at a time may be in."""

    @functools.wraps(method)
    def turn(self: Client, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast(Method, turn)


class RemoteSlot:
    """One segment of a key: its slot on a server, and the memory on this side."""

    def __init__(self, spec: KeySpec, segment: Segment, server: Server, number: int, chunk: int, offset: int):
        self.spec, self.segment, self.server = spec, segment, server
        self.number, self.chunk, self.offset = number, chunk, offset
        shape = spec.shape_of(segment)
        self.gradient = view(server.gradients[chunk].bytes, offset, shape, spec.dtype)
        self.weight = view(server.weights[chunk], offset, shape, spec.dtype)
        self.nbytes = self.weight.numel() * self.weight.element_size()
        self.pending = False  # whether the server may still have to read the gradient
        self.open = False  # whether a push was not committed yet

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """The elements of this segment in a tensor of the whole array, or flat, in the shape of the slot or flat."""
        if len(self.spec.segments) == 1:
            return whole
        if whole.shape == self.spec.shape:
            return whole[self.spec.rows_of(self.segment)]
        return whole[self.segment.start : self.segment.stop]

    def copy(self, whole: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(target, source) by which the weight gets to its elements in a tensor of the whole array, or flat."""
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
        self.writes: set[int] = set()  # chunks whose gradients the server sees
        self.reads: set[int] = set()  # chunks whose weights are seen here
        self.told: Settings = {}  # settings it knows

    def send(self, kind: int, meta: Any, *buffers: Any) -> None:
        """Send a frame. To another host in a thread, one after the other: backward goes on while gradients travel."""
        if self._courier is None:
            self.connection.send(kind, meta, *buffers)
            return
        if self._sent is not None and self._sent.done():
            self._sent.result()
        self._sent = self._courier.send(lambda: self.connection.send(kind, meta, *buffers))

    def close(self) -> None:
        """Say goodbye, after all that is still on its way, and close the connection."""
        with contextlib.suppress(WireError, TimeoutError):
            self.send(m.BYE, None)
            if self._sent is not None:
                self._sent.result(_GRACE)
        if self._courier is not None:
            self._courier.close()
        self.connection.close()

    def news(self, settings: Settings) -> dict[str, Any]:
        """What to add to a commit so that the server knows these settings."""
        told = self.told
        changed = {
            name: value
            for name, value in settings.items()
            if (known := told.get(name, self)) is not value and known != value
        }
        self.told.update(changed)
        return {"s": changed} if changed else {}


class Client:
    """All servers of a store, as one worker talks to them. Threads take turns."""

    def __init__(self, servers: list[Server], store: StoreClient, timeout: float, rank: int):
        self.servers, self.rank = servers, rank
        self._store, self._timeout = store, timeout
        self._failure: MXNetError | None = None
        self._turn = threading.RLock()
        self.keys: dict[Key, list[RemoteSlot]] = {}

    # ---- talking ----

    def _send(self, server: Server, kind: int, meta: Any, *buffers: Any) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        try:
            server.send(kind, meta, *buffers)
        except WireError as error:
            self._hear_last_words(server)
            raise self._lost(server, error) from error

    def _hear_last_words(self, server: Server) -> None:
        """A server that closes the connection says why first."""
        with contextlib.suppress(WireError):
            self._receive(server, None, 0.2)

    def _receive(self, server: Server, into: Into | None, timeout: float) -> Frame:
        frame = server.connection.receive(into, timeout)
        if frame.kind != m.FAILED:
            return frame
        message = f"{server.name}: {frame.meta['message']}"
        raise PeerError(message) if frame.meta["peer"] else MXNetError(message)

    def _answer(self, server: Server, into: Into | None = None) -> Frame:
        """The next frame of a server: within the limit of time, unless the server is gone."""
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
        """A connection ends sooner than the roll call knows why."""
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
        """An answer of every server; the first refusal is raised when all have answered."""
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
        """Take leave of all servers."""
        for server in self.servers:
            server.close()

    # ---- keys ----

    @_in_turn
    def declare(self, specs: Sequence[KeySpec], values: Sequence[torch.Tensor]) -> None:
        """Make keys known; worker 0 gives their first values, flat and contiguous."""
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
        """Share a chunk with its server where both are on one host and have the room."""
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
        """Hand in gradients of the shape of their keys, or flat; with `commit` the step is complete for these keys.

        Those of an earlier push that was not committed are replaced.
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
        """Hand in some rows of a gradient; with `commit` the step is complete for this key."""
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
        """Hand in a compressed gradient, (codec, bytes) for each segment; with `commit` its step is complete."""
        slots = self.keys[key]
        self._await_use([slot for slot in slots if not slot.open])
        for slot, (codec, data) in zip(slots, segments, strict=True):
            meta = {"k": [slot.number], "c": int(commit), "codec": codec, **slot.server.news(settings)}
            self._send(slot.server, m.PUSH_CODED, meta, data)
            slot.pending, slot.open = True, not commit

    @_in_turn
    def commit(self, keys: Sequence[Key], settings: Settings = _NOTHING, follows: bool = False) -> None:
        """The step is complete for these keys: what was not pushed of them counts as zero.

        Who `follows` takes part in the step of others: their settings hold.
        """
        slots = [slot for key in keys for slot in self.keys[key]]
        self._await_use([slot for slot in slots if not slot.open])
        for server, mine in self._by_server(slots):
            how = {"f": 1} if follows else server.news(settings)
            self._send(server, m.COMMIT, {"k": [slot.number for slot in mine], **how})
            for slot in mine:
                slot.pending, slot.open = True, False

    def _await_use(self, slots: list[RemoteSlot]) -> None:
        """Wait until the servers are done with what was pushed before."""
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
        """Copy the arrays of keys, of their shape or flat, into the tensors given for each, as they become ready."""
        targets = {slot: tensors for key, tensors in zip(keys, outs, strict=True) for slot in self.keys[key]}

        def copy(ready: list[RemoteSlot]) -> None:
            pairs = [slot.copy(tensor) for slot in ready for tensor in targets[slot]]
            if pairs:
                torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])

        with torch.no_grad():
            self._pull(list(targets), copy)

    def _pull(self, slots: list[RemoteSlot], take: Callable[[list[RemoteSlot]], None], waits: bool = False) -> None:
        """Ask all servers at once, and take slots as soon as their servers say that they are ready."""
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
        """Those servers that have something to say; if none has for a while, all, so that each is waited for."""
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
        """Some rows of a key; their numbers rise."""
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
        """Give the servers the rule by which they update; worker 0's counts."""
        self._ask_all(
            m.OPTIMIZER, {"generation": generation}, [description if self.rank == 0 else b""] * len(self.servers)
        )

    @_in_turn
    def states(self) -> list[bytes]:
        """The optimizer's states on each server."""
        return [bytes(frame.payload) for frame in self._ask_all(m.STATES, {})]

    @_in_turn
    def restore(self, states: Sequence[bytes], generation: int) -> None:
        """Give each server its optimizer's states; worker 0's count."""
        self._ask_all(m.RESTORE, {"generation": generation}, states if self.rank == 0 else [b""] * len(self.servers))


def _rows_into(rows: torch.Tensor, kind: int, meta: Any, nbytes: int) -> memoryview:
    return as_bytes(rows) if kind == m.READY else memoryview(bytearray(nbytes))


def _anywhere(kind: int, meta: Any, nbytes: int) -> memoryview:
    return memoryview(bytearray(nbytes))


def _runs(slots: list[RemoteSlot]) -> list[list[RemoteSlot]]:
    """Slots that are neighbours in memory, together."""
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
    """Connect to all servers of the job; their addresses are in its store."""
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
