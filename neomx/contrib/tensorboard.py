"""mx.contrib.tensorboard: a callback that writes training metrics for TensorBoard."""

from __future__ import annotations

from typing import Any

from ..base import MXNetError


class LogMetricsCallback:
    """Write each metric as a scalar to `logging_dir` after a batch or an epoch, with the epoch as the step.

    `prefix` is prepended to the names of metrics: `prefix-accuracy`. The file is flushed after each call.
    """

    def __init__(self, logging_dir: str, prefix: str | None = None):
        self.prefix = prefix
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MXNetError('TensorBoard output needs its package: pip install "neomx[tensorboard]"') from error
        self.summary_writer = SummaryWriter(log_dir=logging_dir)

    def __call__(self, param: Any) -> None:
        if param.eval_metric is None:
            return
        for name, value in param.eval_metric.get_name_value():
            tag = name if self.prefix is None else f"{self.prefix}-{name}"
            self.summary_writer.add_scalar(tag, value, global_step=param.epoch)
        self.summary_writer.flush()
