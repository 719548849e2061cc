"""A copy of the store that is kept equal to those of other processes."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .. import wire
from .log import LEADER, Log
from .messages import Message, address_of
from .peers import Peers
from .protocol import PeerError
from .state import Answer, State, pack, unpack
from .steward import Steward

_log = logging.getLogger("neomx")
_LOOK = 0.2  # maximum seconds between two looks at the clock


class Elsewhere(PeerError):
    """This replica does not lead, so another one has to handle the request."""

    def __init__(self) -> None:
        super().__init__("another process leads the job's store, or none does")


@dataclass(slots=True)
class _Proposal:
    """A command on its way into the log."""

    term: int
    answer: Answer | None = None


class Replication:
    """Executes the commands of a store in the order on which a majority of the replicas agrees.

    All methods but `start` and `close` are called with the lock of the store held, and release it while they wait.
    """

    def __init__(
        self,
        state: State,
        address: str,
        lock: threading.RLock,
        changed: threading.Condition,
        applied: Callable[[], None],
        led: Callable[[bool], None],
        refused: Callable[[wire.WireError], None],
        secret: bytes,
        tls: str | None,
        wanted: int,
        founds: bool,
    ):
        """`applied()` is called after commands were executed, `led(whether)` when this replica begins or ends to lead.

        Both notify `changed`, a condition of the store's `lock`. Clients reach this replica at `address`. The replica
        that `founds` the store is its first one.
        """
        self._state, self._address, self._changed = state, address, changed
        self._applied, self._led = applied, led
        self._peers = Peers(wire.split_address(address)[0], secret, tls, self._hear, self._suspect, refused)
        self.name = self._peers.name
        rng = random.Random(self.name)
        self._log = Log(self.name, founds, state.snapshot, state.restore, rng, time.monotonic())
        self._steward = Steward(wanted)
        self._clock = threading.Condition(lock)
        self._proposals: dict[int, _Proposal] = {}
        self._reading = 0  # threads that wait for the confirmation of a read
        self._leads = self._retiring = self._closed = False

    def start(self) -> None:
        """Start taking part."""
        self._peers.start()
        with self._changed:
            self._log.tick(time.monotonic())
            self._flush()
        threading.Thread(target=self._run, daemon=True, name="replication").start()

    def close(self) -> None:
        """Stop taking part, without a goodbye."""
        with self._changed:
            self._closed = True
            self._clock.notify()
        self._peers.close()

    # ---- for the store ----

    @property
    def leads(self) -> bool:
        """Whether this replica serves the clients."""
        return self._leads and not self._closed

    @property
    def leader(self) -> str | None:
        """The address of the replica that serves the clients, if it is known here."""
        return self._state.replicas.get(self._log.leader or "")

    def is_voter(self, name: str) -> bool:
        """Whether a replica is a voter, or may still be one."""
        return name in self._log.voters or not self._log.may_change

    def agree(self, command: dict[str, Any], payload: bytes = b"") -> Answer:
        """Execute a command on all replicas and return the answer. Raises Elsewhere if this replica does not lead."""
        index = self._log.propose(pack(command, payload), time.monotonic()) if self.leads else None
        if index is None:
            raise Elsewhere
        proposal = self._proposals[index] = _Proposal(self._log.term)
        self._flush()
        while proposal.answer is None:
            if not self.leads or self._log.term != proposal.term:
                raise Elsewhere
            self._changed.wait()
        return proposal.answer

    def confirm(self) -> None:
        """Return once it is certain that what was just read is current. Raises Elsewhere if it may be outdated."""
        ticket = self._log.read(time.monotonic()) if self.leads else None
        if ticket is None:
            raise Elsewhere
        if self._log.is_confirmed(ticket):
            return
        self._flush()
        self._reading += 1
        try:
            while not self._log.is_confirmed(ticket):
                if not self.leads or self._log.term != ticket[0]:
                    raise Elsewhere
                self._changed.wait()
        finally:
            self._reading -= 1

    def retire(self) -> None:
        """Do not offer to keep the store any more."""
        self._retiring = True

    # ---- messages and time ----

    def _hear(self, sender: str, message: Message) -> None:
        with self._changed:
            if not self._closed:
                self._log.receive(sender, message, time.monotonic())
                self._flush()

    def _suspect(self, name: str) -> None:
        with self._changed:
            self._log.suspect(name, time.monotonic())
            self._clock.notify()

    def _run(self) -> None:
        with self._changed:
            while not self._closed:
                now = time.monotonic()
                self._log.tick(now)
                self._tend(now)
                self._flush()
                self._clock.wait(max(0.001, min(_LOOK, self._log.deadline - time.monotonic())))

    def _tend(self, now: float) -> None:
        """Keep the right replicas as voters."""
        if not self._log.is_ready:
            return
        if self.name not in self._state.replicas and not self._retiring:
            self._log.propose(pack({"do": "offer", "replica": self.name, "address": self._address}, b""), now)
        for name in self._steward.tend(self._log, self._state.replicas, now):
            if name in self._log.voters:
                _log.warning("store: the process at %s, which keeps a copy, does not answer", address_of(name))
            self._log.propose(pack({"do": "withdraw", "replica": name}, b""), now)

    def _flush(self) -> None:
        """Execute what was committed, send messages, and note whether this replica leads."""
        executed = False
        for index, entry in self._log.committed():
            executed = True
            answer = self._execute(entry.data) if entry.data else ({}, b"")
            proposal = self._proposals.pop(index, None)
            if proposal is not None and proposal.term == entry.term:
                proposal.answer = answer
        leads = self._log.role == LEADER and (self._leads or self._log.is_ready)
        if leads != self._leads:
            self._leads = leads
            self._proposals.clear()
            self._led(leads)
        if executed:
            self._applied()
        elif self._reading:
            self._changed.notify_all()
        for name, message in self._log.messages:
            self._peers.send(name, message)
        self._log.messages.clear()

    def _execute(self, data: bytes) -> Answer:
        try:
            command, payload = unpack(data)
            if not isinstance(command, dict):
                raise ValueError(f"expected a command, received {command!r:.80}")
        except ValueError as error:  # made by a replica that does not follow the protocol
            return {"error": "invalid", "why": str(error)}, b""
        return self._state.apply(command, payload)
