"""Rounds among threads that act as workers: a worker without data takes part in the steps of the others."""

import contextlib
import math
import threading

import pytest
import torch
from launching import LIMIT

from neomx.base import MXNetError
from neomx.comm.rounds import Round, Rounds, _Given


class Table:
    """Where the threads exchange values like workers."""

    def __init__(self, size):
        self.size = size
        self.barrier = threading.Barrier(size, timeout=LIMIT)
        self.said = [None] * size


class Seat:
    """The group of one worker at the table."""

    def __init__(self, table, rank):
        self.table, self.rank, self.size = table, rank, table.size
        self.ranks, self.generation = list(range(table.size)), 0

    followers = 0

    def clone(self, name, with_followers=False):
        return self

    def doing(self, what):
        return contextlib.nullcontext()

    def all_gather(self, tensor, what=""):
        return list(self.all_gather_small(tensor))

    def all_gather_small(self, tensor, what=""):
        self.table.said[self.rank] = tensor
        self.table.barrier.wait()
        gathered = torch.stack(self.table.said)
        self.table.barrier.wait()
        return gathered


class Steps:
    """A stepper that records its calls."""

    def __init__(self):
        self.happened = []

    def has_sent(self):
        return False

    def shadow(self, round):
        self.happened.append(("shadow", round.active, round.divisor if round.reduces else None))

    def take_over(self, source):
        self.happened.append(("take over", source))

    def checksums(self):
        return {}

    def close(self):
        self.happened.append("closed")


def run(*programs):
    """Run each program as a worker. Return the calls of each stepper, and the error of each worker."""
    table = Table(len(programs))
    steppers = [Steps() for _ in programs]
    errors = [None] * len(programs)

    def work(rank):
        try:
            rounds = Rounds(Seat(table, rank))
            rounds.enter(steppers[rank])
            programs[rank](rounds)
        except Exception as error:
            errors[rank] = error

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(len(programs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    return [stepper.happened for stepper in steppers], errors


def batches(*counts, pauses=True):
    def program(rounds):
        for count in counts:
            rounds.step(0, count, count)
        if pauses:
            rounds.pause()
        rounds.leave()

    return program


def test_equal_numbers_of_batches_need_no_shadow_steps():
    assert run(batches(4, 4), batches(4, 4)) == ([[], []], [None, None])


def test_worker_with_fewer_batches_shadows_steps_and_then_copies_weights():
    happened, errors = run(batches(4, 4, 3), batches(4), batches(4, 4))
    assert errors == [None] * 3
    assert happened[0] == [("take over", 0)]
    assert happened[1] == [("shadow", [0, 2], 8 / 3), ("shadow", [0], 1.0), ("take over", 0)]
    assert happened[2] == [("shadow", [0], 1.0), ("take over", 0)]


def test_program_that_ends_early_shadows_remaining_steps():
    happened, errors = run(batches(2, pauses=False), batches(2, 2))
    assert errors == [None, None]
    assert happened[0] == [("shadow", [1], 1.0), ("take over", 1)]


@pytest.mark.parametrize("both", [True, False])
def test_stepper_released_by_all_workers_is_closed(both):
    def program(drops):
        def work(rounds):
            rounds.step(0, 4)
            if drops:
                rounds.release(0)
            rounds.enter(Steps())
            rounds.forget(rounds._group)
            rounds.leave()

        return work

    happened, errors = run(program(True), program(both))
    assert errors == [None, None]
    assert happened == ([["closed"], ["closed"]] if both else [[], []])


def test_stepper_released_by_one_worker_still_takes_part():
    def drops(rounds):
        rounds.step(0, 4, 4)
        rounds.release(0)
        rounds.pause()
        rounds.leave()

    happened, errors = run(drops, batches(4, 4))
    assert errors == [None, None]
    assert happened[0] == [("shadow", [1], 2.0), ("take over", 1)]


def test_trainers_stepped_in_different_orders_are_named():
    def other(rounds):
        rounds.enter(Steps())
        rounds.step(1, 4)

    _, errors = run(batches(4), other)
    assert isinstance(errors[0], MXNetError) and "worker 1 steps its Trainer number 1" in str(errors[0])
    assert "worker 0 steps its Trainer number 0" in str(errors[1])


@pytest.mark.parametrize(
    ("divisors", "samples", "expected"),
    [
        ([8, 8], [-1, -1], 8),  # the global batch, passed by both
        ([4, 3], [4, 3], 3.5),  # each passes its own samples: twice the mean over all seven
        ([4, 0], [4, 0], 2),  # the second has none and waits
        ([8, 0], [3, 0], 8),  # the first passes the global batch
        ([6, 0], [3, 0], 6),  # it may be the global batch: nothing shows otherwise
        ([2, 0], [1, 0], 2),
    ],
)
def test_divisor_of_summed_gradients(divisors, samples, expected):
    steppers = [0 if divisor else -1 for divisor in divisors]
    assert Round(steppers, divisors, samples, True, False).divisor == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([(4, 2), (2, 1)], 1),  # its samples times the number of workers: the zero of the other one counts
        ([(4, 2), (2, 1), (2, 1)], 1),
        ([(4, 2), (4, 1)], 4),  # a constant
        ([(2, 2), (2, 1)], 2),  # a constant, in the end twice its samples
        ([(2, 1), (2, 1)], 2),  # a constant with batches of one sample
        ([(4, 2), (2, 1), (6, 1)], 6),  # no longer in proportion
        ([(2, 1)], 2),
    ],
)
def test_worker_without_data_counts_as_zero_if_divisors_are_proportional_to_samples(given, expected):
    divided_by = []

    def first(rounds):
        for divisor, samples in given[:-1]:
            rounds.step(0, divisor, samples)
        divided_by.append(rounds.step(0, *given[-1]).divisor)
        rounds.leave()

    def second(rounds):
        for divisor, _ in given[:1] if len(given) > 1 else ():
            rounds.step(0, divisor, given[0][1])
        rounds.leave()

    _, errors = run(first, second)
    assert errors == [None, None] and divided_by == [expected]


