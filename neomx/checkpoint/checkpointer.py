"""Checkpointer: saves the state of a training every some steps, and restores it."""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch

from .. import process
from ..base import MXNetError
from ..comm.session import end_with_process
from ..comm.transaction import transaction
from ..events import subscribe_each
from ..gluon import Block, Trainer
from ..module import BaseModule
from ..module.progress import Fit
from . import choosing, folder, generators
from .copies import Copies, copies_of
from .manifest import CheckpointError
from .places import Fits, Place
from .positions import Loader, Positions, check_loader
from .preemption import EXIT_CODE, Preemption
from .snapshot import take
from .state import Content, Training, check_plain
from .storage import open_storage
from .workers import Workers
from .writer import Target, Writer

_log = logging.getLogger("neomx")


class Checkpointer:
    """Saves checkpoints of a training in `directory`, in the background, and restores the newest one that is whole.

    A checkpoint contains the parameters of `net` and `trainer`, or of `module`, the states of the optimizer, its
    schedule and the loss scale, all random generators of this process, the position in the data of `loader`, and
    `extra`, a dict of plain JSON values, which `restore` updates.

    - `directory`: a path, or a URL for fsspec such as s3://bucket/run. `storage_options` are those of its file system.
    - `loader`: a DataLoader or an iterator, or a list of them, of which the first has the training data.
    - `every`: `step` saves after this number of steps. Without it, only `save` and `report` do.
    - `keep`: how many of the newest checkpoints are kept; None keeps all.
    - `best`: "max" or "min" also keeps the checkpoint with the best metric of `save(metric=...)` and `report(value)`.
    - `signals`: on SIGTERM or SIGUSR1, save at the next step and exit with code 75.
    - `peer_copies`: with 1, each worker also keeps a copy of the part of another one in memory.

    In a job of several workers, all of them create it and call its methods at the same steps. Each writes a part of a
    checkpoint. Any number of workers, with any layout, can restore it. `Module.fit` counts the steps itself.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        net: Block | None = None,
        trainer: Trainer | None = None,
        loader: Loader | Sequence[Loader] | None = None,
        every: int | None = None,
        keep: int | None = 3,
        best: Literal["max", "min"] | None = None,
        extra: dict[str, Any] | None = None,
        signals: bool = True,
        module: BaseModule | None = None,
        peer_copies: int = 0,
        storage_options: Mapping[str, Any] | None = None,
    ):
        _check_arguments(every, keep, best, peer_copies)
        self.extra: dict[str, Any] = {} if extra is None else extra
        check_plain(self.extra, "extra")
        self.epoch = 0  # the epoch in which the training is, or starts
        self._every, self._best, self._options = every, best, storage_options
        self._training = Training(net, trainer, module)
        self._positions = Positions(_listed(loader))
        self._workers = Workers(self._training.subject)
        self._workers.check()
        self._storage = open_storage(directory, storage_options)
        self._name = f"checkpoints in {self._storage.url}"
        process.stop(self._name)  # another one of this process, for example of an earlier cell of a notebook
        self._copies: Copies | None = None
        if peer_copies and self._workers.size > 1:
            self._copies = copies_of(self._storage.url)
        self._has_claimed, self._kept = False, (keep, best)
        self._writer = self._opened(keep, best)
        self._own = 0  # steps of this worker
        self._saved = 0  # the last step that was saved or restored
        self._metric = (-1, 0.0)  # the last metric, and its step
        self._passes: int | None = None  # the number of the loader's passes at the start of this epoch
        self._fits = None if module is None else Fits(self._training, self._positions, self._workers, self._count)
        self._pending: Content | None = None  # to restore after a layout is applied
        self._random: dict[str, torch.Tensor] = {}  # the generators before a layout is applied
        self._is_closed = False
        self._preemption = Preemption(self._workers.ask_to_stop) if signals else None
        self._stops = subscribe_each(layout_begin=self._begin_layout, layout=self._end_layout)
        process.start(self._name, lambda: _AtExit(self))

    @property
    def directory(self) -> str:
        """The absolute path of the directory, or its URL."""
        return self._storage.url

    def _opened(self, keep: int | None, best: str | None) -> Writer:
        """Create the directory, and agree with the other workers on a token. Raise if another job uses it."""
        workers, storage, problem = self._workers, self._storage, ""
        token = secrets.randbits(48)
        if workers.rank == 0 and workers.saves and not self._has_claimed:
            self._has_claimed = True
            try:
                storage.make()
                storage.claim(f"{token:012x}")
                folder.remove_unfinished(storage)
            except CheckpointError as error:
                problem = str(error)
            except OSError as error:
                problem = f"cannot use {storage.url} for checkpoints: {error.strerror or error}"
        token = workers.from_first(-1 if problem else token, "a token for checkpoints")
        if token < 0:
            raise CheckpointError(problem or f"cannot use {storage.url} for checkpoints: see worker 0")
        target = Target(storage, workers.rank, workers.size, f"{token:012x}", workers, keep, best)
        copies = self._copies
        writer = Writer(target) if copies is None else Writer(target, copies.exchange, buffers=2)
        end_with_process(writer)
        return writer

    # ---- saving ----

    @property
    def steps(self) -> int:
        """The number of steps of the training, including those before a resume."""
        if self._workers.is_elastic:
            return transaction().steps
        return self._own + self._workers.joined()

    def step(self) -> None:
        """Count a step, and save if it is time. Call it at the end of the loop over the batches.

        Raises CheckpointError if an earlier checkpoint could not be written. After SIGTERM or SIGUSR1, this saves and
        raises SystemExit with code 75.
        """
        if self._fits is not None and self._fits.is_running:
            raise MXNetError("fit counts the steps itself: do not call step() of the Checkpointer in its callbacks")
        self._count()

    def _count(self) -> None:
        self._check_open()
        self._writer.check()
        if self._own == 0:
            self._workers.check()  # a layout or an optimizer may exist only now
        self._own += 1
        if self._preemption is not None:
            self._preemption.has_stepped = True
        if not self._workers.all_have_data():  # a worker without a batch cannot save now
            return
        if self._preemption is not None and self._workers.told_to_stop():
            self._save_and_exit(self._preemption)
        if self._every is not None and self.steps // self._every > self._saved // self._every:
            self.save()

    def save(self, metric: float | None = None) -> None:
        """Save now. Returns when the parameters are copied; files are written in the background (see `wait`).

        Optimizer states are copied in the background too, before the next update changes them.
        """
        self._check_open()
        self._writer.check()
        if not self._training.subject.is_ready:
            raise CheckpointError("there is nothing to save yet: call save() after the first step")
        check_plain(self.extra, "extra")
        workers, place = self._workers, self._place()
        if not workers.saves:
            self._saved = self.steps
            return
        if workers.is_elastic and not self._has_claimed:  # the worker that saved before is lost
            self._writer = self._opened(*self._kept)
        if self._copies is not None:
            self._writer.wait()
            self._copies.make_room()
        fragments, facts, mine = self._training.fragments(workers.rank, workers.size)
        facts |= {**place.facts(), "extra": self.extra, "counters": {"steps": self.steps}}
        of_worker, more = place.of_worker(workers.rank)
        chosen, several = workers.assign([*fragments, *more])
        said: dict[str, Any] = {"worker": {**mine, **of_worker}}
        if self._copies is not None:  # they have no manifest
            said |= {"shared": several, "facts": facts}
        self._saved = self.steps
        if metric is not None:
            self._metric = self.steps, float(metric)
        rated = self._metric[1] if self._metric[0] == self.steps else None
        snapshot = take(self.steps, workers.rank, chosen, said, facts, self._writer.memory, rated)
        self._training.lend(snapshot.wait)
        self._writer.write(snapshot, self._training.layout)

    def _place(self) -> Place:
        """Return where the training is."""
        place = None if self._fits is None else self._fits.place()
        return place or Place(self._epoch_to_resume(), self._positions.states(), generators.raw_states())

    def report(self, value: float) -> bool:
        """Save if `value` is better than that of all kept checkpoints, and return whether it is. Requires `best`.

        NaN is never better.
        """
        if self._best is None:
            raise MXNetError("report needs to know which values are better: pass best='max' or best='min'")
        self._check_open()
        self._writer.wait()
        is_better = self._workers.rank == 0 and self._is_better(float(value))
        if self._workers.from_first(int(is_better), "the best metric") != 1:
            return False
        self.save(metric=value)
        return True

    def _is_better(self, value: float) -> bool:
        best = folder.best_of(folder.readable(self._storage), self._best)
        if best is None or best.metric is None:
            return value == value
        return value > best.metric if self._best == "max" else value < best.metric

    def wait(self) -> None:
        """Wait until this worker has written everything. Raise if it failed."""
        self._writer.wait()

    def close(self) -> None:
        """Wait until everything is written, and stop listening to signals. Raise if the last checkpoint failed."""
        if self._is_closed:
            return
        self._is_closed = True
        process.state.running.pop(self._name, None)
        for stop in self._stops:
            stop()
        if self._fits is not None:
            self._fits.close()
        if self._preemption is not None:
            self._preemption.close()
        try:
            self._writer.wait()
        finally:
            self._storage.release()

    def _check_open(self) -> None:
        if self._is_closed:
            raise MXNetError(f"this Checkpointer of {self.directory} is closed. Create another one")

    def _save_and_exit(self, told: Preemption) -> None:
        """Save and exit. If the program has other Checkpointers, the last one that saves exits.

        One that does not count its steps any more delays that until the next step of this one.
        """
        if not told.has_saved:
            self.save()
            self._writer.wait()
            self._workers.meet("saving a checkpoint before the end")
            told.has_saved = True
            if self._workers.rank == 0:
                _log.warning("told to stop: saved step %d in %s, exit code %d", self.steps, self.directory, EXIT_CODE)
            if told.must_wait():
                return
        self.close()
        raise SystemExit(EXIT_CODE)

    # ---- restoring ----

    def restore(self, directory: str | os.PathLike[str] | None = None) -> bool:
        """Restore the newest checkpoint that is whole, of this or another directory. Return whether there is one.

        Call it immediately before the loop of the training. Raises CheckpointError if the checkpoint belongs to another
        model, or if there are checkpoints and none of them is whole. A Module that is trained by `fit` is restored when
        `fit` begins, and a model that `train_step` lays out in its first step is restored there.
        """
        content = self.load(directory)
        if content is not None and (self._fits is None or self._fits.content is None):
            self._positions.restore(content, self._workers.rank, self._workers.size)
            self.restore_random(content)
        return content is not None

    def restore_random(self, content: Content) -> None:
        """Restore the random generators."""
        self._training.restore_random(content, self._workers.seat, self._workers.size)

    def load(self, directory: str | os.PathLike[str] | None = None) -> Content | None:
        """Restore all but the position in the data and the random generators. Return what was read, or None."""
        self._check_open()
        workers, is_own = self._workers, directory is None
        storage = self._storage if directory is None else open_storage(directory, self._options)
        self._writer.wait()
        content = choosing.newest(storage, self._training, workers, self._copies if is_own else None)
        if content is None:
            return None
        if self._fits is not None and content.facts.get("fits"):
            self._fits.content = content
        elif self._training.subject.is_ready:
            self._training.restore(content, workers.rank, workers.size)
        elif self._fits is not None:
            raise CheckpointError(
                "the checkpoint was not saved by fit: call restore() after init_optimizer, before the loop"
            )
        else:
            self._pending = content
        self._own = content.step - workers.joined()
        transaction().begin_at(content.step)
        self._saved = content.step
        self.epoch = int(content.facts.get("epoch", 0))
        self.extra.clear()
        self.extra.update(content.facts.get("extra", {}))
        if workers.rank == 0:
            _log.info("restored step %d from %s", content.step, storage.url)
        return content

    def begin_fit(self, run: Fit) -> None:
        """Follow a call of `fit` that has begun before this object was created."""
        assert self._fits is not None
        self._fits.begin(run)

    # ---- layouts that are applied in the first step ----

    def _begin_layout(self, trainer: object) -> None:
        if self._pending is not None and trainer is self._training.subject.trainer:
            self._random = generators.tensors_of(generators.raw_states())

    def _end_layout(self, trainer: object) -> None:
        content = self._pending
        if content is not None and trainer is self._training.subject.trainer:
            self._pending = None
            self._training.restore(content, self._workers.rank, self._workers.size)
            if self._training.must_be_alike(content, self._workers.size):
                self.restore_random(content)
            else:  # the run that saved has drawn no numbers for the layout in this step
                generators.restore(self._random)

    # ---- loaders and epochs ----

    @property
    def workers(self) -> int:
        """The number of workers that save together."""
        return self._workers.size

    def follow(self, loaders: Sequence[Loader], active: Loader) -> None:
        """Save the positions of these loaders, of which `active` has the training data."""
        self._positions.follow(loaders, active)

    def epochs(self, count: int) -> Iterator[int]:
        """Iterate over the numbers of epochs up to `count`, from the one to resume."""
        for number in range(self.epoch, count):
            self.epoch, self._passes = number, self._positions.passes()
            yield number
        self.epoch = max(self.epoch, count)

    def _epoch_to_resume(self) -> int:
        """The current epoch, or the next one after the pass over the data has ended."""
        now = self._positions.passes()
        if now is None:
            return self.epoch
        if self._passes is None:
            return now if self._positions.counts_epochs else self.epoch
        return self.epoch + (now > self._passes)


class _AtExit:
    """Closes a Checkpointer when the program ends, and logs an error that nobody can catch."""

    def __init__(self, owner: Checkpointer):
        self._owner = owner

    def close(self) -> None:
        try:
            self._owner.close()
        except MXNetError as error:
            _log.error("%s", error)


def _listed(loader: Any) -> list[Loader]:
    listed = list(loader) if isinstance(loader, (list, tuple)) else [] if loader is None else [loader]
    for each in listed:
        check_loader(each)
    return listed


def _check_arguments(every: Any, keep: Any, best: Any, peer_copies: Any) -> None:
    for name, value in (("every", every), ("keep", keep)):
        if value is not None and (type(value) is not int or value < 1):
            raise MXNetError(f"{name} must be an int of at least 1, or None; received {value!r}")
    if best not in (None, "max", "min"):
        raise MXNetError(f"best must be 'max', 'min' or None, received {best!r}")
    if type(peer_copies) is not int or peer_copies not in (0, 1):
        raise MXNetError(f"peer_copies must be 0 or 1, received {peer_copies!r}")
