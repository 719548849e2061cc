"""Deadlocks are detected within seconds, and nothing else is reported as one."""

import contextlib
import threading

import pytest
from launching import LIMIT, neomx_run

from neomx.comm.waiting import Stuck, Waits

PROGRAM = """
import sys, time
import neomx as mx
from neomx import autograd, gluon

case, rank = sys.argv[1], mx.dist.rank()
x = mx.nd.ones(3)


def train(between):
    net = gluon.nn.Dense(3, in_units=4)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", kvstore="dist_sync")
    for step in range(4):
        with autograd.record():
            loss = net(mx.nd.ones((2, 4)))
        loss.backward()
        between(step)
        trainer.step(4)


if case != "first":
    mx.dist.all_reduce(x)
if case in ("first", "ended") and rank == 0:
    mx.dist.all_reduce(x)
if case == "barrier":
    mx.dist.all_reduce(x) if rank == 0 else mx.dist.barrier()
if case == "step":
    train(lambda step: mx.dist.all_reduce(x) if step == 2 and rank == 0 else None)
if case == "slow":  # each is late for the others once
    train(lambda step: time.sleep(2.5 * (step == rank)))
    mx.dist.barrier()
    time.sleep(2.5 * rank)
    mx.dist.all_reduce(x)
print("done")
"""


@pytest.mark.parametrize(
    ("case", "messages"),
    [
        ("first", ["the first call of all workers did not complete: worker 1 on", "has ended its program"]),
        ("ended", ["can never complete", "worker 0: all_reduce; worker 1: its program has ended"]),
        ("barrier", ["can never complete", "worker 0: all_reduce; worker 1: open the group"]),
        ("step", ["can never complete", "worker 0: all_reduce; worker 1: a training step"]),
    ],
)
def test_deadlocked_call_says_where_each_worker_is(case, messages, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = neomx_run("-n", 2, "--timeout", 10 * LIMIT, tmp_path / "program.py", case)
    assert run.returncode == 1
    for message in messages:
        assert message in run.stderr, run.stderr


def test_slow_workers_are_not_reported_as_deadlocked(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    run = neomx_run("-n", 3, tmp_path / "program.py", "slow")
    assert run.returncode == 0 and run.stdout.count("done") == 3, run.stderr


# ---- cycles ----


class Board:
    """The values of a store, without a connection."""

    def __init__(self, left=()):
        self.values, self.left = {}, left

    def roster(self):
        return {f"worker {rank}": {"state": "left"} for rank in self.left}

    def set(self, key, value):
        self.values[key] = value if isinstance(value, bytes) else value.encode()

    def check(self, keys):
        return all(key in self.values for key in keys)

    def get(self, key, timeout):
        return self.values[key]


@pytest.fixture
def at_once(monkeypatch):
    """Make every check count, without waiting a second."""
    monkeypatch.setattr("neomx.comm.waiting._EVERY", 0.0)


def waits(board, count):
    return [Waits(board, rank) for rank in range(count)]


@contextlib.contextmanager
def in_calls(workers):
    with contextlib.ExitStack() as stack:
        for rank, worker in enumerate(workers):
            stack.enter_context(worker.during(f"call {rank}"))
        yield


def test_cycle_of_three_is_detected_by_all_of_them(at_once):
    board = Board()
    found, workers = [], waits(board, 3)
    with in_calls(workers):
        for _ in range(4):
            for rank, worker in enumerate(workers):
                try:
                    worker.look(lambda rank=rank: [(rank + 1) % 3])
                except Stuck as error:
                    found.append((rank, str(error)))
    said = "worker 0: call 0; worker 1: call 1; worker 2: call 2"
    assert {rank for rank, _ in found} == {0, 1, 2} and {text for _, text in found} == {said}


def test_outdated_entries_are_ignored(at_once):
    """Worker 1 waited for worker 0 and was then stopped: its current state is unknown."""
    board = Board()
    first, second = workers = waits(board, 2)
    with in_calls(workers):
        second.look(lambda: [0])
        for _ in range(5):
            first.look(lambda: [1])


def test_worker_that_waits_for_a_cycle_is_stuck_too(at_once):
    board = Board()
    workers = waits(board, 3)
    with in_calls(workers), pytest.raises(Stuck, match="worker 0: call 0; worker 1: call 1; worker 2: call 2"):
        for _ in range(4):
            for rank, late in ((1, [2]), (2, [1])):
                try:
                    workers[rank].look(lambda late=late: late)
                except Stuck:
                    continue
            workers[0].look(lambda: [1])


def test_worker_that_arrived_and_left_is_not_late(at_once):
    board = Board(left=[1])
    worker = Waits(board, 0)
    with worker.during("a"):
        worker.look(lambda: [])
        with pytest.raises(Stuck, match="worker 1: its program has ended"):
            worker.look(lambda: [1])


def test_waits_of_other_threads_are_ignored(at_once):
    board = Board()
    worker = Waits(board, 0)

    def wait():
        with worker.during("a"):
            worker.look(lambda: [1])

    thread = threading.Thread(target=wait)
    thread.start()
    thread.join(LIMIT)
    assert not board.values
