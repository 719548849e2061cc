"""Where a training is: its epoch, its position in the data, and the states of the random generators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..events import subscribe_each
from ..gluon.data.place import Position
from ..module.progress import Fit
from . import generators
from .positions import Positions, check_loader, described
from .snapshot import Fragment, fragment
from .state import Content, Training
from .workers import Workers


@dataclass
class Place:
    """What a checkpoint contains besides the values of the model. It is quick to take."""

    epoch: int
    positions: tuple[int | None, list[Position | None]]
    random: generators.Raw
    batches: int = 0  # of the epoch of a `fit`
    is_between: bool = False  # whether an epoch of a `fit` has ended, and the next one has not begun
    fits: int = 0  # calls of `fit` so far

    def facts(self) -> dict[str, Any]:
        """Return what is the same on all workers."""
        return {"epoch": self.epoch, "is_between": self.is_between, "fits": self.fits}

    def of_worker(self, rank: int) -> tuple[dict[str, Any], list[Fragment]]:
        """Return what is that of this worker: JSON values, and tensors."""
        facts, fragments = described(self.positions, rank)
        states = generators.tensors_of(self.random)
        fragments += [fragment(f"worker/{rank}/random/{name}", each) for name, each in states.items()]
        return {**facts, "batches": self.batches}, fragments


class Fits:
    """Follows the calls of `fit` of a Module. A step counts when its batch is trained, before the next one is read."""

    def __init__(self, training: Training, positions: Positions, workers: Workers, count: Callable[[], None]):
        self._training, self._positions, self._workers, self._count = training, positions, workers, count
        self._run: Fit | None = None  # the current call
        self._calls = 0
        self._epoch, self._is_between = 0, False
        self._last: Place | None = None  # in an epoch: where the training was after the last batch
        self.content: Content | None = None  # to restore
        self._stops = subscribe_each(fit=self.begin, epoch=self._enter, trained=self._note, epoch_end=self._leave)

    def close(self) -> None:
        """Stop listening."""
        for stop in self._stops:
            stop()

    @property
    def is_running(self) -> bool:
        """Whether the module is in `fit`, before the end of its last epoch."""
        return self._run is not None

    def place(self) -> Place | None:
        """Return where the training is, if the module has been in `fit`."""
        if self._last is not None or not self._calls:
            return self._last
        return self._taken(0, self._is_between)

    def _taken(self, batches: int, is_between: bool) -> Place:
        epoch = self._epoch + is_between
        return Place(epoch, self._positions.states(), generators.raw_states(), batches, is_between, self._calls)

    # ---- events ----

    def begin(self, run: Fit) -> None:
        """Start a call of `fit` where the checkpoint was saved."""
        if run is self._run or run.module is not self._training.subject.trainer:
            return
        self._calls += 1
        self._run, self._last, self._is_between, self._epoch = run, None, False, run.epoch
        self._workers.check()
        check_loader(run.data)
        self._positions.follow([run.data, *self._positions.loaders[1:]], run.data)
        content = self.content
        if content is None:
            return
        if self._calls < int(content.facts.get("fits", 1)):  # the run that saved had finished this call
            run.epoch = run.epochs
            return
        self.content = None
        rank, size = self._workers.rank, self._workers.size
        self._training.restore(content, rank, size)
        self._positions.restore(content, rank, size)
        self._training.restore_random(content, rank, size)
        run.epoch = self._epoch = max(run.epoch, int(content.facts["epoch"]))
        if not content.facts.get("is_between"):
            run.batches = int(content.of_worker(rank if rank < content.workers else 0).get("batches", 0))
        elif run.resets:
            run.data.reset()

    def _enter(self, loader: Any, number: int, **fields: Any) -> None:
        if self._run is not None and loader is self._run.data:
            self._epoch, self._is_between = number, False

    def _note(self, run: Fit, number: int, batches: int) -> None:
        if run is self._run:
            self._last = self._taken(batches, False)
            self._count()

    def _leave(self, loader: Any, number: int) -> None:
        if self._run is not None and loader is self._run.data:
            self._last, self._is_between = None, True
            if number == self._run.epochs - 1:
                self._run = None
