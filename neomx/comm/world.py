"""The place of this process in its job, read from the environment variables of its launcher.

`neomx run` sets all of them. torchrun, mpirun, srun and MXNet's own launch.py (DMLC_*) are supported too. A process
without a launcher is the only worker of its job.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..base import MXNetError
from . import secret
from .wire import is_loopback, join_address, split_address

LOOPBACK = "127.0.0.1"
DEFAULT_TIMEOUT = 600.0
_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Limits:
    """The limits of an elastic job, whose workers may die and be replaced."""

    least: int  # workers without which the training waits
    most: int  # workers beyond which nobody is admitted
    initial: int  # workers that the job started with
    joins: bool = False  # whether this process was started after the others, and joins them
    scales: bool = False  # whether the batch of all workers changes with their number


@dataclass(frozen=True)
class World:
    """A process's place in its job."""

    role: str = "worker"  # or "server", or "scheduler" with MXNet's launcher
    rank: int = 0  # among the workers or the servers; -1: assigned by the store
    size: int = 1  # number of workers
    local_rank: int = 0
    local_size: int = 1
    node: int = 0  # -1: determined by comparing host names
    nodes: int = 1
    servers: int = 0
    replicas: int = 1  # number of servers that hold each shard of the parameters
    store: str | None = None  # address of the job's store
    agent: str | None = None  # address of torchrun's store, used to exchange the address of ours
    hosts_store: bool = False  # whether this process hosts the job's store
    job: str = "alone"
    secret: bytes = b""
    tls: str | None = None
    timeout: float = DEFAULT_TIMEOUT  # timeout for waiting on other processes, in seconds
    host: str = LOOPBACK  # the address that this process may listen on
    member: int = -1  # the number of a worker of an elastic job, which never changes; its rank may
    limits: Limits | None = None  # of an elastic job

    @property
    def number(self) -> int:
        """The number of this process, unique among the workers or the servers of the job at all times."""
        return self.rank if self.member < 0 else self.member

    @property
    def name(self) -> str:
        """The name in the roll call, such as 'worker 3'."""
        return f"{self.role} {self.number}"

    @property
    def is_elastic(self) -> bool:
        """Whether workers may join and leave."""
        return self.limits is not None

    @property
    def has_others(self) -> bool:
        """Whether there are, or may be, other workers."""
        return self.size > 1 or self.is_elastic

    @property
    def initial(self) -> int:
        """The number of workers that the job started with."""
        return self.size if self.limits is None else self.limits.initial

    @property
    def shares(self) -> int:
        """The number of workers whose batches are the batch of all: in an elastic job, usually those of its start."""
        return self.size if self.limits is None or self.limits.scales else self.limits.initial

    @property
    def is_alone(self) -> bool:
        """Whether the job has no other process."""
        return not self.has_others and self.servers == 0 and self.role == "worker"


def discover(environ: Mapping[str, str] = os.environ) -> World:
    """Return the place of this process, from the variables of the launcher that started it."""
    for told_by in (_neomx, _dmlc, _torchrun, _mpi, _slurm):
        world = told_by(environ)
        if world is not None:
            return world
    if _int(environ, "WORLD_SIZE", 1) > 1:  # training alone would be silently wrong
        missing = " and ".join(name for name in _TORCHRUN if name not in environ)
        raise MXNetError(
            f"WORLD_SIZE={environ['WORLD_SIZE']} is set and {missing} is not: expected {', '.join(_TORCHRUN)}, as "
            "torchrun sets them. Start the script with neomx run or torchrun, or unset WORLD_SIZE"
        )
    return World(timeout=timeout_of(environ))


def address_towards(other: str) -> str:
    """Return the address of this machine on the route to another one."""
    if is_loopback(other):
        return LOOPBACK
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as sock:
            sock.connect(place)  # sends nothing, only selects the route
            return str(sock.getsockname()[0])
    except OSError as error:
        raise MXNetError(
            f"cannot resolve host {other!r}: {error}. Check the host name and the network connection"
        ) from error


