"""Rounds: all workers step together, including those without data.

Before a step each worker announces what it is about to do. A worker that has nothing to step with (its data ended, it
waits at a barrier, its program ended) keeps taking part in the steps of the others with zero gradients, until all have
reached the same point. Then it copies the current weights. So workers may have different numbers of batches, and every
sample has the same weight as in a single process.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from ..base import MXNetError
from ..process import state
from .barriers import BARRIER, FOLLOWS, LEAVES, MEETS, PAUSES, Barriers
from .group import Group
from .store import PeerError
from .transaction import transaction

_log = logging.getLogger("neomx")
_PATIENCE = 30.0  # timeout in seconds for the settings of another worker
_MOST_STEPPERS = 200
_DOING = {PAUSES: "the end of its data", LEAVES: "the end of its program", BARRIER: "mx.dist.barrier()"}
_DOING |= {MEETS: "the end of a batch", FOLLOWS: "a step of the others"}


Compared = tuple[Mapping[str, object], Mapping[str, object]]
"""Values that must be the same on all workers in a step: global ones, and by parameter."""


class Stepper(Protocol):
    """Takes part in rounds: the gradient exchange of a Trainer."""

    def has_sent(self) -> bool:
        """Whether gradients of the next step were already sent."""

    def prepare_along(self) -> None:
        """Prepare for new parameters together with the other workers, before their next step."""

    def shadow(self, round: Round) -> None:
        """Take part in a step of other workers with zero gradients."""

    def take_over(self, source: int) -> None:
        """Copy weights and optimizer states from the worker `source`, which sends them."""

    def checksums(self) -> dict[str, int]:
        """Return a checksum of each parameter by name."""

    def close(self) -> None:
        """Release resources; no worker will step it again."""

    @property
    def has_begun(self) -> bool:
        """Whether it has prepared for its parameters."""

    def halt(self) -> None:
        """Wait until nothing is being sent any more, after a loss."""

    def drop_step(self) -> None:
        """Forget what the current step has changed, because all workers drop it."""

    def prepare_again(self) -> None:
        """Prepare for the parameters together with the workers of a new generation."""

    def go_on(self) -> None:
        """Go on with the same workers in a new generation."""


@dataclass(frozen=True)
class Round:
    """The announcements of all workers before a step."""

    steppers: list[int]  # each worker's stepper number, or a negative value without data
    divisors: list[float]
    samples: list[float]  # in each worker's batch, -1 if unknown
    reduces: bool  # whether gradients are summed in it
    wants_flags: bool  # whether some worker has additional flags to exchange
    follows: bool = False  # whether some worker's divisor is known to be a multiple of its samples
    prepares: bool = False  # whether workers prepare for new parameters instead of stepping
    differs: bool = False  # whether some worker has passed another number than its samples in an earlier step
    stops: bool = False  # whether some worker was told to save a checkpoint and stop
    admits: bool = False  # whether workers wait to join
    shares: int = 0  # the number of workers at the start of an elastic job, which divided the batch of all then

    @property
    def active(self) -> list[int]:
        """The workers that step."""
        return [rank for rank, stepper in enumerate(self.steppers) if stepper >= 0]

    @property
    def has_second_half(self) -> bool:
        """Whether the workers only sum gradients in it, and update in a later round."""
        return any(math.isnan(self.divisors[rank]) for rank in self.active)

    @property
    def is_whole(self) -> bool:
        """Whether the workers sum gradients and update, so that the program cannot change the sums in between."""
        return self.reduces and not self.has_second_half

    @property
    def all_samples(self) -> float:
        """The total number of samples of all workers in this step, or -1 if unknown."""
        known = [self.samples[rank] for rank in self.active]
        return -1.0 if any(each < 0 for each in known) else sum(known)

    @property
    def divisor(self) -> float:
        """The divisor of summed gradients, the same on all workers.

        It is the number that workers pass to `step`, or the mean if they pass different numbers. A worker without data
        is left out of that mean, unless the numbers are proportional to the samples of each worker: then it counts as
        zero. They are proportional if each worker passes its number of samples, and always has, or has passed a fixed
        multiple of it so far. In an elastic job, their own samples have the weight that they had at its start.
        """
        said = [self.divisors[rank] for rank in self.active]
        own = not self.differs and said == [self.samples[rank] for rank in self.active]
        if own:
            return sum(said) / (self.shares or len(self.steppers))
        if self.follows:
            return sum(said) / len(self.steppers)
        return said[0] if len(set(said)) == 1 else sum(said) / len(said)


@dataclass
class _Given:
    """The arguments of this worker's last step of a stepper."""

    divisor: float
    samples: float
    follows: bool = False  # whether divisors have changed in proportion to samples
    differs: bool = False  # whether an earlier divisor was not the number of samples

    def next(self, divisor: float, samples: float) -> _Given:
        if self.samples < 0:
            return _Given(divisor, samples, self.follows, self.differs)
        in_proportion = samples > 0 and divisor * self.samples == self.divisor * samples
        follows = in_proportion and (self.follows or divisor != self.divisor)
        return _Given(divisor, samples, follows, self.differs or self.divisor != self.samples)

    def anew(self) -> _Given:
        """Compare no more with this step: from the next one on, a batch has another number of workers."""
        return _Given(self.divisor, -1.0, self.follows, self.differs or self.divisor != self.samples >= 0)


