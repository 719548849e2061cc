"""Checkpoints of a program that does not mention them: `neomx run --checkpoint DIR --every 500 train.py`.

The launcher sets environment variables, and `import neomx` starts listening to events. The Trainer that is created
before the first pass over data is saved, with the position of every DataLoader. A step counts when its batch is done:
when the program asks for the next one. A Module that is trained by `fit` is saved with the position of its iterator.

On resume, parameters and optimizer states are restored before the first pass. A program that repeats its epochs from
the first one gets passes without batches for those that are finished. `mx.checkpoint.epochs(count)` skips them instead.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from typing import Any

from .. import process
from ..base import MXNetError
from ..comm import session
from ..events import subscribe_each
from ..gluon import Trainer
from ..gluon.data import DataLoader
from ..module import BaseModule
from ..module.progress import Fit
from . import folder, positions
from .checkpointer import Checkpointer
from .manifest import CheckpointError
from .state import Content
from .storage import open_storage

_log = logging.getLogger("neomx")
_NAME = "checkpoints of the program"
DIRECTORY, EVERY, KEEP, RESUME = "NEOMX_CHECKPOINT", "NEOMX_CHECKPOINT_EVERY", "NEOMX_CHECKPOINT_KEEP", "NEOMX_RESUME"
PEER_COPIES = "NEOMX_PEER_COPIES"
_ONE = (
    "checkpoints of a program that does not mention them are of one Trainer or Module, but the program trains another "
    "one as well. Use mx.checkpoint.Checkpointer for each of them, in different directories"
)


class Automatic:
    """Saves and restores the training of this program, from its events."""

    def __init__(
        self, directory: str | None, every: int | None, keep: int | None, resume: str | None, peer_copies: int = 0
    ):
        self._directory, self._every, self._keep, self._resume = directory, every, keep, resume
        self._peer_copies = peer_copies
        self._trainer: Trainer | BaseModule | None = None
        self._made: Checkpointer | None = None
        self._fitted: BaseModule | None = None  # a Module that is trained by `fit`, which needs no other events
        self._content: Content | None = None
        self._loaders: list[DataLoader] = []  # in the order of their first passes
        self._inside: list[DataLoader] = []  # those that the program is iterating
        self._has_stepped = False
        self._starts_late = False  # whether the program's own loop starts at the epoch to resume
        self._passes_left = 0  # passes of the training data before the generators are restored
        self._stops = subscribe_each(
            trainer=self.take_trainer,
            **{"pass": self.begin_pass},
            epoch=self.enter,
            epoch_end=self.leave,
            step=self.note_step,
            batch=self.end_batch,
            fit=self.begin_fit,
        )

    def close(self) -> None:
        """Stop listening."""
        for stop in self._stops:
            stop()
        self._stops = []
        if self._made is None and (self._directory or self._resume):
            _log.warning(
                "no checkpoint was saved or restored: the program did not iterate over a DataLoader after it created "
                "a Trainer, and did not call Module.fit"
            )

    # ---- events ----

    def begin_fit(self, run: Fit) -> None:
        """Save and restore a Module that is trained by `fit`."""
        if self._made is None:
            self._trainer, self._fitted = run.module, run.module
            self.begin(run.data)
            assert self._made is not None
            self._made.begin_fit(run)
        elif run.module is not self._fitted:
            raise MXNetError(_ONE)

    def take_trainer(self, trainer: Trainer | BaseModule) -> None:
        """Remember the Trainer that was created last, before the first pass."""
        if self._made is None:
            self._trainer = trainer

    def begin_pass(self, loader: DataLoader) -> None:
        """Restore the training before its first pass, and the position of a loader before its first pass."""
        if self._fitted is not None:
            return
        if all(loader is not known for known in self._loaders):
            self._loaders.append(loader)
            self.begin()
            self._restore_position(len(self._loaders) - 1, loader)
        if self._content is not None and self._is_training(loader):
            if self._passes_left == 0:
                assert self._made is not None
                self._made.restore_random(self._content)
                self._content = None
            self._passes_left -= 1

    def enter(self, loader: DataLoader, **fields: Any) -> None:
        """Note that the program iterates over a loader."""
        self._inside.append(loader)

    def leave(self, loader: DataLoader, **fields: Any) -> None:
        """Note that the program has ended a pass."""
        if loader in self._inside:
            self._inside.remove(loader)

    def note_step(self, trainer: Trainer | BaseModule, **fields: Any) -> None:
        """Note that the current batch has been trained."""
        if self._fitted is not None or self._trainer is None:
            return
        if not self._inside:
            raise MXNetError(
                f"{DIRECTORY} saves programs that iterate over a DataLoader or call Module.fit, because a checkpoint "
                "contains the position in the data. Use mx.checkpoint.Checkpointer(..., loader=iterator) in this one"
            )
        self.begin()
        assert self._made is not None
        if trainer is not self._trainer:
            raise MXNetError(_ONE)
        self._has_stepped = True
        self._made.follow(self._loaders, self._inside[-1])

    def end_batch(self, loader: DataLoader, **fields: Any) -> None:
        """Count a step, if the batch was trained."""
        if self._has_stepped and self._inside and loader is self._inside[-1]:
            self._has_stepped = False
            if self._made is not None and self._directory is not None:
                self._made.step()

    # ---- restoring ----

    def begin(self, loader: Any = None) -> None:
        """Restore the training, as soon as there is a Trainer."""
        if self._made is not None or self._trainer is None:
            return
        source = self._resume if self._resume not in (None, "auto") else None
        directory = self._directory or source
        assert directory is not None
        trained: dict[str, Any] = {"trainer" if isinstance(self._trainer, Trainer) else "module": self._trainer}
        self._made = Checkpointer(
            directory, **trained, loader=loader, every=self._every, keep=self._keep, peer_copies=self._peer_copies
        )
        if (limits := session.session().world.limits) is not None and limits.joins:
            return  # it receives the state of the other workers
        if self._resume is None:
            if folder.steps(open_storage(directory)):
                _log.warning("%s has checkpoints already. Add --resume auto to continue from the newest one", directory)
            return
        self._content = self._made.load(source)
        if self._content is None and source is not None:
            raise CheckpointError(f"--resume {source}: there is no checkpoint in this directory")
        if self._content is not None and self._inside:
            raise CheckpointError("cannot resume inside of a loop over data: create the Trainer before the loop")

    def _restore_position(self, number: int, loader: DataLoader) -> None:
        content = self._content
        if content is None or self._made is None:
            return
        size = self._made.workers
        position = positions.position_of(content, number, _rank(), size)
        if position is None:
            return
        if not self._is_training(loader):
            loader.load_state(position, skips_ended=True)
            return
        self._passes_left = 0 if self._starts_late else int(position["epoch"])
        loader.load_state(position, empty_passes=self._passes_left)

    def _is_training(self, loader: DataLoader) -> bool:
        number = None if self._content is None else positions.active_of(self._content)
        return number is not None and number < len(self._loaders) and self._loaders[number] is loader

    def epochs(self, count: int) -> Iterable[int]:
        """Return the numbers of the epochs that remain."""
        self._starts_late = True
        self.begin()
        return range(count) if self._made is None else self._made.epochs(count)


def epochs(count: int) -> Iterable[int]:
    """Return `range(count)`, or in a run that `neomx run --resume` continues, the numbers of the remaining epochs.

    Create the Trainer before this call.
    """
    running = process.state.running.get(_NAME)
    return running.epochs(count) if isinstance(running, Automatic) else range(count)


def start_from_environment() -> None:
    """Start saving and restoring as the environment variables of `neomx run --checkpoint` and `--resume` say."""
    directory, resume = os.environ.get(DIRECTORY) or None, os.environ.get(RESUME) or None
    if directory is None and resume is None:
        return
    if directory is None and resume == "auto":
        raise MXNetError(f"{RESUME}=auto requires the directory of the checkpoints: set {DIRECTORY}")
    every, keep, copies = (_number(name) for name in (EVERY, KEEP, PEER_COPIES))
    process.start(_NAME, lambda: Automatic(directory, every, keep, resume, copies or 0))


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    if text and (not text.isdigit() or int(text) < 1):
        raise MXNetError(f"{name} must be an integer of at least 1, received {text!r}")
    return int(text) if text else None


def _rank() -> int:
    return session.session().world.rank
