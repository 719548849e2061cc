"""Rounds: workers step together, also those that have no data left.

Before a step each worker says what it is about to do. Who has nothing to step with (its data ended, it waits at a
barrier, its program is over) goes on taking part in the steps of the others, with gradients of zero, until all have
come to the same point; then it takes over the weights. So unequal numbers of batches hang nobody, and no sample counts
for more or less than in one process.
"""

from __future__ import annotations

import json
import logging
import math
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import torch

from ..base import MXNetError
from ..process import state
from .barriers import BARRIER, LEAVES, PAUSES, Barriers
from .group import Group

_log = logging.getLogger("neomx")
_PATIENCE = 30.0  # seconds for what another worker is about to say
_DOING = {PAUSES: "the end of its data", LEAVES: "the end of its program", BARRIER: "mx.dist.barrier()"}


Compared = tuple[Mapping[str, object], Mapping[str, object]]
"""What must be the same on all workers in a step: of the whole, and by parameter."""


class Stepper(Protocol):
    """Who steps in rounds: a Trainer's exchange of gradients."""

    def has_sent(self) -> bool:
        """Whether gradients of a step that has not come yet have left."""

    def prepare_along(self) -> None:
        """Other workers prepare for new parameters, before their next step: do the same."""

    def shadow(self, round: Round) -> None:
        """Take part in the others' step with nothing."""

    def take_over(self, source: int) -> None:
        """Take over weights and states from the worker `source`; that one gives them."""

    def checksums(self) -> dict[str, int]:
        """A number for the values of each parameter, by name."""

    def close(self) -> None:
        """No worker will step it any more."""


@dataclass(frozen=True)
class Round:
    """What all workers said before a step."""

    steppers: list[int]  # the number of each worker's stepper, or below 0 if it has no data
    divisors: list[float]
    samples: list[float]  # in each worker's batch, -1 where nobody knows
    reduces: bool  # whether gradients are summed in it
    wants_flags: bool  # whether some worker has more to say
    follows: bool = False  # whether some worker's divisor is known to be a multiple of its samples
    prepares: bool = False  # whether it announces that workers prepare for new parameters, and no step

    @property
    def active(self) -> list[int]:
        """The workers that step."""
        return [rank for rank, stepper in enumerate(self.steppers) if stepper >= 0]

    @property
    def all_samples(self) -> float:
        """The samples of all workers in this step, as far as is known."""
        known = [self.samples[rank] for rank in self.active]
        return -1.0 if any(each < 0 for each in known) else sum(known)

    @property
    def divisor(self) -> float:
        """What summed gradients are divided by: the same on all workers.

        The number that workers give to `step` is used as it is; if they give different ones, their mean. A worker
        without data is left out of that mean, unless the numbers follow the samples of each worker: then it counts as
        zero. They do if each worker gives its number of samples, or has given a fixed multiple of it so far.
        """
        said = [self.divisors[rank] for rank in self.active]
        if self.follows or said == [self.samples[rank] for rank in self.active]:
            return sum(said) / len(self.steppers)
        return said[0] if len(set(said)) == 1 else sum(said) / len(said)


@dataclass
class _Given:
    """What this worker gave to a stepper's last step."""

    divisor: float
    samples: float
    follows: bool  # whether divisors have changed in proportion to samples

    def next(self, divisor: float, samples: float) -> _Given:
        in_proportion = samples > 0 and divisor * self.samples == self.divisor * samples
        return _Given(divisor, samples, in_proportion and (self.follows or divisor != self.divisor))


