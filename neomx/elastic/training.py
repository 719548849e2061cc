"""The training of one worker of an elastic job: its steps, its data, and what happens when workers are lost or join."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .. import process
from ..autograd import is_recording
from ..base import MXNetError
from ..checkpoint.automatic import epochs as saved_epochs
from ..comm import session
from ..comm.generations import Expelled, Generation, Generations, Over, Status
from ..comm.rounds import Rounds
from ..comm.seats import Seats
from ..comm.store import PeerError
from ..comm.transaction import Transaction
from ..comm.world import discover
from ..events import emit, subscribe_each
from ..gluon.data import DataLoader
from ..gluon.data.place import Pass, current_batch
from ..module.progress import Fit
from . import handover
from .ahead import LEAST, Ahead
from .iterators import IteratorDealer
from .joining import BLANK, Joining
from .learners import Learner, training_of
from .reconnecting import wait_for_store
from .undo import Copy, Undo

_log = logging.getLogger("neomx")
_NAME = "elastic training"
_UNDEALT = (
    "the samples of this training are not dealt to the workers: the program does not iterate over a DataLoader with "
    "mx.dist.shard(dataset), or an iterator of mx.io with num_parts=kv.num_workers"
)


class Elastic:
    """Makes the steps of this process transactions, and goes on with other workers after a loss."""

    survives = True

    def __init__(self) -> None:
        self.steps = 0  # committed
        self.joining = Joining(self)
        self._trainers: list[weakref.ref[Learner]] = []  # in the order of their creation
        self._loaders: list[DataLoader] = []  # in the order of their first passes
        self._inside: list[DataLoader] = []  # those that the program is iterating
        self._active: DataLoader | None = None  # the one with the training data
        self._undo: Undo | None = None  # the state before the current batch
        self._copies: deque[Copy] = deque()  # of the weights before recent steps, in a program with several Trainers
        self._boundary = 0  # the committed steps when the current batch began
        self._skips = False  # whether the rest of the current batch is skipped, because it was dropped
        self._is_in_batch = False
        self._since_step = 0  # batches begun after the last step
        self._in_step = 1  # batches of a step, whose gradients are accumulated
        self._trained = -1  # the position in the data after the last step, until that is certain; otherwise negative
        self._positions: dict[int, dict[str, Any]] = {}  # of loaders whose first pass has not begun yet
        self._calls = 0  # completed collectives, and waits for all workers
        self._result: list[torch.Tensor] | None = []  # of the last of them
        self._admitting = False  # whether all workers let others join after this batch
        self._ratio: float | None = None  # of the samples of all workers to the divisor, with --scale-batch
        self._begun = 0  # passes over data
        self._numbers: dict[int, int] = {}  # of the passes that the program is in, by identity
        self._members: dict[int, list[tuple[int, ...]]] = {}  # the members when each began, and after each change
        self._history: list[tuple[int, int | None, tuple[int, ...]]] = []  # passes begun, and members, until a change
        self._rehearsed: int | None = None  # the epoch in which this worker joins the others, at its first step
        self._ahead: Ahead | None = None  # sends the state to workers that follow
        self._is_ready = False
        self._is_told = False  # whether it was logged that the samples are not dealt
        self._parts = 0  # parts of the program, so far, that restore their state themselves
        self._part: int | None = None  # the number of the current one, below 0
        self._broken: PeerError | None = None  # a loss that the step of this batch has not heard of yet
        self._expects_step = False  # whether the current batch ends with a step, as the program has said
        self.is_updating = False
        self._follow()

    def _follow(self) -> None:
        """Make the steps of the program, and follow its events."""
        process.state.transaction = self
        process.state.dealer = IteratorDealer()
        self._stops = subscribe_each(
            trainer=self._take_trainer,
            **{"pass": self._begin_pass},
            pass_begin=self._enter,
            pass_end=self._leave,
            batch_begin=self._begin_batch,
            batch_end=self._end_batch,
            fit=self._begin_fit,
        )

    def close(self) -> None:
        """Stop following the program."""
        for stop in self._stops:
            stop()
        self._stops = []
        process.state.transaction = process.state.dealer = None

    # ---- what belongs to the job ----

    @property
    def _generations(self) -> Generations:
        found = session.session().generations
        assert found is not None
        return found

    @property
    def _rounds(self) -> Rounds:
        opened = session.session()
        if not self._is_ready:
            self._is_ready = True
            opened.rounds.are_waiting = self.are_waiting
            opened.at_close.append(self._generations.end)
        return opened.rounds

    def are_waiting(self) -> bool:
        """Whether workers can be admitted at this point."""
        return self.joining.are_waiting(self._epoch())

    # ---- steps ----

    def run(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool = True) -> bool:
        """Make a step: commit it if all workers have all sums, otherwise drop it on all workers."""
        if self._skips:
            return False
        if self._rehearsed is not None and self._inside:
            self._join(self._rehearsed, ends_step)
            return False
        if self._inside and self._part is None and not (self._generations.admitted or self._generations.follows):
            self._end_pass_aside()
            return False
        self._expects_step = True
        rounds = self._rounds
        if self._generations.follows:
            self._step_along(attempt, apply, ends_step)
            return True
        holds, divisor = False, math.nan
        generation: Generation | None = None
        try:
            self._train()
            if self._broken is not None:
                raise self._broken
            divisor = attempt()
            if ends_step:
                holds = True
                rounds.vote()
        except PeerError as error:
            generation = self._next(self._status(holds, divisor, self._epoch()), error)
            if generation is None or self.steps == BLANK or self.steps >= generation.steps:
                self._drop(generation)
                return False
        if ends_step:
            self._keep_copy()
        self._expects_step = False
        while True:
            self.is_updating = ends_step
            try:
                apply(self._scaled(divisor) if ends_step else divisor)
                break
            except PeerError as error:  # a worker was lost while the servers update
                self.is_updating = False
                generation = self._next(self._status(True, divisor, self._epoch()), error)
                if generation is None or self.steps == BLANK:  # the others went on without this one
                    self._drop(generation)
                    return False
            finally:
                self.is_updating = False
        if ends_step:
            self._commit(generation)
        return True

    def _end_pass_aside(self) -> None:
        """End the pass of a worker that the others went on without before its first step. It joins before the next."""
        begun = self._inside[-1].current_pass
        if begun is not None:
            begun.deal_from(begun.samples or 0)
        self._skips = self._is_in_batch

    def _join(self, epoch: int, is_whole: bool) -> None:
        """Join the others in a step, whose batch is dropped: it has made this process ready to train."""
        self._rehearsed, self._active = None, self._inside[-1]
        generation = self.joining.at_first_step(epoch, is_whole)
        while generation is not None and self._generations.follows:
            generation = self._follow_others(generation, epoch)
        self._undo = None  # the random generators continue with other numbers
        if generation is None:
            self._drop(None)
            return
        self._skips = self._is_in_batch
        self._settle(generation)
        self.joining.has_joined()

    def _follow_others(self, generation: Generation, epoch: int) -> Generation | None:
        """Take part in the steps of the others, without gradients, until this worker has the state of the training.

        Return the next generation. In it this worker is a member, unless another one was lost in the meantime.
        """
        rounds, ahead = self._rounds, None
        try:
            ahead = self.joining.send_ahead(generation, epoch)
            rounds.begin_generation()
            ahead.begin()
            self._ratio = ahead.facts["ratio"]
            is_over = False
            while not is_over:
                meets = rounds.follow()
                if meets is None:
                    raise self.joining.unneeded()
                is_over = meets and ahead.go_on()
        except PeerError as error:
            return self._next(Status(BLANK, epoch=epoch, left=LEAST), error)
        finally:
            if ahead is not None:
                ahead.close()
        facts = ahead.facts
        if not ahead.is_complete:
            return self._next(Status(BLANK, epoch=epoch, left=LEAST), None)
        self.steps = int(facts["steps"])
        status = Status(self.steps, calls=facts["calls"], passes=facts["begun"], epoch=epoch, intact=True)
        found = self._next(status, None)
        if found is not None and not found.new.count(session.session().world.number):
            self.take_facts(facts)
        return found

    def _step_along(self, attempt: Callable[[], float], apply: Callable[[float], None], ends_step: bool) -> None:
        """Make a step of the others, which this worker follows."""
        divisor = attempt()
        if ends_step:
            self._rounds.vote()
        apply(self._scaled(divisor) if ends_step else divisor)

    # ---- layouts ----

    def take_seats(self, seats: Seats) -> None:
        """Sit in a layout, with all workers that use it."""
        try:
            if self._generations.take_seats(seats):
                self.recover(PeerError("the workers take their places in a layout"))
        except Over:
            raise self.joining.unneeded() from None

    def expect_step(self) -> None:
        """Note that the current batch ends with a step."""
        self._expects_step = True

    @property
    def is_training(self) -> bool:
        """Whether this worker is in a batch that ends with a step."""
        if self._expects_step or is_recording() or torch._C._current_graph_task_id() >= 0:
            return True
        return self._is_in_batch and bool(self._inside) and self._inside[-1] is self._active

    @property
    def is_adrift(self) -> bool:
        """Whether calls among some workers have no result, because this worker does not train with others now."""
        return self._skips or not self._generations.admitted or self._broken is not None and self.is_training

    def interrupt(self, error: PeerError) -> None:
        """Go on after a loss in a call among some workers: drop the batch in its step, or recover at once."""
        if self.is_training:
            self._broken = error
        else:
            self.recover(error)

    def _mend(self) -> None:
        """Recover from a loss after the last step of a batch, at its end."""
        if self._broken is not None:
            self.recover(self._broken)

    def _train(self) -> None:
        """Note that the innermost loader that the program is iterating has the training data.

        Raises if a worker was lost in this pass before its first step, and its samples were dealt as in an evaluation.
        """
        if not self._inside:
            self._tell_undealt()
            return
        if self._active is self._inside[-1]:
            return
        self._active = self._inside[-1]
        if not self._pass.is_dealt:
            self._tell_undealt()
        if len(self._members.get(id(self._pass), ())) > 1:
            raise PeerError("the data of the training is dealt again")

    def _tell_undealt(self) -> None:
        """Log, once, that the data of the training cannot be dealt again."""
        if self._is_told:
            return
        self._is_told = True
        if not self._generations.admitted:
            _log.warning("this worker cannot join the others here: %s. It trains alone", _UNDEALT)
        elif session.session().world.rank == 0:
            _log.warning(
                "%s. When a worker is lost, the others go on, but its samples and those of the step in which it is "
                "lost are missing in this epoch, and no worker can join",
                _UNDEALT,
            )

    @property
    def shares(self) -> int:
        """The number of workers that the batch of all is made for; 0 if it changes with the number of workers."""
        limits = session.session().world.limits
        return 0 if limits is None or limits.scales else limits.initial

    def _scaled(self, divisor: float) -> float:
        """Return the divisor for a batch that has grown with the number of workers (`--scale-batch`).

        Each sample has the weight that it had at the start, and the learning rate is proportional to the number of
        workers.
        """
        limits, samples = session.session().world.limits, self._rounds.samples
        if limits is None or not limits.scales or samples <= 0:
            return divisor
        workers = len(self._generations.current.members)
        if self._ratio is None:
            self._ratio = samples / divisor / (workers / limits.initial)
        for trainer in self.trainers:
            trainer.training.optimizer.rate_factor = workers / limits.initial
        return samples / self._ratio

    def begin_at(self, steps: int) -> None:
        """Continue a training that has made so many steps."""
        self.steps = steps

    def collect(self, work: Callable[[], Sequence[torch.Tensor]]) -> Sequence[torch.Tensor]:
        """Make a collective call of all workers, again if workers are lost in it."""
        if threading.current_thread() is not threading.main_thread():
            return work()
        while True:
            try:
                result = work()
            except PeerError as error:
                if self.recover(error):
                    assert self._result is not None
                    return self._result
                continue
            self._calls += 1
            self._result = [tensor.detach().clone() for tensor in result]
            return result

    def passed(self) -> None:
        """Note that this worker has waited for all others."""
        self._calls += 1
        self._result = []

    def recover(self, error: PeerError) -> bool:
        """Go on without the workers that are gone, after a loss outside of a step."""
        calls = self._calls
        self._drop(self._next(self._status(), error))
        return self._calls > calls

    def _status(
        self, holds: bool = False, divisor: float = 0.0, epoch: int | None = None, intact: bool = False
    ) -> Status:
        training = None if self._epoch() is None else self._numbers.get(id(self._pass))
        began = self._boundary if len(self.trainers) > 1 else -1
        left = 0 if epoch is None else self._left()
        return Status(self.steps, holds, divisor, began, self._calls, self._begun, training, epoch, left, intact)

    def _left(self) -> int:
        """About how many steps are left in the epoch after the current batch."""
        batch = current_batch()
        return 0 if batch is None or batch.steps is None else (batch.steps - batch.step - 1) // self._in_step

    def _commit(self, generation: Generation | None) -> None:
        self.steps += 1
        self._in_step, self._since_step = max(self._since_step, 1), 0
        self._admitting |= self._rounds.admits
        self.joining.look_again()
        if self._epoch() is not None:
            self._trained = self._rounds.position
        self._tell_place()
        if generation is not None:
            self._deal_again(generation)
            self._settle(generation)

    def _drop(self, generation: Generation | None) -> None:
        """Forget what does not count, and deal its samples again. Without a generation, end the pass over the data."""
        if generation is not None and 0 <= generation.steps < self.steps:
            self._roll_back(generation.steps)
        if self._undo is not None and self._undo.steps == self.steps:
            self._undo.restore()
        for stepper in self._rounds.steppers:
            if stepper.has_begun:
                stepper.drop_step()
        self._skips = self._is_in_batch
        if generation is not None:
            self._deal_again(generation)
            self._settle(generation)
        elif self._epoch() is not None:
            self._pass.deal_from(self._pass.samples or 0)

    def _keep_copy(self) -> None:
        """Copy the weights before the first step of a batch, if the program has several Trainers."""
        trainers = self.trainers
        if len(trainers) < 2 or self._is_in_batch and self._copies and self._copies[-1].steps == self._boundary:
            return
        while len(self._copies) >= len(trainers):
            self._copies.popleft()
        self._copies.append(Copy([training_of(each) for each in trainers], self.steps))

    def _roll_back(self, steps: int) -> None:
        """Return to the weights before a batch of which only some steps were made."""
        copy = next((each for each in self._copies if each.steps == steps), None)
        if copy is None:
            raise MXNetError(
                f"a worker was lost in the middle of a batch, after step {self.steps} of the training, and worker "
                f"{session.session().world.number} has no copy of the weights of step {steps}, where the batch began"
            )
        copy.restore()
        self.steps, self._trained = steps, -1

    def _deal_again(self, generation: Generation) -> None:
        """Divide the samples that are not trained yet, and those that lost workers should have evaluated."""
        self._pass_boundary()
        now, me = generation.sharers, generation.sharer(session.session().world.number)
        for loader in self._inside:
            each = loader.current_pass
            if each is None:
                continue
            if generation.training is not None and self._numbers.get(id(each)) == generation.training:
                self._active = loader  # another worker has begun to train in this pass
            if loader is self._active:
                each.deal_again()
            elif id(each) in self._members:
                self._members[id(each)].append(now)
                each.inherit(self._members[id(each)], me)

    def _pass_boundary(self) -> None:
        """Note that all steps of the last batch count."""
        self._boundary = self.steps
        if self._trained >= 0 and self._epoch() is not None:
            self._pass.commit(self._trained)
        self._trained = -1

    # ---- generations ----

    def _next(self, status: Status, loss: PeerError | None) -> Generation | None:
        """Agree with the other workers on the next generation.

        Return None if they have gone on without this worker, to another epoch: it joins them before a later pass.
        """
        generations, began = self._generations, time.perf_counter()
        before = generations.current
        self._end_sending()
        self._broken, self._expects_step = None, False
        while True:
            try:
                if not (generations.admitted or generations.follows):
                    raise Expelled(f"worker {session.session().world.number} does not train with the others")
                if loss is not None:
                    generations.call()
                    for stepper in self._rounds.steppers:
                        stepper.halt()
                found = generations.next(status)
                break
            except Expelled as error:
                _log.warning("%s: joining them again", error)
                epoch = self._epoch()
                joined = None if epoch is None else self.joining.ask(epoch)
                if joined is None:
                    generations.step_aside()
                    return None
                found = joined
                break
            except PeerError as error:
                wait_for_store(error)
        self._admitting = False
        self.joining.look_again()
        if session.session().world.number in found.new:
            self.steps = BLANK
        self._history.append((found.passes, found.training, before.sharers))
        self._report(before, found, time.perf_counter() - began)
        return found

    def _report(self, before: Generation, now: Generation, seconds: float) -> None:
        lost = [member for member in before.members if member not in now.members]
        joined = [member for member in now.members if member not in before.members]
        follows = [member for member in now.followers if member not in before.followers]
        if now.members[0] == session.session().world.number:
            gone = session.session().store.gone  # type: ignore[union-attr]
            said = [f"worker {member} is lost ({_why(gone, now, member)})" for member in lost]
            said += [f"worker {member} joins" for member in joined]
            said += [f"worker {member} follows" for member in follows]
            after = "" if self._part is not None else f" after step {now.steps}"
            remain = "1 worker goes on" if len(now.members) == 1 else f"{len(now.members)} workers go on"
            _log.warning("%s: %s%s", "; ".join(said) or "no change", remain, after)
        emit("generation", number=now.number, members=list(now.members), lost=lost, joined=joined, seconds=seconds)

    def _settle(self, generation: Generation) -> None:
        """Start the new generation: hand the state over to those that join, and prepare the next step."""
        while True:
            try:
                if generation.lacking:
                    self._hand_result_over(generation)
                if generation.new:
                    self.joining.hand_over(generation)
                if generation.followers:
                    self._ahead = self.joining.send_ahead(generation, self._pass.number)
                if generation.continues:
                    self._rounds.go_on()
                else:
                    self._rounds.begin_generation()
                return
            except PeerError as error:
                found = self._next(self._status(), error)
                if found is None:
                    self._drop(None)
                    return
                generation = found
                self._deal_again(generation)

    def _end_sending(self) -> None:
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    def _meet_followers(self) -> None:
        """Send more of the state to workers that follow, and let them train when they have all of it."""
        assert self._ahead is not None
        epoch = self._pass.number
        try:
            meets = self._rounds.meet_followers()
            is_over = meets and self._ahead.go_on(epoch, self._left(), self.facts())
        except PeerError as error:
            self._drop(self._next(self._status(epoch=epoch), error))
            return
        if is_over:
            self._admit(intact=True)

    def _hand_result_over(self, generation: Generation) -> None:
        """Give the result of the last collective to those that have not received it."""
        group = handover.members_of(session.session(), generation, generation.lacking)
        if group is None:
            return
        if group.rank == 0:
            if self._result is None:
                raise MXNetError("a worker was lost in a collective whose results differ between workers")
            handover.give_tensors(group, {str(n): tensor for n, tensor in enumerate(self._result)}, {})
        else:
            tensors, _ = handover.take_tensors(group)
            self._result, self._calls = list(tensors.values()), generation.calls
        group.close()

    @property
    def trainers(self) -> list[Learner]:
        """The Trainers and Modules that the program has."""
        return [trainer for each in self._trainers if (trainer := each()) is not None]

    # ---- for workers that join ----

    def facts(self) -> dict[str, Any]:
        """Return what a worker that joins must know besides the state of its Trainers, as JSON values."""
        places = {}
        for number, loader in enumerate(self._loaders):
            try:
                places[str(number)] = loader.state()
            except MXNetError:
                continue  # it starts with its own data
        return {
            "steps": self.steps,
            "calls": self._calls,
            "ratio": self._ratio,
            "begun": self._begun,
            "loaders": places,
        }

    def take_facts(self, facts: dict[str, Any]) -> None:
        """Continue with the facts of another worker."""
        self.steps = self._boundary = int(facts["steps"])
        self._calls, self._ratio = int(facts["calls"]), facts["ratio"]
        self._begun, self._history = int(facts["begun"]), []
        self._positions = {int(number): position for number, position in facts["loaders"].items()}
        for number, loader in enumerate(self._inside, self._begun + 1 - len(self._inside)):
            position = self._positions.pop(self._loaders.index(loader), None)
            begun = loader.current_pass
            if begun is None or position is None:
                continue
            self._numbers[id(begun)] = number
            self._members[id(begun)] = [self._generations.current.members]
            if "index" in position:
                self._keep_batch(loader, position)
                begun.deal_from(int(position["index"]))

    @staticmethod
    def _keep_batch(loader: DataLoader, position: dict[str, Any]) -> None:
        """Use the batch of all workers that the others use, whatever the batch size of this program is."""
        limits = session.session().world.limits
        if limits is not None and not limits.scales:
            loader.keep_at_once(position)

    # ---- a part of the program that restores its state itself ----

    @contextmanager
    def aside(self, other: Transaction) -> Iterator[None]:
        """Let `other` make the steps within the block, for a program that restores its state itself after a loss.

        Workers join in the block if they call this as often as the others. They receive no state.
        """
        if self._part is not None:
            raise MXNetError("functions that restart after a loss cannot call each other")
        rounds = self._rounds
        self.close()
        self._parts += 1
        self._part, rounds.are_waiting, self._undo = -self._parts, None, None
        process.state.transaction = other
        try:
            yield
        finally:
            self._part, rounds.are_waiting = None, self.are_waiting
            self._follow()

    def join_part(self) -> bool:
        """Wait until the others admit this worker to this part of the program. Return False if they are past it."""
        assert self._part is not None
        return self.joining.part(self._part)

    def tell_part(self) -> None:
        """Tell workers that wait to join that the training is in this part of the program."""
        if session.session().world.rank == 0:
            assert self._part is not None
            self.joining.tell_place(-1, self._part)

    def regroup(self, loss: PeerError | None) -> Generation | None:
        """Agree with the other workers on the next generation, with those that wait to join this part.

        Return None if they have gone on without this worker, and are past this part.
        """
        self.joining.look_again()
        return self._next(Status(self.steps, calls=self._calls, passes=self._begun, epoch=self._part), loss)

    def has_state(self) -> None:
        """Note that this worker has the state that the program has restored."""
        now = self._generations.current
        self.steps, self._calls, self._begun, self._history = now.steps, now.calls, now.passes, []

    # ---- the program ----

    def epochs(self, count: int) -> Iterable[int]:
        """Return the epochs, in a process that joins from the one that the others are in."""
        if self._generations.admitted:
            return saved_epochs(count)
        return range(self.joining.first_epoch(), count)

    def _epoch(self) -> int | None:
        """The number of the pass over the training data, or of the part of the program, if it is in one."""
        if self._part is not None:
            return self._part
        active = self._active
        if active is None or all(active is not each for each in self._inside):
            return None
        return self._pass.number

    @property
    def _pass(self) -> Pass:
        """The pass over the training data."""
        assert self._active is not None and self._active.current_pass is not None
        return self._active.current_pass

    @property
    def position(self) -> int:
        """The samples of all workers in this epoch up to the current batch, or -1 if unknown."""
        return -1 if self._epoch() is None else self._pass.index

    def _tell_place(self) -> None:
        """Tell workers that wait to join where the training is."""
        epoch = self._epoch()
        if epoch is None or self._active is None or session.session().world.rank != 0:
            return
        self.joining.tell_place(self._loaders.index(self._active), epoch)

    def _take_trainer(self, trainer: Learner) -> None:
        if all(each is not trainer for each in self.trainers):
            self._trainers.append(weakref.ref(trainer))

    def _begin_fit(self, run: Fit) -> None:
        """In a process that joins, begin `fit` at the epoch of the others."""
        if not self._generations.admitted:
            run.epoch = min(run.epoch + self.joining.first_epoch(), run.epochs)

    def _begin_pass(self, loader: DataLoader) -> None:
        if all(loader is not known for known in self._loaders):
            self._loaders.append(loader)
        if not self._generations.admitted:
            self._rehearsed = self.joining.before_pass(loader, self._loaders.index(loader))
        position = self._positions.pop(self._loaders.index(loader), None)
        if position is not None:
            self._keep_batch(loader, position)
            loader.load_state(position)

    def _enter(self, loader: DataLoader) -> None:
        self._inside.append(loader)
        begun = loader.current_pass
        if begun is None or not self._generations.admitted:
            return
        self._begun += 1
        self._numbers[id(begun)] = self._begun
        since = self._members_since(self._begun)
        self._members[id(begun)] = since
        if len(since) > 1:
            now = self._generations.current
            begun.inherit(since, now.sharer(session.session().world.number), anew=True)

    def _members_since(self, number: int) -> list[tuple[int, ...]]:
        """Return the members when some worker began a pass, which may not train, and after each change since."""
        found = [self._generations.current.sharers]
        for passes, training, members in reversed(self._history):
            if passes < number or training == number:
                break
            found.insert(0, members)
        return found

    def _leave(self, loader: DataLoader) -> None:
        self._leave_batch(loader)
        self._rehearsed = None
        if loader in self._inside:
            self._inside.remove(loader)
        ended = id(loader.current_pass)
        self._numbers.pop(ended, None)
        self._members.pop(ended, None)

    def _begin_batch(self, loader: DataLoader, **fields: Any) -> None:
        self._is_in_batch, self._skips = True, False
        self._since_step += 1
        if self._inside[-1] is not loader:  # the program has left the pass over the last one before its end
            self._inside.remove(loader)
            self._inside.append(loader)
        if self._undo is None or self._undo.steps != self.steps or self._undo.loader is not loader:
            self._undo = Undo([training_of(each) for each in self.trainers], loader, self.steps)

    def _leave_batch(self, loader: DataLoader) -> None:
        self._is_in_batch = self._skips = False
        if loader is self._active:
            self._pass_boundary()

    def _end_batch(self, loader: DataLoader) -> None:
        self._mend()
        self._leave_batch(loader)
        if self._ahead is not None and loader is self._active:
            if not self._since_step:  # otherwise the program accumulates gradients of several batches
                self._meet_followers()
        elif self._admitting and loader is self._active:
            self._admit()

    def _admit(self, intact: bool = False) -> None:
        """Let workers join that wait for it. All workers are between two batches."""
        before = self._generations.current.members
        generation = self._next(self._status(epoch=self._epoch(), intact=intact), None)
        if generation is None:
            self._drop(None)
            return
        if generation.members != before:
            self._deal_again(generation)
        self._settle(generation)


def _why(gone: Mapping[str, str], now: Generation, member: int) -> str:
    """Return why a member does not go on."""
    alone = "it waits for new partners in its replica" if now.seats.places > 1 else "it does not answer"
    return gone.get(f"worker {member}", alone)


def running() -> Elastic | None:
    """Return the elastic training of this process, or None if its job is not elastic."""
    found = process.state.running.get(_NAME)
    return found if isinstance(found, Elastic) else None


def epochs(count: int) -> Iterable[int]:
    """Return `range(count)`, or the epochs that remain in a process that joins an elastic job or resumes a checkpoint.

    Create the Trainer before this call.
    """
    found = running()
    return saved_epochs(count) if found is None else found.epochs(count)


def start_from_environment() -> None:
    """Make the training of this process elastic if `neomx run --elastic` has started it."""
    if discover().is_elastic:
        process.start(_NAME, Elastic)
