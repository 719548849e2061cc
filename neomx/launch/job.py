"""The configuration of `neomx run`, validated as a whole."""

from __future__ import annotations

import dataclasses
import math
import os
import re
import sys

from ..base import MXNetError, suggest
from ..comm import descriptors
from ..comm.output import say
from ..comm.wire import WireError, check_pem
from ..comm.world import DEFAULT_TIMEOUT
from .errors import ConfigurationError
from .saving import Saving

_IN_ALL = 1 << 16  # maximum processes of a job, limited by its store
_HOST = re.compile(r"[\w\[][\w.:@%\[\]-]*")  # a name or an address, maybe after 'user@'; ssh reads '-x' as an option


@dataclasses.dataclass(frozen=True)
class Elastic:
    """How the workers of an elastic job may change."""

    least: int | None = None  # minimum number of workers, on each node like `Job.workers`; None: 1 in the whole job
    spares: int = 0  # workers beyond the maximum, which wait until one is lost
    restarts: int = 3  # how often the worker in one place is replaced
    hosts_from: str | None = None  # a script that prints the hosts
    cooldown: tuple[float, float] = (60.0, 600.0)  # seconds for which a failing host is left out: first, and at most
    scale_batch: bool = False

    def __post_init__(self) -> None:
        if self.least is not None and self.least < 1:
            raise ConfigurationError(f"-n MIN:MAX expects a minimum of at least 1; received {self.least}")
        if self.spares < 0:
            raise ConfigurationError(f"--spares must be 0 or more; received {self.spares}")
        if self.restarts < 0:
            raise ConfigurationError(f"--restarts must be 0 or more; received {self.restarts}")
        first, most = self.cooldown
        if not 0 < first <= most < math.inf:
            raise ConfigurationError(f"--cooldown expects seconds with 0 < MIN <= MAX; received {first:g} {most:g}")
        path = self.hosts_from
        if path is not None and not os.path.isfile(path):
            raise ConfigurationError(f"--hosts-from {path}: no such file (looked in {os.getcwd()})")
        if path is not None and not os.access(path, os.X_OK):
            raise ConfigurationError(f"--hosts-from {path}: the file is not executable; run chmod +x {path}")


