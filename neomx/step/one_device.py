"""One device: gradients meet nobody. Several contexts without a store each go their own way."""

from __future__ import annotations

from .strategy import StepStrategy


class OneDevice(StepStrategy):
    """Every replica is updated by its own gradient."""

    exchanges = False

    def step(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update."""
        self.follow()
        self.update_each(divisor, ignore_stale)

    def reduce(self) -> None:
        """Nothing is to be summed."""

    def update(self, divisor: float, ignore_stale: bool = False) -> None:
        """Update."""
        self.step(divisor, ignore_stale)
