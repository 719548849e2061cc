"""State of a process: modes are per thread, and named services are closed in order, at the latest at exit."""

import subprocess
import sys
import threading

from launching import LIMIT, environment

import neomx as mx
from neomx import process
from neomx.base import modes


class Running:
    def __init__(self, name, log):
        self.name, self.log = name, log
        log.append(f"made {name}")

    def close(self):
        self.log.append(f"closed {self.name}")


def test_named_service_is_closed_once_before_the_next():
    log = []
    process.start("test", lambda: Running("first", log))
    second = process.start("test", lambda: Running("second", log))
    assert isinstance(second, Running) and log == ["made first", "closed first", "made second"]
    process.stop("test")
    process.stop("test")
    assert log[3:] == ["closed second"]


def test_services_are_closed_at_exit_in_reverse_order():
    text = """
from neomx import process
class Running:
    def __init__(self, name): self.name = name
    def close(self): print("closed", self.name)
for name in "abc": process.start(name, lambda: Running(name))
process.stop("b")
"""
    run = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert run.stdout.splitlines() == ["closed b", "closed c", "closed a"], run.stderr


def test_modes_are_per_thread():
    seen = []
    with mx.autograd.record():
        thread = threading.Thread(target=lambda: seen.append((modes.recording, modes.training, modes is process.modes)))
        thread.start()
        thread.join()
        assert modes.recording and modes.training
    assert seen == [(False, False, True)]
