"""A Trainer's gradients, summed over all workers: in buckets while backward still runs, the rest at `step`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .. import events
from ..comm.buckets import Buckets
from ..comm.rounds import Round
from ..ndarray import NDArray
from .parameter import is_fresh

_log = logging.getLogger("neomx")
_MEASURED = 2  # rounds after which the order is known in which gradients become ready


class Exchange:
    """Sums the gradients of a Trainer's parameters over the workers of its store.

    Dense gradients of one context with grad_req='write' leave during backward; those of several contexts or with
    grad_req='add' leave at `step`; row-sparse and compressed ones go through the store, at `step` too.
    """

    def __init__(self, trainer: Any, store: Any):
        self._trainer, self._store, self._rounds = trainer, store, store.rounds
        self._number = self._rounds.enter(self)
        self._group = store.group.clone(f"gradients {self._number}")
        self._plan: Any = None
        self._buckets: Any = None
        self._hooks: list[Any] = []
        self._named: set[str] = set()
        self._since_build = 0
        self.sums: list[NDArray] = []  # of the trained parameters, as the plan has them; valid until the next backward

    # ---- what the Trainer calls ----

    def reduce(self, divisor: float) -> tuple[float, list[bool]]:
        """Sum this round's gradients into `sums`; what to divide them by, and of which no worker made a new one."""
        began = time.perf_counter()
        self._follow()
        gradients = self._gradients()
        spoiled = self._buckets.send_rest(gradients.get)
        lacking = len(gradients) < len(self._weights[0])
        round = self._rounds.step(self._number, divisor, wants_flags=bool(spoiled or lacking))
        agreed = time.perf_counter()
        stale = self._settle(round, spoiled, gradients)
        events.emit("reduce", waiting=agreed - began, seconds=time.perf_counter() - began, round=round)
        return round.divisor, stale

    def agree(self, divisor: float) -> float:
        """What all workers divide by, where gradients have been summed before."""
        return self._rounds.step(self._number, divisor, reduces=False).divisor

    def shadow(self, round: Round) -> None:
        """Take part in the others' step with gradients of zero."""
        if round.reduces:
            self._follow()
            self._settle(round, self._buckets.send_rest(lambda i: None), {})

    def has_sent(self) -> bool:
        """Whether gradients of a step that has not come yet have left."""
        return self._buckets is not None and self._buckets.has_sent()

    def take_over(self, source: int) -> None:
        """Take over the weights, and the optimizer's states, that the worker `source` has."""
        trainer = self._trainer
        broadcast(self._group, [array._data for param in trainer._params for array in param.list_data()], source)
        states = trainer._updaters[0].get_states(dump_optimizer=True) if self._group.rank == source else b""
        size = torch.tensor([len(states)])
        self._group.broadcast_(size, source)
        content = torch.zeros(int(size), dtype=torch.uint8)
        if states:
            content.copy_(torch.frombuffer(bytearray(states), dtype=torch.uint8))
        self._group.broadcast_(content, source)
        if self._group.rank != source:
            trainer._take_states(content.numpy().tobytes())

    # ---- the memory of a plan ----

    def _follow(self) -> None:
        """Make the buckets, and have backward fill them, if the parameters are not those of the last round."""
        plan = self._trainer._current_plan()
        if plan is self._plan:
            return
        self._plan = plan
        self._weights = [weights for _, _, weights in plan]
        self._params = [self._trainer._params[i] for i in plan[0][0]] if plan else []
        by_store = [param.grad_stype != "default" or self._store.compresses for param in self._params]
        self._by_store = [i for i, apart in enumerate(by_store) if apart]
        self._dense = [i for i, apart in enumerate(by_store) if not apart]
        late = {i for i in self._dense if len(plan) > 1 or self._params[i].grad_req != "write"}
        self._build(list(reversed(self._dense)), late)
        self._since_build = 0

    def _build(self, order: list[int], late: Iterable[int]) -> None:
        if self._buckets is not None:
            self._buckets.close()
        leaves = [weight._data for weight in self._weights[0]] if self._weights else []
        self._buckets = Buckets(self._group, leaves, [param.name for param in self._params], order, late)
        contexts = [weight._ctx for weight in self._weights[0]] if self._weights else []
        self.sums = [
            NDArray(self._buckets.sums[i], ctx) if i in self._buckets.sums else self._params[i].list_grad()[0].copy()
            for i, ctx in enumerate(contexts)
        ]
        for hook in self._hooks:
            hook.remove()
        self._hooks = [
            leaves[i].register_post_accumulate_grad_hook(self._sender(i)) for i in order if i not in self._buckets.late
        ]

    def _sender(self, i: int) -> Callable[[torch.Tensor], None]:
        buckets = self._buckets

        def send(leaf: torch.Tensor) -> None:
            if leaf.grad is not None:
                with torch.no_grad():
                    buckets.stage(i, leaf.grad)

        return send

    # ---- a round ----

    def _gradients(self) -> dict[int, Any]:
        """The new gradients of this worker, by their places in the plan: tensors, arrays for those by the store."""
        fresh = {i for weights in self._weights for i, weight in enumerate(weights) if is_fresh(weight)}
        return {i: self._gradient(i) for i in sorted(fresh)}

    def _gradient(self, i: int) -> Any:
        if i in self._by_store:
            return self._params[i].list_grad()
        tensors = [weights[i]._grad._data for weights in self._weights]  # type: ignore[union-attr]
        return tensors[0] if len(tensors) == 1 else torch.stack([t.to(tensors[0].device) for t in tensors]).sum(0)

    def _settle(self, round: Round, spoiled: set[int], gradients: dict[int, Any]) -> list[bool]:
        """Wait for all sums, have sent again what was sent too early; of which parameters nobody has a gradient."""
        count = len(self._weights[0]) if self._weights else 0
        again: list[int] = []
        fresh = [True] * count
        if round.wants_flags:
            mine = torch.zeros(len(self._buckets) + count, dtype=torch.uint8)
            mine[sorted(spoiled)] = 1
            mine[[len(self._buckets) + i for i in gradients]] = 1
            said = self._group.all_gather_small(mine).amax(0).tolist()
            again = [number for number in range(len(self._buckets)) if said[number]]
            fresh = [bool(each) for each in said[len(self._buckets) :]]
        self._buckets.wait()
        if again:
            self._buckets.send_again(again, gradients.get)
        self._sum_by_store(gradients)
        if gradients:
            self._name_lacking(i for i in range(count) if fresh[i] and i not in gradients)
        readiness = self._buckets.readiness
        self._buckets.end_round()
        self._since_build += 1
        if again or self._since_build == _MEASURED:
            self._pack_anew(round.active[0], readiness)
        return [not each for each in fresh]

    def _sum_by_store(self, gradients: dict[int, Any]) -> None:
        if not self._by_store:
            return
        keys = [self._plan[0][0][i] for i in self._by_store]
        values = [gradients[i] if i in gradients else [self.sums[i].zeros_like()] for i in self._by_store]
        self._store.pushpull(keys, values, out=[self.sums[i] for i in self._by_store])

    def _name_lacking(self, places: Iterable[int]) -> None:
        lacking = [self._params[i].name for i in places if self._params[i].name not in self._named]
        self._named.update(lacking)
        if lacking:
            _log.warning(
                "worker %d made no gradient for %s in this step, other workers did: it counts as zero here. That is "
                "said once for each parameter",
                self._group.rank,
                ", ".join(lacking),
            )

    def _pack_anew(self, source: int, readiness: list[int]) -> None:
        """New buckets: in the order in which one worker saw the gradients become ready, and late ones apart."""
        seen = list(dict.fromkeys(readiness))
        order = torch.tensor([*seen, *(i for i in self._buckets.order if i not in set(seen))])
        if len(order):
            self._group.broadcast_(order, source)
        kept = self.sums, self._buckets  # the Trainer has yet to read the sums of this round
        self._build(order.tolist(), self._buckets.late)
        for old, new in zip(kept[0], self.sums, strict=True):
            new._data.copy_(old._data)


def broadcast(group: Any, tensors: list[torch.Tensor], source: int) -> None:
    """Copy the tensors of the worker `source` into those of all."""
    by_kind: dict[Any, list[torch.Tensor]] = {}
    for tensor in tensors:
        by_kind.setdefault((tensor.dtype, tensor.device), []).append(tensor.data)
    for same in by_kind.values():
        flat = torch.cat([tensor.reshape(-1) for tensor in same])
        group.broadcast_(flat, source)
        for tensor, part in zip(same, flat.split([tensor.numel() for tensor in same]), strict=True):
            tensor.copy_(part.view(tensor.shape))
