"""Training steps under a layout: gradients are summed over the workers with different samples, then sharded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch

from ..base import MXNetError
from ..comm.group import Group
from ..comm.rounds import Round
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..optimizer import Updater
from ..optimizer.part import Part
from ..optimizer.states import loads, only
from ..step import AllReduce
from .shares import apply_in_shares, share_of
from .workers import LayoutWorkers


class LayoutStrategy(AllReduce):
    """Sum gradients over data x shard. Gradients that `fully_shard` has summed in backward are used unchanged.

    All workers step together. Forward and backward need all of them, so all must have the same number of batches.
    """

    survives = can_follow = False
    updates_early = False  # the optimizer may sum over workers that hold other parts, in the same order on all

    def __init__(self, workers: LayoutWorkers) -> None:
        super().__init__(workers.gradient_group, shows_sums=True)
        self._workers = workers
        self._shares: dict[int, Part] = {}

    @property
    def _batch(self) -> Group:
        return self._workers.gradient_group

    def join(self) -> None:
        """Do nothing: there are no rounds, because a worker without data cannot join a step."""
        self._group = self._batch.clone("gradients")

    def begin_alike(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Do nothing: `apply` has broadcast the values."""

    def await_others(self) -> None:
        """Do nothing: all workers have the same number of batches."""

    def begin_round(self, divisor: float, wants_flags: bool) -> Round:
        """Collect the announcements that all workers make before a step."""
        said = self._batch.all_gather_small(torch.tensor([divisor, wants_flags], dtype=torch.float64), "a step")
        divisors = said[:, 0].tolist()
        return Round([0] * len(said), divisors, divisors, True, bool(said[:, 1].any()))

    def divisor_of(self, round: Round) -> float:
        """Return the number of samples of all workers."""
        return sum(round.divisors)

    def agree(self, divisor: float) -> float:
        """Return the divisor that all workers agree on, for gradients that are already summed."""
        return self.divisor_of(self.begin_round(divisor, False))

    def prepare(self) -> None:
        """Pack the new parameters."""
        for i in self.trained.sparse:
            raise MXNetError(
                f"Parameter {self.trained.names[i]!r} has row-sparse gradients, which a layout cannot sum. Create the "
                "layer with sparse_grad=False"
            )
        self._shares = {}
        super().prepare()

    def summed_before(self) -> set[int]:
        """Return the parameters whose gradients are already summed over all workers when backward ends."""
        alone = self._batch.size == 1  # no other worker has samples for these parameters
        return set(range(len(self.trained))) if alone or self._workers.sharded else set()

    # ---- updating parts ----

    def apply(self, places: Sequence[int], gradients: Sequence[NDArray]) -> None:
        """Update this worker's parts."""
        if not self._in_shares:
            super().apply(places, gradients)
            return
        weights = [self.trained.weights[0][i] for i in places]
        indices = [self.trained.keys[i] for i in places]
        apply_in_shares(self.training.updater(), indices, list(gradients), weights, self._seen(weights), self._batch)

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update with gradients that `reduce` has summed."""
        if not self._in_shares:
            super().update(divisor, ignore_stale)
            return
        self.follow()
        self.training.rescale(self.agree(divisor))
        stale = self.find_stale(ignore_stale)[0]
        fresh = [i for i in range(len(self.trained)) if i not in stale]
        gradients = [self.trained.gradients[0][i] for i in fresh]
        if not self.training.overflowed(gradients):
            self.apply(fresh, gradients)
        self.trained.use_all()

    @property
    def _in_shares(self) -> bool:
        """Whether each worker updates some rows of weights that all workers hold."""
        return self._workers.shard == "optimizer" and self._batch.size > 1

    def _seen(self, weights: Sequence[NDArray]) -> list[Any]:
        """Return the parts of weights that the Updater sees."""
        if not self._in_shares:
            return list(weights)
        for weight in weights:
            if id(weight) not in self._shares:
                self._shares[id(weight)] = share_of(weight, self._batch)
        return [self._shares[id(weight)] for weight in weights]

    # ---- states in files ----

    def packed_states(self) -> tuple[dict[str, Any], dict[str, NDArray]]:
        """Return the optimizer and this worker's part of its states."""
        return self.training.updater().packed(self.parts())

    def take_packed_states(self, content: Any, arrays: Mapping[str, NDArray]) -> None:
        """Continue with the optimizer and the states of this worker's parts."""
        parts = self.parts()
        self.training.take_packed(only(content, parts), arrays, parts)

    def parts(self) -> dict[int | str, NDArray]:
        """Return the part of each weight that the Updater sees, by key."""
        self.follow()
        return dict(zip(self.trained.keys, self._seen(self.trained.weights[0]), strict=True))

    def save_states(self, fname: str, dump_optimizer: bool) -> bool:
        """Write the file that a single process would write. All workers must call it."""
        whole = self.training.updater().gathered(self.parts(), _assembled)
        stages = self._workers.pipeline_group
        if stages is not None:
            _merge(whole, stages)
        with self._workers.writing() as writes, replacing(fname) if writes else nullcontext() as file:
            if file is not None:
                file.write(whole.get_states(dump_optimizer=dump_optimizer))
        return True

    def load_states(self, fname: str) -> bool:
        """Load this worker's part of the states in a file."""
        held = self.parts()
        other = self.training.updater().restored(fname, {i: held.get(i) for i in self.training.indices()})
        other.states = {i: state for i, state in other.states.items() if i in held}
        self.training.take_updater(other)
        return True


def _assembled(tensor: torch.Tensor, part: Part) -> torch.Tensor:
    """Return the whole tensor of which each worker holds a part: the sum of the parts in arrays of zeros."""
    whole = tensor.new_zeros(part.whole_shape)
    whole[part.split] = tensor
    return part.total(whole)


def _merge(updater: Updater, stages: Group) -> None:
    """Send the states and update counts of all stages to the first."""
    mine = torch.frombuffer(bytearray(updater.get_states(dump_optimizer=True)), dtype=torch.uint8)
    optimizer = updater.optimizer
    for rank, content in enumerate(stages.all_gather(mine, "the optimizer's states")):
        if rank != stages.rank:
            states, other = loads(content.numpy().tobytes())
            updater.states = {**states, **updater.states}
            for name in ("_index_update_count", *optimizer._arrays_by_index):
                setattr(optimizer, name, {**getattr(other, name), **getattr(optimizer, name)})
    optimizer._all_index_update_counts = {0: optimizer._index_update_count}
