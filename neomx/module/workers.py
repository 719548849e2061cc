"""How a module's steps meet those of other workers, also of workers that have no data left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..comm.rounds import Round


class Steps:
    """Takes part in the workers' rounds. Who has no data makes the others' steps with gradients of zero.

    So weights and states stay the same everywhere, and nobody has to catch up.
    """

    def __init__(self, store: Any, step_with_zeros: Callable[[], None]):
        self._rounds, self._step_with_zeros = store.rounds, step_with_zeros
        self._number = self._rounds.enter(self)

    def begin(self, samples: int) -> float:
        """This worker steps now; when all have said what they do, the samples of all of them."""
        return self._rounds.step(self._number, 1.0, samples).all_samples

    def await_all(self) -> None:
        """Wait for the workers that still have data, taking part in their steps."""
        self._rounds.pause()

    def has_sent(self) -> bool:
        """Whether gradients of a step that has not come yet have left: they leave in steps only."""
        return False

    def shadow(self, round: Round) -> None:
        """Take part in the others' step."""
        self._step_with_zeros()

    def take_over(self, source: int) -> None:
        """Nothing is to be taken over: all made all steps."""


def steps_of(store: Any, step_with_zeros: Callable[[], None]) -> Steps | None:
    """The steps that a store's workers make together; None where each goes on by itself."""
    return Steps(store, step_with_zeros) if getattr(store, "begins_alike", False) else None