def waits(before, after=0):
    """A program with a barrier between its steps."""

    def program(rounds):
        for _ in range(before):
            rounds.step(0, 4, 4)
        rounds.barrier()
        for _ in range(after):
            rounds.step(0, 4, 4)
        rounds.pause()
        rounds.leave()

    return program


RULE = "All workers must call barrier() equally often, and at the same points of their programs"


@pytest.mark.parametrize(
    ("first", "second", "warning"),
    [
        (
            waits(1, 2),
            batches(4, 4, 4),
            "worker 0 waited at mx.dist.barrier() while worker 1 made 2 steps without it, and now steps without worker "
            f"1: the model differs from that of a single process. {RULE}",
        ),
        (
            waits(1, 2),
            batches(4, 4, 4, pauses=False),
            "worker 0 called mx.dist.barrier(), worker 1 did not: after 2 steps without worker 0 the program ended "
            f"there. {RULE}",
        ),
        (
            batches(4, pauses=False),
            waits(1),
            f"worker 1 called mx.dist.barrier(), worker 0 did not: the program ended there. {RULE}",
        ),
        (waits(1, 2), waits(1, 2), None),
        (waits(1, 2), waits(3, 2), None),  # fewer batches in the first epoch
        (waits(1), waits(3), None),
    ],
)
def test_barrier_not_called_by_all_workers_is_logged_once(first, second, warning, caplog):
    _, errors = run(first, second)
    assert errors == [None, None]
    assert [text for record in caplog.records if "barrier()" in (text := record.getMessage())] == (
        [warning] if warning else []
    )


@pytest.mark.parametrize(
    ("counts", "known", "logged"),
    [
        ((3, 1), {}, True),
        ((3, 1), {"lacks": math.inf}, False),
        ((3, 2), {"lacks": 1, "batches": 2}, False),
        ((6, 4), {"lacks": 1, "batches": 2}, False),  # two steps for each batch
        ((2, 0), {"lacks": 1, "batches": 0}, False),
        ((3, 0), {"lacks": 1, "batches": 3}, True),  # no step for any of its batches
        ((8, 4), {"lacks": 1, "batches": 8}, True),
    ],
)
def test_different_numbers_of_steps_are_logged_unless_known(counts, known, logged, caplog):
    def program(count):
        def work(rounds):
            for _ in range(count):
                rounds.step(0, 4, 4)
            rounds.pause(**known)
            rounds.leave()

        return work

    _, errors = run(*map(program, counts))
    assert errors == [None, None]
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == logged
    if told:
        numbers = f"worker 0 {counts[0]}, worker 1 {counts[1]}. "
        assert told[0].startswith(f"the workers made different numbers of training steps: {numbers}")
        assert "Call step() for every batch on every worker" in told[0]


def test_number_of_all_samples_is_recognized_in_a_step_of_one_worker():
    """A program that passes the samples of all workers passes its own in a step in which the others have none."""
    given = _Given(2, 1).next(2, 1).next(1, 1)  # batches of 2 on two workers, then a last one of 1 sample
    assert given.differs and not given.follows
    assert Round([0, -1], [1, 0], [1, 0], True, False, differs=given.differs).divisor == 1
    own = _Given(1, 1).next(1, 1)
    assert not own.differs and Round([0, -1], [1, 0], [1, 0], True, False, differs=own.differs).divisor == 0.5
