"""A process that has imported neomx and forks workers from it: starting one takes milliseconds instead of seconds.

    with ForkServer() as server:
        process = server.popen([sys.executable, script, *arguments], env=environment, stdout=file)

The processes run the script as `python script arguments` would, each in a session of its own. They end with the server.
One whose program ends normally skips the destruction of all modules, which takes longer than a short training.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading

# What workers import at their start, in their first steps and at their end, besides what these import.
_NEEDED = ("elastic", "checkpoint", "monitor", "amp", "comm.rounds", "step.allreduce")
_NEEDED_OF_TORCH = ("torch._dynamo", "torch.fx.experimental.symbolic_shapes")
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Forked:
    """A worker, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self):
        self.pid = 0
        self.returncode = None
        self._started, self._ended = threading.Event(), threading.Event()

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(f"worker with process id {self.pid}", timeout)
        return self.returncode

    def send_signal(self, signum):
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signum)

    def kill(self):
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """Forks workers on request. `command` is put before the server's own, to start it elsewhere."""

    def __init__(self, command=lambda words: words):
        words = [sys.executable, os.path.abspath(__file__)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            command(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._guard = threading.Lock()
        self._starting, self._running = [], {}
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def popen(self, command, env, stdout=None, stderr=None, **unused):
        """Fork a worker that runs the script of a command with Python. Its output goes to the file `stdout`."""
        made = Forked()
        said = {"words": command[1:], "env": env, "out": os.path.abspath(stdout.name) if stdout else os.devnull}
        with self._guard:
            self._starting.append(made)
            self._process.stdin.write(json.dumps(said) + "\n")
            self._process.stdin.flush()
        made._started.wait()
        return made

    def _listen(self):
        for line in self._process.stdout:
            kind, pid, *code = json.loads(line)
            if kind == "started":
                made = self._running[pid] = self._starting.pop(0)
                made.pid = pid
                made._started.set()
            else:
                made = self._running.pop(pid)
                made.returncode = code[0]
                made._ended.set()


# ---- the server ----


def serve():
    """Fork workers, and return what is asked of them in each one. Ends with the input."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    received = b""
    while True:
        ready, _, _ = select.select([0, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            tell_ended()
        if 0 in ready:
            more = os.read(0, 1 << 16)
            if not more:
                os._exit(0)
            *lines, received = (received + more).split(b"\n")
            for line in lines:
                pid = os.fork()
                if not pid:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    os.close(woken)
                    os.close(wakes)
                    return json.loads(line)
                tell("started", pid)


def tell(*words):
    os.write(1, json.dumps(words).encode() + b"\n")


def tell_ended():
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            tell("ended", pid, os.waitstatus_to_exitcode(status))


def become(asked):
    """Turn this process into the worker that was asked for."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    os.setsid()
    out = os.open(asked["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    none = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, none), (1, out), (2, out)):
        os.dup2(source, target)
    os.close(out)
    os.close(none)
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None
    sys.argv = asked["words"]
    torch.seed()
    numpy.random.seed()
    random.seed()
    importlib.reload(neomx)  # it reads the environment


if __name__ == "__main__":
    import numpy
    import torch

    import neomx
    from neomx import autograd, gluon  # noqa: F401

    for name in (*(f"neomx.{name}" for name in _NEEDED), *_NEEDED_OF_TORCH):
        importlib.import_module(name)
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    become(serve())
    del sys.modules["__main__"].__file__
    runpy.run_path(sys.argv[0], run_name="__main__")
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
