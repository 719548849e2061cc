"""Checkpointer: saves the state of a training every some steps, and restores it."""

from __future__ import annotations

import copy
import logging
import os
import secrets
from collections.abc import Iterator
from typing import Any, Literal, NoReturn

import torch

from .. import process
from ..base import MXNetError
from ..comm import session
from ..gluon import Block, Trainer
from ..gluon.data import DataLoader
from . import folder, reading
from .manifest import CheckpointError
from .positions import Positions
from .preemption import EXIT_CODE, Preemption
from .state import Content, Snapshot, Training, check_plain, restore_generators
from .writer import Target, Writer

_log = logging.getLogger("neomx")


class Checkpointer:
    """Saves checkpoints of a training in `directory`, in the background, and restores the newest one that is whole.

    A checkpoint contains the parameters of `net` and `trainer`, the states of the optimizer, its schedule and the loss
    scale, all random generators of this process, the position in the data of `loader`, and `extra`, a dict of plain
    JSON values, which `restore` updates.

    - `every`: `step` saves after this number of steps. Without it, only `save` and `report` do.
    - `keep`: how many of the newest checkpoints are kept; None keeps all.
    - `best`: "max" or "min" also keeps the checkpoint with the best metric of `save(metric=...)` and `report(value)`.
    - `signals`: on SIGTERM or SIGUSR1, save at the next step and exit with code 75.

    In a job of several workers, all of them create it and call its methods at the same steps. Each writes a part of a
    checkpoint. Any number of workers can restore it.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        net: Block | None = None,
        trainer: Trainer | None = None,
        loader: DataLoader | None = None,
        every: int | None = None,
        keep: int | None = 3,
        best: Literal["max", "min"] | None = None,
        extra: dict[str, Any] | None = None,
        signals: bool = True,
    ):
        _check_arguments(net, trainer, every, keep, best)
        self.directory = os.path.abspath(os.fspath(directory))
        self.extra: dict[str, Any] = {} if extra is None else extra
        check_plain(self.extra, "extra")
        self.epoch = 0  # the epoch in which the training is, or starts
        self._every, self._best = every, best
        self._training = Training(net, trainer)
        self._positions = Positions([] if loader is None else [loader])
        self._workers = _Workers(trainer)
        self._writer = Writer(self._opened(keep, best))
        self._own = 0  # steps of this worker
        self._saved = 0  # the last step that was saved or restored
        self._metric = (-1, 0.0)  # the last metric, and its step
        self._first_pass: int | None = None  # the number of the loader's next pass at the start of this epoch
        self._preemption = Preemption(self._workers.ask_to_stop) if signals else None
        self._name = f"checkpoint {id(self)}"
        process.start(self._name, lambda: _AtExit(self))

    def _opened(self, keep: int | None, best: str | None) -> Target:
        """Create the directory, and agree with the other workers on a token."""
        workers = self._workers
        problem = ""
        if workers.rank == 0:
            try:
                os.makedirs(self.directory, exist_ok=True)
                folder.remove_unfinished(self.directory)
            except OSError as error:
                problem = error.strerror or str(error)
        token = workers.from_first(-1 if problem else secrets.randbits(48), "a token for checkpoints")
        if token < 0:
            raise CheckpointError(f"cannot use {self.directory} for checkpoints: {problem or 'see worker 0'}")
        return Target(self.directory, workers.rank, workers.size, f"{token:012x}", workers.timeout, keep, best)

    # ---- saving ----

    @property
    def steps(self) -> int:
        """The number of steps of the training, including those before a resume."""
        return self._own + self._workers.joined()

    def step(self) -> None:
        """Count a step, and save if it is time. Call it at the end of the loop over the batches.

        Raises CheckpointError if an earlier checkpoint could not be written. After SIGTERM or SIGUSR1, this saves and
        raises SystemExit with code 75.
        """
        self._writer.check()
        self._own += 1
        if not self._workers.all_have_data():  # a worker without a batch cannot save now
            return
        if self._workers.told_to_stop():
            self._save_and_exit()
        if self._every is not None and self.steps // self._every > self._saved // self._every:
            self.save()

    def save(self, metric: float | None = None) -> None:
        """Save now. Returns when the state is copied; files are written in the background (see `wait`)."""
        self._writer.check()
        check_plain(self.extra, "extra")
        workers = self._workers
        tensors, facts = self._training.copy(workers.rank, workers.size)
        facts |= {"epoch": self._epoch_to_resume(), "extra": self.extra, "counters": {"steps": self.steps}}
        self._saved = self.steps
        if metric is not None:
            self._metric = self.steps, float(metric)
        rated = self._metric[1] if self._metric[0] == self.steps else None
        self._writer.write(Snapshot(self.steps, tensors, copy.deepcopy(facts), self._positions.facts(), rated))

    def report(self, value: float) -> bool:
        """Save if `value` is better than that of all kept checkpoints, and return whether it is. Requires `best`."""
        if self._best is None:
            raise MXNetError("report needs to know which values are better: pass best='max' or best='min'")
        self._writer.wait()
        before = folder.best_of(folder.readable(self.directory), self._best) if self._workers.rank == 0 else None
        is_better = before is None or before.metric is None or self._is_better(float(value), before.metric)
        if self._workers.from_first(int(is_better), "the best metric") != 1:
            return False
        self.save(metric=value)
        return True

    def _is_better(self, value: float, than: float) -> bool:
        return value > than if self._best == "max" else value < than

    def wait(self) -> None:
        """Wait until this worker has written everything. Raise if it failed."""
        self._writer.wait()

    def close(self) -> None:
        """Wait until everything is written, and stop listening to signals. Raise if the last checkpoint failed."""
        process.state.running.pop(self._name, None)
        if self._preemption is not None:
            self._preemption.close()
        self._writer.wait()

    def _save_and_exit(self) -> NoReturn:
        self.save()
        self._writer.wait()
        self._workers.meet("saving a checkpoint before the end")
        if self._workers.rank == 0:
            _log.warning("told to stop: saved step %d in %s, exit code %d", self.steps, self.directory, EXIT_CODE)
        self.close()
        raise SystemExit(EXIT_CODE)

    # ---- restoring ----

    def restore(self, directory: str | os.PathLike[str] | None = None) -> bool:
        """Restore the newest checkpoint that is whole, of this or another directory. Return whether there is one.

        Call it immediately before the loop of the training. Raises CheckpointError if the checkpoint belongs to another
        model, or if there are checkpoints and none of them is whole.
        """
        content = self.load(directory)
        if content is None:
            return False
        self._positions.restore(content, self._workers.rank, self._workers.size)
        restore_generators(content, self._workers.rank)
        return True

    def load(self, directory: str | os.PathLike[str] | None = None) -> Content | None:
        """Restore all but the position in the data and the random generators. Return what was read, or None."""
        source = self.directory if directory is None else os.path.abspath(os.fspath(directory))
        self._writer.wait()
        content = self._workers.newest(source)
        if content is None:
            return None
        self._training.restore(content, self._workers.rank, self._workers.size)
        self._own = content.step - self._workers.joined()
        self._saved = content.step
        self.epoch = int(content.facts.get("epoch", 0))
        self.extra.clear()
        self.extra.update(content.facts.get("extra", {}))
        if self._workers.rank == 0:
            _log.info("restored step %d from %s", content.step, source)
        return content

    # ---- loaders and epochs ----

    @property
    def workers(self) -> int:
        """The number of workers that save together."""
        return self._workers.size

    def follow(self, loaders: list[DataLoader], active: DataLoader) -> None:
        """Save the positions of these loaders, of which `active` has the training data."""
        self._positions.loaders, self._positions.active = loaders, active

    def epochs(self, count: int) -> Iterator[int]:
        """Iterate over the numbers of epochs up to `count`, from the one to resume."""
        for number in range(self.epoch, count):
            self.epoch, self._first_pass = number, self._positions.epoch()
            yield number
        self.epoch = max(self.epoch, count)

    def _epoch_to_resume(self) -> int:
        """The current epoch, or the next one after the pass over the data has ended."""
        now = self._positions.epoch()
        if now is None:
            return self.epoch
        return now if self._first_pass is None else self.epoch + (now > self._first_pass)


class _AtExit:
    """Closes a Checkpointer when the program ends, and logs an error that nobody can catch."""

    def __init__(self, owner: Checkpointer):
        self._owner = owner

    def close(self) -> None:
        try:
            self._owner.close()
        except MXNetError as error:
            _log.error("%s", error)


class _Workers:
    """The workers that save together: this process alone, or all of a job."""

    def __init__(self, trainer: Trainer | None):
        world = session.session().world
        self.rank, self.size, self.timeout = world.rank, world.size, world.timeout
        self._stop = False
        self._strategy = trainer.strategy if trainer is not None and world.size > 1 else None
        self._rounds = None if self._strategy is None else self._strategy.rounds
        if self._strategy is not None and self._rounds is None:
            raise CheckpointError(
                f"{world.size} workers share the directory, but this Trainer does not sum gradients over them. Create "
                "it with kvstore='dist_sync', or mx.parallel.data_parallel(net)"
            )

    def joined(self) -> int:
        """The number of steps of other workers for which this one had no data."""
        return 0 if self._rounds is None or self._strategy is None else self._rounds.joined[self._strategy.number]

    def all_have_data(self) -> bool:
        """Whether all workers had a batch in the last step."""
        return self._rounds is None or self._rounds.is_complete

    def ask_to_stop(self) -> None:
        """Tell all workers to stop, in their next round. Called by a signal handler."""
        if self._rounds is None:
            self._stop = True
        else:
            self._rounds.asks_to_stop = True

    def told_to_stop(self) -> bool:
        """Whether a worker was told to stop, as all workers know at the same step."""
        return self._stop if self._rounds is None else self._rounds.stops

    def from_first(self, value: int, what: str) -> int:
        """Return the value of worker 0."""
        if self.size == 1:
            return value
        group = session.session().group
        return int(group.all_gather_small(torch.tensor([value], dtype=torch.int64), what=what)[0])

    def meet(self, what: str) -> None:
        """Wait for all workers, however long they take."""
        if self.size > 1:
            session.session().group.wait_for_all(what)

    def newest(self, directory: str) -> Content | None:
        """Return the newest whole checkpoint, which worker 0 chooses for all."""
        found, problem = None, None
        if self.rank == 0:
            try:
                found = folder.newest_whole(directory)
            except CheckpointError as error:
                problem = error
        chosen = self.from_first(-2 if problem else -1 if found is None else found.step, "which checkpoint to restore")
        if problem is not None:
            raise problem
        if chosen == -2:
            raise CheckpointError(f"worker 0 cannot restore a checkpoint from {directory}: see its error")
        if chosen == -1:
            return None
        return reading.read_step(directory, chosen)


def _check_arguments(
    net: Block | None, trainer: Trainer | None, every: int | None, keep: int | None, best: str | None
) -> None:
    if net is None and trainer is None:
        raise MXNetError("there is nothing to save: pass net=, trainer= or both")
    for name, value in (("every", every), ("keep", keep)):
        if value is not None and (type(value) is not int or value < 1):
            raise MXNetError(f"{name} must be an int of at least 1, or None; received {value!r}")
    if best not in (None, "max", "min"):
        raise MXNetError(f"best must be 'max', 'min' or None, received {best!r}")
