"""How workers join a training: they wait to be admitted, and receive its state from the others."""

from __future__ import annotations

import json
import logging
import time
from contextlib import suppress
from typing import Any, Protocol

from ..checkpoint.state import Training
from ..comm import session
from ..comm.generations import Generation, Generations, Over
from ..comm.memory import Stock
from ..comm.staging import needed
from ..comm.store import PeerError
from ..gluon.data import DataLoader
from . import handover
from .ahead import LEAST, Ahead
from .learners import Learner, training_of
from .reconnecting import wait_for_store

_log = logging.getLogger("neomx")
BLANK = -1  # the number of steps of a worker that does not have the state yet
_AGAIN = 0.2  # seconds between two looks for workers that wait to join


class Joinable(Protocol):
    """The training of one worker, as joining sees it."""

    steps: int  # committed, or BLANK

    @property
    def trainers(self) -> list[Learner]:
        """The Trainers and Modules that the program has."""

    def facts(self) -> dict[str, Any]:
        """Return what a worker that joins must know besides the state of its Trainers, as JSON values."""

    def take_facts(self, facts: dict[str, Any]) -> None:
        """Continue with the facts of another worker."""


class Joining:
    """Lets workers join the training of this worker, and lets this worker join the training of others."""

    def __init__(self, training: Joinable) -> None:
        self._training = training
        self._told: tuple[int, int] | None = None  # the place that this worker told those that wait
        self._start = 0  # the first epoch of the program, in a worker that joins
        self._heard, self._asks, self._asked = -1, False, 0.0  # about workers that wait to join
        self._admits = False  # whether they can be admitted after this batch, as this worker has found

    @property
    def _generations(self) -> Generations:
        found = session.session().generations
        assert found is not None
        return found

    # ---- in a worker that trains ----

    def are_waiting(self, epoch: int | None) -> bool:
        """Whether workers can be admitted at this point of an epoch. Looks only after one of them has called."""
        if self._admits:  # found in an earlier round
            return True
        store = self._generations.store
        self._asks |= store.calls != self._heard
        now = time.monotonic()
        if not self._asks or now - self._asked < _AGAIN:
            return False
        self._heard, self._asked = store.calls, now
        waiting = self._generations.waiting()
        self._asks = bool(waiting)
        self._admits = self._generations.can_admit(epoch)
        return self._admits

    def look_again(self) -> None:
        """Forget which workers are waiting."""
        self._admits = False

    def tell_place(self, loader: int, epoch: int) -> None:
        """Tell workers that wait to join where the training is. Called by one worker."""
        if (loader, epoch) != self._told:
            self._told = loader, epoch
            self._generations.tell_place(json.dumps({"loader": loader, "epoch": epoch}))

    def send_ahead(self, generation: Generation, epoch: int) -> Ahead:
        """Begin to send the state of the training to the workers that follow, or to receive it."""
        return Ahead(session.session(), generation, self.trainings(), epoch, self._training.facts())

    def hand_over(self, generation: Generation) -> None:
        """Hand the state of the training over to the new members of a generation. All of its members call this."""
        opened, seats = session.session(), generation.seats
        me = opened.world.number
        beside = seats.beside(generation.members, me)  # those that have the same part of the model
        group = handover.members_of(opened, generation, [each for each in generation.new if each in beside], beside)
        if group is None:
            return
        if group.rank == 0:
            handover.give(group, self.trainings(), self._training.facts())
        else:
            self._take(group, seats.replica_of(generation.members, me)[0])
        group.close()

    def trainings(self) -> dict[int, Training]:
        """What the Trainers train that step with all workers, by their numbers, which are the same on all workers."""
        found = {each.strategy.number: each for each in self._training.trainers if each.strategy.rounds is not None}
        return {number: training_of(trainer) for number, trainer in found.items()}

    # ---- in a worker that joins ----

    def _take(self, group: handover.Group, seed: int) -> None:
        trainings = self.trainings()
        contents, facts = handover.take(group, seed)
        handover.check_trainers(contents, trainings)
        for number, content in contents.items():
            trainings[number].restore(content, joins=True)
        self._training.take_facts(facts)

    def first_epoch(self) -> int:
        """Wait until the training has begun, and return its epoch, in which the program of this worker begins."""
        self._start = self.place()["epoch"]
        return self._start

    def place(self) -> dict[str, int]:
        """Wait until the training has begun, and return where it is."""
        try:
            while (place := self._generations.place()) is None:
                time.sleep(0.05)
        except Over:
            raise self.unneeded() from None
        return place

    def ask(self, epoch: int | None, follows: int = 0) -> Generation | None:
        """Wait until the others admit this worker, which then has no state yet.

        It follows them at first if so many steps as `follows` are left in the epoch. Return None if the training is in
        another epoch now.
        """
        while True:
            try:
                found = self._generations.join(epoch, follows)
                break
            except Over:
                raise self.unneeded() from None
            except PeerError as error:
                wait_for_store(error)
        if found is not None:
            self._training.steps = BLANK
        return found

    def before_pass(self, loader: DataLoader, number: int) -> int | None:
        """Return the epoch of the others if they are in this pass over a loader, the one with this number.

        This worker then joins them at its first step. Otherwise the loader does not have the training data, or the
        others have finished the pass. Then it has no batches.
        """
        while True:
            place = self.place()
            if place["loader"] != number:
                return None  # not the training data
            position = loader.state()
            mine = max(int(position["epoch"]), self._start)
            if mine < place["epoch"]:
                loader.load_state({**position, "epoch": mine + 1, "index": 0}, empty_passes=1)
                return None
            if mine > place["epoch"]:
                time.sleep(_AGAIN)
                continue
            loader.load_state({**position, "epoch": mine})
            return mine

    def at_first_step(self, epoch: int, is_whole: bool) -> Generation | None:
        """Wait until the others admit this worker, which has computed the gradients of a first batch.

        It follows them at first if it can: if each step `is_whole`, so that it updates weights with the sums.

        Return None if the training is in another epoch now. The others would wait for all that a process does only
        once, so it has been done: it has run the program, and creates the memory that it will share with them.
        """
        trainings = self.trainings().values()  # whose strategies this worker chooses alone
        strategies = [each.subject.strategy for each in trainings if each.subject.strategy is not None]
        nbytes = sum(each.staged_bytes for each in strategies)
        can_follow = is_whole and all(
            each.can_follow and len(each.training.trained().weights) == 1 for each in strategies
        )
        can_follow = can_follow and not any(training.fragments(0, 1)[1]["sparse"] for training in trainings)
        generations = self._generations
        size = generations.neighbors() + 1
        if size > 1 and nbytes:
            with suppress(OSError, ValueError):  # then they do so together
                generations.stock = Stock(needed(nbytes, size, groups=2 + len(strategies)))
        return self.ask(epoch, LEAST if can_follow else 0)

    def has_joined(self) -> None:
        """Release memory that was prepared and not used."""
        if self._generations.stock is not None:
            self._generations.stock.close()
            self._generations.stock = None

    def part(self, number: int) -> bool:
        """Wait until the others admit this worker to a part of the program. Return False if they are past it."""
        while True:
            place = self.place()["epoch"]
            if place < number:
                return False
            if place == number and self.ask(place) is not None:
                return True
            time.sleep(0.05)

    def unneeded(self) -> SystemExit:
        """The normal end of a worker that the others did not need."""
        _log.info("the training has ended, and this worker was not needed")
        self._generations.step_aside()  # the end of the program waits for no others
        self._generations.store.leave()
        return SystemExit(0)
