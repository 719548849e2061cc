"""One function on several workers: `mx.dist.launch`."""

import dataclasses
import functools
import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest
from launching import LIMIT, assert_gone, environment, until

from neomx.comm import byvalue, supervision, tree
from neomx.comm.call import WorkerError
from neomx.dist import launch

# A program without a file, like a notebook: its definitions are only in its own __main__.
CELLS = """
    import dataclasses, functools, os, threading
    from abc import ABC, abstractmethod
    import neomx as mx
    from neomx.dist import launch

    scale = 3
    lock = threading.Lock()

    @dataclasses.dataclass
    class Point:
        x: int = 2
        y: list = dataclasses.field(default_factory=list)

    class Shape(ABC):
        kinds = 0
        def __init_subclass__(cls):
            Shape.kinds += 1
        @abstractmethod
        def area(self): ...

    class Square(Shape):
        __slots__ = ("side",)
        def __init__(self, side):
            super().__init__()
            self.side = side
        def area(self):
            return self.side ** 2
        @property
        def double(self): return self.side * 2
        @staticmethod
        def four(): return 4
        @classmethod
        def unit(cls): return cls(1)

    class Net(mx.gluon.HybridBlock):
        def __init__(self, **kwargs):
            super().__init__(**kwargs)
            self.dense = mx.gluon.nn.Dense(scale)
        def hybrid_forward(self, F, x):
            return self.dense(x)

    def logged(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)
        return inner

    def even(n): return n == 0 or odd(n - 1)
    def odd(n): return n != 0 and even(n - 1)

    @logged
    def train(offset, *, power=2):
        rank = int(os.environ["RANK"])
        net = Net()
        net.initialize()
        assert net(mx.nd.ones((1, 4))).shape == (1, scale)
        assert even(4) and Square(3).area() == 9 and Square(3).double == 6 and Square.four() == 4
        assert Square.unit().side == 1 and dataclasses.replace(Point(1), y=[2]) == Point(1, [2])
        print("rank", rank, lambda: 0 and None)
        return (rank * scale + offset) ** power, Point(rank), mx.nd.array([rank])

    results = launch(train, n=2, args=(10,))
    assert [r[0] for r in results] == [100, 169], results
    assert [r[1] for r in results] == [Point(0), Point(1)] and type(results[0][1]) is Point
    assert [r[2].asscalar() for r in results] == [0, 1]
    k = 5
    assert launch(lambda: k * 2) == [10]

    def locked():
        with lock: pass
    try:
        launch(locked, n=2)
    except TypeError as error:
        assert "lock (" in str(error) and "inside the function" in str(error), error
    else:
        raise AssertionError
    print("all good")
"""


def test_functions_and_classes_of_main_can_be_launched():
    text = textwrap.dedent(CELLS)
    ran = subprocess.run(
        [sys.executable, "-"], input=text, env=environment(), capture_output=True, text=True, timeout=LIMIT
    )
    assert ran.returncode == 0, ran.stderr
    assert "all good" in ran.stdout and "\n[1] rank 1" in "\n" + ran.stdout


def fails_on_one(directory):
    import time

    rank = os.environ["RANK"]
    with open(f"{directory}/pid{rank}", "w") as file:
        file.write(str(os.getpid()))
    if rank == "1":
        raise ValueError("no good")
    time.sleep(3600)


def test_failure_raises_its_traceback_and_leaves_no_process(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(supervision, "FAREWELL", 0.5)
    monkeypatch.setattr(tree, "PATIENCE", 0.5)
    with pytest.raises(
        WorkerError,
        match="worker 1 on .* failed first, with exit code 1(.|\n)*in fails_on_one(.|\n)*ValueError: no good",
    ):
        launch(fails_on_one, n=2, args=(str(tmp_path),))
    files = list(tmp_path.glob("pid*"))
    assert files
    assert_gone([int(file.read_text()) for file in files])


def test_worker_that_dies_without_output_is_described(capfd):
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(WorkerError, match="worker 0 on .* failed first, with signal SIGKILL"):
        launch(die)


def test_ctrl_c_is_raised_after_all_workers_have_ended(tmp_path, capfd):
    def wait(directory):
        import time

        with open(f"{directory}/pid", "w") as file:
            file.write(str(os.getpid()))
        time.sleep(3600)

    def interrupt():
        until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() or stop.is_set())
        if not stop.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    stop = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            launch(wait, args=(str(tmp_path),))
    finally:
        stop.set()
        thread.join()
    assert_gone([int((tmp_path / "pid").read_text())])


def test_invalid_arguments_are_refused():
    with pytest.raises(ValueError, match="n=0"):
        launch(print, n=0)
    with pytest.raises(ValueError, match="servers=-1"):
        launch(print, servers=-1)


def sent(value):
    import pickle

    return pickle.loads(byvalue.dumps(value))


def test_closures_are_pickled_by_value():
    total = [1]

    def counter(step=2, *, times=3):
        """Adds."""
        return total[0] + step * times

    again = sent(counter)
    assert again is not counter and (again(), again.__doc__, again.__name__) == (7, "Adds.", "counter")
    assert again.__globals__ is globals()  # the module can be imported, so it is

    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    assert sent(factorial)(5) == 120
    assert sent(functools.partial(factorial, 4))() == 24


def test_local_classes_are_pickled_by_value():
    @dataclasses.dataclass(frozen=True)
    class Pair:
        a: int
        b: tuple = (1, 2)

        def total(self):
            return self.a + sum(self.b)

    again = sent(Pair)
    assert again is not Pair and again(3).total() == 6
    assert dataclasses.fields(again)[0].default is dataclasses.MISSING
    assert sent(os.path.join) is os.path.join and sent(Pair(1)).total() == 4


def test_more_processes_than_a_machine_can_run_are_refused():
    with pytest.raises(ValueError, match="launch starts at most [0-9]+ processes on this machine; received n=99999999"):
        launch(print, n=99999999)
