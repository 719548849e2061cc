"""A part of a program that restores its state itself after a loss, and in which workers join, as with Horovod's API."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import torch

from ..base import MXNetError
from ..comm import session
from ..comm.generations import Generations
from ..comm.seats import Seats
from ..comm.store import PeerError
from ..process import state
from .training import Elastic, running

_MOST_FAILURES = 2  # in a row, among the same workers


class ByProgram:
    """The transaction of such a part: a loss raises `failure` in all calls of all workers, which then `regroup`."""

    survives = True
    is_adrift = is_training = is_updating = False
    position = -1
    shares = 0

    def __init__(self, elastic: Elastic, failure: Callable[[str], PeerError]) -> None:
        self._elastic, self._failure = elastic, failure
        self._failures = 0  # without progress, among the same workers

    # ---- what raises ----

    @property
    def steps(self) -> int:
        """The steps that were committed before this part of the program."""
        return self._elastic.steps

    def run(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool = True) -> bool:
        """Make a step, or raise."""
        try:
            apply(attempt())
        except PeerError as error:
            self.recover(error)
        return True

    def collect(self, work: Callable[[], Sequence[torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Make a collective call, or raise."""
        try:
            return work()
        except PeerError as error:
            self.recover(error)

    def recover(self, error: PeerError) -> NoReturn:
        """Raise the error as the program expects it."""
        raise self._failure(str(error)) from None

    def passed(self) -> None:
        """Do nothing: the program itself says where it continues."""

    def take_seats(self, seats: Seats) -> None:
        """Raise: the program restores its state, but has only a part of it."""
        raise MXNetError("functions that restart after a loss cannot use a layout. Use the loop of mx.elastic.epochs")

    def interrupt(self, error: PeerError) -> None:
        """Raise the error as the program expects it."""
        self.recover(error)

    def expect_step(self) -> None:
        """Do nothing: each call raises after a loss."""

    def begin_at(self, steps: int) -> None:
        """Continue a training that has made so many steps."""
        self._elastic.begin_at(steps)

    # ---- what the program calls ----

    @property
    def must_join(self) -> bool:
        """Whether this worker was started after the others, which have not admitted it yet."""
        return not self._generations.admitted

    def join(self) -> bool:
        """Wait until the others admit this worker. Return False if they are past this part of the program."""
        return self._elastic.join_part()

    def are_waiting(self) -> bool:
        """Whether workers wait to join. Asked by one worker."""
        return self._elastic.are_waiting()

    def progressed(self) -> None:
        """Note that the program has reached a point from which it would continue."""
        self._failures = 0

    def regroup(self, loss: PeerError | None) -> bool:
        """Go on with the workers that are left and those that wait to join. All of them call this.

        Without a loss, all workers must have agreed to call it. Raises if a loss repeats among the same workers: then
        it is an error of the program. Return False if the others have gone on without this worker, and are past this
        part of the program.
        """
        before = self._generations.current.members
        generation = self._elastic.regroup(loss)
        if generation is None:
            return False
        rounds = session.session().rounds
        for stepper in rounds.steppers:
            if stepper.has_begun:
                stepper.drop_step()
        rounds.forget_steps()
        is_same = loss is not None and generation.members == before
        self._failures = self._failures + 1 if is_same else 0
        if self._failures >= _MOST_FAILURES:
            raise MXNetError(
                f"the program failed {self._failures} times without a commit in between, although no worker was lost: "
                f"{loss}"
            )
        return True

    @property
    def _generations(self) -> Generations:
        found = session.session().generations
        assert found is not None
        return found

    def tell_place(self) -> None:
        """Tell workers that wait to join that the training is in this part of the program."""
        self._elastic.tell_part()

    def begin(self) -> None:
        """Prepare the next step, after the program has restored its state on all workers."""
        session.session().rounds.begin_generation()
        self._elastic.has_state()


@contextmanager
def by_program(failure: Callable[[str], PeerError]) -> Iterator[ByProgram]:
    """Let the program restore its state after a loss, within the block. The batch of each worker then stays the same.

    A loss raises `failure(text)` on all workers.
    """
    elastic, opened = running(), session.session()
    assert elastic is not None and opened.world.limits is not None
    scales = opened.world.limits.scales
    made = ByProgram(elastic, failure)
    with elastic.aside(made):
        opened.scale_batches(True)
        try:
            yield made
        finally:
            opened.scale_batches(scales)


def current() -> ByProgram | None:
    """Return the part of the program that this process is in, if it restores its state itself."""
    found = state.transaction
    return found if isinstance(found, ByProgram) else None