class Rounds:
    """The rounds of all workers. Each Trainer takes part as a stepper with a number, the same on every worker."""

    def __init__(self, group: Group):
        self._group = group.clone("rounds", with_followers=True)
        self._steppers: list[Stepper | None] = []  # None if all workers have released theirs
        self._released: set[int] = set()
        self._given: dict[int, _Given] = {}
        self._steps: Counter[int] = Counter()  # steps of this worker, by stepper
        self._barriers = Barriers()
        self._at_pause: Counter[int] = Counter()  # `_steps` at the last pause
        self._is_after_data = False  # whether the last pause was at the end of data, and no step followed
        self._idle: Counter[int] = Counter()  # by stepper: steps of others for which this worker should have had data
        self._compared: Compared = ({}, {})  # of the current stepper
        self._digest_of: Mapping[str, object] = {}  # the mapping of `_digest`
        self._digest = 0
        self._behind: dict[int, list[int]] = {}  # steppers with outdated weights on some worker, and current workers
        self.joined: Counter[int] = Counter()  # by stepper: steps of others that this worker joined without data
        self.is_complete = True  # whether all workers had data in the last step
        self.asks_to_stop = False  # whether this worker was told to stop; all workers hear of it in the next round
        self.stops = False  # whether some worker was told to stop, as all workers know
        self.are_waiting: Callable[[], bool] | None = None  # whether workers wait to join; asked by one worker
        self.admits = False  # whether workers wait to join, as all workers know
        self.samples = -1.0  # of all workers in the last step, or -1 if unknown
        self.position = -1  # the samples of all workers in this epoch after the last step; -1 if unknown

    def enter(self, stepper: Stepper) -> int:
        """Add a stepper and return its number. All workers must add their steppers in the same order."""
        self._steppers.append(stepper)
        return len(self._steppers) - 1

    @property
    def steppers(self) -> list[Stepper]:
        """The steppers that this worker's program has not dropped together with the others."""
        return [stepper for stepper in self._steppers if stepper is not None]

    def vote(self) -> None:
        """Wait until all workers have all sums of a step. If it returns, all of them commit the step."""
        if self._group.size > 1:
            self._group.barrier("the end of a training step")

    def forget_steps(self) -> None:
        """Forget which workers have outdated weights, because the program restores its state on all workers."""
        self._barriers = Barriers()
        self._behind = {}

    def begin_generation(self) -> None:
        """Go on with the workers of a new generation, in which all have the same weights."""
        self._barriers = Barriers()
        self._given = {stepper: given.anew() for stepper, given in self._given.items()}
        begun = [stepper is not None and stepper.has_begun for stepper in self._steppers]
        if self._group.size > 1:
            mine = torch.zeros(_MOST_STEPPERS, dtype=torch.uint8)
            mine[: len(begun)] = torch.tensor(begun, dtype=torch.uint8)
            begun = self._group.all_gather_small(mine, "the Trainers of all workers").amax(0).tolist()
        self._bring_up_to_date()
        for number in (number for number, is_needed in enumerate(begun) if is_needed):
            if number >= len(self._steppers):
                raise MXNetError(
                    f"the other workers train with {number + 1} Trainers, but the program of this one has created "
                    f"{len(self._steppers)}. A worker that joins must run the same program"
                )
            stepper = self._steppers[number]
            if stepper is not None:
                stepper.prepare_again()

    def go_on(self) -> None:
        """Go on with the same workers in a new generation, in which those that followed are members."""
        self._barriers = Barriers()
        self._given = {stepper: given.anew() for stepper, given in self._given.items()}
        self._group.refresh()
        for stepper in self.steppers:
            stepper.go_on()

    def release(self, stepper: int) -> None:
        """Mark a stepper as dropped by this worker's program.

        Other workers may still step it; then this one takes part.
        """
        self._released.add(stepper)

    def forget(self, group: Group) -> None:
        """Close steppers that all workers have released.

        All workers must call it, with a group without pending calls.
        """
        mine = torch.tensor([at in self._released and at not in self._behind for at in range(len(self._steppers))])
        for at in group.all_gather_small(mine.to(torch.uint8)).amin(0).nonzero().flatten().tolist():
            stepper, self._steppers[at] = self._steppers[at], None
            self._released.discard(at)
            self._given.pop(at, None)
            if stepper is not None:
                stepper.close()

    def step(
        self,
        stepper: int,
        divisor: float,
        samples: float = -1,
        reduces: bool = True,
        wants_flags: bool = False,
        compared: Compared = ({}, {}),
    ) -> Round:
        """Announce a step and return the announcements of all workers. Raises if `compared` differs between workers."""
        follows = differs = False
        self._steps[stepper] += reduces
        self._is_after_data = False
        self._compared = compared
        state.saved.clear()
        if not math.isnan(divisor):  # NaN if a later call provides it
            last = self._given.get(stepper)
            # A worker that is alone in an elastic job of several, from its first step, has the samples of all workers.
            alone = self._group.size == 1 and transaction().shares > 1
            given = _Given(divisor, samples, differs=alone) if last is None else last.next(divisor, samples)
            self._given[stepper], follows, differs = given, given.follows, given.differs
        round = self._say(stepper, divisor, samples, reduces, wants_flags, follows, differs=differs)
        self._check_same(stepper, round)
        self.is_complete = len(round.active) == len(round.steppers)
        unsaid = [rank for rank in round.active if math.isnan(round.divisors[rank])]
        if unsaid and unsaid != round.active:
            raise MXNetError(
                f"the workers' programs differ: workers {unsaid} call allreduce_grads(), the others step(). "
                "Make the same calls on all workers"
            )
        return round

    def _check_same(self, stepper: int, round: Round) -> None:
        if any(round.steppers[rank] != stepper for rank in round.active):
            raise MXNetError(
                "the workers' programs differ: "
                + ", ".join(f"worker {rank} {_doing(other)}" for rank, other in enumerate(round.steppers))
                + ". Every worker must create its Trainers in the same order and step them in the same order"
            )

    def prepare(self, stepper: int, compared: Mapping[str, object]) -> None:
        """Announce that this worker prepares for new parameters, so that workers without data do the same.

        Raises if `compared` differs between workers.
        """
        self._compared = compared, {}
        self._check_same(stepper, self._say(stepper, 0.0, -1, False, False, prepares=True))

    def pause(self, lacks: float = 0, batches: int = 0) -> bool:
        """Wait for all workers while taking part in the remaining steps of others.

        Other workers are known to have up to `lacks` batches more than the `batches` that this worker had since the
        last pause. Their steps for these batches are not reported. Return False if a worker was lost before all had
        come here, so that there may be more to do.
        """
        has_passed = self._stand_by(PAUSES, lacks, batches)
        self._at_pause = Counter(self._steps)
        self._is_after_data = lacks > 0
        return has_passed

    def end_epoch(self) -> None:
        """Like `pause`, at the end of an epoch.

        In an elastic job, the end of data that is dealt to the workers was the last pause: a second one could wait for
        workers that have gone on after a loss.
        """
        if not (transaction().survives and self._is_after_data):
            self.pause()

    def barrier(self) -> None:
        """Like `pause`, at a barrier of the program. Worker 0 logs a warning if other workers do not call it."""
        self._stand_by(BARRIER)

    def meet_followers(self) -> bool:
        """Meet those that follow this worker and the others. Return False if not all others meet them too."""
        return self._all_meet(self._say(MEETS, 0.0, 0.0, False, self._have_sent()))

    def follow(self) -> bool | None:
        """Take part in a round of the others. Return whether they all meet this worker; None at the end of the job."""
        round = self._say(FOLLOWS, 0.0, 0.0, False, False)
        if round.active:
            self._take_part(round)
        return None if all(each == LEAVES for each in round.steppers) else self._all_meet(round)

    @staticmethod
    def _all_meet(round: Round) -> bool:
        return all(each == MEETS for each in round.steppers)

    def leave(self) -> None:
        """Like `pause`, at the end of a program. Then compare steps and weights of all workers."""
        self._stand_by(LEAVES)
        if self._group.size > 1 and not self._group.followers:
            try:
                self._compare()
            except PeerError:  # the program of this worker has ended, and needs no others
                if not transaction().survives:
                    raise

    def _compare(self) -> None:
        """Log differences between workers in the number of steps and in their weights."""
        for number, stepper in enumerate(self._steppers):
            if stepper is None:
                continue
            sums = stepper.checksums()
            mine = torch.tensor([self._steps[number], self._idle[number], *sums.values()], dtype=torch.int64)
            said = [each.tolist() for each in self._group.all_gather(mine, "the ends of programs")]
            if self._group.rank == 0:
                if any(each[1] for each in said) and not transaction().survives:
                    which = f" of model number {number}" if len(self._steppers) > 1 else ""
                    _tell_of_steps([each[0] for each in said], which)
                _tell_of_weights([each[2:] for each in said], list(sums))

    def _stand_by(self, why: int, lacks: float = 0, batches: int = 0) -> bool:
        if self._group.size == 1:
            return True
        others: Counter[int] = Counter()  # steps of others in the meantime, by stepper
        generation = self._group.generation
        while True:
            if self._group.generation != generation:  # a worker was lost
                if why == PAUSES:
                    return False  # the samples of its last step are dealt again, possibly to this worker
                generation = self._group.generation
            try:
                round = self._say(why, 0.0, 0.0, False, self._have_sent())
            except PeerError as error:
                if transaction().recover(error):
                    return True  # the others have already gone on
                continue
            if round.active:
                number = round.steppers[round.active[0]]
                if not round.prepares:
                    others[number] += round.reduces
                    self.joined[number] += round.reduces
                    self._idle[number] += round.reduces and others[number] > self._excused(number, lacks, batches)
                self._take_part(round)
                if not round.prepares:
                    self._tell_of_files()
            elif MEETS in round.steppers:
                continue  # others will step
            elif why != LEAVES or all(each == LEAVES for each in round.steppers):
                transaction().passed()
                return True

    def _take_part(self, round: Round) -> None:
        """Step with the others, without gradients."""
        number = round.steppers[round.active[0]]
        stepper = self._steppers[number] if number < len(self._steppers) else None
        if stepper is None:
            raise MXNetError(
                f"worker {round.active[0]} steps a Trainer that this worker has not created yet. Create all Trainers "
                "before the first worker runs out of data"
            )
        if round.prepares:
            stepper.prepare_along()
        else:
            stepper.shadow(round)

    def _excused(self, stepper: int, lacks: float, batches: int) -> float:
        """Return the number of steps that correspond to `lacks` batches, if this worker stepped for its `batches`."""
        if not batches:
            return math.inf if lacks else 0
        return lacks * max(1, math.ceil((self._steps[stepper] - self._at_pause[stepper]) / batches))

    def _tell_of_files(self) -> None:
        """Warn that files this worker saved since its last step contain outdated weights."""
        if state.saved:
            _log.warning(
                "worker %d saved %s before the last steps of other workers, which had more data: the file has older "
                "weights than theirs. Call mx.dist.barrier() before saving",
                self._group.rank,
                ", ".join(state.saved),
            )
            state.saved.clear()

    def _have_sent(self) -> bool:
        return any(stepper is not None and stepper.has_sent() for stepper in self._steppers)

    def _say(
        self,
        what: int,
        divisor: float,
        samples: float,
        reduces: bool,
        wants_flags: bool,
        follows: bool = False,
        prepares: bool = False,
        differs: bool = False,
    ) -> Round:
        if self._group.size == 1:
            self.stops |= self.asks_to_stop
            self.position, self.samples = transaction().position, samples
            self.admits = self.are_waiting is not None and self.are_waiting()
            flags_of_all = (reduces, wants_flags, follows, prepares, differs, self.stops, self.admits)
            return replace(Round([what], [divisor], [samples], *flags_of_all), shares=transaction().shares)
        digest = self._digested() if what >= 0 else 0
        waiting = self.are_waiting is not None and self._group.rank == 0 and self.are_waiting()
        position = transaction().position if what >= 0 else -1
        flags_here = (reduces, wants_flags, follows, prepares, differs, self.asks_to_stop, waiting)
        mine = torch.tensor([what, divisor, samples, digest, position, *flags_here], dtype=torch.float64)
        with self._group.doing(_DOING.get(what, "a training step")):
            said = self._group.all_gather_small(mine, what="a step of the training")
        said = said[: len(said) - self._group.followers]
        steppers, divisors, counts, digests, positions, *flags = said.T.tolist()
        self.position = int(max(positions))
        active = [rank for rank, each in enumerate(steppers) if each >= 0]
        preparing = [bool(flags[3][rank]) for rank in active]
        if any(preparing) and not all(preparing):
            raise MXNetError(
                "the workers' programs differ: the set of trained parameters changed on some workers "
                "only. Change grad_req, or initialize parameters, in the same step on all workers"
            )
        same_stepper = len({steppers[rank] for rank in active}) == 1  # otherwise the caller raises
        if same_stepper and len({digests[rank] for rank in active}) > 1 and (found := self._difference(active)):
            raise MXNetError(found)
        told = [any(each) for each in flags]
        where = [int(each) for each in steppers]
        round = replace(Round(where, divisors, counts, *told), shares=transaction().shares)
        self.stops |= round.stops
        self.samples = round.all_samples
        self._catch_up(round)
        self.admits = round.admits and len(round.active) == len(round.steppers) and not self._behind
        wrong = self._barriers.hear(round.steppers, round.reduces)
        if wrong and self._group.rank == 0:
            _log.warning(wrong)
        return round

    def _digested(self) -> int:
        """Return a checksum of the compared values."""
        settings, by_parameter = self._compared
        if by_parameter is not self._digest_of:  # large, and the same object while nothing changes
            self._digest_of, self._digest = by_parameter, zlib.crc32(repr(by_parameter).encode())
        return zlib.crc32(repr(settings).encode(), self._digest)

    def _difference(self, active: list[int]) -> str:
        """Describe how settings of two active workers differ, if they do.

        Each worker puts its settings in the store.
        """
        store, key = self._group.store, f"{self._group.name}/settings"
        assert store is not None
        if self._group.rank in active:
            settings, by_parameter = self._compared
            store.set(f"{key}/{self._group.rank}", json.dumps({**settings, **by_parameter}, default=repr))
        found = {rank: json.loads(store.get(f"{key}/{rank}", timeout=_PATIENCE)) for rank in active}
        first = found[active[0]]
        for rank, theirs in found.items():
            for name in {**first, **theirs}:
                if first.get(name) != theirs.get(name):
                    return (
                        f"all workers must have the same settings: {name} is {first.get(name)!r} on worker {active[0]} "
                        f"and {theirs.get(name)!r} on worker {rank}. Use the same optimizer, parameters (lr_mult, "
                        "wd_mult, grad_req) and compression on all workers"
                    )
            for mine, name in zip(first, theirs, strict=True):
                if mine != name:
                    return (
                        f"all workers must have their parameters in the same order: worker {active[0]} has {mine} "
                        f"where worker {rank} has {name}"
                    )
        return ""  # equal numbers of different types

    def _catch_up(self, round: Round) -> None:
        """Track outdated weights; when no worker steps, bring all workers up to date."""
        active = round.active
        if not active:
            self._bring_up_to_date()
        elif len(active) < len(round.steppers) and not (transaction().survives and round.is_whole):
            self._behind[round.steppers[active[0]]] = [self._group.ranks[rank] for rank in active]

    def _bring_up_to_date(self) -> None:
        """Copy outdated weights from workers that have current ones."""
        ranks = self._group.ranks
        for number, sources in sorted(self._behind.items()):
            here = [source for source in sources if source in ranks]
            if not here:
                raise PeerError(
                    f"workers {sources} are gone, and only they had the weights of the last step of Trainer {number}"
                )
            behind = self._steppers[number]
            if behind is not None:
                behind.take_over(ranks.index(here[0]))
        self._behind = {}


