"""One device: gradients are not exchanged. Several contexts without a store update independently."""

from __future__ import annotations

from .strategy import StepStrategy


class OneDevice(StepStrategy):
    """Update every replica with its own gradient."""

    exchanges = False

    def step(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update."""
        self.follow()
        self.update_each(divisor, ignore_stale)

    def reduce(self) -> None:
        """Do nothing: there is nothing to sum."""

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update."""
        self.step(divisor, ignore_stale)