@dataclasses.dataclass(frozen=True)
class Job:
    """A job: its program, the number of processes, and the hosts. Raises ConfigurationError if it is invalid."""

    command: list[str]  # script.py and its arguments, or the module and its arguments
    module: bool = False
    interpreter: tuple[str, ...] = ()  # options of Python, such as -u
    workers: int | None = None  # on each node
    servers: int = 0  # on all nodes together
    server_replicas: int = 1  # servers that hold each parameter
    hosts: tuple[tuple[str, int], ...] = ()
    nodes: int = 1
    node: int = 0
    rendezvous: str | None = None
    logs: str | None = None
    tls: bool = False
    tls_file: str | None = None
    sinks: tuple[tuple[str, str], ...] = ()  # variables that start sinks in workers, and their values
    timeout: float = DEFAULT_TIMEOUT
    secret_file: str | None = None
    insecure: bool = False  # allow several hosts without a secret
    environ: tuple[tuple[str, str], ...] = ()
    layout: str | None = None  # 'data=2,tensor=2'
    elastic: Elastic | None = None
    saving: Saving = Saving()
    detach: bool = False  # run in the background
    name: str = ""  # of the job, if it is given from outside
    leash: bool = False  # read the secret from stdin, and end when stdin closes

    def __post_init__(self) -> None:
        self._check_program()
        self._check_counts()
        self._check_nodes()
        self._check_elastic()
        self._check_layout()
        self._check_room()
        if not 0 < self.timeout < math.inf:
            raise ConfigurationError(f"--timeout must be a number of seconds above 0; received {self.timeout:g}")
        self._check_files()
        if not self.hosts and not self.has_changing_hosts:  # otherwise the directories may be on the hosts only
            self.saving.check_directories()

    def _check_files(self) -> None:
        for flag, path in (("--tls-file", self.tls_file), ("--secret-file", self.secret_file)):
            if path and not os.path.isfile(path):
                found = "it is a directory" if os.path.isdir(path) else "no such file"
                raise ConfigurationError(f"{flag} {path}: {found}")
        try:
            if self.tls_file:
                check_pem(self.tls_file)
        except (OSError, WireError) as error:
            raise ConfigurationError(f"--tls-file {self.tls_file}: {error}") from error

    def _check_program(self) -> None:
        if not self.command:
            raise ConfigurationError(
                "no program given: use neomx run [options] script.py args... or neomx run [options] -m module args..."
            )
        if not self.module and not os.path.isfile(self.command[0]):
            raise ConfigurationError(f"no such script: {self.command[0]} (looked in {os.getcwd()})")

    def _check_counts(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise ConfigurationError(
                f"workers = nodes x workers per node = {self.nodes} x {self.workers} = {self.nodes * self.workers}: "
                "-n must be at least 1"
            )
        if self.servers < 0:
            raise ConfigurationError(f"-s must be 0 or more; received {self.servers}")
        if not 1 <= self.server_replicas <= max(1, self.servers):
            raise ConfigurationError(
                "--server-replicas must be at least 1 and at most the number of servers; received --server-replicas "
                f"{self.server_replicas} and -s {self.servers}"
            )
        if self.hosts and self.workers is not None:
            counts = [count for _, count in self.hosts]
            sum_ = " + ".join(map(str, counts))
            if self.workers != sum(counts) and self.elastic is None:
                raise ConfigurationError(
                    f"--hosts defines {sum_} = {sum(counts)} workers but -n is {self.workers}: omit -n"
                )

    def _check_nodes(self) -> None:
        if self.hosts and (self.nodes > 1 or self.rendezvous):
            raise ConfigurationError(
                "use --hosts (one command starts all, over ssh) or --nnodes with --rdzv (a command on each machine)"
            )
        if self.nodes < 1 or not 0 <= self.node < self.nodes:
            raise ConfigurationError(
                f"expected 0 <= --node-rank < --nnodes, received --node-rank {self.node} and --nnodes {self.nodes}"
            )
        if self.nodes > 1 and not self.rendezvous:
            raise ConfigurationError(
                f"--nnodes {self.nodes} requires --rdzv host:port, the address of node 0, the same on every node"
            )
        found = self.rendezvous and re.fullmatch(r".+:([0-9]{1,5})", self.rendezvous)
        if self.rendezvous and (not found or int(found[1]) > 65535):
            raise ConfigurationError(
                f"--rdzv must be host:port, such as node0:29400, with a port up to 65535; received {self.rendezvous}"
            )
        if self.nodes > 1 and self.tls and not self.tls_file:
            raise ConfigurationError(
                "--tls on several nodes requires --tls-file PEM, the same certificate and key on every node"
            )

    def _check_elastic(self) -> None:
        if self.detach and (self.hosts or self.nodes > 1 or self.has_changing_hosts):
            raise ConfigurationError("--detach works for a job on one machine: omit --hosts, --hosts-from and --nnodes")
        if self.elastic is None:
            return
        if self.servers and (self.hosts or self.nodes > 1 or self.has_changing_hosts):
            raise ConfigurationError(
                "--elastic works with parameter servers on one machine: omit -s, or --hosts, --hosts-from and --nnodes"
            )
        if self.has_changing_hosts:
            if self.hosts or self.nodes > 1:
                raise ConfigurationError("--hosts-from replaces --hosts and --nnodes: pass only one of them")
            if self.workers is None:
                raise ConfigurationError("--hosts-from needs the numbers of workers: pass -n MIN:MAX or -n MAX")
        if (self.elastic.least or 1) > (self.workers or self.most):
            raise ConfigurationError(
                f"-n {self.elastic.least}:{self.workers or self.most}: the minimum is larger than the maximum; write "
                "-n MIN:MAX, such as -n 2:8"
            )
        if len({name for name, _ in self.hosts}) < len(self.hosts):
            raise ConfigurationError("--hosts of an elastic job must name each host once, with all of its workers")
        spares, slots = self.elastic.spares, sum(count for _, count in self.hosts)
        if spares > self.most:
            raise ConfigurationError(
                f"--spares {spares} are more than the {self.most} workers that they could replace: reduce --spares"
            )
        if self.hosts and self.most + spares > slots:
            raise ConfigurationError(
                f"--hosts has room for {slots} workers, but {self.most} workers and {spares} spares need "
                f"{self.most + spares}: reduce -n or --spares"
            )

    def _check_room(self) -> None:
        """Refuse more processes than a machine can run, before it runs out of memory."""
        workers = self.most + (self.elastic.spares if self.elastic else 0)
        if workers + self.servers > _IN_ALL:
            raise ConfigurationError(
                f"{workers} workers and {self.servers} servers exceed the limit of {_IN_ALL} processes of a job: "
                "reduce -n, -s or --nnodes"
            )
        away = self.hosts or self.has_changing_hosts
        here = 0 if away else self.local_room + -(-self.servers // self.nodes)
        if here > (most := descriptors.most_processes()):
            raise ConfigurationError(
                f"{here} processes are too many for this machine: its cores and file descriptors (ulimit -Hn) allow "
                f"{most}. Reduce -n or -s"
            )

    def _check_layout(self) -> None:
        if self.layout is None:
            return
        from ..parallel.dimensions import check_elastic, registered  # imported only if a layout is used
        from ..parallel.layout import check_workers

        degrees = _degrees(self.layout)
        known = [dimension.name for dimension in registered()]
        for name in degrees:
            if name not in known and (similar := suggest(name, known, most=1)):
                why = f"{name} is not a built-in dimension, so the program must register it.{similar}"
                say(f"--layout {self.layout}: {why}")
        try:
            check_workers(degrees, self.most)
            if self.elastic is not None:
                check_elastic(degrees)
        except MXNetError as error:
            raise ConfigurationError(f"--layout {self.layout}: {error}") from None
        if self.elastic is not None and self.saving.directory is not None:
            raise ConfigurationError(
                f"--layout {self.layout}: an elastic job cannot save checkpoints under a layout yet: leave out "
                "--checkpoint or --elastic"
            )

    @property
    def local_workers(self) -> int:
        """The number of workers on this node: as given, or its share of what the layout needs."""
        if self.workers is None and self.layout is not None:
            return max(1, math.prod(_degrees(self.layout).values()) // self.nodes)
        return self.workers or 1

    @property
    def has_changing_hosts(self) -> bool:
        """Whether a script says which hosts the job has."""
        return self.elastic is not None and self.elastic.hosts_from is not None

    @property
    def most(self) -> int:
        """The number of workers on all hosts, or the maximum of an elastic job."""
        if self.hosts:
            slots = sum(count for _, count in self.hosts)
            spares = self.elastic.spares if self.elastic else 0
            return self.workers or max(1, slots - spares)
        return self.nodes * self.local_workers

    @property
    def least(self) -> int:
        """The minimum number of workers on all hosts."""
        if self.elastic is None:
            return self.most
        return 1 if self.elastic.least is None else self.nodes * self.elastic.least

    @property
    def local_room(self) -> int:
        """The number of workers on this node, with its share of the spares."""
        return self.local_workers + self.spares_of(self.node)

    def spares_of(self, node: int) -> int:
        """The number of spares on a node, over which they are distributed round robin."""
        return 0 if self.elastic is None else len(range(node, self.elastic.spares, self.nodes))

    @property
    def python(self) -> list[str]:
        """The command line of one process."""
        return [sys.executable, *self.interpreter, *(["-m"] if self.module else []), *self.command]


def _degrees(text: str) -> dict[str, int]:
    """Parse the degrees of a layout. The program may have registered its dimensions."""
    from ..parallel.dimensions import parse_degrees

    try:
        return parse_degrees(text)
    except ValueError as error:
        raise ConfigurationError(f"--layout {text}: {error}") from None


def parse_hosts(text: str) -> tuple[tuple[str, int], ...]:
    """Parse 'a:4,b:4' into (('a', 4), ('b', 4)). A host without a number has one worker."""
    hosts = []
    for part in text.split(","):
        found = parse_host(part)
        if found is None:
            raise ConfigurationError(
                f"--hosts must be a list such as a:4,b:4 (host:workers); cannot parse {part.strip()!r} in {text!r}"
            )
        hosts.append(found)
    return tuple(hosts)


def parse_host(text: str) -> tuple[str, int] | None:
    """Parse 'a:4' into ('a', 4), or return None. A host without a number has one worker."""
    name, colon, count = text.strip().rpartition(":")
    name, count = (name, count) if colon else (count, "1")
    if not _HOST.fullmatch(name) or not re.fullmatch("[0-9]{1,9}", count) or int(count) < 1:
        return None
    return name, int(count)


def parse_setting(text: str) -> tuple[str, str]:
    """Parse 'K=V' into ('K', 'V')."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ConfigurationError(f"--env must be NAME=VALUE; received {text!r}")
    return key, value
