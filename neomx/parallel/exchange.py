"""The gradients of a Trainer under a layout: summed over the workers that take different samples, then cut."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from ..base import MXNetError
from ..comm.rounds import Round
from ..formats.atomic import replacing
from ..gluon.exchange import WorkerExchange
from ..ndarray import NDArray
from ..optimizer.part import Part
from ..optimizer.states import loads
from .placement import Ensemble
from .shares import apply_in_shares, share_of


class LayoutExchange(WorkerExchange):
    """Sums over data x shard; what `fully_shard` has summed in backward is taken as it is.

    All workers step together: under a layout, forward and backward need all of them, so all have as many batches.
    """

    def __init__(self, trainer: Any, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self._batch = ensemble.batch_group
        super().__init__(trainer, None)

    def _join(self) -> None:
        self._group = self._batch.clone("gradients")

    def _goes_by_store(self, param: Any) -> bool:
        if param.grad_stype != "default":
            raise MXNetError(
                f"Parameter {param.name!r} has gradients of storage type {param.grad_stype}: under a layout they are "
                "dense. Make the layer with sparse_grad=False"
            )
        return False

    def _summed_before(self) -> list[int]:
        alone = self._batch.size == 1  # no other worker has samples for these parameters
        return list(range(len(self._params))) if alone or self._ensemble.sharded else []

    def _begin_round(self, divisor: float, wants_flags: bool) -> Round:
        """There are no rounds: who has no data cannot take part."""
        said = self._batch.all_gather_small(torch.tensor([divisor, wants_flags], dtype=torch.float64), "a step")
        divisors = said[:, 0].tolist()
        return Round([0] * len(said), divisors, divisors, True, bool(said[:, 1].any()))

    def _divisor(self, round: Round) -> float:
        """The samples of all workers."""
        return sum(round.divisors)

    def agree(self, divisor: float) -> float:
        """What all workers divide by, where gradients have been summed before."""
        return self._divisor(self._begin_round(divisor, False))

    def _sum_apart(self, i: int) -> NDArray:
        return self._weights[0][i]._grad  # type: ignore[return-value]

    def apply(self, updater: Any, indices: list[int], sums: list[NDArray], weights: list[NDArray]) -> None:
        """Update this worker's parts."""
        if self._in_shares:
            apply_in_shares(updater, indices, sums, weights, self._seen(weights), self._batch)
        else:
            super().apply(updater, indices, sums, weights)

    @property
    def _in_shares(self) -> bool:
        """Whether each worker updates some rows of weights that all have whole."""
        return self._ensemble.shard == "optimizer" and self._batch.size > 1

    def _prepare(self) -> None:
        self._shares: dict[int, Part] = {}
        super()._prepare()

    def _seen(self, weights: list[NDArray]) -> Any:
        """What the Updater sees of the plan's weights."""
        if not self._in_shares:
            return weights
        for weight in weights:
            if id(weight) not in self._shares:
                self._shares[id(weight)] = share_of(weight, self._batch)
        return [self._shares[id(weight)] for weight in weights]

    # ---- states in files ----

    def _held(self) -> dict[int, NDArray]:
        """What the Updater sees of each weight."""
        self._follow()
        indices, _, weights = self._plan[0]
        return dict(zip(indices, self._seen(weights), strict=True))

    def save_states(self, fname: str) -> None:
        """Write the file that one process would have written. All workers call it."""
        whole = self._trainer._updaters[0].gathered(self._held(), _assembled)
        stages = self._ensemble.pipeline_group
        if stages is not None:
            _merge(whole, stages)
        with self._ensemble.writing() as writes, replacing(fname) if writes else nullcontext() as file:
            if file is not None:
                file.write(whole.get_states(dump_optimizer=True))

    def restored(self, updater: Any, fname: str) -> Any:
        """An Updater that goes on from the states in a file, of which it keeps this worker's part."""
        held = self._held()
        other = updater.restored(fname, {i: held.get(i) for i in range(len(self._trainer._params))})
        other.states = {i: state for i, state in other.states.items() if i in held}
        return other


def _assembled(tensor: torch.Tensor, part: Part) -> torch.Tensor:
    """The whole of a tensor that is divided as a part is: each worker adds its own to zeros."""
    whole = tensor.new_zeros(part.whole_shape)
    whole[part.split] = tensor
    return part.total(whole)


def _merge(updater: Any, stages: Any) -> None:
    """Bring the states of all stages, and the counts of their updates, to the first."""
    mine = torch.frombuffer(bytearray(updater.get_states(dump_optimizer=True)), dtype=torch.uint8)
    optimizer = updater.optimizer
    for rank, content in enumerate(stages.all_gather(mine, "the optimizer's states")):
        if rank != stages.rank:
            states, other = loads(content.numpy().tobytes())
            updater.states = {**states, **updater.states}
            for name in ("_index_update_count", *optimizer._arrays_by_index):
                setattr(optimizer, name, {**getattr(other, name), **getattr(optimizer, name)})
    optimizer._all_index_update_counts = {0: optimizer._index_update_count}
