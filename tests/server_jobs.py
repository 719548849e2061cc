"""Jobs of real processes for the tests of servers: workers and servers around a store that the test holds."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from neomx.comm.store import StoreServer

HERE = Path(__file__).parent


class Job:
    """Servers and workers of one job; a context, at the end of which no process of it is left."""

    def __init__(self, workers: int, servers: int, script: str, timeout: float = 60, argument: str = ""):
        self.workers, self.servers, self.script, self.argument = workers, servers, script, argument
        self.secret = secrets.token_hex(16).encode()
        self.store = StoreServer("127.0.0.1", 0, self.secret).start()
        self.folder = Path(tempfile.mkdtemp())
        self.timeout = timeout
        self.processes: dict[str, subprocess.Popen] = {}

    def __enter__(self) -> Job:
        for number in range(self.servers):
            self.start("server", number, ["-m", "neomx.kvstore.server"])
        for rank in range(self.workers):
            self.start_worker(rank)
        return self

    def start_worker(self, rank: int) -> None:
        self.start("worker", rank, [str(HERE / "server_scripts.py"), self.script, self.argument])

    def start(self, role: str, number: int, command: list[str]) -> None:
        environ = {
            **os.environ,
            "PYTHONPATH": str(HERE.parent),
            "OMP_NUM_THREADS": "1",
            "NEOMX_ROLE": role,
            "RANK": str(number),
            "WORLD_SIZE": str(self.workers),
            "LOCAL_RANK": str(number),
            "LOCAL_WORLD_SIZE": str(self.workers),
            "NEOMX_NODE": "0",
            "NEOMX_NODES": "1",
            "NEOMX_SERVERS": str(self.servers),
            "NEOMX_SERVER_ID": str(number),
            "NEOMX_STORE": self.store.address,
            "NEOMX_JOB": "test",
            "NEOMX_SECRET": self.secret.decode(),
            "NEOMX_TIMEOUT": str(self.timeout),
        }
        name = f"{role} {number}"
        with open(self.folder / name, "wb") as log:
            self.processes[name] = subprocess.Popen([sys.executable, *command], env=environ, stdout=log, stderr=log)

    def log(self, name: str) -> str:
        return (self.folder / name).read_text()

    def await_line(self, name: str, text: str, seconds: float = 40) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.log(name):
            assert time.monotonic() < deadline and self.processes[name].poll() is None, f"{name}: {self.log(name)}"
            time.sleep(0.02)

    def finish(self, name: str, seconds: float = 60) -> int:
        """The code with which a process ends."""
        try:
            return self.processes[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{name} does not end; it said: {self.log(name)}") from None

    def finish_all(self, seconds: float = 90) -> None:
        """All workers end well, and then all servers by themselves."""
        for rank in range(self.workers):
            code = self.finish(f"worker {rank}", seconds)
            assert code == 0, f"worker {rank} ended with {code}:\n{self.log(f'worker {rank}')}\n{self.server_logs()}"
        for number in range(self.servers):
            assert self.finish(f"server {number}", 20) == 0, self.log(f"server {number}")

    def server_logs(self) -> str:
        return "\n".join(self.log(f"server {number}") for number in range(self.servers))

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        self.store.close()
