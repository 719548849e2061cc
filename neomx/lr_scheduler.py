"""Learning rate schedules: the learning rate as a function of the number of updates."""

from __future__ import annotations

import logging
from math import cos, pi

__all__ = ["CosineScheduler", "FactorScheduler", "LRScheduler", "MultiFactorScheduler", "PolyScheduler"]


class LRScheduler:
    """The base of schedules: `scheduler(num_update)` returns the learning rate. `base_lr` is the initial value.

    During the first `warmup_steps` updates, the rate increases from `warmup_begin_lr` to `base_lr` ('linear') or stays
    at `warmup_begin_lr` ('constant').
    """

    def __init__(
        self, base_lr: float = 0.01, warmup_steps: int = 0, warmup_begin_lr: float = 0, warmup_mode: str = "linear"
    ):
        if not isinstance(warmup_steps, int):
            raise AssertionError(f"warmup_steps must be an int, received {warmup_steps!r}")
        self.base_lr: float = base_lr
        self.warmup_steps = warmup_steps
        self.warmup_final_lr = base_lr
        self.warmup_begin_lr = warmup_begin_lr
        self.warmup_mode = warmup_mode
        if warmup_begin_lr > base_lr:
            raise ValueError(f"warmup_begin_lr must not exceed base_lr {base_lr}, received {warmup_begin_lr}")
        if warmup_steps < 0:
            raise ValueError(f"warmup_steps must not be negative, received {warmup_steps}")
        if warmup_mode not in ("linear", "constant"):
            raise ValueError(f"warmup_mode must be 'linear' or 'constant', received {warmup_mode!r}")

    def get_warmup_lr(self, num_update: int) -> float:
        """Return the learning rate at an update during warmup."""
        if num_update >= self.warmup_steps:
            raise AssertionError(f"update {num_update} is after the warmup of {self.warmup_steps} updates")
        if self.warmup_mode == "constant":
            return self.warmup_begin_lr
        return self.warmup_begin_lr + (self.warmup_final_lr - self.warmup_begin_lr) * num_update / self.warmup_steps

    def __call__(self, num_update: int) -> float:
        """Return the learning rate after `num_update` updates."""
        raise NotImplementedError("subclasses of LRScheduler must define __call__(num_update)")


def _check_factor(factor: float) -> None:
    if factor > 1.0:
        raise ValueError(f"factor must not exceed 1, or the learning rate would grow; received {factor}")


def _check_step(step: int) -> None:
    if step < 1:
        raise ValueError(f"step must be at least 1 update, received {step}")


class FactorScheduler(LRScheduler):
    """Multiplies the learning rate by `factor` every `step` updates, but not below `stop_factor_lr`."""

    def __init__(
        self,
        step: int,
        factor: float = 1,
        stop_factor_lr: float = 1e-8,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        _check_step(step)
        _check_factor(factor)
        self.step = step
        self.factor = factor
        self.stop_factor_lr = stop_factor_lr
        self.count = 0

    def __call__(self, num_update: int) -> float:
        """Return the rate after `num_update` updates, which must not decrease: `base_lr` is changed in place."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while num_update > self.count + self.step:
            self.count += self.step
            self.base_lr *= self.factor
            if self.base_lr < self.stop_factor_lr:
                self.base_lr = self.stop_factor_lr
                logging.info(
                    "Update[%d]: now learning rate arrived at %0.5e, will not change in the future",
                    num_update,
                    self.base_lr,
                )
            else:
                _tell(num_update, self.base_lr)
        return self.base_lr


class MultiFactorScheduler(LRScheduler):
    """Multiplies the learning rate by `factor` after each number of updates in the list `step`."""

    def __init__(
        self,
        step: list[int],
        factor: float = 1,
        base_lr: float = 0.01,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(step, list) or not step:
            raise AssertionError(f"step must be a nonempty list of numbers of updates, received {step!r}")
        for i, each in enumerate(step):
            if i and each <= step[i - 1]:
                raise ValueError(f"step must be an increasing list of integers, received {step}")
            _check_step(each)
        _check_factor(factor)
        self.step = step
        self.cur_step_ind = 0
        self.factor = factor
        self.count = 0

    def __call__(self, num_update: int) -> float:
        """Return the rate after `num_update` updates, which must not decrease: `base_lr` is changed in place."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        while self.cur_step_ind < len(self.step) and num_update > self.step[self.cur_step_ind]:
            self.count = self.step[self.cur_step_ind]
            self.cur_step_ind += 1
            self.base_lr *= self.factor
            _tell(num_update, self.base_lr)
        return self.base_lr


def _tell(num_update: int, lr: float) -> None:
    logging.info("Update[%d]: Change learning rate to %0.5e", num_update, lr)


class _Falling(LRScheduler):
    """Decreases the learning rate from `base_lr` to `final_lr`, which is reached at `max_update`."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(base_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        if not isinstance(max_update, int):
            raise AssertionError(f"max_update must be an int, received {max_update!r}")
        if max_update < 1:
            raise ValueError(f"max_update must be positive, received {max_update}")
        self.base_lr_orig = base_lr
        self.max_update = max_update
        self.final_lr = final_lr
        self.max_steps = max_update - warmup_steps

    def _left(self, part: float) -> float:
        """The remaining fraction of the decrease to `final_lr`, from 1 to 0, after the fraction `part` of updates."""
        raise NotImplementedError

    def __call__(self, num_update: int) -> float:
        """Return the learning rate after `num_update` updates."""
        if num_update < self.warmup_steps:
            return self.get_warmup_lr(num_update)
        if num_update <= self.max_update:
            left = self._left((num_update - self.warmup_steps) / self.max_steps)
            self.base_lr = self.final_lr + (self.base_lr_orig - self.final_lr) * left
        return self.base_lr


class PolyScheduler(_Falling):
    """Decreases to `final_lr` in proportion to the remaining fraction of updates, raised to the power `pwr`."""

    def __init__(
        self,
        max_update: int,
        base_lr: float = 0.01,
        pwr: float = 2,
        final_lr: float = 0,
        warmup_steps: int = 0,
        warmup_begin_lr: float = 0,
        warmup_mode: str = "linear",
    ):
        super().__init__(max_update, base_lr, final_lr, warmup_steps, warmup_begin_lr, warmup_mode)
        self.power = pwr

    def _left(self, part: float) -> float:
        return (1 - part) ** self.power


class CosineScheduler(_Falling):
    """Decreases to `final_lr` along half a cosine wave."""

    def _left(self, part: float) -> float:
        return (1 + cos(pi * part)) / 2