def _neomx(environ: Mapping[str, str]) -> World | None:
    if "NEOMX_STORE" not in environ:
        return None
    role = environ.get("NEOMX_ROLE", "worker")
    world = World(
        role=role,
        rank=_int(environ, "RANK" if role == "worker" else "NEOMX_SERVER_ID", 0),
        size=_int(environ, "WORLD_SIZE", 1),
        local_rank=_int(environ, "LOCAL_RANK", 0),
        local_size=_int(environ, "LOCAL_WORLD_SIZE", 1),
        node=_int(environ, "NEOMX_NODE", 0),
        nodes=_int(environ, "NEOMX_NODES", 1),
        servers=_int(environ, "NEOMX_SERVERS", 0),
        replicas=_int(environ, "NEOMX_SERVER_REPLICAS", 1),
        store=environ["NEOMX_STORE"],
        job=environ.get("NEOMX_JOB", "job"),
        secret=secret.find(environ, environ.get("NEOMX_JOB", "job"), _is_here(environ["NEOMX_STORE"])),
        tls=environ.get("NEOMX_TLS") or None,
        timeout=timeout_of(environ),
        host=environ.get("NEOMX_HOST") or LOOPBACK,
    )
    limits = _limits(environ) if role == "worker" else None
    if limits is None:
        return world
    world = replace(world, member=world.rank, limits=limits)
    return outside(world) if limits.joins else world


def outside(world: World) -> World:
    """Return the world as seen by a worker that does not train with the others: as if it were one more, never rank 0.

    Programs let rank 0 write files, and divide data and batches by the number of workers.
    """
    assert world.limits is not None
    return replace(world, rank=world.limits.initial, size=world.limits.initial + 1)


def replaced_share(world: World, rank: int, size: int, initial: int) -> World:
    """Return the world as data that is divided among fewer than all workers sees it: this one's rank among those."""
    limits = world.limits and replace(world.limits, initial=initial)
    return replace(world, rank=rank, size=size, limits=limits)


def _limits(environ: Mapping[str, str]) -> Limits | None:
    if environ.get("NEOMX_ELASTIC") != "1":
        return None
    initial = _int(environ, "WORLD_SIZE", 1)
    return Limits(
        least=_int(environ, "NEOMX_ELASTIC_MIN", 1),
        most=_int(environ, "NEOMX_ELASTIC_MAX", initial),
        initial=initial,
        joins=environ.get("NEOMX_JOINS") == "1",
        scales=environ.get("NEOMX_SCALE_BATCH") == "1",
    )


def _dmlc(environ: Mapping[str, str]) -> World | None:
    if "DMLC_ROLE" not in environ or "DMLC_PS_ROOT_URI" not in environ:
        return None
    root = join_address(environ["DMLC_PS_ROOT_URI"], _int(environ, "DMLC_PS_ROOT_PORT", 9091))
    role = environ["DMLC_ROLE"]
    if role not in ("worker", "server", "scheduler"):
        raise MXNetError(f"DMLC_ROLE must be worker, server or scheduler, received {role!r}")
    size = _int(environ, "DMLC_NUM_WORKER", 1)
    return World(
        role=role,
        rank=_int(environ, "DMLC_WORKER_ID", -1) if role == "worker" else 0 if role == "scheduler" else -1,
        size=size,
        node=-1,
        servers=_int(environ, "DMLC_NUM_SERVER", 0),
        store=root,
        hosts_store=role == "scheduler",
        job=root,
        secret=secret.find(environ, root, _is_here(root)),
        timeout=timeout_of(environ),
        host=environ.get("DMLC_NODE_HOST") or address_towards(environ["DMLC_PS_ROOT_URI"]),
    )


def _torchrun(environ: Mapping[str, str]) -> World | None:
    if not set(_TORCHRUN) <= environ.keys():
        return None
    rank, size, local_size = (
        _int(environ, "RANK", 0),
        _int(environ, "WORLD_SIZE", 1),
        _int(environ, "LOCAL_WORLD_SIZE", 0),
    )
    meeting = join_address(environ["MASTER_ADDR"], _int(environ, "MASTER_PORT", 29500))
    job = environ.get("TORCHELASTIC_RUN_ID") or meeting
    elastic = "TORCHELASTIC_RUN_ID" in environ
    one_host = local_size == size or _is_here(meeting)
    return World(
        rank=rank,
        size=size,
        local_rank=_int(environ, "LOCAL_RANK", 0),
        local_size=local_size or 1,
        node=_int(environ, "GROUP_RANK", -1) if local_size else -1,
        nodes=_int(environ, "GROUP_WORLD_SIZE", 1),
        store=None if elastic else meeting,
        agent=meeting if elastic else None,
        hosts_store=rank == 0,
        job=job,
        secret=secret.find(environ, job, one_host) if size > 1 else b"",
        timeout=timeout_of(environ),
        host=environ.get("NEOMX_HOST") or address_towards(environ["MASTER_ADDR"]),
    )


