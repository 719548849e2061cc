"""CheckpointHandler: saves the model and the training state to files, and resumes from them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from ....metric import EvalMetric
from ...block import HybridBlock
from .events import BatchEnd, EpochEnd, TrainBegin
from .improvement import is_nan, operator_for, warn_of_nan, worst

if TYPE_CHECKING:
    from .estimator import Estimator


class CheckpointHandler(TrainBegin, BatchEnd, EpochEnd):
    """Saves `<prefix>-epoch<E>batch<B>.params` and `.states` every few epochs or batches, and the graph once.

    The newest `max_checkpoints` are kept. With `save_best`, `<prefix>-best` has the best value of `monitor`. While
    `monitor` is NaN, the last checkpoint before that is kept as well. `resume_from_checkpoint` loads the newest
    checkpoint and trains for the remaining epochs or batches.
    """

    def __init__(
        self,
        model_dir: str,
        model_prefix: str = "model",
        monitor: EvalMetric | None = None,
        verbose: int = 0,
        save_best: bool = False,
        mode: str = "auto",
        epoch_period: int | None = 1,
        batch_period: int | None = None,
        max_checkpoints: int = 5,
        resume_from_checkpoint: bool = False,
    ):
        os.makedirs(model_dir, exist_ok=True)
        self.monitor = monitor
        self.verbose = verbose
        self.model_dir = model_dir
        self.model_prefix = model_prefix
        self.save_best = save_best
        if save_best:
            if not isinstance(monitor, EvalMetric):
                raise ValueError(
                    "To save best model only, please provide one of the metric objects from estimator.train_metrics "
                    f"and estimator.val_metrics as monitor, received {monitor!r}."
                )
            self.monitor_op = operator_for(monitor, mode)
            self.best = worst(self.monitor_op)
        self.epoch_period = epoch_period
        self.batch_period = batch_period
        self.max_checkpoints = max_checkpoints
        self.resume_from_checkpoint = resume_from_checkpoint
        self.saved_checkpoints: list[str] = []
        self.current_batch = self.current_epoch = 0
        self._last_good: str | None = None

    def train_begin(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Reset the counters. Load the newest checkpoint first if resuming was requested."""
        self.current_epoch = self.current_batch = 0
        if self.resume_from_checkpoint:
            self._check_period(estimator)
            self._resume_from_checkpoint(estimator)

    def batch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Save at the end of a period of batches. Save the graph after the first batch."""
        if self.current_batch == 0:
            self._save_symbol(estimator)
        if self.batch_period and (self.current_batch + 1) % self.batch_period == 0:
            self._save_checkpoint(estimator, trained=self.current_batch + 1)
        self.current_batch += 1

    def epoch_end(self, estimator: Estimator, *args: Any, **kwargs: Any) -> None:
        """Save at the end of a period of epochs."""
        if self.epoch_period and (self.current_epoch + 1) % self.epoch_period == 0:
            self._save_checkpoint(estimator, trained=self.current_batch)
        self.current_epoch += 1

    # ---- saving ----

    def _path(self, name: str) -> str:
        return os.path.join(self.model_dir, name)

    def _save_symbol(self, estimator: Estimator) -> None:
        path = self._path(f"{self.model_prefix}-symbol.json")
        graph = estimator.net._last_graph if isinstance(estimator.net, HybridBlock) else None
        if graph is not None:
            graph.symbol.save(path)
            return
        estimator.logger.info(
            "Model architecture(symbol file) is not saved, please use HybridBlock to construct your model, and call "
            "net.hybridize() before passing to Estimator in order to save model architecture as %s.",
            path,
        )

    def _checkpoint_name(self, estimator: Estimator) -> str:
        """Return the name. At batch ends the batch index starts from 0, at epoch ends it is the count, as in MXNet."""
        epoch, batch = self.current_epoch, self.current_batch
        if self.resume_from_checkpoint:
            epoch += self.trained_epoch + 1
            batch += self.trained_batch + (1 if estimator.max_batch else 0)
        return f"{self.model_prefix}-epoch{epoch}batch{batch}"

    def _save_checkpoint(self, estimator: Estimator, trained: int) -> None:
        name = self._checkpoint_name(estimator)
        if self.verbose > 0:
            estimator.logger.info(
                "[Epoch %d] CheckpointHandler: trained total %d batches, saving model at %s with prefix: %s",
                *(self.current_epoch, trained, self.model_dir, name),
            )
        self._save_params_and_trainer(estimator, name)
        diverged = isinstance(self.monitor, EvalMetric) and is_nan(self.monitor)
        if not diverged:
            self._last_good = name
        self._remember(name)
        if self.save_best:
            self._save_best(estimator)
        elif diverged:
            assert self.monitor is not None
            warn_of_nan(self.monitor, self.current_epoch, f"The last good checkpoint is {self._last_good}")

    def _save_params_and_trainer(self, estimator: Estimator, file_prefix: str) -> None:
        """Write the states first: a checkpoint is found by its parameters, so it is then complete."""
        estimator.trainer.save_states(self._path(file_prefix + ".states"))
        estimator.net.save_parameters(self._path(file_prefix + ".params"))

    def _remember(self, name: str) -> None:
        """Delete old checkpoints, except the newest ones and the last good one."""
        if name in self.saved_checkpoints:
            self.saved_checkpoints.remove(name)
        self.saved_checkpoints.append(name)
        while len(self.saved_checkpoints) > max(self.max_checkpoints, 0):
            spare = [old for old in self.saved_checkpoints if old != self._last_good or not self.max_checkpoints > 0]
            if not spare:
                return
            self.saved_checkpoints.remove(spare[0])
            for ending in (".params", ".states"):
                if os.path.exists(self._path(spare[0] + ending)):
                    os.remove(self._path(spare[0] + ending))

    def _save_best(self, estimator: Estimator) -> None:
        assert self.monitor is not None
        metric, value = self.monitor.get()
        name = f"{self.model_prefix}-best"
        if np.isnan(value):
            warn_of_nan(self.monitor, self.current_epoch, f"Skipping save best: {name} stays at {self.best:.5f}")
        elif self.monitor_op(value, self.best):
            self._save_params_and_trainer(estimator, name)
            if self.verbose > 0:
                estimator.logger.info(
                    "[Epoch %d] CheckpointHandler: %s improved from %0.5f to %0.5f, updating best model at %s with "
                    "prefix: %s",
                    *(self.current_epoch, metric, self.best, value, self.model_dir, name),
                )
            self.best = value
        elif self.verbose > 0:
            estimator.logger.info(
                "[Epoch %d] CheckpointHandler: %s did not improve from %0.5f, skipping updating best model",
                *(self.current_epoch, metric, self.best),
            )

    # ---- resuming ----

    def _check_period(self, estimator: Estimator) -> None:
        wrong = self.batch_period if estimator.max_epoch else self.epoch_period
        if wrong:
            raise AssertionError(
                "To use resume from checkpoint, you must only specify the same type of period you used for training: "
                "training by epochs needs batch_period=None, training by batches needs epoch_period=None. Received "
                f"epoch_period={self.epoch_period}, batch_period={self.batch_period}"
            )

    def _resume_from_checkpoint(self, estimator: Estimator) -> None:
        """Load the newest checkpoint and reduce the estimator's epochs or batches to the remaining ones."""
        self.trained_epoch, self.trained_batch = max(self._checkpoints(), default=(-1, -1))
        if self.trained_epoch == -1:
            estimator.logger.info(
                "CheckpointHandler: No checkpoint found, training from scratch for %s", _amount(estimator)
            )
            return
        if estimator.max_epoch:
            estimator.max_epoch = _remaining(estimator.max_epoch, self.trained_epoch, "epoch")
        else:
            estimator.max_batch = _remaining(estimator.max_batch, self.trained_batch, "batch")
        self._load(estimator, f"{self.model_prefix}-epoch{self.trained_epoch}batch{self.trained_batch}")
        estimator.logger.info(
            "CheckpointHandler: Checkpoint resumed from epoch %d batch %d, continue to train for %s ",
            *(self.trained_epoch, self.trained_batch, _amount(estimator)),
        )

    def _checkpoints(self) -> list[tuple[int, int]]:
        """Return the (epoch, batch) of every checkpoint in the directory."""
        start, found = f"{self.model_prefix}-epoch", []
        for name in os.listdir(self.model_dir):
            if name.startswith(start) and name.endswith(".params"):
                numbers = re.fullmatch(r"(\d+)batch(\d+)\.params", name[len(start) :])
                if numbers is None:
                    raise ValueError(
                        f"cannot determine the epoch of checkpoint file {self._path(name)}: its name should be "
                        f"{start}<number>batch<number>.params. Rename or remove it"
                    )
                found.append((int(numbers[1]), int(numbers[2])))
        return found

    def _load(self, estimator: Estimator, name: str) -> None:
        for ending in (".params", ".states"):
            if not os.path.exists(self._path(name + ending)):
                raise AssertionError(f"Failed to load checkpoint, {self._path(name + ending)} does not exist")
        estimator.net.load_parameters(self._path(name + ".params"), ctx=estimator.context)
        estimator.trainer.load_states(self._path(name + ".states"))


def _amount(estimator: Estimator) -> str:
    return f"{estimator.max_epoch} epochs" if estimator.max_epoch else f"{estimator.max_batch} batches"


def _remaining(wanted: Any, last: int, unit: str) -> int:
    """Return how many of `wanted` are left after the one with the 0-based index `last`."""
    if last + 1 >= wanted:
        raise ValueError(
            f"Found checkpoint with maximum number of {unit} {last + 1} reached, {wanted} were requested. Please "
            "specify resume_from_checkpoint=False (default value) if you want to train from scratch."
        )
    return wanted - last - 1
