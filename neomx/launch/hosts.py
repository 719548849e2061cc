"""A job on several machines, started over ssh."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping

from ..base import MXNetError
from ..comm.child import Child, Command
from ..comm.jobspec import new_job
from ..comm.output import colourful
from ..comm.supervision import supervise
from ..comm.tree import Tree
from ..comm.wire import is_loopback, join_address
from ..comm.world import address_towards
from .council import GOODBYE, Council
from .crew import Crew, Host
from .discovery import Discovery
from .elastic import limits_of
from .fleet import Fleet
from .job import Job
from .nodes import open_store
from .run import certificate, conclude, grace_of, settings, watched

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15"  # override with NEOMX_SSH


def run(job: Job) -> int:
    """Start a launcher on every host over ssh. It ends all processes there when its stdin closes."""
    secret, job_name = secrets.token_hex(16), new_job()
    with contextlib.ExitStack() as stack:
        discovery = _discovery(job)
        hosts = job.hosts if discovery is None else tuple(discovery.hosts.items())
        interrupts = stack.enter_context(watched(job))
        pem = stack.enter_context(certificate(job))
        address = our_address([name for name, _ in hosts], skips=job.elastic is not None)
        store = stack.enter_context(open_store(join_address(address, 0), secret, pem))
        tree = stack.enter_context(Tree(new_job()))

        def launch(node: int, host: Host) -> Child:
            ssh = shlex.split(os.environ.get("NEOMX_SSH") or SSH)
            argv = [*ssh, host.name, remote_command(job, node, host.room, store.address)]
            environ = dict(os.environ)
            ssh_command = Command(f"node {node}", argv, environ, plain=node == 0, stdin=subprocess.PIPE, lines=True)
            child = tree.start(ssh_command)
            _tell(child.process, {"secret": secret, "tls": _content(pem), "environ": settings(job), "job": job_name})
            return child

        council: Council
        if job.elastic is None:
            council = Council(store, range(len(hosts)), grace_of(job))
            for node, (host, room) in enumerate(hosts):
                launch(node, Host(host, room))
        else:
            crew, saves = Crew(limits_of(job)), job.saving.patience is not None
            fleet = Fleet(store, crew, grace_of(job), job.timeout, saves, tree, launch, discovery)
            fleet.expect(dict(hosts))
            council = fleet
            if discovery is not None:
                stack.callback(discovery.close)
        supervise(tree, council, interrupts, parting=GOODBYE)
    return conclude(council, interrupts)


def _discovery(job: Job) -> Discovery | None:
    """Run the script of the user that prints the hosts, if there is one."""
    if job.elastic is None or job.elastic.hosts_from is None:
        return None
    discovery = Discovery(job.elastic.hosts_from)
    discovery.first()
    return discovery


def our_address(hosts: Iterable[str], skips: bool = False) -> str:
    """Return an address of this machine that the hosts can reach; loopback if all of them are this machine.

    It is the one towards the first other host, or if the job `skips` unknown hosts, the first that can be resolved.
    """
    problem = None
    for name in (host.rpartition("@")[2] for host in hosts):
        if not is_loopback(name):
            try:
                return address_towards(name)
            except MXNetError as error:
                if not skips:
                    raise
                problem = problem or error
    if problem is not None:
        raise problem
    return "127.0.0.1"


def _content(pem: str | None) -> str | None:
    if pem is None:
        return None
    with open(pem) as file:
        return file.read()


def _tell(process: subprocess.Popen[bytes], told: Mapping[str, object]) -> None:
    """Send the secret, the key of the certificate and the variables through ssh's stdin.

    All users can see command lines, and variables often contain passwords.
    """
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # ssh has already failed, which will be reported
        process.stdin.write(json.dumps(told).encode() + b"\n")
        process.stdin.flush()


def remote_command(job: Job, node: int, workers: int, store: str) -> str:
    """Return the shell command for a host: the same program in the same directory, as one node of the job."""
    nodes = len(job.hosts) if job.elastic is None else node + 2  # later ones may follow
    command = [sys.executable, "-m", "neomx", "run", "--leash", "--nnodes", str(nodes), "--node-rank", str(node)]
    command += ["--rdzv", store, "-n", str(workers), "-s", str(job.servers), "--timeout", f"{job.timeout:g}"]
    command += ["--server-replicas", str(job.server_replicas)]
    command += ["--elastic"] if job.elastic is not None else []
    command += ["--grace", f"{job.saving.patience:g}"] if job.saving.patience is not None else []
    command += ["--logs", job.logs] if job.logs else []
    command += ["-m", *job.command] if job.module else job.command
    given = [
        f"{name}={os.environ[name]}" for name in ("PYTHONPATH", "OMP_NUM_THREADS", "NO_COLOR") if name in os.environ
    ]
    given += ["FORCE_COLOR=1"] if colourful(sys.stdout) else []
    return f"cd {shlex.quote(os.getcwd())} && exec env {shlex.join([*given, *command])}"
