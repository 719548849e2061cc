"""A server process: keeps shards of the workers' arrays and runs the optimizer on them.

`python -m neomx.kvstore.server`, started by a launcher. It ends when all workers have, or when it is told to.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from typing import NoReturn

import torch

from ..base import MXNetError
from ..comm import listener, wire
from ..comm.server import Gradient, KeySpec, Service, Settings, SparseRows, host_of, service_name
from ..comm.session import Session, close, session
from ..comm.store import THE_STORE, PeerError
from ..context import cpu
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from ..optimizer import Optimizer, Updater, states
from ..optimizer.remote import apply_settings
from .calls import Key

_log = logging.getLogger("neomx")
_LOOK = 0.5  # seconds between two looks at who is still there


class OptimizerRule:
    """An optimizer as a shard applies it: all weights of a commit in one call."""

    def __init__(self, description: bytes):
        self._updater = Updater(_made(description))
        self._weights: dict[Key, tuple[torch.Tensor, NDArray]] = {}  # the same arrays at each step: the updater
        self._gradients: dict[Key, NDArray] = {}  # plans for them
        self._settings: Settings | None = None

    def update(
        self, specs: list[KeySpec], gradients: list[Gradient], weights: list[torch.Tensor], settings: Settings | None
    ) -> None:
        """Change weights in place by gradients, with a worker's settings."""
        if settings is not None and settings is not self._settings:
            apply_settings(self._updater.optimizer, settings)
            self._settings = settings
        arrays = [self._weight(spec, weight) for spec, weight in zip(specs, weights, strict=True)]
        slopes = [self._gradient(*each) for each in zip(specs, gradients, weights, strict=True)]
        self._updater([spec.key for spec in specs], slopes, arrays)
        for array, weight in zip(arrays, weights, strict=True):
            if isinstance(array, RowSparseNDArray) and array._values is not weight:  # it was put anew
                weight.copy_(array._data)
                array._parts = _all_rows(weight)

    def _weight(self, spec: KeySpec, weight: torch.Tensor) -> NDArray:
        known = self._weights.get(spec.key)
        if known is None or known[0] is not weight:
            known = self._weights[spec.key] = weight, _array(spec, weight)
        return known[1]

    def _gradient(self, spec: KeySpec, gradient: Gradient, weight: torch.Tensor) -> NDArray:
        if isinstance(gradient, SparseRows):
            return RowSparseNDArray((gradient.values, gradient.indices), tuple(weight.shape), cpu())
        array = self._gradients.setdefault(spec.key, NDArray(gradient, cpu()))
        array._data = gradient
        return array

    def states(self) -> bytes:
        """The states of its weights, and the optimizer."""
        return self._updater.get_states(dump_optimizer=True)

    def restore(self, states: bytes, specs: list[KeySpec], weights: list[torch.Tensor]) -> None:
        """Go on from such states, if they are of these weights."""
        other = Updater(self._updater.optimizer)
        other.set_states(states)
        other.check_states({spec.key: _array(spec, weight) for spec, weight in zip(specs, weights, strict=True)})
        self._updater, self._settings = other, None


def _array(spec: KeySpec, weight: torch.Tensor) -> NDArray:
    """A weight as the optimizer sees it, in the same memory."""
    if spec.row_sparse:
        return RowSparseNDArray(_all_rows(weight), tuple(weight.shape), cpu())
    return NDArray(weight, cpu())


def _all_rows(weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return weight, torch.arange(len(weight))


def _made(description: bytes) -> Optimizer:
    """The optimizer that a worker described: made from its registered name and values."""
    try:
        _, optimizer = states.loads(description)
    except MXNetError as error:
        raise MXNetError(
            f"the servers cannot make this optimizer: {error}. They know the optimizers of neomx; one of your own runs "
            "on the workers: Trainer(..., update_on_kvstore=False)"
        ) from None
    if optimizer is None:
        raise MXNetError("set_optimizer brought no optimizer")
    return optimizer


def serve(opened: Session, ended: threading.Event) -> None:
    """Serve this job's workers until they have all ended, or `ended` is set."""
    world, store = opened.world, opened.store
    if store is None or world.role != "server":
        raise MXNetError(
            "a server is started by a launcher, which tells it its job: `neomx run -n 2 -s 1 train.py`. This process's "
            f"role is {world.role!r}"
        )
    listening = wire.listen(world.host)
    service = Service(
        world.rank,
        world.servers,
        world.size,
        host_of(world),
        world.timeout,
        OptimizerRule,
        lambda rank: store.missing([f"worker {rank}"]),
    )
    address = wire.join_address(world.host, listening.getsockname()[1])
    stop = listener.serve(
        listening, world.secret, world.tls, service.handle, _refused, service_name(world.rank, address)
    )
    store.on_gone(lambda name, why: _tell(service, name, why))
    store.set(f"server/{world.rank}/host", json.dumps(host_of(world)))
    store.set(f"server/{world.rank}", address)
    try:
        while not ended.wait(_LOOK) and not _is_over(opened):
            pass
    finally:
        stop()
        service.close()


def _refused(error: wire.WireError) -> None:
    _log.warning("refused: %s", error)


def _tell(service: Service, name: str, why: str) -> None:
    role, _, number = name.partition(" ")
    if role == "worker" and number.isdigit():
        service.lost(int(number), why)


def _is_over(opened: Session) -> bool:
    """Whether no worker is left. Raises if nobody can tell."""
    assert opened.store is not None
    if why := opened.store.gone.get(THE_STORE):
        raise PeerError(f"this server ends because the job's store is lost: {why}")
    members = opened.store.roster()
    workers = [members.get(f"worker {rank}") for rank in range(opened.world.size)]
    return all(worker is not None and worker["state"] != "here" for worker in workers)


def main() -> None:
    """The server process."""
    logging.basicConfig(format="%(message)s")
    ended = threading.Event()
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, note)
    serve(session(), ended)
    close()
    if received:  # end by it, so that the launcher sees why
        signal.signal(received[0], signal.SIG_DFL)
        os.kill(os.getpid(), received[0])
    _end()


def _end() -> NoReturn:
    """End at once: torch aborts a process whose interpreter goes away under threads that are in its code."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
