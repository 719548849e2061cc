"""The gradients of a Trainer under a layout: summed over the workers that take different samples, then cut."""

from __future__ import annotations

from typing import Any

import torch

from ..base import MXNetError
from ..comm.rounds import Round
from ..gluon.exchange import WorkerExchange
from ..ndarray import NDArray
from .placement import Ensemble
from .shares import apply_in_shares


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
        return list(range(len(self._params))) if self._ensemble.sharded else []

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
        if self._ensemble.shard == "optimizer" and self._batch.size > 1:
            apply_in_shares(updater, indices, sums, weights, self._batch)
        else:
            super().apply(updater, indices, sums, weights)
