"""The verdict of a job on several nodes: node 0 collects what happens on all of them, and all end together."""

from __future__ import annotations

import dataclasses
import json
import socket
import time
from collections.abc import Callable, Collection

from ..comm.child import Child, Failure
from ..comm.store import Member, PeerError, StoreClient, StoreServer
from ..comm.supervision import SAVED, EndedServers, Verdict

END = "launch/end"
GOODBYE = 10.0  # seconds that node 0 waits until the others have ended their processes
_ASK = 0.2  # seconds between two questions of a node to node 0


def _interrupted(name: str, signum: int) -> Failure:
    return Failure(name, -signum, socket.gethostname(), ["it was interrupted"], is_interruption=True)


class Council(Verdict):
    """The verdict on the node with the store: collects failures and announces the end."""

    def __init__(self, store: StoreServer, remote: Collection[int], grace: float):
        super().__init__(store, grace)
        self.server = store
        self._remote = remote
        self._heard = dict.fromkeys(remote, 0)
        self._done: set[int] = set()
        self._requests = 0
        self.why = ""  # what all nodes print about a failure, if not its own report

    def ended(self, child: Child) -> None:
        """Handle the exit of a process of this node, or of the ssh connection to another node."""
        role, _, number = child.name.partition(" ")
        if role == "node" and child.code in (0, SAVED):
            self._hear(int(number))
            self._done.add(int(number))
        else:
            super().ended(child)

    def over(self, running: bool) -> bool:
        """Whether no node works any more, or the others had time to report errors or to save."""
        for node in self._remote:
            self._hear(node)
        return super().over(running or len(self._done) < len(self._remote))

    def _hear(self, node: int) -> None:
        while (report := self.server.get(f"launch/failed/{node}/{self._heard[node]}")) is not None:
            self._heard[node] += 1
            self.failed(Failure(**json.loads(report)))
        done = self.server.get(f"launch/done/{node}")
        if done is not None and node not in self._done:
            self._done.add(node)
            successes, saved = json.loads(done)
            self.successes += successes
            self.note_saved(saved)
        member = self.server.roster().get(f"node {node}")
        if member is not None and member.state == "gone" and not self.failures:
            self.failed(Failure(member.name, 1, member.host, [f"its launcher is gone: {member.why}"]))

    def request(self, signum: int) -> None:
        """Tell the launchers of all nodes to pass a signal on to their workers."""
        self.server.set(f"launch/signal/{self._requests}", str(int(signum)).encode())
        self._requests += 1

    def announce(self, interrupted: int | None) -> None:
        """Tell all nodes to end."""
        failure = self.failure()
        if interrupted is not None:
            failure = _interrupted("the launcher of the job", interrupted)
        end = {"failure": failure and dataclasses.asdict(failure), "why": self.why, "saved": self.saved}
        self.server.set(END, json.dumps(end).encode())

    def part(self) -> None:
        """Wait until the other nodes have ended their processes."""
        limit = time.monotonic() + GOODBYE
        while time.monotonic() < limit and any(self._awaited(node) for node in self._remote):
            time.sleep(0.05)

    def refusals(self) -> str:
        """Return how many peers were refused, for an error about a missing node."""
        found = self.server.refusals
        return f". {len(found)} connections were refused; the first: {found[0]}" if found else ""

    def _awaited(self, node: int) -> bool:
        member = self.server.roster().get(f"node {node}")
        return member is not None and member.state == "here"


class Delegate(Verdict):
    """The verdict on the other nodes: reports failures to node 0 and reads from it when the job ends.

    `on_request` is called with the signals for the workers that node 0 has received.
    """

    def __init__(self, client: StoreClient, node: int, on_request: Callable[[int], None] = lambda signum: None):
        self._client = client
        self._node = node
        self._on_request = on_request
        self._requests = 0
        self._told = 0
        self._done = False
        self._asked = 0.0
        self._why = ""
        self._grace = 0.0  # an exit after saving is no failure; node 0 decides how long the others have
        self._news = []
        self.failures = []
        self.lost = []
        self.successes = 0
        self.saved = 0
        self.servers = EndedServers(self._value)

    def _value(self, key: str) -> bytes | None:
        """Return a value of the job's store, or None."""
        try:
            return self._client.get(key) if self._client.check([key]) else None
        except PeerError:
            return None

    def failed(self, failure: Failure) -> None:
        """Report a failed process of this node to node 0, which decides."""
        self.servers.tolerates(failure.name)
        self._tell(f"launch/failed/{self._node}/{self._told}", json.dumps(dataclasses.asdict(failure)))
        self._told += 1

    def over(self, running: bool) -> bool:
        """Whether the job is over according to node 0."""
        if not running and not self._done:
            self._done = True
            self._tell(f"launch/done/{self._node}", json.dumps([self.successes, self.saved]))
        return self._has_ended()

    def _has_ended(self) -> bool:
        """Whether node 0 has announced the end of the job, or cannot be reached."""
        if self.failures:  # the store is lost, and node 0 with it
            return True
        if time.monotonic() - self._asked < _ASK:
            return False
        self._asked = time.monotonic()
        try:
            self._ask()
            if not self._client.check([END]):
                return False
            said = json.loads(self._client.get(END))
        except PeerError as error:
            self._lose(error)
            return True
        self.failures = [Failure(**said["failure"])] if said["failure"] else []
        self._why = said["why"]
        self.saved += said["saved"]
        return True

    def _ask(self) -> None:
        """Ask node 0 for signals to pass on to the workers."""
        while self._client.check([key := f"launch/signal/{self._requests}"]):
            self._requests += 1
            self._on_request(int(self._client.get(key)))

    def _members(self) -> dict[str, Member]:
        if not self._client.gone:  # a silent worker would be listed there
            return {}
        try:
            told = self._client.roster()
        except PeerError as error:
            self._lose(error)
            return {}
        return {name: Member(name, m["host"], m["pid"], m["state"], m["why"]) for name, m in told.items()}

    def announce(self, interrupted: int | None) -> None:
        """Report a signal to this node's launcher, which ends the whole job."""
        if interrupted is not None:
            self.failed(_interrupted(f"the launcher of node {self._node}", interrupted))

    def part(self) -> None:
        """Do nothing: leaving the roll call is enough."""

    def failure(self) -> Failure | None:
        """Return the cause of the job's failure as reported by node 0."""
        failure = self.failures[0] if self.failures else None
        return None if failure is not None and failure.is_interruption and self.saved else failure

    def report(self, failure: Failure) -> str:
        """Return what node 0 says about the failure."""
        return self._why or super().report(failure)

    def _tell(self, key: str, value: str) -> None:
        try:
            self._client.set(key, value)
        except PeerError as error:
            self._lose(error)

    def _lose(self, error: PeerError) -> None:
        self.failures = [Failure("node 0", 1, self._client.address, [str(error)])]
