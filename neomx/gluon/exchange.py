"""A Trainer's gradients, summed over all workers: they leave while backward still runs, the rest at `step`."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .. import events
from .. import ndarray as nd
from ..comm.buckets import Buckets
from ..comm.rounds import Round
from ..ndarray import NDArray
from .gradients import is_fresh, leaf_of, version

_log = logging.getLogger("neomx")
_WORTH_SENDING = 1 << 20  # bytes of gradients in one message
_MEASURED = 2  # rounds after which the order is known in which gradients become ready


class Exchange:
    """How the gradients of a Trainer's parameters meet those of other workers.

    Dense gradients of one context with grad_req='write' leave during backward; those of several contexts or with
    grad_req='add' leave at `step`; row-sparse and compressed ones go through the store, at `step` too. What is said of
    a parameter by a number is its place in the Trainer's plan.
    """

    def __init__(self, trainer: Any, store: Any):
        self._trainer, self._store = trainer, store
        self._rounds: Any = None
        self._number = 0
        self._group: Any = None
        self._join()
        self._plan: Any = None
        self._weights: list[list[NDArray]] = []  # by context
        self._params: list[Any] = []
        self._named: set[str] = set()
        self._hooks: list[Any] = []
        self.holds = False  # whether gradients stay here until `step`: more will be added to them

    # ---- among the workers ----

    def _join(self) -> None:
        """Be one of those who step together; asynchronous workers wait for nobody."""
        if self._store.begins_alike:
            self._rounds = self._store.rounds
            self._number = self._rounds.enter(self)
            self._group = self._store.group.clone(f"gradients {self._number}")

    def agree(self, divisor: float) -> float:
        """What all workers divide by, where gradients have been summed before."""
        if self._rounds is None:
            return divisor
        return self._rounds.step(self._number, divisor, self._trainer._samples(divisor), reduces=False).divisor

    def take_over(self, source: int) -> None:
        """Take over the weights, and the optimizer's states, that the worker `source` has."""
        trainer = self._trainer
        self._group.broadcast_all_([array._data for param in trainer._params for array in param.list_data()], source)
        states = trainer._updaters[0].get_states(dump_optimizer=True) if self._group.rank == source else b""
        size = torch.tensor([len(states)])
        self._group.broadcast_(size, source)
        content = torch.zeros(int(size), dtype=torch.uint8)
        if states:
            content.copy_(torch.frombuffer(bytearray(states), dtype=torch.uint8))
        self._group.broadcast_(content, source)
        if self._group.rank != source:
            trainer._take_states(content.numpy().tobytes())
        if trainer._amp_loss_scaler is not None:
            trainer._amp_loss_scaler.take_over(lambda numbers: self._group.broadcast_(numbers, source))

    def apply(self, updater: Any, indices: list[int], sums: list[NDArray], weights: list[NDArray]) -> None:
        """Update weights by summed gradients."""
        updater(indices, sums, weights)

    # ---- the parameters ----

    def _follow(self) -> None:
        """Have backward send the gradients of the parameters that are trained now."""
        plan = self._trainer._current_plan()
        if plan is self._plan:
            return
        self._plan = plan
        self._keys: list[int] = plan[0][0] if plan else []
        self._weights = [weights for _, _, weights in plan] or [[]]
        self._params = [self._trainer._params[i] for i in self._keys]
        self._by_store = [i for i, param in enumerate(self._params) if self._goes_by_store(param)]
        apart = {*self._by_store, *self._summed_before()}
        self._dense = [i for i in range(len(self._params)) if i not in apart]
        self._late = {i for i in self._dense if len(plan) > 1 or self._params[i].grad_req != "write"}
        self._prepare()

    def _goes_by_store(self, param: Any) -> bool:
        return param.grad_stype != "default" or self._store.compresses

    def _summed_before(self) -> list[int]:
        """The parameters whose gradients are sums over all workers when backward is done."""
        return []

    def _prepare(self) -> None:
        """Make ready for new parameters."""
        raise NotImplementedError

    def _watch(self, places: Iterable[int], send: Callable[[int, torch.Tensor], None]) -> None:
        """Have `send(i, gradient)` called in backward for each of these parameters, and for no others."""
        for hook in self._hooks:
            hook.remove()
        weights = self._weights[0]
        self._hooks = [
            leaf_of(weight).register_post_accumulate_grad_hook(functools.partial(self._pass_on, send, i, weight))
            for i, weight in ((i, weights[i]) for i in places)
        ]

    def _pass_on(self, send: Callable[[int, torch.Tensor], None], i: int, weight: NDArray, leaf: torch.Tensor) -> None:
        if leaf.grad is not None and not self.holds:
            with torch.no_grad():
                send(i, weight._grad._data)  # type: ignore[union-attr]

    def _gradients(self) -> dict[int, Any]:
        """The new gradients of this worker: tensors; a list of arrays for those that go through the store."""
        fresh = {i for weights in self._weights for i, weight in enumerate(weights) if is_fresh(weight)}
        return {i: self._gradient(i) for i in sorted(fresh)}

    def _gradient(self, i: int) -> Any:
        if i in self._by_store:
            return self._params[i].list_grad()
        tensors = [weights[i]._grad._data for weights in self._weights]  # type: ignore[union-attr]
        return tensors[0] if len(tensors) == 1 else torch.stack([t.to(tensors[0].device) for t in tensors]).sum(0)

    def _arrays_by_store(self, gradients: dict[int, Any]) -> list[Any]:
        """The gradients that go through the store, zeros for those that this worker did not make."""
        return [
            gradients[i] if i in gradients else [nd.zeros_like(self._params[i].list_grad()[0])] for i in self._by_store
        ]

    def _name_lacking(self, gradients: dict[int, Any], stale: list[bool]) -> None:
        """Say which gradients other workers made and this one did not."""
        names = [self._params[i].name for i, each in enumerate(stale) if not each and i not in gradients]
        lacking = [name for name in names if name not in self._named]
        self._named.update(lacking)
        if lacking:
            _log.warning(
                "worker %d made no gradient for %s in this step, other workers did: it counts as zero here. That is "
                "said once for each parameter",
                self._store.rank,
                ", ".join(lacking),
            )


