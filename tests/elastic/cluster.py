"""Plays the launcher of an elastic job: starts its workers, and kills, stops and adds some, as a test says."""

import contextlib
import json
import os
import pathlib
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
SERVER = pathlib.Path(__file__).resolve().parents[1] / "workers" / "parameter_server.py"


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
        servers=0,
        replicas=1,
        **variables,
    ):
        self.script, self.arguments, self.workers, self.most, self.least = script, arguments, workers, most, least
        self.variables, self.output = variables, output
        self.popen, self.silence, self.timeout = popen, silence, timeout
        self.relayed, self.relay = relayed, None  # the worker that reaches the store through a relay
        self.servers, self.replicas = servers, replicas
        self.processes = {}
        self.server_processes = {}
        self._is_over = False
        self._next = workers

    def __enter__(self):
        self._stack = contextlib.ExitStack()
        store = StoreServer("127.0.0.1", 0, SECRET.encode(), silence=self.silence)
        self.store = self._stack.enter_context(contextlib.closing(store)).start()
        if self.relayed is not None:
            self.relay = self._stack.enter_context(contextlib.closing(Relay(self.store.address)))
        for number in range(self.servers):
            self.start_server(number)
        for member in range(self.workers):
            self._start(member)
        return self

    def __exit__(self, *exc):
        self._is_over = True
        started = [*self.processes.values(), *self.server_processes.values()]
        for process in started:
            if process.poll() is None:
                process.kill()
        for process in started:
            process.wait()
        self._stack.close()

    def _spec(self, address, **extra):
        extra |= {"NEOMX_ELASTIC": "1", "NEOMX_ELASTIC_MAX": str(self.most or self.workers)}
        extra |= {"NEOMX_ELASTIC_MIN": str(self.least), **environment_only(), **self.variables}
        return JobSpec(
            "job",
            SECRET,
            address,
            self.workers,
            servers=self.servers,
            server_replicas=self.replicas,
            extra=tuple(extra.items()),
            timeout=self.timeout,
        )

    def start_server(self, number, again=False):
        """Start a parameter server, or start it again."""
        spec = self._spec(self.store.address, NEOMX_JOINS="1" if again else "")
        command = spec.server_commands([sys.executable, str(SERVER)])[number]
        with open(f"{self.output}/server-{number}.log" if self.output else os.devnull, "a") as out:
            process = self.popen(command.argv, env=command.environ, stdout=out, stderr=subprocess.STDOUT)
        self.server_processes[number] = process
        threading.Thread(target=self._watch, args=(f"server {number}", process), daemon=True).start()

    def _start(self, member, joins=False):
        address = self.relay.address if self.relay and member == self.relayed else self.store.address
        spec = self._spec(address, RANK=str(member), NEOMX_JOINS="1" if joins else "")
        command = [sys.executable, str(self.script), *map(str, self.arguments)]
        with open(f"{self.output}/worker-{member}.log" if self.output else os.devnull, "w") as out:
            process = self.popen(command, env=spec.worker_environ(member), stdout=out, stderr=subprocess.STDOUT)
        self.processes[member] = process
        threading.Thread(target=self._watch, args=(f"worker {member}", process), daemon=True).start()

    def _watch(self, name, process):
        code = process.wait()
        if code:
            self.store.mark_gone(name, code)
        if code and name.startswith("server") and self.replicas > 1 and not self._is_over:
            self.start_server(int(name.removeprefix("server ")), again=True)

    def join(self):
        """Start a worker that joins. Return its number."""
        member, self._next = self._next, self._next + 1
        self._start(member, joins=True)
        return member

    def kill(self, member, signum=signal.SIGKILL):
        """Send a signal to a worker."""
        self.processes[member].send_signal(signum)

    def wait_for_servers(self, seconds=LIMIT):
        """Wait until all servers have ended, and return their exit codes, None for those that have not."""
        limit = time.monotonic() + seconds
        while time.monotonic() < limit and any(each.poll() is None for each in self.server_processes.values()):
            time.sleep(0.01)
        return {number: process.poll() for number, process in self.server_processes.items()}

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
