"""A server process: holds shards of the workers' arrays and runs the optimizer on them.

`python -m neomx.kvstore.server`, started by a launcher. It exits after all workers have exited, or on a signal.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import NoReturn

import torch

from ..base import MXNetError
from ..comm import listener, wire
from ..comm.chain import host_key
from ..comm.server import Gradient, KeySpec, Process, Settings, SparseRows, service_name
from ..comm.session import Session, close, session
from ..comm.store import THE_STORE, PeerError
from ..context import cpu
from ..ndarray import NDArray
from ..ndarray.sparse import RowSparseNDArray
from ..ops.random import SampleRandom, drawing_from
from ..optimizer import Optimizer, Updater, states
from ..optimizer.remote import apply_settings, dump_part, join_part
from .calls import Key

_log = logging.getLogger("neomx")
_LOOK = 0.5  # seconds between checks for live workers


class OptimizerRule:
    """The optimizer of a shard. It updates all weights of a commit in one call."""

    def __init__(self, description: bytes):
        self._updater = Updater(_made(description))
        self._weights: dict[Key, tuple[torch.Tensor, NDArray]] = {}  # the same arrays at each step, because the updater
        self._gradients: dict[Key, NDArray] = {}  # builds plans for them
        self._settings: Settings | None = None
        self.seed: int | None = None

    def update(
        self, specs: list[KeySpec], gradients: list[Gradient], weights: list[torch.Tensor], settings: Settings | None
    ) -> None:
        """Update weights in place with the gradients and settings of a worker."""
        if settings is not None and settings is not self._settings:
            apply_settings(self._updater.optimizer, settings)
            self._settings = settings
        arrays = [self._weight(spec, weight) for spec, weight in zip(specs, weights, strict=True)]
        slopes = [self._gradient(*each) for each in zip(specs, gradients, weights, strict=True)]
        with drawing_from(None if self.seed is None else SampleRandom((self.seed,))):
            self._updater([spec.key for spec in specs], slopes, arrays)
        for array, weight in zip(arrays, weights, strict=True):
            if isinstance(array, RowSparseNDArray) and array._values is not weight:  # it was replaced
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
        """The optimizer and the states of its weights."""
        return self._updater.get_states(dump_optimizer=True)

    def restore(self, states: bytes, specs: list[KeySpec], weights: list[torch.Tensor]) -> None:
        """Restore states, after checking that they belong to these weights."""
        other = Updater(self._updater.optimizer)
        other.set_states(states)
        other.check_states({spec.key: _array(spec, weight) for spec, weight in zip(specs, weights, strict=True)})
        self._updater, self._settings = other, None

    def part(self, keys: Sequence[Key] | None) -> bytes:
        """The states of some weights and the settings of the optimizer; with None, all but arrays."""
        return dump_part(self._updater, keys)

    def join(self, part: bytes) -> None:
        """Replace the states and settings in a result of `part`."""
        join_part(self._updater, part)
        self._settings = None


def _array(spec: KeySpec, weight: torch.Tensor) -> NDArray:
    """A weight as an array for the optimizer, on the same memory."""
    if spec.row_sparse:
        return RowSparseNDArray(_all_rows(weight), tuple(weight.shape), cpu())
    return NDArray(weight, cpu())


def _all_rows(weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return weight, torch.arange(len(weight))


def _made(description: bytes) -> Optimizer:
    """Create the optimizer that a worker described, from its registered name and settings."""
    try:
        _, optimizer = states.loads(description)
    except MXNetError as error:
        raise MXNetError(
            f"the servers cannot create this optimizer: {error}. Servers run only the optimizers of neomx. Run a "
            "custom optimizer on the workers: Trainer(..., update_on_kvstore=False)"
        ) from None
    if optimizer is None:
        raise MXNetError("expected an optimizer in the message of set_optimizer, received none")
    return optimizer


def serve(opened: Session, ended: threading.Event) -> None:
    """Serve the workers of this job until all have exited, or `ended` is set."""
    world, store = opened.world, opened.store
    if store is None or world.role != "server":
        raise MXNetError(
            "a server must be started by a launcher: `neomx run -n 2 -s 1 train.py`. The role of this process is "
            f"{world.role!r}"
        )
    listening = wire.listen(world.host)
    returns, is_elastic = (os.environ.get(name) == "1" for name in ("NEOMX_JOINS", "NEOMX_ELASTIC"))
    process = Process(world, store, OptimizerRule, returns, is_elastic)
    address = wire.join_address(world.host, listening.getsockname()[1])
    stop = listener.serve(
        listening, world.secret, world.tls, process.handle, _refused, service_name(world.rank, address)
    )
    store.on_gone(lambda name, why: _tell(process, name, why))
    store.set(host_key(world.rank), json.dumps(process.host))
    store.set(f"server/{world.rank}", address)
    process.start()
    try:
        while not ended.wait(_LOOK) and not _is_over(opened, process):
            pass
    finally:
        stop()
        process.close()


def _refused(error: wire.WireError) -> None:
    _log.warning("refused: %s", error)


def _tell(process: Process, name: str, why: str) -> None:
    role, _, number = name.partition(" ")
    if role == "worker" and number.isdigit():
        process.lose(int(number), why)


def _is_over(opened: Session, process: Process) -> bool:
    """Whether no worker is left. Raise if the store of the job is lost."""
    assert opened.store is not None
    if why := opened.store.gone.get(THE_STORE):
        raise PeerError(f"this server exits because it lost the store of the job: {why}")
    return process.is_over()


def main() -> None:
    """Run a server process."""
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
    if received:  # exit by the same signal, so that the launcher reports it
        signal.signal(received[0], signal.SIG_DFL)
        os.kill(os.getpid(), received[0])
    _end()


def _end() -> NoReturn:
    """Exit without cleanup: torch aborts if the interpreter shuts down while threads run torch code."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
