"""Training steps under a layout: gradients are summed over the workers with different samples, then sharded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch

from ..base import MXNetError
from ..comm.group import Group
from ..comm.rounds import Round
from ..comm.session import session
from ..comm.store import PeerError
from ..comm.transaction import transaction
from ..formats.atomic import replacing
from ..ndarray import NDArray
from ..optimizer import Updater
from ..optimizer.part import Part
from ..optimizer.states import loads, only
from ..step import AllReduce, StepStrategy
from ..step.trained import Trained
from .shares import apply_in_shares, share_of
from .workers import LayoutWorkers


class LayoutStrategy(AllReduce):
    """Sum gradients over data x shard. Gradients that `fully_shard` has summed in backward are used unchanged.

    All workers step together. Forward and backward need all of them, so all must have the same number of batches.
    """

    survives = True
    can_follow = False  # its workers have parts of the model
    updates_early = False  # the optimizer may sum over workers that hold other parts, in the same order on all

    def __init__(self, workers: LayoutWorkers) -> None:
        super().__init__(workers.gradient_group, shows_sums=True)
        self._workers = workers
        self._shares: dict[int, Part] = {}

    @property
    def _batch(self) -> Group:
        return self._workers.gradient_group

    def join(self) -> None:
        """Open the group for gradients.

        There are no rounds, because a worker without data cannot join a step; except in an elastic job, whose workers
        agree in each round who goes on.
        """
        if self._workers.is_elastic:
            opened = session()
            self.enter(opened.rounds, opened.group)
            if self.number:
                raise MXNetError(
                    "an elastic job with a layout supports one Trainer, and the program has several. Use one Trainer "
                    "for all Parameters, or start the job without --elastic"
                )
        self._group = self._batch.clone("gradients")

    def begin_alike(self, tensors: Sequence[torch.Tensor], names: Sequence[str]) -> None:
        """Do nothing: `apply` has broadcast the values."""

    def await_others(self) -> None:
        """Do nothing: all workers have the same number of batches."""

    def begin_round(self, divisor: float, wants_flags: bool) -> Round:
        """Collect the announcements that all workers make before a step."""
        if self._workers.is_elastic:
            return self._of_samples(super().begin_round(divisor, wants_flags))
        said = self._batch.all_gather_small(torch.tensor([divisor, wants_flags], dtype=torch.float64), "a step")
        divisors = said[:, 0].tolist()
        return Round([0] * len(said), divisors, divisors, True, bool(said[:, 1].any()))

    def _of_samples(self, round: Round) -> Round:
        """Return the announcements of the workers over which gradients are summed. Others repeat them."""
        everyone = session().group.ranks
        ranks = [everyone.index(member) for member in self._batch.ranks]
        divisors, samples = ([each[rank] for rank in ranks] for each in (round.divisors, round.samples))
        return replace(round, steppers=[round.steppers[rank] for rank in ranks], divisors=divisors, samples=samples)

    def shadow(self, round: Round) -> None:
        """Join a step of the other workers with gradients of zero."""
        super().shadow(self._of_samples(round))

    def divisor_of(self, round: Round) -> float:
        """Return the number of samples of all workers.

        In an elastic job, a number that is not that of the samples of a worker is that of its share at the start.
        """
        said = [round.divisors[rank] for rank in round.active]
        own = round.follows or not round.differs and said == [round.samples[rank] for rank in round.active]
        if not self._workers.is_elastic or own or round.all_samples < 0:
            return sum(round.divisors)
        return sum(said) / len(said) * self._workers.layout.initial_batch_size

    def agree(self, divisor: float) -> float:
        """Return the divisor that all workers agree on, for gradients that are already summed."""
        if self._workers.is_elastic:
            said = self.training.samples(divisor)
            assert self._rounds is not None
            round = self._rounds.step(self._number, divisor, said, reduces=False, compared=self.compared())
            return self.divisor_of(self._of_samples(round))
        return self.divisor_of(self.begin_round(divisor, False))

    def compared(self) -> tuple[dict[str, object], dict[str, object]]:
        """The settings that must be equal on all workers. Stages of a pipeline have other parameters."""
        return super().compared()[0], {}

    def prepare_again(self) -> None:
        """Prepare for the parameters with other replicas, whose number decides which gradients are sent."""
        StepStrategy.prepare_again(self)

    @property
    def staged_bytes(self) -> int:
        """Nothing that the others would wait for: only those with the same part of the model share this memory."""
        return 0

    def checksums(self) -> dict[str, int]:
        """Return nothing to compare: the workers have different parts of the weights."""
        return {}

    def _described(self, trained: Trained) -> dict[str, object]:
        return {}

    def ready(self, i: int) -> None:
        """Pack a complete gradient into its bucket, unless a worker was lost in this batch."""
        if self._workers.is_elastic:
            _ = self.trained.gradients[0][i]._data  # sums a partial gradient over the workers that compute it together
        if not transaction().is_adrift:
            super().ready(i)

    def _exchange(self, divisor: float, ignore_stale: bool = True, updates: bool = False) -> float:
        if self._workers.is_elastic:
            self.follow()
            for i in self.trained.fresh():
                _ = self.trained.gradients[0][i]._data  # now: an update cannot be undone
            if transaction().is_adrift:
                raise PeerError("a worker of the layout was lost in this batch")
        return super()._exchange(divisor, ignore_stale, updates)

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
        trained = self.training.trained()
        return dict(zip(trained.keys, self._seen(trained.weights[0]), strict=True))

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