class WorkerExchange(Exchange):
    """By all-reduce: `reduce` gives every worker the sums, and each updates its weights by itself."""

    def __init__(self, trainer: Any, store: Any):
        super().__init__(trainer, store)
        self._buckets: Any = None
        self._since_prepared = 0
        self._inited: set[int] = set()
        self.sums: list[NDArray] = []  # valid until the next backward

    def reduce(self, divisor: float) -> tuple[float, list[bool]]:
        """Sum this round's gradients into `sums`; what to divide them by, and of which no worker made a new one."""
        began = time.perf_counter()
        self._follow()
        gradients = self._gradients()
        spoiled = self._buckets.send_rest(gradients.get)
        lacking = len(gradients) < len(self._keys)
        round = self._begin_round(divisor, bool(spoiled or lacking))
        agreed = time.perf_counter()
        stale = self._settle(round, spoiled, gradients)
        self._name_lacking(gradients, stale)
        events.emit("reduce", waiting=agreed - began, seconds=time.perf_counter() - began, samples=round.all_samples)
        return self._divisor(round), stale

    def _begin_round(self, divisor: float, wants_flags: bool) -> Round:
        """Hear what all workers say before a step."""
        return self._rounds.step(self._number, divisor, self._trainer._samples(divisor), wants_flags=wants_flags)

    def _divisor(self, round: Round) -> float:
        """What all workers divide by."""
        return round.divisor

    def shadow(self, round: Round) -> None:
        """Take part in the others' step with gradients of zero."""
        if round.reduces:
            self._follow()
            self._settle(round, self._buckets.send_rest(lambda i: None), {})

    def has_sent(self) -> bool:
        """Whether gradients of a step that has not come yet have left."""
        return self._buckets is not None and self._buckets.has_sent()

    def _prepare(self) -> None:
        for i in self._by_store:
            if self._keys[i] not in self._inited:
                self._store.init(self._keys[i], self._weights[0][i])
                self._inited.add(self._keys[i])
        self._pack(list(reversed(self._dense)), self._late)
        self._since_prepared = 0

    def _pack(self, order: list[int], late: Iterable[int]) -> None:
        if self._buckets is not None:
            self._buckets.close()
        leaves = [weight._data for weight in self._weights[0]]
        names = [param.name for param in self._params]
        self._buckets = Buckets(self._group, leaves, names, order, late, version)
        self.sums = [
            NDArray(self._buckets.sums[i], weight._ctx) if i in self._buckets.sums else self._sum_apart(i)
            for i, weight in enumerate(self._weights[0])
        ]
        self._watch([i for i in order if i not in self._buckets.late], self._buckets.stage)

    def _sum_apart(self, i: int) -> NDArray:
        """Where the sum of a gradient is that is in no bucket."""
        return nd.zeros_like(self._params[i].list_grad()[0])

    def _settle(self, round: Round, spoiled: set[int], gradients: dict[int, Any]) -> list[bool]:
        """Wait for all sums, have sent again what was sent too early; of which parameters nobody has a gradient."""
        count = len(self._keys)
        again: list[int] = []
        stale = [False] * count
        if round.wants_flags:
            mine = torch.zeros(len(self._buckets) + count, dtype=torch.uint8)
            mine[sorted(spoiled)] = 1
            mine[[len(self._buckets) + i for i in gradients]] = 1
            said = self._group.all_gather_small(mine).amax(0).tolist()
            again = [number for number in range(len(self._buckets)) if said[number]]
            stale = [not each for each in said[len(self._buckets) :]]
        self._buckets.wait()
        if again:
            self._buckets.send_again(again, gradients.get)
        if self._by_store:
            keys, sums = [self._keys[i] for i in self._by_store], [self.sums[i] for i in self._by_store]
            self._store.pushpull(keys, self._arrays_by_store(gradients), out=sums)
        readiness = self._buckets.readiness
        self._buckets.end_round()
        self._since_prepared += 1
        if again or self._since_prepared == _MEASURED:
            self._pack_anew(round.active[0], readiness)
        return stale

    def _pack_anew(self, source: int, readiness: list[int]) -> None:
        """New buckets: in the order in which one worker saw the gradients become ready, and late ones apart."""
        seen = list(dict.fromkeys(readiness))
        order = torch.tensor([*seen, *(i for i in self._buckets.order if i not in set(seen))])
        if len(order):
            self._group.broadcast_(order, source)
        sums = self.sums  # the Trainer has yet to read those of this round
        self._pack(order.tolist(), self._buckets.late)
        for old, new in zip(sums, self.sums, strict=True):
            if old is not new:
                old.copyto(new)


