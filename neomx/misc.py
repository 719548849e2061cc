"""`mx.misc`: the learning rate schedules of early MXNet versions."""

from __future__ import annotations

__all__ = ["FactorScheduler", "LearningRateScheduler"]


class LearningRateScheduler:
    """The base class of learning rate schedules. Override `__call__`."""

    base_lr = 0.01

    def __call__(self, iteration: int) -> float:
        """Return the learning rate of an iteration."""
        raise NotImplementedError(f"{type(self).__name__} must override __call__")


class FactorScheduler(LearningRateScheduler):
    """Multiplies the learning rate by `factor` every `step` iterations."""

    def __init__(self, step: int, factor: float = 0.1):
        if step < 1:
            raise ValueError(f"step must be at least 1, received {step}")
        if factor >= 1.0:
            raise ValueError(f"factor must be less than 1, so that the rate decreases, received {factor}")
        self.step, self.factor = step, factor

    def __call__(self, iteration: int) -> float:
        """Return the learning rate of an iteration."""
        return float(self.base_lr * self.factor ** (iteration // self.step))