def _doing(stepper: int) -> str:
    return {PAUSES: "waits", LEAVES: "has ended", BARRIER: "waits"}.get(stepper, f"steps its Trainer number {stepper}")


def _tell_of_steps(steps: list[int], which: str) -> None:
    """Warn that workers had different numbers of batches."""
    if len(set(steps)) > 1:
        _log.warning(
            "the workers made different numbers of training steps%s: %s. In the steps that a worker does not make, its "
            "gradients count as zero. Call step() for every batch on every worker, and divide the data evenly: with "
            "mx.dist.shard(dataset), or parts of equal size of an iterator",
            which,
            ", ".join(f"worker {rank} {count}" for rank, count in enumerate(steps)),
        )


def _tell_of_weights(sums: list[list[int]], names: list[str]) -> None:
    """Warn that workers that trained one model end with different weights."""
    for rank, theirs in enumerate(sums):
        differing = [name for name, a, b in zip(names, sums[0], theirs, strict=False) if a != b]
        if differing or len(theirs) != len(sums[0]):
            _log.warning(
                "the workers end with different weights: %s of worker %d differs from worker 0%s. Usually one worker "
                "has loaded or changed weights after its last step. Do that on all workers, or on none",
                differing[0] if differing else "the number of parameters",
                rank,
                f", and {len(differing) - 1} more differ" if len(differing) > 1 else "",
            )
            return
