"""Plays the launcher of an elastic job: starts its workers, and kills, stops and adds some, as a test says."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

from launching import LIMIT, environment
from relay import Relay

from neomx.comm.generations import NOW
from neomx.comm.jobspec import JobSpec
from neomx.comm.store import StoreServer

SECRET = "0" * 32


class Cluster:
    """The workers of an elastic job that run `script`. Leaving the `with` block ends them."""

    def __init__(
        self,
        script,
        arguments=(),
        workers=2,
        most=None,
        least=1,
        output=None,
        popen=subprocess.Popen,
        silence=None,
        timeout=120,
        relayed=None,
        **variables,
    ):
        self.script, self.arguments, self.workers, self.most, self.least = script, arguments, workers, most, least
        self.variables, self.output = variables, output
        self.popen, self.silence, self.timeout = popen, silence, timeout
        self.relayed, self.relay = relayed, None  # the worker that reaches the store through a relay
        self.processes = {}
        self._next = workers

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        store = StoreServer("127.0.0.1", 0, SECRET.encode(), silence=self.silence)
        self.store = self._stack.enter_context(contextlib.closing(store)).start()
        if self.relayed is not None:
            self.relay = self._stack.enter_context(contextlib.closing(Relay(self.store.address)))
        for member in range(self.workers):
            self._start(member)
        return self

    def __exit__(self, *exc):
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
        for process in self.processes.values():
            process.wait()
        self._stack.close()

    def _start(self, member, joins=False):
        extra = {"NEOMX_ELASTIC": "1", "NEOMX_ELASTIC_MAX": str(self.most or self.workers)}
        extra |= {"NEOMX_ELASTIC_MIN": str(self.least), "NEOMX_JOINS": "1" if joins else ""}
        extra |= {"RANK": str(member), **environment_only(), **self.variables}
        address = self.relay.address if self.relay and member == self.relayed else self.store.address
        spec = JobSpec("job", SECRET, address, self.workers, extra=tuple(extra.items()), timeout=self.timeout)
        command = [sys.executable, str(self.script), *map(str, self.arguments)]
        with open(f"{self.output}/worker-{member}.log" if self.output else os.devnull, "w") as out:
            process = self.popen(command, env=spec.worker_environ(member), stdout=out, stderr=subprocess.STDOUT)
        self.processes[member] = process
        threading.Thread(target=self._watch, args=(member, process), daemon=True).start()

    def _watch(self, member, process):
        code = process.wait()
        if code:
            self.store.mark_gone(f"worker {member}", code)

    def join(self):
        """Start a worker that joins. Return its number."""
        member, self._next = self._next, self._next + 1
        self._start(member, joins=True)
        return member

    def kill(self, member, signum=signal.SIGKILL):
        """Send a signal to a worker."""
        self.processes[member].send_signal(signum)

    def wait(self, seconds=LIMIT):
        """Wait until all workers have ended, and return their exit codes."""
        limit = time.monotonic() + seconds
        return {n: p.wait(max(0.1, limit - time.monotonic())) for n, p in self.processes.items()}

    def generation(self):
        """Return the current generation, or None before the first."""
        found = self.store.get(NOW)
        return json.loads(found) if found else None


def environment_only():
    """Return the variables that a process needs to import this neomx."""
    return {name: value for name, value in environment().items() if os.environ.get(name) != value}
