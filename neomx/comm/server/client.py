"""The worker's side of the connection to parameter servers: keys, and where their segments are.

Gradients are copied to the position of their slots in this worker's copy of a chunk. If the server shares that memory,
a small frame announces them; otherwise the memory is sent. Pushes do not wait for a reply, but a slot is overwritten
only after the server has used its previous push.

If several processes hold a server's slots and the one that leads is lost, the client connects to the next one and
repeats what was not acknowledged. The new leader knows how many commits of each slot it has, so none is applied twice.
"""

from __future__ import annotations

import contextlib
import functools
import select
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

import torch

from ...base import MXNetError
from ..store import NEWS, THE_STORE, PeerError
from ..wire import Closed, Frame, Into, TimedOut, WireError, as_bytes
from . import messages as m
from .arena import Chunk
from .directory import Directory
from .elastic_shard import Generation
from .messages import Key, KeySpec, Settings, SparseRows
from .remote import Commit, Push, RemoteSlot, Server, memory_of, runs_of

_NOTHING: Settings = {}
Watch = Callable[[int], None]
Method = TypeVar("Method", bound=Callable[..., Any])
_GRACE = 10.0  # seconds beyond the timeout after which a server that does not report late workers is itself late
_TURNS = 20  # connections to a server in a row that may break before it replies to a request


class ServerLost(MXNetError):
    """A server of an elastic job is lost, so the workers cannot go on."""


class _Broken(Exception):
    """The connection to a server broke, and another process may lead it."""


def _in_turn(method: Method) -> Method:
    """Decorator for methods of Client that only one thread may run at a time."""

    @functools.wraps(method)
    def turn(self: Client, *args: Any, **kwargs: Any) -> Any:
        with self._turn:
            return method(self, *args, **kwargs)

    return cast(Method, turn)


class Request(NamedTuple):
    """A frame to a server that is answered. It may be sent again if another process takes the lead."""

    server: Server
    kind: int
    meta: Any
    buffers: Sequence[Any] = ()