class Rounds:
    """The rounds of all workers; each Trainer takes part as a stepper with a number, the same on every worker."""

    def __init__(self, group: Group):
        self._group = group.clone("rounds")
        self._steppers: list[Stepper | None] = []  # None where all workers have dropped theirs
        self._released: set[int] = set()
        self._given: dict[int, _Given] = {}
        self._steps: Counter[int] = Counter()  # of this worker, by stepper
        self._barriers = Barriers()
        self._idle: Counter[int] = Counter()  # steps of others, by stepper, for which this worker should have had data
        self._compared: Compared = ({}, {})  # of the stepper that steps
        self._digest_of: Mapping[str, object] = {}  # whose digest is known
        self._digest = 0
        self._behind: dict[int, int] = {}  # steppers whose weights some worker lacks, and who has them

    def enter(self, stepper: Stepper) -> int:
        """Take part; the number to step with. All workers must enter their steppers in the same order."""
        self._steppers.append(stepper)
        return len(self._steppers) - 1

    def release(self, stepper: int) -> None:
        """This worker's program has dropped the stepper; others may still step it, and this one then takes part."""
        self._released.add(stepper)

    def forget(self, group: Group) -> None:
        """Close the steppers that all workers have released. All call it, with a group in which nothing else waits."""
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
        """Say that this worker steps; what all said. Raises if what is `compared` is not the same on all workers."""
        follows = False
        self._steps[stepper] += reduces
        self._compared = compared
        state.saved.clear()
        if not math.isnan(divisor):  # as it is where a later call says it
            last = self._given.get(stepper)
            given = _Given(divisor, samples, False) if last is None else last.next(divisor, samples)
            self._given[stepper], follows = given, given.follows
        round = self._say(stepper, divisor, samples, reduces, wants_flags, follows)
        self._check_same(stepper, round)
        unsaid = [rank for rank in round.active if math.isnan(round.divisors[rank])]
        if unsaid and unsaid != round.active:
            raise MXNetError(
                f"the workers' programs do not run alike: workers {unsaid} call allreduce_grads(), the others step(). "
                "Call the same on all workers"
            )
        return round

    def _check_same(self, stepper: int, round: Round) -> None:
        if any(round.steppers[rank] != stepper for rank in round.active):
            raise MXNetError(
                "the workers' programs do not run alike: "
                + ", ".join(f"worker {rank} {_doing(other)}" for rank, other in enumerate(round.steppers))
                + ". Every worker must make its Trainers in the same order and step them in the same order"
            )

    def prepare(self, stepper: int, compared: Mapping[str, object]) -> None:
        """Say that this worker prepares for new parameters, so that workers without data do the same.

        Raises if what is `compared` is not the same on all workers.
        """
        self._compared = compared, {}
        self._check_same(stepper, self._say(stepper, 0.0, -1, False, False, prepares=True))

    def pause(self, expected: bool = False) -> None:
        """Wait for all workers, taking part in the steps of those that still have some.

        With `expected` some workers are known to have a step less, and it is not reported.
        """
        self._stand_by(PAUSES, expected)

    def barrier(self) -> None:
        """The same where the program asks for it: worker 0 logs it if other workers do not."""
        self._stand_by(BARRIER)

    def leave(self) -> None:
        """The same at the end of a program: until all workers have come to theirs. Then compare what they have."""
        self._stand_by(LEAVES)
        if self._group.size > 1:
            self._compare()

    def _compare(self) -> None:
        """Log in what the workers differ: the numbers of their steps, and their weights."""
        for number, stepper in enumerate(self._steppers):
            if stepper is None:
                continue
            sums = stepper.checksums()
            mine = torch.tensor([self._steps[number], self._idle[number], *sums.values()], dtype=torch.int64)
            said = [each.tolist() for each in self._group.all_gather(mine, "the ends of programs")]
            if self._group.rank == 0:
                if any(each[1] for each in said):
                    which = f" of its model number {number}" if len(self._steppers) > 1 else ""
                    _tell_of_steps([each[0] for each in said], which)
                _tell_of_weights([each[2:] for each in said], list(sums))

    def _stand_by(self, why: int, expected: bool = False) -> None:
        if self._group.size == 1:
            return
        while True:
            round = self._say(why, 0.0, 0.0, False, self._have_sent())
            if round.active:
                number = round.steppers[round.active[0]]
                stepper = self._steppers[number] if number < len(self._steppers) else None
                if stepper is None:
                    raise MXNetError(
                        f"worker {round.active[0]} steps a Trainer that this worker has not made yet. Make all "
                        "Trainers before the first worker runs out of data"
                    )
                if round.prepares:
                    stepper.prepare_along()
                else:
                    self._idle[number] += round.reduces and not expected
                    stepper.shadow(round)
                    self._tell_of_files()
            elif why != LEAVES or all(each == LEAVES for each in round.steppers):
                return

    def _tell_of_files(self) -> None:
        """Log that what this worker has saved since its last step is older than the model is now."""
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
    ) -> Round:
        if self._group.size == 1:
            return Round([what], [divisor], [samples], reduces, wants_flags, follows, prepares)
        digest = self._digested() if what >= 0 else 0
        flags_here = (reduces, wants_flags, follows, prepares)
        mine = torch.tensor([what, divisor, samples, digest, *flags_here], dtype=torch.float64)
        with self._group.doing(_DOING.get(what, "a training step")):
            said = self._group.all_gather_small(mine, what="a step of the training")
        steppers, divisors, counts, digests, *flags = said.T.tolist()
        active = [rank for rank, each in enumerate(steppers) if each >= 0]
        preparing = [bool(flags[3][rank]) for rank in active]
        if any(preparing) and not all(preparing):
            raise MXNetError(
                "the workers' programs do not run alike: the parameters that are trained have changed on some workers "
                "only. Change grad_req, or initialise parameters, in the same step on all workers"
            )
        same_stepper = len({steppers[rank] for rank in active}) == 1  # else the caller says so
        if same_stepper and len({digests[rank] for rank in active}) > 1 and (found := self._difference(active)):
            raise MXNetError(found)
        round = Round([int(each) for each in steppers], divisors, counts, *(any(each) for each in flags))
        self._catch_up(round)
        wrong = self._barriers.hear(round.steppers, round.reduces)
        if wrong and self._group.rank == 0:
            _log.warning(wrong)
        return round

    def _digested(self) -> int:
        """A number for what is compared."""
        settings, by_parameter = self._compared
        if by_parameter is not self._digest_of:  # long, and the same object while nothing changes
            self._digest_of, self._digest = by_parameter, zlib.crc32(repr(by_parameter).encode())
        return zlib.crc32(repr(settings).encode(), self._digest)

    def _difference(self, active: list[int]) -> str:
        """How the settings of two workers differ that step, if they do: each leaves its own in the store."""
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
                        f"and {theirs.get(name)!r} on worker {rank}. Set up the optimizer, the parameters (lr_mult, "
                        "wd_mult, grad_req) and the compression alike on all workers"
                    )
            for mine, name in zip(first, theirs, strict=True):
                if mine != name:
                    return (
                        f"all workers must have their parameters in the same order: worker {active[0]} has {mine} "
                        f"where worker {rank} has {name}"
                    )
        return ""  # numbers of different types that are equal

    def _catch_up(self, round: Round) -> None:
        """Remember whose weights fall behind in this round; when nobody steps, bring all up to date."""
        active = round.active
        if active and len(active) < len(round.steppers):
            self._behind[round.steppers[active[0]]] = active[0]
        elif not active:
            to_do, self._behind = self._behind, {}
            for number, source in sorted(to_do.items()):
                behind = self._steppers[number]
                if behind is not None:
                    behind.take_over(source)


