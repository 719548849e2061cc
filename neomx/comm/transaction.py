"""A training step as a transaction: all workers of an elastic job commit it, or none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ..process import state
from .store import PeerError


class Transaction(Protocol):
    """How the steps of this process survive the loss of other workers."""

    def run(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool = True) -> bool:
        """Call `attempt`, which receives all sums and returns the divisor, and then `apply`, which updates.

        Return False if the step was dropped: a worker was lost, and not all others had all sums. With `ends_step`
        False, the step goes on after `apply` with another call.
        """

    def recover(self, error: PeerError) -> None:
        """Go on without the workers that are gone, after a loss outside of a step. Raises if that is impossible."""

    @property
    def survives(self) -> bool:
        """Whether the loss of a worker is not an error."""


class _Fixed:
    """The steps of a job that needs all of its workers."""

    survives = False

    def run(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool = True) -> bool:
        apply(attempt())
        return True

    def recover(self, error: PeerError) -> None:
        raise error


_FIXED = _Fixed()


def transaction() -> Transaction:
    """Return how the steps of this process are made."""
    return state.transaction or _FIXED
