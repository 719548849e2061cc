"""Servers: workers push gradients during backward. Servers sum them, and update if they run the optimizer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import events
from .. import ndarray as nd
from ..base import MXNetError
from ..comm.alike import check_alike, described
from ..comm.buckets import Stamp
from ..comm.compress import Compressor
from ..comm.group import Group
from ..comm.rounds import Round
from ..comm.store import PeerError
from ..comm.transaction import transaction
from ..kvstore.remote import RemoteStore
from ..ndarray import NDArray
from ..optimizer.states import pack
from .allreduce import give_over
from .store import InStore
from .trained import Training

_WORTH_SENDING = 1 << 20  # bytes of gradients in one message


class Servers(InStore):
    """Send gradients to the servers of a store. With `updates`, servers run the optimizer and return the weights.

    Workers of a synchronous store step together, in rounds. Workers of an asynchronous store do not wait.
    """

    def __init__(self, store: RemoteStore, updates: bool):
        super().__init__(store, updates)
        self.store: RemoteStore = store
        self._group: Group | None = None
        self._sent: dict[int, Stamp] = {}
        self._waiting: list[int] = []  # ready, but too small to be sent alone
        self._encoded: set[int] = set()  # parameters whose gradients were sent in the current step
        self._live: list[int] = []  # those that some worker has a gradient for
        self._dropped = False  # whether `reduce` was dropped, so that `update` must be too
        self._broken: PeerError | None = None  # why gradients could not be sent during backward
        self.sums: list[NDArray] = []

    # ---- among the workers ----

    def bind(self, training: Training) -> None:
        """Join the group of workers that step together; asynchronous workers do not wait for one."""
        super().bind(training)
        if self._group is None and self.store.is_synchronous:
            self._group = self.enter(self.store.rounds, self.store.group)
            if transaction().survives and self._updates and len(self.store.rounds.steppers) > 1:
                raise MXNetError(
                    "an elastic job with parameter servers supports one Trainer: a batch of several steps cannot be "
                    "undone on the servers. Pass update_on_kvstore=False to each Trainer, or omit -s"
                )

    @property
    def workers(self) -> int:  # type: ignore[override]
        """The number of workers whose gradients are summed in a step; 1 for an asynchronous store."""
        return self.store.num_workers if self.store.is_synchronous else 1

    @property
    def compressor(self) -> Compressor | None:  # type: ignore[override]
        """The compressor for gradients that are sent to the servers."""
        return self.store.compressor

    def begin_alike(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Broadcast the values of these tensors from the first worker, unless the store is asynchronous."""
        if self.store.is_synchronous:
            check_alike(self.store.group, described(names, tensors), "a model")
            self.store.group.broadcast_all_(list(tensors))

    def parameter_was_set(self) -> None:
        """Raise if the servers hold the weights, as MXNet does."""
        if self._updates and self.has_begun:
            raise RuntimeError("Cannot reset distributed KVStore.")

    def weights_were_restored(self) -> None:
        """Overwrite the weights on the servers with those of a checkpoint, which all workers have restored."""
        if self._updates and self.has_begun:
            self.store.assign(self.trained.keys, self.trained.weights[0])

    def await_others(self) -> None:
        """Wait for workers that still have data, and join their steps in the meantime."""
        if self._rounds is not None:
            self._rounds.end_epoch()

    def prepare(self) -> None:
        """Declare new parameters to the servers, and make backward send their gradients."""
        trained = self.trained
        if not self._known and self._updates and not self.store.runs_optimizer:
            self.store.set_optimizer(self.training.optimizer)
        new = [i for i, key in enumerate(trained.keys) if key not in self._known]
        if new:
            self.store.init([trained.keys[i] for i in new], [trained.weights[0][i] for i in new])
            self._known.update(trained.keys[i] for i in new)
        self._sent, self._waiting, self._broken = {}, [], None
        self.sums = [nd.zeros_like(weight) for weight in trained.weights[0]]
        self.watch([i for i in range(len(trained)) if i not in trained.late])

    # ---- sending ----

    def ready(self, i: int) -> None:
        """Send a complete gradient, together with pending small ones."""
        self._waiting.append(i)
        if sum(self.trained.gradients[0][each].size for each in self._waiting) * 4 >= _WORTH_SENDING:
            try:
                self._send(self._waiting)
            except PeerError as error:
                if not transaction().survives:
                    raise
                self._broken = error  # the step raises it
            self._waiting = []

    def _send(self, places: Sequence[int]) -> None:
        trained = self.trained
        if self._broken is not None:
            raise self._broken
        again = [i for i in places if i in self._sent]
        for i in again:
            self.store.take_back(trained.keys[i])
        self._encoded.update(places)
        rows = [i for i in places if i in trained.sparse]
        dense = [i for i in places if i not in trained.sparse]
        if dense:
            self.store.exchange_push([trained.keys[i] for i in dense], [trained.gradient(i) for i in dense])
        for i in rows:
            self.store.exchange_push_rows(trained.keys[i], *trained.rows(i))
        self._sent.update({i: trained.stamp(i) for i in places})

    def _push(self, divisor: float) -> tuple[float, list[bool]]:
        """Send gradients that were not sent or have changed. Return the divisor and the stale flags."""
        began = time.perf_counter()
        self.follow()
        made = self.trained.fresh()
        self._waiting = []
        with torch.no_grad():
            self._send([i for i in made if not self._has_left(i)])
            self._send_zeros([i for i in self._sent if i not in set(made)])
        self._sent = {}
        if self._rounds is None:
            known = set(made)
            stale = [i not in known for i in range(len(self.trained))]
            samples = -1.0
        else:
            wants_flags = len(made) < len(self.trained)
            said = self.training.samples(divisor)
            compared = self.compared()
            round = self._rounds.step(self._number, divisor, said, wants_flags=wants_flags, compared=compared)
            stale = self._stale(round, made)
            divisor, samples = round.divisor, round.all_samples
            self.name_lacking(made, stale, self.store.rank)
        events.emit("reduce", waiting=0.0, seconds=time.perf_counter() - began, samples=samples)
        return divisor, stale

    def _has_left(self, i: int) -> bool:
        sent = self._sent.get(i)
        return sent is not None and sent.is_same(self.trained.stamp(i))

    def _send_zeros(self, places: Sequence[int]) -> None:
        """Send zeros to replace gradients that were sent for a step that never happened."""
        trained = self.trained
        for i in places:
            self.store.take_back(trained.keys[i])
            weight = trained.weights[0][i]._data.detach()
            if i in trained.sparse:
                none = torch.empty(0, dtype=torch.int64)
                self.store.exchange_push_rows(trained.keys[i], weight.new_empty(0, *weight.shape[1:]), none)
            else:
                self.store.exchange_push([trained.keys[i]], [torch.zeros_like(weight)])

    def _stale(self, round: Round, made: Sequence[int]) -> list[bool]:
        if not round.wants_flags:
            return [False] * len(self.trained)
        assert self._group is not None
        mine = torch.zeros(len(self.trained), dtype=torch.uint8)
        mine[list(made)] = 1
        return [not each for each in self._group.all_gather_small(mine).amax(0).tolist()]

    # ---- a step ----

    def step(self, divisor: float, ignore_stale: bool = False) -> None:
        """Let the servers update and pull the new weights, or pull the sums and update here."""
        if self._updates:
            self._run(lambda: self._offer(divisor, ignore_stale), self._settle)
        else:
            self._sum_and_update(divisor, ignore_stale)

    def _run(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool = True) -> bool:
        """Make a step, unless a worker is lost in it."""
        is_made = transaction().run(attempt, apply, ends_step)
        if ends_step or not is_made:
            self._encoded.clear()
        if not is_made:
            self.training.trained().use_all()  # a worker that has not joined yet must not prepare for its parameters
        return is_made

    def _offer(self, divisor: float, ignore_stale: bool) -> float:
        """Send gradients, of which the servers update the weights now, or in an elastic job when the step counts."""
        self._check_contexts(ignore_stale)
        divisor, stale = self._push(divisor)
        self.training.rescale(divisor)
        if any(stale) and not ignore_stale:
            self.training.refuse_stale(stale.index(True), 0)
        self._live = [i for i, each in enumerate(stale) if not each]
        self._commit(self._live)
        self._await()
        return divisor

    def _await(self) -> None:
        """In an elastic job, wait until the servers have the gradients of all workers."""
        if self._live:
            self.store.exchange_await([self.trained.keys[i] for i in self._live])

    def _settle(self, divisor: float) -> None:
        """Pull the new weights. All workers know that the step counts."""
        if self._live and transaction().survives:
            self.training.rescale(divisor)
            self.store.exchange_settle([self.trained.keys[i] for i in self._live])
        self._pull_weights(self._live)
        self.trained.use_all()

    def _check_contexts(self, ignore_stale: bool) -> None:
        self.follow()
        if not ignore_stale:
            self.refuse_partly_stale(self.trained.fresh())

    def _sum_and_update(self, divisor: float, ignore_stale: bool) -> None:
        def attempt() -> float:
            self._check_contexts(ignore_stale)
            return self._sum(divisor)

        self._run(attempt, lambda agreed: self._update_here(agreed, ignore_stale))

    def _update_here(self, divisor: float, ignore_stale: bool) -> None:
        self.training.rescale(divisor)
        kept = self._live
        stale = [i not in set(kept) for i in range(len(self.trained))]
        if self.training.overflowed(self.sums[i] for i in kept):
            self.trained.use_all()
            return
        if any(stale) and not ignore_stale:
            self.training.refuse_stale(stale.index(True), 0)
        self.trained.put(self.sums, stale)
        self.training.update(kept, [self.sums[i] for i in kept])
        self.trained.use_all()

    def reduce(self) -> None:
        """Replace gradients with their sums over all workers."""

        def attempt() -> float:
            return self._sum(float("nan"))  # `update` supplies the divisor

        def show(_: float) -> None:
            self.trained.put(self.sums, [i not in set(self._live) for i in range(len(self.trained))])

        self._dropped = not self._run(attempt, show, ends_step=False)

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update with gradients that `reduce` has summed."""
        self.follow()
        if self._dropped:
            self._dropped = False
            self.trained.use_all()
        else:
            self._run(lambda: self._agree(divisor), lambda agreed: self.update_each(agreed, ignore_stale))

    def _agree(self, divisor: float) -> float:
        """The divisor that all workers agree on, for gradients that are already summed."""
        if self._rounds is None:
            return divisor
        said, compared = self.training.samples(divisor), self.compared()
        return self._rounds.step(self._number, divisor, said, reduces=False, compared=compared).divisor

    def _sum(self, divisor: float) -> float:
        divisor, stale = self._push(divisor)
        self._live = [i for i, each in enumerate(stale) if not each]
        self._commit(self._live)
        self._pull(self._live, [[total] for total in self.sums])
        return divisor

    def _commit(self, live: Sequence[int], follows: bool = False) -> None:
        if live:
            self.store.exchange_commit([self.trained.keys[i] for i in live], follows)

    def _pull_weights(self, live: Sequence[int]) -> None:
        self._pull(live, [list(replicas) for replicas in zip(*self.trained.weights, strict=True)])

    def _pull(self, live: Sequence[int], targets: list[list[NDArray]]) -> None:
        keys = self.trained.keys
        dense = [i for i in live if targets[i][0].stype == "default"]
        self.store.exchange_pull([keys[i] for i in dense], [targets[i][0]._data.data for i in dense])
        for i in live:
            if targets[i][0].stype != "default":
                self.store.pull(keys[i], targets[i][0], ignore_sparse=False)
            for other in targets[i][1:]:
                targets[i][0].copyto(other)

    # ---- workers without data ----

    def has_sent(self) -> bool:
        """Whether gradients have been sent for a step that has not happened yet."""
        return bool(self._sent)

    def shadow(self, round: Round) -> None:
        """Join a step of the other workers with gradients of zero."""

        def attempt() -> float:
            if not round.reduces:
                return round.divisor
            self._send_zeros(list(self._sent))
            self._sent, self._waiting = {}, []
            self._live = [i for i, each in enumerate(self._stale(round, ())) if not each]
            self._commit(self._live, follows=True)
            if self._updates:
                self._await()
            else:
                self._pull(self._live, [[total] for total in self.sums])
            return round.divisor

        def apply(divisor: float) -> None:
            if self._updates and round.reduces:
                self._settle(divisor)
            elif transaction().survives and round.is_whole:  # workers with data may be lost after the step
                self._update_here(divisor, ignore_stale=True)

        transaction().run(attempt, apply, ends_step=not round.has_second_half)
        if not round.has_second_half:
            self._encoded.clear()

    # ---- a new generation of workers ----

    @property
    def survives(self) -> bool:  # type: ignore[override]
        """Whether it can go on with other workers."""
        return self.store.is_synchronous

    def drop_step(self) -> None:
        """Forget what was sent. The servers drop it when this worker connects as a member of the new generation."""
        for i in self._encoded:
            self.store.take_back(self.trained.keys[i])
        self._encoded.clear()
        self._sent, self._waiting, self._broken = {}, [], None

    def states_to_join(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the optimizer without states, if the servers have them."""
        return pack({}, self.training.optimizer.without_function()) if self._updates else self.packed_states()

    def join_states(self, content: Any, arrays: Mapping[str, NDArray]) -> None:
        """Continue with what another worker returned. The servers have the weights, too."""
        self.training.take_packed(content, arrays)

    def take_over(self, source: int) -> None:
        """Copy the weights from `source` if workers update locally; otherwise they are already up to date."""
        if not self._updates:
            assert self._group is not None
            give_over(self.training, self._group, source)
