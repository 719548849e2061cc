"""The settings that a launcher passes to the processes of a job on one node, in environment variables."""

from __future__ import annotations

import dataclasses
import os
import secrets
from collections.abc import Mapping

from .child import Command
from .world import DEFAULT_TIMEOUT

_OF_A_JOB = frozenset(
    ("NEOMX_ROLE", "NEOMX_NODE", "NEOMX_NODES", "NEOMX_SERVERS", "NEOMX_SERVER_ID", "NEOMX_STORE", "NEOMX_JOB")
    + ("NEOMX_SERVER_REPLICAS", "NEOMX_JOINS")
    + ("NEOMX_SECRET", "NEOMX_INSECURE", "NEOMX_TLS", "NEOMX_TIMEOUT", "NEOMX_HOST")
    + ("NEOMX_ELASTIC", "NEOMX_ELASTIC_MIN", "NEOMX_ELASTIC_MAX", "NEOMX_SCALE_BATCH", "NEOMX_JOINS")
    + ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
)


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """A job from the point of view of the processes of one node."""

    job: str
    secret: str
    store: str
    size: int
    first_rank: int = 0
    local_size: int = 1
    node: int = 0
    nodes: int = 1
    servers: int = 0
    server_replicas: int = 1
    host: str = "127.0.0.1"
    timeout: float = DEFAULT_TIMEOUT
    tls: str | None = None
    startup: str = ""  # a directory to put first on PYTHONPATH
    extra: tuple[tuple[str, str], ...] = ()

    def worker_commands(self, argv: list[str]) -> list[Command]:
        """The commands of this node's workers, which all run `argv`."""
        return [self.worker_command(argv, self.first_rank + local, local) for local in range(self.local_size)]

    def worker_command(self, argv: list[str], rank: int, local_rank: int, joins: bool = False) -> Command:
        """The command of one worker, which runs `argv`. With `joins`, it joins a training that has begun."""
        environ = self._worker_environ(rank, local_rank) | ({"NEOMX_JOINS": "1"} if joins else {})
        return Command(f"worker {rank}", argv, environ, plain=rank == 0)

    def server_commands(self, argv: list[str]) -> list[Command]:
        """The commands of this node's parameter servers, which all run `argv`.

        Servers are assigned to nodes round robin.
        """
        numbers = range(self.node, self.servers, self.nodes)
        return [
            Command(f"server {number}", argv, self._environ("server", NEOMX_SERVER_ID=number)) for number in numbers
        ]

    def worker_environ(self, local_rank: int) -> dict[str, str]:
        """The environment variables of a worker."""
        return self._worker_environ(self.first_rank + local_rank, local_rank)

    def _worker_environ(self, rank: int, local_rank: int) -> dict[str, str]:
        return self._environ("worker", RANK=rank, LOCAL_RANK=local_rank, LOCAL_WORLD_SIZE=self.local_size)

    def _environ(self, role: str, **own: int) -> dict[str, str]:
        told = {
            "NEOMX_ROLE": role,
            "WORLD_SIZE": self.size,
            "NEOMX_NODE": self.node,
            "NEOMX_NODES": self.nodes,
            "NEOMX_SERVERS": self.servers,
            "NEOMX_SERVER_REPLICAS": self.server_replicas,
            "NEOMX_STORE": self.store,
            "NEOMX_JOB": self.job,
            "NEOMX_SECRET": self.secret,
            "NEOMX_TIMEOUT": f"{self.timeout:g}",
            "NEOMX_HOST": self.host,
            **({"NEOMX_TLS": self.tls} if self.tls else {}),
            **own,
        }
        return self._inherited() | {key: str(value) for key, value in told.items()} | dict(self.extra)

    def _inherited(self) -> dict[str, str]:
        """The launcher's environment without variables of another job, plus defaults for every process of a job."""
        ours = {key: value for key, value in os.environ.items() if key not in _OF_A_JOB and not key.startswith("DMLC_")}
        ours.setdefault("OMP_NUM_THREADS", "1")
        # By default glibc returns large blocks to the system at every step and faults them in again page by page,
        # which costs a seventh of the time of a step.
        ours.setdefault("MALLOC_MMAP_THRESHOLD_", str(1 << 30))
        ours.setdefault("MALLOC_TRIM_THRESHOLD_", str((1 << 31) - 1))
        ours.setdefault("PYTHONUNBUFFERED", "1")  # show lines when they are printed
        ours.setdefault("PYTHONFAULTHANDLER", "1")  # print a stack trace after a crash in native code
        ours["PYTHONPATH"] = python_path(self.startup, ours)
        return ours


def python_path(startup: str, environ: Mapping[str, str]) -> str:
    """Return PYTHONPATH with the directory `startup` first."""
    return os.pathsep.join(filter(None, [startup, environ.get("PYTHONPATH")]))


def new_job() -> str:
    """Return a unique name for a job."""
    return secrets.token_hex(4)
