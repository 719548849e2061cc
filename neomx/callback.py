"""Callbacks for training loops, called after a batch with (epoch, nbatch, eval_metric) or after an epoch."""

from __future__ import annotations

import itertools
import logging
import math
import time
from collections.abc import Callable
from typing import Any

from .model import save_checkpoint

__all__ = [
    "LogValidationMetricsCallback",
    "ProgressBar",
    "Speedometer",
    "do_checkpoint",
    "log_train_metric",
    "module_checkpoint",
    "save_checkpoint",
]


def module_checkpoint(
    mod: Any, prefix: str, period: int = 1, save_optimizer_states: bool = False
) -> Callable[..., None]:
    """Return a callback that saves a module's checkpoint after every `period`-th epoch."""

    def callback(iter_no: int, sym: Any = None, arg: Any = None, aux: Any = None) -> None:
        if (iter_no + 1) % max(1, period) == 0:
            mod.save_checkpoint(prefix, iter_no + 1, save_optimizer_states)

    return callback


def do_checkpoint(prefix: str, period: int = 1) -> Callable[..., None]:
    """Return a callback that saves the symbol and its parameters after every `period`-th epoch."""

    def callback(iter_no: int, sym: Any, arg: Any, aux: Any) -> None:
        if (iter_no + 1) % max(1, period) == 0:
            save_checkpoint(prefix, iter_no + 1, sym, arg, aux)

    return callback


def log_train_metric(period: int, auto_reset: bool = False) -> Callable[[Any], None]:
    """Return a callback that logs the metric after every `period`-th batch; `auto_reset` resets it after logging."""

    def callback(param: Any) -> None:
        if param.nbatch % period == 0 and param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Iter[%d] Batch[%d] Train-%s=%f", param.epoch, param.nbatch, name, value)
            if auto_reset:
                param.eval_metric.reset_local()

    return callback


class Speedometer:
    """Logs samples per second, and the metric, every `frequent` batches of `batch_size` samples.

    With `auto_reset`, the metric is reset after each line, so that a line covers the batches since the previous line.
    """

    def __init__(self, batch_size: int, frequent: int = 50, auto_reset: bool = True):
        self.batch_size, self.frequent, self.auto_reset = batch_size, frequent, auto_reset
        self.init, self.tic, self.last_count = False, 0.0, 0

    def __call__(self, param: Any) -> None:
        """Log the speed if `frequent` batches have passed."""
        count = param.nbatch
        if count < self.last_count:  # a new epoch has started
            self.init = False
        self.last_count = count
        if not self.init:
            self.init, self.tic = True, time.time()
        elif count % self.frequent == 0:
            self._log(param, count)
            self.tic = time.time()

    def _log(self, param: Any, count: int) -> None:
        seconds = time.time() - self.tic
        speed = self.frequent * self.batch_size / seconds if seconds else math.inf
        if param.eval_metric is None:
            logging.info("Iter[%d] Batch [%d]\tSpeed: %.2f samples/sec", param.epoch, count, speed)
            return
        values = param.eval_metric.get_name_value()
        first = count - self.frequent if self.auto_reset else 0
        if self.auto_reset:
            param.eval_metric.reset_local()
        line = "Epoch[%d] Batch [%d-%d]\tSpeed: %.2f samples/sec" + "\t%s=%f" * len(values)
        logging.info(line, param.epoch, first, count, speed, *itertools.chain(*values))


class ProgressBar:
    """Logs a progress bar of `length` characters for `total` batches."""

    def __init__(self, total: int, length: int = 80):
        self.total, self.bar_len = total, length

    def __call__(self, param: Any) -> None:
        """Log the progress bar."""
        filled = round(self.bar_len * param.nbatch / self.total)
        percent = math.ceil(100 * param.nbatch / self.total)
        logging.info("[%s] %s%%\r", "=" * filled + "-" * (self.bar_len - filled), percent)


class LogValidationMetricsCallback:
    """Logs the validation metric after an epoch."""

    def __call__(self, param: Any) -> None:
        """Log each value of the metric."""
        if param.eval_metric is not None:
            for name, value in param.eval_metric.get_name_value():
                logging.info("Epoch[%d] Validation-%s=%f", param.epoch, name, value)
