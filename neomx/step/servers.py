"""Servers: workers push gradients during backward. Servers sum them, and update if they run the optimizer."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from .. import events
from .. import ndarray as nd
from ..comm.alike import check_alike, described
from ..comm.buckets import Stamp
from ..comm.compress import Compressor
from ..comm.group import Group
from ..comm.rounds import Round
from ..kvstore.remote import RemoteStore
from ..ndarray import NDArray
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
        self.sums: list[NDArray] = []

    # ---- among the workers ----

    def bind(self, training: Training) -> None:
        """Join the group of workers that step together; asynchronous workers do not wait for one."""
        super().bind(training)
        if self._group is None and self.store.is_synchronous:
            self._group = self.enter(self.store.rounds, self.store.group)

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
        if not self._known and self._updates:
            self.store.set_optimizer(self.training.optimizer)
        new = [i for i, key in enumerate(trained.keys) if key not in self._known]
        if new:
            self.store.init([trained.keys[i] for i in new], [trained.weights[0][i] for i in new])
            self._known.update(trained.keys[i] for i in new)
        self._sent, self._waiting = {}, []
        self.sums = [nd.zeros_like(weight) for weight in trained.weights[0]]
        self.watch([i for i in range(len(trained)) if i not in trained.late])

    # ---- sending ----

    def ready(self, i: int) -> None:
        """Send a complete gradient, together with pending small ones."""
        self._waiting.append(i)
        if sum(self.trained.gradients[0][each].size for each in self._waiting) * 4 >= _WORTH_SENDING:
            self._send(self._waiting)
            self._waiting = []

    def _send(self, places: Sequence[int]) -> None:
        trained = self.trained
        again = [i for i in places if i in self._sent]
        for i in again:
            self.store.take_back(trained.keys[i])
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
        if not self._updates:
            self._sum_and_update(divisor, ignore_stale)
            return
        self._check_contexts(ignore_stale)
        divisor, stale = self._push(divisor)
        self.training.rescale(divisor)
        if any(stale) and not ignore_stale:
            self.training.refuse_stale(stale.index(True), 0)
        live = [i for i, each in enumerate(stale) if not each]
        self._commit(live)
        self._pull_weights(live)
        self.trained.use_all()

    def _check_contexts(self, ignore_stale: bool) -> None:
        self.follow()
        if not ignore_stale:
            self.refuse_partly_stale(self.trained.fresh())

    def _sum_and_update(self, divisor: float, ignore_stale: bool) -> None:
        self._check_contexts(ignore_stale)
        divisor, stale = self._sum(divisor)
        self.training.rescale(divisor)
        kept = [i for i, each in enumerate(stale) if not each]
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
        _, stale = self._sum(float("nan"))  # `update` supplies the divisor
        self.trained.put(self.sums, stale)

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update with gradients that `reduce` has summed."""
        self.follow()
        if self._rounds is not None:
            said = self.training.samples(divisor)
            compared = self.compared()
            divisor = self._rounds.step(self._number, divisor, said, reduces=False, compared=compared).divisor
        self.update_each(divisor, ignore_stale)

    def _sum(self, divisor: float) -> tuple[float, list[bool]]:
        divisor, stale = self._push(divisor)
        live = [i for i, each in enumerate(stale) if not each]
        self._commit(live)
        self._pull(live, [[total] for total in self.sums])
        return divisor, stale

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
        if not round.reduces:
            return
        self._send_zeros(list(self._sent))
        self._sent, self._waiting = {}, []
        stale = self._stale(round, ())
        live = [i for i, each in enumerate(stale) if not each]
        self._commit(live, follows=True)
        if self._updates:
            self._pull_weights(live)
        else:
            self._pull(live, [[total] for total in self.sums])

    def take_over(self, source: int) -> None:
        """Copy the weights from `source` if workers update locally; otherwise they are already up to date."""
        if not self._updates:
            assert self._group is not None
            give_over(self.training, self._group, source)
