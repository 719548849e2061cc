"""A job on several machines, started over ssh."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys

from ..comm.child import Command
from ..comm.jobspec import new_job
from ..comm.output import colourful
from ..comm.supervision import Interrupts, supervise
from ..comm.tree import Tree
from ..comm.wire import is_loopback, join_address
from ..comm.world import address_towards
from .job import Job
from .nodes import GOODBYE, Council, open_store
from .run import certificate, conclude, settings

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=15"  # override with NEOMX_SSH


def run(job: Job) -> int:
    """Start a launcher on every host over ssh. It ends all processes there when its stdin closes."""
    secret = secrets.token_hex(16)
    with contextlib.ExitStack() as stack:
        interrupts = stack.enter_context(Interrupts())
        pem = stack.enter_context(certificate(job))
        store = stack.enter_context(open_store(join_address(our_address(job), 0), secret, pem))
        council = Council(store, remote=range(len(job.hosts)))
        tree = stack.enter_context(Tree(new_job()))
        for node, (host, _) in enumerate(job.hosts):
            argv = [*shlex.split(os.environ.get("NEOMX_SSH") or SSH), host, remote_command(job, node, store.address)]
            ssh = Command(f"node {node}", argv, dict(os.environ), plain=node == 0, stdin=subprocess.PIPE, lines=True)
            _tell(tree.start(ssh).process, secret, pem, settings(job))
        supervise(tree, council, interrupts, parting=GOODBYE)
    return conclude(council, interrupts)


def our_address(job: Job) -> str:
    """Return an address of this machine that the hosts can reach; loopback if all of them are this machine."""
    return next((address_towards(host) for host, _ in job.hosts if not is_loopback(host)), "127.0.0.1")


def _tell(process: subprocess.Popen[bytes], secret: str, pem: str | None, environ: tuple[tuple[str, str], ...]) -> None:
    """Send the secret, the key of the certificate and the variables through ssh's stdin.

    All users can see command lines, and variables often contain passwords.
    """
    assert process.stdin is not None
    tls = None
    if pem is not None:
        with open(pem) as file:
            tls = file.read()
    with contextlib.suppress(BrokenPipeError):  # ssh has already failed, which will be reported
        process.stdin.write(json.dumps({"secret": secret, "tls": tls, "environ": environ}).encode() + b"\n")
        process.stdin.flush()


def remote_command(job: Job, node: int, store: str) -> str:
    """Return the shell command for a host: the same program in the same directory, as one node of the job."""
    command = [
        sys.executable,
        "-m",
        "neomx",
        "run",
        "--leash",
        "--nnodes",
        str(len(job.hosts)),
        "--node-rank",
        str(node),
    ]
    command += ["--rdzv", store, "-n", str(job.hosts[node][1]), "-s", str(job.servers), "--timeout", f"{job.timeout:g}"]
    command += ["--server-replicas", str(job.server_replicas)]
    command += ["--logs", job.logs] if job.logs else []
    command += ["-m", *job.command] if job.module else job.command
    given = [
        f"{name}={os.environ[name]}" for name in ("PYTHONPATH", "OMP_NUM_THREADS", "NO_COLOR") if name in os.environ
    ]
    given += ["FORCE_COLOR=1"] if colourful(sys.stdout) else []
    return f"cd {shlex.quote(os.getcwd())} && exec env {shlex.join([*given, *command])}"
