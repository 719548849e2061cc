"""An elastic job on the nodes without the store: starts the workers that node 0 orders, and reports their ends."""

from __future__ import annotations

import dataclasses
import json
import signal
import socket
from collections.abc import Callable
from typing import Any

from ..comm.child import Child, Failure
from ..comm.jobspec import JobSpec
from ..comm.store import PeerError, StoreClient
from ..comm.supervision import SAVED
from .council import Delegate
from .elastic import Elastic, Processes


class Agent(Delegate):
    """The verdict on a node that carries out orders. `Elastic` decides.

    When the job goes on without this node, its workers are killed. SIGTERM would ask them to save a checkpoint and end,
    and all workers do that together.
    """

    forsaken = Elastic.forsaken

    def __init__(
        self,
        client: StoreClient,
        on_request: Callable[[int], None],
        tree: Processes,
        spec: JobSpec,
        argv: list[str],
    ):
        super().__init__(client, spec.node, on_request)
        self._tree, self._spec, self._argv = tree, spec, argv
        self._orders = self._reports = 0
        self._leaves = False

    def ready(self) -> None:
        """Tell node 0 that this node can start workers."""
        self._tell(f"launch/node/{self._node}", json.dumps({"name": socket.gethostname()}))

    def ended(self, child: Child) -> None:
        """Report the exit of a worker."""
        self.saved += child.code == SAVED
        self._report(child.failure() if child.code else Failure(child.name, 0, socket.gethostname(), []))
        if child.code:
            self._tree.bury(child)

    def over(self, running: bool) -> bool:
        """Whether node 0 has ended the job, or has no more use for this node."""
        return self._has_ended() or self._leaves

    def announce(self, interrupted: int | None) -> None:
        """Do nothing: if this launcher is told to end, the job goes on without its node."""

    def is_forsaken(self, child: Child) -> bool:
        """Whether a running worker is silent, so that the others continue without it."""
        mine = self._members().get(child.name)
        return mine is not None and mine.is_silent

    def _ask(self) -> None:
        super()._ask()
        while not self._leaves and self._client.check([key := f"launch/order/{self._node}/{self._orders}"]):
            self._orders += 1
            order = json.loads(self._client.get(key))
            if order["do"] == "leave":
                self._leaves = True
                if order["kills"]:
                    self._on_request(signal.SIGKILL)
                if order["why"]:
                    self.failures = [Failure(f"node {self._node}", 1, socket.gethostname(), [order["why"]])]
            else:
                self._start(order)

    def _lose(self, error: PeerError) -> None:
        super()._lose(error)
        self._on_request(signal.SIGKILL)

    def _start(self, order: dict[str, Any]) -> None:
        spec = dataclasses.replace(self._spec, size=order["size"], local_size=order["room"], nodes=order["nodes"])
        command = spec.worker_command(self._argv, order["member"], order["local"], order["joins"])
        try:
            self._tree.start(command)
        except OSError as error:  # no processes, descriptors or memory left
            self._report(Failure(command.name, 1, socket.gethostname(), [f"it cannot be started: {error}"]))

    def _report(self, failure: Failure) -> None:
        self._tell(f"launch/ended/{self._node}/{self._reports}", json.dumps(dataclasses.asdict(failure)))
        self._reports += 1
