"""A team: the processes of one distributed program, which run and time steps on request.

Every worker connects to the control socket of the team (a Unix socket, which also works across network namespaces),
waits for `{"run": what, "count": n}`, and answers with the n + 1 times at the boundaries of its n steps.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
START_SECONDS, RUN_SECONDS, END_SECONDS = 90, 120, 15
Process = tuple[Sequence[str], dict[str, str]]  # a command and its additional environment variables


class Team:
    """Processes that are started and stopped together, of which `workers` connect to this process."""

    def __init__(self, name: str, processes: Sequence[Process], workers: int):
        self.name, self.expected = name, workers
        self.folder = tempfile.TemporaryDirectory(prefix="neomx-bench-")
        self.log = pathlib.Path(self.folder.name, "log")
        self.processes: list[subprocess.Popen] = []
        self.workers: list[socket.socket] = []
        try:
            self._open(processes)
        except BaseException:
            self.close()
            raise

    def _open(self, processes: Sequence[Process]) -> None:
        path = str(pathlib.Path(self.folder.name, "control"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(self.expected)
            listener.settimeout(1)
            self._start(processes, path)
            self._gather(listener)

    def _start(self, processes: Sequence[Process], path: str) -> None:
        base = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(PACKAGE), "BENCH_CONTROL": path}
        with open(self.log, "w") as log:
            for command, extra in processes:
                self.processes.append(
                    subprocess.Popen(
                        command,
                        env={**base, **extra},
                        cwd=self.folder.name,  # not a checkout, whose neomx Python would import first
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )

    def _gather(self, listener: socket.socket) -> None:
        limit = time.monotonic() + START_SECONDS
        while len(self.workers) < self.expected:
            try:
                worker, _ = listener.accept()
            except TimeoutError:
                failed = [p.args for p in self.processes if p.poll()]
                if failed or time.monotonic() > limit:
                    raise self._failure(f"only {len(self.workers)} of {self.expected} workers connected") from None
                continue
            worker.settimeout(RUN_SECONDS)
            self.workers.append(worker)

    def _failure(self, why: str) -> RuntimeError:
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-30:])
        return RuntimeError(f"{self.name}: {why}. Its last lines:\n{tail}")

    def run(self, what: str, count: int) -> list[list[float]]:
        """Return each worker's times (of the clock shared by all processes) at the boundaries of its `count` steps."""
        order = json.dumps({"run": what, "count": count}).encode() + b"\n"
        try:
            for worker in self.workers:
                worker.sendall(order)
            return [json.loads(line_of(worker)) for worker in self.workers]
        except (OSError, ValueError) as error:
            raise self._failure(f"no answer to {order!r}: {error!r}") from None

    def seconds(self, what: str, count: int) -> float:
        """Return the seconds per step of `what`, over all steps and workers."""
        return statistics.mean(moments[-1] - moments[0] for moments in self.run(what, count)) / count

    def close(self) -> None:
        """Let the workers finish; after a timeout terminate and then kill the remaining processes."""
        for worker in self.workers:
            worker.close()  # the worker reads the end of the stream
        self._wait(END_SECONDS)
        for process in self.processes:
            process.terminate()  # a launcher then stops its processes
        self._wait(END_SECONDS)
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.folder.cleanup()

    def _wait(self, seconds: float) -> None:
        limit = time.monotonic() + seconds
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.01, limit - time.monotonic()))

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def line_of(worker: socket.socket) -> bytes:
    """Return the next line from a worker."""
    line = b""
    while not line.endswith(b"\n"):
        chunk = worker.recv(65536)
        if not chunk:
            raise ValueError("the worker has ended")
        line += chunk
    return line


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
