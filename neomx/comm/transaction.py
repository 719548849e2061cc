"""A training step as a transaction: all workers of an elastic job commit it, or none does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch

from ..process import state
from .seats import Seats
from .store import PeerError


class Transaction(Protocol):
    """How the steps of this process survive the loss of other workers."""

    def run(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool = True) -> bool:
        """Call `attempt`, which receives all sums and returns the divisor, and then `apply`, which updates.

        Return False if the step was dropped: a worker was lost, and not all others had all sums. With `ends_step`
        False, the step goes on after `apply` with another call.
        """

    def collect(self, work: Callable[[], Sequence[torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Call `work`, a collective of all workers, again if workers are lost in it, and return its result.

        The result must be the same on all workers: it may come from another one.
        """

    def recover(self, error: PeerError) -> bool:
        """Go on without the workers that are gone, after a loss while this one waited for all. Raises if it cannot.

        Return whether the others have passed the point where this worker waited.
        """

    def passed(self) -> None:
        """Note that this worker has waited for all others."""

    def begin_at(self, steps: int) -> None:
        """Continue a training that has made so many steps."""

    # ---- layouts, whose workers exchange values in forward and backward ----

    def take_seats(self, seats: Seats) -> None:
        """Sit in a layout, with all workers that use it."""

    def interrupt(self, error: PeerError) -> None:
        """Go on after a loss in a call among some workers.

        While a batch is trained, this worker is adrift until its step drops the batch. Otherwise the workers agree at
        once who goes on.
        """

    def expect_step(self) -> None:
        """Note that the current batch ends with a step."""

    @property
    def is_adrift(self) -> bool:
        """Whether calls among some workers have no result, because this worker does not train with others now."""

    @property
    def is_training(self) -> bool:
        """Whether this worker is in a batch that ends with a step."""

    @property
    def is_updating(self) -> bool:
        """Whether this worker updates its weights, which it cannot undo."""

    @property
    def survives(self) -> bool:
        """Whether the loss of a worker is not an error."""

    @property
    def position(self) -> int:
        """The samples of all workers in this epoch up to the current batch, or -1 if unknown."""

    @property
    def shares(self) -> int:
        """The number of workers that the batch of all is made for, if it does not change with their number; else 0."""

    @property
    def steps(self) -> int:
        """The number of steps that are committed, if they are counted."""


class _Fixed:
    """The steps of a job that needs all of its workers."""

    survives = is_adrift = is_training = is_updating = False
    position = -1
    shares = steps = 0

    def run(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool = True) -> bool:
        apply(attempt())
        return True

    def collect(self, work: Callable[[], Sequence[torch.Tensor]]) -> Sequence[torch.Tensor]:
        return work()

    def recover(self, error: PeerError) -> bool:
        raise error

    def passed(self) -> None:
        pass

    def begin_at(self, steps: int) -> None:
        pass

    def take_seats(self, seats: Seats) -> None:
        pass

    def interrupt(self, error: PeerError) -> None:
        raise error

    def expect_step(self) -> None:
        pass


_FIXED = _Fixed()


def transaction() -> Transaction:
    """Return how the steps of this process are made."""
    return state.transaction or _FIXED
