"""A worker's side of the talk with its servers: keys, and where their pieces are.

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
from ..wire import Connection, Frame, TimedOut, WireError, as_bytes, connect
from ..world import World
from . import messages as m
from .arena import Chunk, attach, view
from .messages import Entry, Key, Piece, Rows

_NOTHING: dict[str, Any] = {}
Method = TypeVar("Method", bound=Callable[..., Any])
_GRACE = 10.0  # seconds after which a server that should have told who is late is late itself


def _in_turn(method: Method) -> Method:
    """A method of Client that one thread at a time may be in."""

    @functools.wraps(method)
    def turn(self: Client, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast(Method, turn)


class Place:
    """One piece of a key: its slot on a server, and the memory on this side."""

    def __init__(self, entry: Entry, piece: Piece, server: Server, slot: int, chunk: int, offset: int):
        self.entry, self.piece, self.server, self.slot, self.chunk, self.offset = (
            entry,
            piece,
            server,
            slot,
            chunk,
            offset,
        )
        shape = entry.shape_of(piece)
        self.gradient = view(server.gradients[chunk].bytes, offset, shape, entry.dtype)
        self.weight = view(server.weights[chunk], offset, shape, entry.dtype)
        self.nbytes = self.weight.numel() * self.weight.element_size()
        self.pending = False  # whether the server may still have to read the gradient
        self.open = False  # whether a push was not committed yet

    def part(self, whole: torch.Tensor) -> torch.Tensor:
        """The elements of this piece in a tensor of the whole array, or flat, in the shape of the slot or flat."""
        if len(self.entry.pieces) == 1:
            return whole
        if whole.shape == self.entry.shape:
            return whole[self.entry.rows_of(self.piece)]
        return whole[self.piece.start : self.piece.stop]

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
        self.places: dict[int, Place] = {}  # by slot
        self.gradients: dict[int, Chunk] = {}
        self.weights: dict[int, torch.Tensor] = {}
        self.writes: set[int] = set()  # chunks whose gradients the server sees
        self.reads: set[int] = set()  # chunks whose weights are seen here
        self.told: dict[str, Any] = {}  # settings it knows

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

    def news(self, settings: dict[str, Any]) -> dict[str, Any]:
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
        self.keys: dict[Key, list[Place]] = {}

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

    def _receive(self, server: Server, into: Any, timeout: float) -> Frame:
        frame = server.connection.receive(into, timeout)
        if frame.kind != m.FAILED:
            return frame
        message = f"{server.name}: {frame.meta['message']}"
        raise PeerError(message) if frame.meta["peer"] else MXNetError(message)

    def _answer(self, server: Server, into: Any = None) -> Frame:
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
    def declare(self, entries: Sequence[Entry], values: Sequence[torch.Tensor]) -> None:
        """Make keys known; worker 0 gives their first values, flat and contiguous."""
        told = {"keys": [entry.told() for entry in entries]}
        for server in self.servers:
            held = [(v, p) for e, v in zip(entries, values, strict=True) for p in e.pieces if p.server == server.number]
            self._send(server, m.DECLARE, told, *(v[p.start : p.stop] for v, p in held if self.rank == 0))
        found: dict[Key, list[Place]] = {entry.key: [] for entry in entries}
        for server, answer in zip(self.servers, self._gather(), strict=True):
            self._take_places(server, entries, answer.meta, found)
        for entry in entries:
            for old in self.keys.get(entry.key, ()):
                del old.server.places[old.slot]
            self.keys[entry.key] = found[entry.key]
            for place in found[entry.key]:
                place.server.places[place.slot] = place

    def _take_places(self, server: Server, entries: Sequence[Entry], told: Any, found: dict[Key, list[Place]]) -> None:
        for number, (nbytes, name) in told["chunks"].items():
            if int(number) not in server.weights:
                self._attach(server, int(number), nbytes, name)
        held = [(e, p) for e in entries for p in e.pieces if p.server == server.number]
        for (entry, piece), (slot, chunk, offset) in zip(held, told["slots"], strict=True):
            found[entry.key].append(Place(entry, piece, server, slot, chunk, offset))

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
        self, keys: Sequence[Key], tensors: Sequence[torch.Tensor], commit: bool, settings: Any = _NOTHING
    ) -> None:
        """Hand in gradients of the shape of their keys, or flat; with `commit` the step is complete for these keys.

        Those of an earlier push that was not committed are replaced.
        """
        places = [place for key in keys for place in self.keys[key]]
        self._await_use([place for place in places if not place.open])
        parts = [place.part(t) for key, t in zip(keys, tensors, strict=True) for place in self.keys[key]]
        memory = [
            p.gradient if p.gradient.shape == part.shape else p.gradient.view(-1)
            for p, part in zip(places, parts, strict=True)
        ]
        with torch.no_grad():
            torch._foreach_copy_(memory, parts)
        for server, mine in self._by_server(places):
            self._push_to(server, mine, commit, settings)

    def _push_to(self, server: Server, places: list[Place], commit: bool, settings: Any) -> None:
        near = [place for place in places if place.chunk in server.writes]
        runs = ([near] if near else []) + _runs([place for place in places if place.chunk not in server.writes])
        for run in runs:
            meta = {"k": [place.slot for place in run], "c": int(commit), **server.news(settings)}
            payload = () if run is near else (_memory_of(run),)
            self._send(server, m.PUSH, meta, *payload)
        for place in places:
            place.pending, place.open = True, not commit

    @_in_turn
    def push_rows(self, key: Key, rows: Rows, commit: bool, settings: Any = _NOTHING) -> None:
        """Hand in some rows of a gradient; with `commit` the step is complete for this key."""
        places = self.keys[key]
        self._await_use([place for place in places if not place.open])
        row = places[0].entry.row
        for place in places:
            low, high = (int(torch.searchsorted(rows.indices, end // row)) for end in place.piece[1:])
            meta = {"k": [place.slot], "c": int(commit), "rows": high - low, **place.server.news(settings)}
            indices, values = rows.indices[low:high] - place.piece.start // row, rows.values[low:high].contiguous()
            self._send(place.server, m.PUSH_ROWS, meta, indices, values)
            place.pending, place.open = True, not commit

    @_in_turn
    def push_coded(
        self, key: Key, pieces: Sequence[tuple[Any, torch.Tensor]], commit: bool, settings: Any = _NOTHING
    ) -> None:
        """Hand in a compressed gradient, (codec, bytes) for each piece; with `commit` its step is complete."""
        places = self.keys[key]
        self._await_use([place for place in places if not place.open])
        for place, (codec, data) in zip(places, pieces, strict=True):
            meta = {"k": [place.slot], "c": int(commit), "codec": codec, **place.server.news(settings)}
            self._send(place.server, m.PUSH_CODED, meta, data)
            place.pending, place.open = True, not commit

    @_in_turn
    def commit(self, keys: Sequence[Key], settings: Any = _NOTHING, follows: bool = False) -> None:
        """The step is complete for these keys: what was not pushed of them counts as zero.

        Who `follows` takes part in the step of others: their settings hold.
        """
        places = [place for key in keys for place in self.keys[key]]
        self._await_use([place for place in places if not place.open])
        for server, mine in self._by_server(places):
            how = {"f": 1} if follows else server.news(settings)
            self._send(server, m.COMMIT, {"k": [place.slot for place in mine], **how})
            for place in mine:
                place.pending, place.open = True, False

    def _await_use(self, places: list[Place]) -> None:
        """Wait until the servers are done with what was pushed before."""
        pending = [place for place in places if place.pending]
        if any(place.open for place in pending):
            raise MXNetError(f"key {next(p for p in pending if p.open).entry.key!r} was pushed twice without a commit")
        if pending:
            self._pull(pending, lambda ready: None, waits=True)

    def _by_server(self, places: list[Place]) -> list[tuple[Server, list[Place]]]:
        grouped = [(server, [place for place in places if place.server is server]) for server in self.servers]
        return [(server, mine) for server, mine in grouped if mine]

    # ---- pulling ----

    @_in_turn
    def pull(self, keys: Sequence[Key], outs: Sequence[Sequence[torch.Tensor]]) -> None:
        """Copy the arrays of keys, of their shape or flat, into the tensors given for each, as they become ready."""
        targets = {place: tensors for key, tensors in zip(keys, outs, strict=True) for place in self.keys[key]}

        def copy(ready: list[Place]) -> None:
            pairs = [place.copy(tensor) for place in ready for tensor in targets[place]]
            if pairs:
                torch._foreach_copy_([target for target, _ in pairs], [source for _, source in pairs])

        with torch.no_grad():
            self._pull(list(targets), copy)

    def _pull(self, places: list[Place], take: Callable[[list[Place]], None], waits: bool = False) -> None:
        """Ask all servers at once, and take places as soon as their servers say that they are ready."""
        waiting = {}
        for server, mine in self._by_server(places):
            self._send(server, m.PULL, {"k": [place.slot for place in mine], **({"w": 1} if waits else {})})
            waiting[server] = len(mine)
        while waiting:
            for server in self._talking(waiting):
                told = self._answer(server, functools.partial(self._room, server))
                ready = [server.places[slot] for slot in told.meta["k"]]
                for place in ready:
                    place.pending = place.open
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
        return as_bytes(server.places[meta["k"][0]].weight)

    @_in_turn
    def pull_rows(self, key: Key, indices: torch.Tensor) -> torch.Tensor:
        """Some rows of a key; their numbers rise."""
        places = self.keys[key]
        entry = places[0].entry
        out = torch.empty(len(indices), *entry.shape[1:], dtype=entry.dtype)
        parts = []
        for place in places:
            low, high = (int(torch.searchsorted(indices, end // entry.row)) for end in place.piece[1:])
            if low < high:
                parts.append((place, out[low:high]))
                wanted = indices[low:high] - place.piece.start // entry.row
                self._send(place.server, m.PULL_ROWS, {"k": [place.slot]}, wanted)
        for place, part in parts:
            self._answer(place.server, functools.partial(_rows_into, part))
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


def _runs(places: list[Place]) -> list[list[Place]]:
    """Places that are neighbours in memory, together."""
    runs: list[list[Place]] = []
    for place in sorted(places, key=lambda place: (place.chunk, place.offset)):
        last = runs[-1][-1] if runs else None
        if last is not None and last.chunk == place.chunk and place.offset - last.offset - last.nbytes < 64:
            runs[-1].append(place)
        else:
            runs.append([place])
    return runs


def _memory_of(run: list[Place]) -> torch.Tensor:
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
            connection = connect(address, world.secret, hello, world.tls, min(world.timeout, 30.0))
        except WireError as error:
            raise PeerError(f"server {number}: {error}. {store.missing([f'server {number}'])}") from error
        servers.append(Server(number, connection, m.are_near(hello, theirs)))
    return Client(servers, store, world.timeout, world.rank)