def _doing(stepper: int) -> str:
    return {PAUSES: "waits", LEAVES: "has ended", BARRIER: "waits"}.get(stepper, f"steps its Trainer number {stepper}")


def _tell_of_steps(steps: list[int], which: str) -> None:
    """Log that workers had different numbers of batches."""
    if len(set(steps)) > 1:
        _log.warning(
            "the workers made different numbers of training steps%s: %s. Who had no batch took part with gradients of "
            "zero. mx.dist.shard(dataset) divides a dataset evenly; with an iterator, use equal parts",
            which,
            ", ".join(f"worker {rank} {count}" for rank, count in enumerate(steps)),
        )


def _tell_of_weights(sums: list[list[int]], names: list[str]) -> None:
    """Log that workers which trained one model end with different ones."""
    for rank, theirs in enumerate(sums):
        differing = [name for name, a, b in zip(names, sums[0], theirs, strict=False) if a != b]
        if differing or len(theirs) != len(sums[0]):
            _log.warning(
                "the workers end with different weights: %s of worker %d is not that of worker 0%s. Usually one worker "
                "has loaded or changed weights after its last step. Do that on all workers, or on none",
                differing[0] if differing else "the number of parameters",
                rank,
                f", and {len(differing) - 1} more differ" if len(differing) > 1 else "",
            )
            return