def _mpi(environ: Mapping[str, str]) -> World | None:
    for rank, size, local_rank, local_size in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    ):
        if rank in environ and _int(environ, size, 1) > 1:
            job = (
                environ.get("PMIX_NAMESPACE") or environ.get("OMPI_MCA_ess_base_jobid") or environ.get("PMI_ID", "mpi")
            )
            local = local_size in environ and _int(environ, local_size, 1) == _int(environ, size, 1)
            return _meeting(
                environ, "mpirun", "-x MASTER_ADDR=host", job, LOOPBACK if local else None,
                _int(environ, rank, 0), _int(environ, size, 1),
                _int(environ, local_rank, 0), _int(environ, local_size, 1),
            )  # fmt: skip
    return None


def _slurm(environ: Mapping[str, str]) -> World | None:
    if "SLURM_PROCID" not in environ or _int(environ, "SLURM_NTASKS", 1) < 2 or "SLURM_STEP_ID" not in environ:
        return None
    nodes = node_names(environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST", ""))
    first = LOOPBACK if len(nodes) == 1 else nodes[0] if nodes else None
    per_node = re.match(r"\d+", environ.get("SLURM_STEP_TASKS_PER_NODE", "1"))
    return _meeting(
        environ, "srun", "MASTER_ADDR", f"{environ.get('SLURM_JOB_ID', '0')}.{environ['SLURM_STEP_ID']}", first,
        _int(environ, "SLURM_PROCID", 0), _int(environ, "SLURM_NTASKS", 1),
        _int(environ, "SLURM_LOCALID", 0), int(per_node.group()) if per_node else 1,
    )  # fmt: skip


def _meeting(
    environ: Mapping[str, str], launcher: str, remedy: str, job: str, first: str | None, *places: int
) -> World:
    """Return a world whose worker 0 hosts the store, at MASTER_ADDR or the first host, on a port from the job."""
    rank, size, local_rank, local_size = places
    first = environ.get("MASTER_ADDR") or first
    if first is None:
        raise MXNetError(f"{launcher} on several hosts does not say where worker 0 is: pass {remedy} to all workers")
    if is_loopback(first):
        job = f"{job} of user {os.getuid()}"  # MPICH jobs have no name; separate those of different users
    port = _int(environ, "MASTER_PORT", 20000 + int(hashlib.sha256(job.encode()).hexdigest(), 16) % 10000)
    return World(
        rank=rank,
        size=size,
        local_rank=local_rank,
        local_size=local_size,
        node=-1,
        store=join_address(first, port),
        hosts_store=rank == 0,
        job=job,
        secret=secret.find(environ, job, is_loopback(first)),
        timeout=timeout_of(environ),
        host=environ.get("NEOMX_HOST") or address_towards(first),
    )


def node_names(listed: str) -> list[str]:
    """Expand Slurm's short form of host names: 'n[01-03,7],gpu5' is n01 n02 n03 n7 gpu5."""
    names: list[str] = []
    for head, inside, tail in re.findall(r"([^,\[\]]+)(?:\[([^\]]*)\])?([^,\[\]]*)", listed):
        if not inside:
            names.append(head + tail)
            continue
        for part in inside.split(","):
            first, _, last = part.partition("-")
            names += [f"{head}{n:0{len(first)}d}{tail}" for n in range(int(first), int(last or first) + 1)]
    return names


def _int(environ: Mapping[str, str], key: str, default: int) -> int:
    value = environ.get(key, "")
    if not value:
        return default
    try:
        return int(value)
    except ValueError:
        raise MXNetError(f"the environment variable {key} must be an integer, received {value!r}") from None


def timeout_of(environ: Mapping[str, str]) -> float:
    """Return the timeout for waiting on other processes, from NEOMX_TIMEOUT or the default, in seconds."""
    value = environ.get("NEOMX_TIMEOUT", "")
    try:
        seconds = float(value) if value else DEFAULT_TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise MXNetError(f"NEOMX_TIMEOUT must be a number of seconds above 0, received {value!r}")
    return seconds


def _is_here(address: str) -> bool:
    """Whether only processes of this host can reach the address."""
    return is_loopback(split_address(address)[0])


def store_place(world: World) -> tuple[str, int]:
    """Return where the hosting process of the store listens: the job's address, on loopback if possible."""
    if world.store is None:
        return world.host, 0
    host, port = split_address(world.store)
    return (LOOPBACK if is_loopback(host) else world.host), port
