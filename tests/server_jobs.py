"""Jobs of real processes for the tests of servers: workers and servers connected to a store in the test.

Importing takes seconds per process, so processes are forked from one that has already imported everything.
"""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from launching import LIMIT, until

from neomx.comm.store import StoreServer

HERE = Path(__file__).parent
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["neomx.kvstore.server", "neomx.kvstore.remote"])


def _enter(environ: dict[str, str], log: str, command: list[str]) -> None:
    """Run in the forked process: call the function of a module with this environment."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.environ.update(environ)
    torch.set_num_threads(1)
    code = 0
    try:
        module, function, *arguments = command
        getattr(importlib.import_module(module), function)(*arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    atexit._run_exitfuncs()
    os._exit(code)


class Job:
    """Servers and workers of one job; a context manager that leaves no process behind."""

    def __init__(
        self,
        workers: int,
        servers: int,
        script: str,
        timeout: float = LIMIT,
        argument: str = "",
        apart: bool = False,
        tls: str | None = None,
    ):
        self.workers, self.servers, self.script, self.argument = workers, servers, script, argument
        self.secret = secrets.token_hex(16).encode()
        self.store = StoreServer("127.0.0.1", 0, self.secret, tls).start()
        self.tls = tls
        self.folder = Path(tempfile.mkdtemp())
        self.timeout = timeout
        self.apart = apart  # whether servers appear to be on another host, without shared memory
        self.processes: dict[str, Any] = {}

    def __enter__(self) -> Job:
        for number in range(self.servers):
            self.start("server", number, ["neomx.kvstore.server", "main"])
        for rank in range(self.workers):
            self.start_worker(rank, self.script)
        return self

    def start_worker(self, rank: int, script: str) -> None:
        self.start("worker", rank, ["server_scripts", script, self.argument])

    def environ(self, role: str, number: int) -> dict[str, str]:
        return {
            "PYTHONPATH": f"{HERE.parent}:{HERE}",
            "OMP_NUM_THREADS": "1",
            "NEOMX_ROLE": role,
            "RANK": str(number),
            "WORLD_SIZE": str(self.workers),
            "LOCAL_RANK": str(number),
            "LOCAL_WORLD_SIZE": str(self.workers),
            "NEOMX_NODE": str(int(self.apart and role == "server")),
            "NEOMX_NODES": "1",
            "NEOMX_SERVERS": str(self.servers),
            "NEOMX_SERVER_ID": str(number),
            "NEOMX_STORE": self.store.address,
            "NEOMX_JOB": "test",
            "NEOMX_SECRET": self.secret.decode(),
            "NEOMX_TIMEOUT": str(self.timeout),
            "NEOMX_TLS": self.tls or "",
        }

    def start(self, role: str, number: int, command: list[str]) -> None:
        name = f"{role} {number}"
        log = str(self.folder / name)
        open(log, "a").close()
        process = _forks.Process(target=_enter, args=(self.environ(role, number), log, command), daemon=True)
        process.start()
        self.processes[name] = process

    def log(self, name: str) -> str:
        return (self.folder / name).read_text()

    def await_line(self, name: str, text: str) -> None:
        until(lambda: text in self.log(name) or not self.processes[name].is_alive())
        assert text in self.log(name), f"{name}: {self.log(name)}"

    def await_server(self, number: int) -> None:
        """Wait until the server can be reached."""
        until(lambda: self.store.get(f"server/{number}") or not self.processes[f"server {number}"].is_alive())
        assert self.store.get(f"server/{number}"), self.log(f"server {number}")

    def signal(self, name: str, number: int) -> None:
        os.kill(self.processes[name].pid, number)

    def finish(self, name: str) -> int:
        """Wait for a process to end and return its exit code."""
        self.processes[name].join(LIMIT)
        code = self.processes[name].exitcode
        assert code is not None, f"{name} did not end; its log: {self.log(name)}"
        return int(code)

    def finish_all(self) -> None:
        """Assert that all workers exit with 0, and that all servers then end by themselves."""
        for rank in range(self.workers):
            code = self.finish(f"worker {rank}")
            assert code == 0, f"worker {rank} ended with {code}:\n{self.logs()}"
        self.finish_servers()

    def finish_servers(self) -> None:
        for number in range(self.servers):
            assert self.finish(f"server {number}") == 0, self.log(f"server {number}")

    def logs(self) -> str:
        return "\n".join(f"{name}: {self.log(name)}" for name in self.processes)

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.is_alive():
                process.kill()
                process.join()
        self.store.close()


STOP, GO_ON, KILL, TERMINATE = signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL, signal.SIGTERM