class ServerExchange(Exchange):
    """By servers: gradients are pushed, servers sum them, and update if they have the optimizer; results are pulled."""

    def __init__(self, trainer: Any, store: Any):
        super().__init__(trainer, store)
        self._sent: dict[int, tuple[torch.Tensor, Any]] = {}
        self._waiting: dict[int, torch.Tensor] = {}  # ready, too small to be sent alone
        self.sums: list[NDArray] = []

    def reduce(self, divisor: float) -> tuple[float, list[bool]]:
        """Sum this round's gradients into `sums`; what to divide them by, and of which no worker made a new one."""
        divisor, stale = self._push(divisor)
        live = [i for i, each in enumerate(stale) if not each]
        self._commit(live)
        self._pull(live, [[total] for total in self.sums])
        return divisor, stale

    def update(self, divisor: float, ignore_stale_grad: bool) -> None:
        """Have the servers update by this round's gradients, and take the new weights."""
        divisor, stale = self._push(divisor)
        self._trainer._rescale(divisor)
        self._trainer._refuse_stale(stale, ignore_stale_grad)
        live = [i for i, each in enumerate(stale) if not each]
        self._commit(live)
        self._pull(live, [list(replicas) for replicas in zip(*self._weights, strict=True)])

    def has_sent(self) -> bool:
        """Whether gradients of a step that has not come yet have left."""
        return bool(self._sent)

    def shadow(self, round: Round) -> None:
        """Take part in the others' step with gradients of zero."""
        if not round.reduces:
            return
        self._follow()
        for i in self._sent:  # of a backward whose step never came
            self._store.exchange_push([self._keys[i]], [torch.zeros_like(self._weights[0][i]._data)])
        self._sent, self._waiting = {}, {}
        stale = self._stale(round, {})
        live = [i for i, each in enumerate(stale) if not each]
        self._commit(live, follows=True)
        if self._trainer._update_on_kvstore:
            self._pull(live, [list(replicas) for replicas in zip(*self._weights, strict=True)])
        else:
            self._pull(live, [[total] for total in self.sums])

    def take_over(self, source: int) -> None:
        """Who took part has the weights; where workers update by themselves, not yet."""
        if not self._trainer._update_on_kvstore:
            super().take_over(source)

    def _prepare(self) -> None:
        self._sent, self._waiting = {}, {}
        self._watch([i for i in self._dense if i not in self._late], self._ready)
        self.sums = [nd.zeros_like(weight) for weight in self._weights[0]]

    def _ready(self, i: int, gradient: torch.Tensor) -> None:
        """A gradient is ready: send it, with those that were too small before."""
        self._waiting[i] = gradient
        if sum(each.nbytes for each in self._waiting.values()) >= _WORTH_SENDING:
            self._send(self._waiting)
            self._waiting = {}

    def _send(self, gradients: dict[int, torch.Tensor]) -> None:
        if gradients:
            self._store.exchange_push([self._keys[i] for i in gradients], list(gradients.values()))
            self._sent.update({i: (each, version(each)) for i, each in gradients.items()})

    def _push(self, divisor: float) -> tuple[float, list[bool]]:
        """Send what has not left, and what has changed since; what to divide by, and what nobody has."""
        began = time.perf_counter()
        self._follow()
        gradients = self._gradients()
        self._waiting = {}
        rest = {i: gradients[i] for i in self._dense if i in gradients and not self._has_left(i, gradients[i])}
        rest |= {i: torch.zeros_like(self._weights[0][i]._data) for i in self._sent if i not in gradients}
        with torch.no_grad():
            self._send(rest)
        self._sent = {}
        self._made = gradients
        if self._rounds is None:
            stale = [i not in gradients for i in range(len(self._keys))]
            samples = -1.0
        else:
            round = self._rounds.step(
                self._number, divisor, self._trainer._samples(divisor), wants_flags=len(gradients) < len(self._keys)
            )
            stale = self._stale(round, gradients)
            divisor, samples = round.divisor, round.all_samples
            self._name_lacking(gradients, stale)
        events.emit("reduce", waiting=0.0, seconds=time.perf_counter() - began, samples=samples)
        return divisor, stale

    def _has_left(self, i: int, gradient: torch.Tensor) -> bool:
        sent = self._sent.get(i)
        return sent is not None and sent[0] is gradient and sent[1] == version(gradient)

    def _stale(self, round: Round, gradients: dict[int, Any]) -> list[bool]:
        if not round.wants_flags:
            return [False] * len(self._keys)
        mine = torch.zeros(len(self._keys), dtype=torch.uint8)
        mine[list(gradients)] = 1
        self._made = gradients
        return [not each for each in self._group.all_gather_small(mine).amax(0).tolist()]

    def _commit(self, live: list[int], follows: bool = False) -> None:
        dense = [self._keys[i] for i in live if i in set(self._dense)]
        if dense:
            self._store.exchange_commit(dense, follows)
        arrays = dict(zip(self._by_store, self._arrays_by_store({} if follows else self._made), strict=True))
        for i in live:
            if i in arrays:
                self._store.push(self._keys[i], arrays[i])

    def _pull(self, live: list[int], targets: list[list[NDArray]]) -> None:
        dense = [i for i in live if targets[i][0].stype == "default"]
        self._store.exchange_pull([self._keys[i] for i in dense], [targets[i][0]._data.data for i in dense])
        for i in live:
            if targets[i][0].stype != "default":
                self._store.pull(self._keys[i], targets[i][0], ignore_sparse=False)
            for other in targets[i][1:]:
                targets[i][0].copyto(other)


def make_exchange(trainer: Any, store: Any) -> Any:
    """The exchange that a store asks for; None for a store of one process."""
    kinds = {None: lambda trainer, store: None, "workers": WorkerExchange, "servers": ServerExchange}
    return kinds[getattr(store, "exchanges_by", None)](trainer, store)