class Client:
    """The connections of one worker to all servers of a store. Thread-safe."""

    def __init__(self, servers: list[Server], directory: Directory, timeout: float, is_first: bool, watch: Watch):
        """`is_first`: whether the values and the optimizer of this worker are used.

        `watch` is called while waiting, with the number of the generation. It raises PeerError if workers are lost.
        """
        self.servers, self.is_first, self._watch = servers, is_first, watch
        self._glance = 0.1 if directory.is_elastic else 0.5  # seconds between two calls of `watch`
        self._directory, self._store, self._timeout = directory, directory.store, timeout
        self._failure: MXNetError | None = None
        self._generation = 0
        self._turn = threading.RLock()
        self.keys: dict[Key, list[RemoteSlot]] = {}

    # ---- communication ----

    def _send(self, server: Server, kind: int, meta: Any, *buffers: Any) -> None:
        if self._failure is not None:
            raise type(self._failure)(str(self._failure))
        try:
            server.link.send(kind, meta, *buffers)
        except WireError as error:
            self._hear_last_words(server)
            self._lose(server, error)

    def _hear_last_words(self, server: Server) -> None:
        """Raise the reason that a server sends before it closes the connection."""
        with contextlib.suppress(WireError):
            self._receive(server, None, 0.2)

    def _receive(self, server: Server, into: Into | None, timeout: float) -> Frame:
        frame = server.link.connection.receive(into, timeout)
        if frame.kind != m.FAILED:
            server.turns = 0
            return frame
        message = f"{server.name}: {frame.meta['message']}"
        raise PeerError(message) if frame.meta["peer"] else MXNetError(message)

    def _answer(self, server: Server, into: Into | None = None) -> Frame:
        """Receive the next frame from a server. Raises if the timeout expires or the server is gone."""
        deadline = time.monotonic() + self._timeout + _GRACE
        while True:
            try:
                return self._receive(server, into, self._glance)
            except TimedOut as error:
                self._look_at_workers()
                if time.monotonic() > deadline:
                    self._fail(server, error)
                if server.name in self._store.gone:
                    self._lose(server, error)
            except WireError as error:
                self._lose(server, error)
            except PeerError as error:
                self._failure = error
                raise

    def _look_at_workers(self) -> None:
        """Raise if other workers are lost. Replies that are on their way are not received then."""
        try:
            self._watch(self._generation)
        except PeerError as error:
            self._failure = error
            raise

    def _lose(self, server: Server, error: WireError) -> NoReturn:
        """Raise for a lost connection: _Broken if another process can take the lead."""
        self._look_at_workers()
        if self._directory.is_replicated and THE_STORE not in self._store.gone:
            raise _Broken(str(error)) from error
        self._fail(server, error)

    def _fail(self, server: Server, error: WireError) -> NoReturn:
        what = "does not answer" if isinstance(error, TimedOut) else "is gone"
        if what == "is gone":
            self._await_news(server)
        kind = ServerLost if self._directory.is_elastic else PeerError
        self._failure = kind(f"{server.name} {what}: {error}. {self._store.missing([server.name])}")
        raise self._failure from error

    def _await_news(self, server: Server) -> None:
        """Wait until the roll call knows why a server is gone, which is later than the broken connection."""
        deadline = time.monotonic() + NEWS
        while time.monotonic() < deadline and self._is_here(server):
            self._look_at_workers()  # if the others go on without this worker, the server closes the connection
            time.sleep(0.02)

    def _is_here(self, server: Server) -> bool:
        with contextlib.suppress(PeerError, KeyError):
            return self._store.roster()[server.name]["state"] == "here"
        return False

    def _ask(self, request: Request, into: Into | None = None) -> Frame:
        """Send a request and return the reply, from another process if the first one is lost."""
        while True:
            with self._recovering(request.server):
                self._send(request.server, request.kind, request.meta, *request.buffers)
                return self._answer(request.server, into)

    def _ask_all(self, requests: Sequence[Request], into: Sequence[Into] = ()) -> list[Frame]:
        """Ask one request of each server at the same time. Return the replies, or raise the first refusal.

        `into` returns the memory for the reply to each; new memory by default.
        """
        sent = []
        for request in requests:
            with self._recovering(request.server):
                self._send(request.server, request.kind, request.meta, *request.buffers)
                sent.append(request.server)
        frames, refusals = [], []
        for request, memory in zip(requests, into or [_anywhere] * len(requests), strict=True):
            frame = None
            try:
                if request.server in sent:
                    with self._recovering(request.server):
                        frame = self._answer(request.server, memory)
                frames.append(frame or self._ask(request, memory))
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
            server.link.close()
            for chunk in server.gradients.values():
                chunk.close()

    # ---- another process takes the lead ----

    @contextlib.contextmanager
    def _recovering(self, server: Server) -> Iterator[None]:
        """Within the block a server may be lost. Then this connects to the process that leads it next."""
        try:
            yield
        except _Broken as error:
            self._recover(server, error)

    def _recover(self, server: Server, why: Exception, anew: bool = False) -> dict[str, Any]:
        """Connect to the process that leads a server, and repeat what was not acknowledged. Return what it reports.

        If `anew`, nothing is repeated: this worker is a member of a new generation.
        """
        while True:
            turns = server.turns = server.turns + 1
            if turns > _TURNS:
                self._failure = PeerError(f"{server.name} closed {_TURNS} connections without a reply, the last: {why}")
                raise self._failure
            server.link.drop()
            try:
                server.link = self._directory.connect(server.number, again=True)
            except PeerError as error:
                if self._directory.is_elastic:
                    self._look_at_workers()
                    self._failure = ServerLost(str(error))
                    raise self._failure from error
                self._failure = error
                raise
            try:
                return self._resume(server, anew)
            except _Broken as error:
                why = error
            finally:
                server.turns = turns  # only replies to other requests reset it

    def _resume(self, server: Server, anew: bool) -> dict[str, Any]:
        """Map the memory of a new leader, and repeat the pushes and commits that it does not have."""
        slots = list(server.slots.values())
        self._send(server, m.RESUME, {"k": [slot.number for slot in slots]})
        told: dict[str, Any] = self._answer(server).meta
        for chunk, (nbytes, name) in told["chunks"].items():
            self._attach(server, int(chunk), nbytes, name)
        for slot in slots:
            slot.map()
        commits = dict(zip(slots, told["commits"], strict=True))
        if anew:
            server.settled = None
            for slot in slots:
                slot.begin_again(commits[slot])
            return told
        if any(slot.commits - commits[slot] not in (0, 1) for slot in slots):
            self._failure = PeerError(f"{server.name} does not have the updates that were acknowledged before")
            raise self._failure
        behind = [slot for slot in slots if slot.commits > commits[slot]]
        self._repeat(server, [slot for slot in slots if slot.open or slot.commits > commits[slot]], behind)
        if server.settled is not None:
            self._send_settle(server, *server.settled)
        return told

    @_in_turn
    def regroup(self, generation: Generation, is_first: bool) -> list[dict[str, Any]]:
        """Connect to all servers as a member of a new generation of workers. Return what each server reports."""
        self._failure, self.is_first, self._generation = None, is_first, generation.number
        self._directory.follow(generation)
        told = []
        for server in self.servers:
            server.turns = 0
            told.append(self._recover(server, Closed("the workers have changed"), anew=True))
        return told

    def _repeat(self, server: Server, pushed: list[RemoteSlot], committed: list[RemoteSlot]) -> None:
        """Push gradients again, and commit those that were committed."""
        self._send_memory(server, [slot for slot in pushed if slot.pushed is True], {"c": 0})
        for slot in pushed:
            if isinstance(slot.pushed, Push):
                self._send(server, slot.pushed.kind, {**slot.pushed.meta, "c": 0}, *slot.pushed.buffers)
        alike: dict[int, list[RemoteSlot]] = {}
        for slot in committed:
            alike.setdefault(id(slot.commit), []).append(slot)
        for slots in alike.values():
            self._send_commit(server, slots, slots[0].commit)

    # ---- keys ----

    @_in_turn
    def declare(self, specs: Sequence[KeySpec], values: Sequence[torch.Tensor]) -> None:
        """Declare keys. The first worker provides their initial values, flat and contiguous."""
        told = {"keys": [spec.told() for spec in specs]}
        requests = []
        for server in self.servers:
            held = [(v, p) for e, v in zip(specs, values, strict=True) for p in e.segments if p.server == server.number]
            parts = [v[p.start : p.stop] for v, p in held if self.is_first]
            requests.append(Request(server, m.DECLARE, told, parts))
        found: dict[Key, list[RemoteSlot]] = {spec.key: [] for spec in specs}
        for request, answer in zip(requests, self._ask_all(requests), strict=True):
            self._take_slots(request, specs, answer.meta, found)
        for spec in specs:
            for old in self.keys.get(spec.key, ()):
                del old.server.slots[old.number]
            self.keys[spec.key] = found[spec.key]
            for slot in found[spec.key]:
                slot.server.slots[slot.number] = slot

    def _take_slots(
        self, request: Request, specs: Sequence[KeySpec], told: Any, found: dict[Key, list[RemoteSlot]]
    ) -> None:
        server = request.server
        while True:
            with self._recovering(server):
                for number, (nbytes, name) in told["chunks"].items():
                    if int(number) not in server.link.weights:
                        self._attach(server, int(number), nbytes, name)
                break
            told = self._ask(request, _anywhere).meta  # the chunks have other names at the process that leads now
        held = [(e, p) for e in specs for p in e.segments if p.server == server.number]
        for (spec, segment), (number, chunk, offset, commits) in zip(held, told["slots"], strict=True):
            slot = RemoteSlot(spec, segment, server, number, chunk, offset)
            slot.commits = commits
            found[spec.key].append(slot)

    def _attach(self, server: Server, chunk: int, nbytes: int, name: str) -> None:
        """Share a chunk with its server if both are on one host and have enough memory."""
        server.link.attach(chunk, nbytes, name)
        reads = chunk in server.link.reads
        gradients = server.gradients.get(chunk) or Chunk(nbytes, shared=reads)
        self._send(server, m.ATTACH, {"chunk": chunk, "name": gradients.name, "reads": reads})
        if self._answer(server).meta["shared"]:
            server.link.writes.add(chunk)
        if not (self._directory.is_replicated or self._directory.is_elastic):
            gradients.close()
        server.gradients[chunk] = gradients

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
        committed = Commit(settings, False) if commit else None
        for server, mine in self._by_server(slots):
            self._note(mine, True, committed)
            with self._recovering(server):
                self._send_memory(server, mine, self._ending(server, committed))

    @staticmethod
    def _note(slots: Sequence[RemoteSlot], pushed: Push | bool, committed: Commit | None) -> None:
        """Note a push before it is sent, so that it is repeated if the server is lost."""
        for slot in slots:
            slot.push(pushed)
            if committed is not None:
                slot.close(committed)

    @staticmethod
    def _ending(server: Server, committed: Commit | None) -> dict[str, Any]:
        """Return the fields of a push that tell whether it is committed."""
        return {"c": 0} if committed is None else {"c": 1, **server.link.news(committed.settings)}

    def _send_memory(self, server: Server, slots: list[RemoteSlot], ending: dict[str, Any]) -> None:
        """Announce gradients in shared memory, and send the others."""
        near = [slot for slot in slots if slot.chunk in server.link.writes]
        runs = ([near] if near else []) + runs_of([slot for slot in slots if slot.chunk not in server.link.writes])
        for run in runs:
            payload = () if run is near else (memory_of(run),)
            self._send(server, m.PUSH, {"k": [slot.number for slot in run], **ending}, *payload)

    @_in_turn
    def push_rows(self, key: Key, rows: SparseRows, commit: bool, settings: Settings = _NOTHING) -> None:
        """Push some rows of a gradient. If `commit`, the step is complete for this key."""
        slots = self.keys[key]
        self._await_use([slot for slot in slots if not slot.open])
        row = slots[0].spec.row
        for slot in slots:
            low, high = (int(torch.searchsorted(rows.indices, end // row)) for end in slot.segment[1:])
            indices, values = rows.indices[low:high] - slot.segment.start // row, rows.values[low:high].contiguous()
            if self._directory.is_replicated:
                values = values.clone()  # the program may change them before they are acknowledged
            self._push_frame(slot, m.PUSH_ROWS, {"rows": high - low}, (indices, values), commit, settings)

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
            self._push_frame(slot, m.PUSH_CODED, {"codec": codec}, (data,), commit, settings)

    def _push_frame(
        self,
        slot: RemoteSlot,
        kind: int,
        fields: dict[str, Any],
        buffers: tuple[torch.Tensor, ...],
        commit: bool,
        settings: Settings,
    ) -> None:
        """Push a gradient of one slot that is not in its memory."""
        pushed = Push(kind, {"k": [slot.number], **fields}, buffers)
        committed = Commit(settings, False) if commit else None
        self._note([slot], pushed if self._directory.is_replicated else True, committed)
        with self._recovering(slot.server):
            self._send(slot.server, kind, {**pushed.meta, **self._ending(slot.server, committed)}, *buffers)

    @_in_turn
    def commit(self, keys: Sequence[Key], settings: Settings = _NOTHING, follows: bool = False, step: int = 0) -> None:
        """Complete the step for these keys. Gradients that were not pushed count as zero.

        If `follows`, this worker only takes part in a step of others, whose settings apply. In an elastic job, `step`
        is its number.
        """
        slots = [slot for key in keys for slot in self.keys[key]]
        self._await_use([slot for slot in slots if not slot.open])
        committed = Commit(settings, follows, step)
        for server, mine in self._by_server(slots):
            server.settled = None
            for slot in mine:
                slot.close(committed)
            with self._recovering(server):
                self._send_commit(server, mine, committed)

    def _send_commit(self, server: Server, slots: list[RemoteSlot], commit: Commit) -> None:
        how = {"f": 1} if commit.follows else server.link.news(commit.settings)
        step = {"t": commit.step} if commit.step else {}
        self._send(server, m.COMMIT, {"k": [slot.number for slot in slots], **how, **step})

    @_in_turn
    def await_offers(self, keys: Sequence[Key]) -> None:
        """Wait until all workers have committed these keys, and all servers that hold them have the gradients."""
        slots = [slot for key in keys for slot in self.keys[key]]
        self._pull(slots, lambda ready: None, {"w": 1, "o": 1})

    @_in_turn
    def settle(self, keys: Sequence[Key], step: int, settings: Settings) -> None:
        """Apply what was committed for these keys in a step of an elastic job, which counts."""
        for server, _ in self._by_server([slot for key in keys for slot in self.keys[key]]):
            server.settled = step, settings
            with self._recovering(server):
                self._send_settle(server, step, settings)

    def _send_settle(self, server: Server, step: int, settings: Settings) -> None:
        self._send(server, m.SETTLE, {"t": step, **server.link.news(settings)})

    def _await_use(self, slots: list[RemoteSlot]) -> None:
        """Wait until the servers have used earlier pushes."""
        pending = [slot for slot in slots if slot.pending]
        if any(slot.open for slot in pending):
            raise MXNetError(f"key {next(p for p in pending if p.open).spec.key!r} was pushed twice without a commit")
        if pending:
            self._pull(pending, lambda ready: None, {"w": 1})

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

    def _pull(
        self, slots: list[RemoteSlot], take: Callable[[list[RemoteSlot]], None], how: dict[str, int] = _NOTHING
    ) -> None:
        """Ask all servers concurrently, and process slots as soon as their servers report them ready."""
        waiting = {server: {slot.number: slot for slot in mine} for server, mine in self._by_server(slots)}
        unasked = list(waiting)
        while waiting:
            while unasked:
                with self._recovering(unasked[-1]):
                    self._send(unasked[-1], m.PULL, {"k": list(waiting[unasked[-1]]), **how})
                    unasked.pop()
            for server in self._talking(list(waiting)):
                told = None
                with self._recovering(server):
                    told = self._answer(server, functools.partial(self._room, server))
                if told is None:
                    unasked.append(server)
                    continue
                ready = [waiting[server].pop(number) for number in told.meta["k"]]
                for slot in ready:
                    slot.pending = slot.open
                take(ready)
                if not waiting[server]:
                    del waiting[server]

    def _talking(self, waiting: list[Server]) -> list[Server]:
        """Return the servers with data to receive. After some time without data, return all of them."""
        if len(waiting) == 1:
            return waiting
        poll = select.poll()
        of_file = {server.link.connection.fileno(): server for server in waiting}
        for file in of_file:
            poll.register(file, select.POLLIN)
        return [of_file[file] for file, _ in poll.poll(1000 * self._glance)] or waiting

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
        requests, parts = [], []
        for slot in slots:
            low, high = (int(torch.searchsorted(indices, end // spec.row)) for end in slot.segment[1:])
            if low < high:
                wanted = indices[low:high] - slot.segment.start // spec.row
                requests.append(Request(slot.server, m.PULL_ROWS, {"k": [slot.number]}, [wanted]))
                parts.append(out[low:high])
        self._ask_all(requests, [functools.partial(_rows_into, part) for part in parts])
        return out

    # ---- the optimizer ----

    @_in_turn
    def set_optimizer(self, description: bytes, generation: int) -> None:
        """Set the optimizer of the servers; only that of the first worker is used."""
        self._act(m.OPTIMIZER, generation, [description] * len(self.servers))

    @_in_turn
    def states(self) -> list[bytes]:
        """Return the optimizer's states on each server."""
        return [bytes(frame.payload) for frame in self._ask_all([Request(each, m.STATES, {}) for each in self.servers])]

    @_in_turn
    def restore(self, states: Sequence[bytes], generation: int) -> None:
        """Set the optimizer's states on each server; only those of the first worker are used."""
        self._act(m.RESTORE, generation, states)

    def _act(self, kind: int, generation: int, payloads: Sequence[bytes]) -> None:
        """Ask all servers for an action that runs once, with the payload of the first worker."""
        for server in self.servers:
            server.link.told = {}  # they forget the settings of the optimizer before
        meta = {"generation": generation}
        self._ask_all(
            [
                Request(server, kind, meta, [payload] if self.is_first else [])
                for server, payload in zip(self.servers, payloads, strict=True)
            ]
        )


def _rows_into(rows: torch.Tensor, kind: int, meta: Any, nbytes: int) -> memoryview:
    return as_bytes(rows) if kind == m.READY else memoryview(bytearray(nbytes))


def _anywhere(kind: int, meta: Any, nbytes: int) -> memoryview:
    return memoryview(bytearray(nbytes))


def open_client(
    directory: Directory, timeout: float, servers: int, rank: int, watch: Watch = lambda generation: None
) -> Client:
    """Connect to all servers of the job, as the worker with this rank."""
    links = [Server(number, directory.connect(number)) for number in range(servers)]
    return Client(links, directory, timeout, rank == 0, watch)
