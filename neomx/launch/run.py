"""Runs a job: the processes of this node until all have ended."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

from ..comm.child import Command
from ..comm.jobspec import JobSpec, new_job
from ..comm.output import say
from ..comm.secret import checked, read
from ..comm.store import StoreServer
from ..comm.supervision import GRACE, SAVED, Interrupts, Verdict, supervise
from ..comm.tree import Tree
from ..comm.wire import split_address
from ..programs import SERVER, STARTUP
from .errors import ConfigurationError
from .job import Job


def run(job: Job) -> int:
    """Run the job, on one or several machines, and return the exit code."""
    from . import hosts, nodes

    _check_secret(job)
    if job.logs:
        _make_directory(job.logs)
    if job.hosts or job.has_changing_hosts:
        return hosts.run(job)
    return nodes.run(job) if job.nodes > 1 else run_here(job)


def _check_secret(job: Job) -> None:
    """Validate a secret given by the user, even if the job uses a random one."""
    if job.secret_file:
        read(job.secret_file, f"--secret-file {job.secret_file}")
        mode = stat.S_IMODE(os.stat(job.secret_file).st_mode)
        if mode & 0o077:
            say(f"--secret-file {job.secret_file} has mode {mode:04o}: other users may access it. Run chmod 600 on it")
    elif "NEOMX_SECRET" in os.environ:
        checked(os.environ["NEOMX_SECRET"], "NEOMX_SECRET")


def _make_directory(path: str) -> None:
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"--logs {path}: cannot create this directory: {error.strerror}") from None


def run_here(job: Job) -> int:
    """Run a job on this machine only. Nothing listens beyond loopback."""
    from . import elastic

    secret = secrets.token_hex(16)
    place = split_address(job.rendezvous) if job.rendezvous else ("127.0.0.1", 0)
    with contextlib.ExitStack() as stack:
        pem = stack.enter_context(certificate(job))
        store = stack.enter_context(contextlib.closing(StoreServer(*place, secret.encode(), pem)))
        store.start()
        interrupts = stack.enter_context(watched(job))
        spec = JobSpec(
            job=job.name or new_job(),
            secret=secret,
            store=store.address,
            size=job.local_workers,
            local_size=job.local_workers,
            servers=job.servers,
            server_replicas=job.server_replicas,
            timeout=job.timeout,
            tls=pem,
            startup=STARTUP,
            extra=settings(job),
        )
        tree = stack.enter_context(Tree(spec.job, logs=job.logs))
        if job.elastic is None:
            verdict = Verdict(store, grace_of(job))
            start(tree, spec, job, interrupts)
        else:
            verdict = elastic.here(job, store, tree, spec)
        supervise(tree, verdict, interrupts)
    return conclude(verdict, interrupts)


def watched(job: Job) -> Interrupts:
    """Return the record of the signals to this launcher."""
    return Interrupts(forwards=True, grace=job.saving.patience)


def grace_of(job: Job) -> float:
    """Return the number of seconds that the other workers have after one has saved a checkpoint and ended."""
    return GRACE if job.saving.patience is None else job.saving.patience


def start(tree: Tree, spec: JobSpec, job: Job, interrupts: Interrupts) -> None:
    """Start this node's servers and workers, unless a signal interrupts the job."""
    for command in (*spec.server_commands(SERVER), *spec.worker_commands(job.python)):
        if interrupts.received:
            return
        start_process(tree.start, command)


def start_process(start: Callable[[Command], object], command: Command) -> None:
    """Start a process of the job. Raises if no processes, descriptors or memory are left."""
    try:
        start(command)
    except OSError as error:
        raise ConfigurationError(f"cannot start {command.name}: {error.strerror or error}. Reduce -n or -s") from error


def settings(job: Job) -> tuple[tuple[str, str], ...]:
    """The variables of every process: those of options, then those of the user, which take precedence."""
    return (*job.sinks, *job.saving.variables(), *_elastic_variables(job), *job.environ)


def _elastic_variables(job: Job) -> tuple[tuple[str, str], ...]:
    if job.elastic is None:
        return ()
    limits = (("NEOMX_ELASTIC_MIN", str(job.least)), ("NEOMX_ELASTIC_MAX", str(job.most)))
    return (("NEOMX_ELASTIC", "1"), *limits, *([("NEOMX_SCALE_BATCH", "1")] if job.elastic.scale_batch else []))


def conclude(verdict: Verdict, interrupts: Interrupts, quiet: bool = False) -> int:
    """Print what failed, unless another launcher does, and return the exit code."""
    failure = verdict.failure()
    if failure is None and verdict.saved:
        if not quiet:
            say(f"the job saved a checkpoint and ended early, with exit code {SAVED}: continue it with --resume")
        return SAVED
    if interrupts.received:
        return 128 + interrupts.received[0]
    if failure is None:
        was_told = interrupts.requests and interrupts.grace is not None and not verdict.successes
        return 128 + interrupts.requests[0] if was_told else 0
    if not quiet:
        say(verdict.report(failure))
    return failure.exit_code


@contextlib.contextmanager
def certificate(job: Job) -> Iterator[str | None]:
    """Return the file with the job's certificate and key: the user's, a new one, or None without TLS."""
    if job.tls_file or not job.tls:
        yield job.tls_file
        return
    with tempfile.TemporaryDirectory(prefix="neomx-") as directory:
        yield _make_certificate(os.path.join(directory, "job.pem"))


def _make_certificate(path: str) -> str:
    if shutil.which("openssl") is None:
        raise ConfigurationError(
            "--tls needs the openssl command to create a certificate: install it, or pass --tls-file PEM"
        )
    folder = os.path.dirname(path)
    config = os.path.join(folder, "ca.cnf")
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    begins, ends = (datetime.now(timezone.utc) + timedelta(hours=hours) for hours in (-1, 24 * 365))  # clocks differ
    dates = ["-startdate", f"{begins:%Y%m%d%H%M%SZ}", "-enddate", f"{ends:%Y%m%d%H%M%SZ}"]
    old = os.umask(0o077)
    try:
        with open(config, "w") as file:
            file.write(_CA.format(folder=folder))
        with open(os.path.join(folder, "index"), "w"):
            pass
        _openssl("req", "-new", *curve, "-nodes", "-subj", "/CN=neomx", "-keyout", path, "-out", path + ".csr")
        signing = ["-selfsign", "-keyfile", path, "-in", path + ".csr", "-out", path + ".crt", *dates]
        _openssl("ca", "-batch", "-notext", "-config", config, *signing)
    finally:
        os.umask(old)
    with open(path, "a") as pem, open(path + ".crt") as crt:
        pem.write(crt.read())
    return path


# `openssl req` cannot set the start date before OpenSSL 3.4; `openssl ca` can, and needs this file.
_CA = """[ca]
default_ca = job
[job]
database = {folder}/index
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def _openssl(*arguments: str) -> None:
    made = subprocess.run(["openssl", *arguments], capture_output=True, text=True)
    if made.returncode:
        raise ConfigurationError(f"openssl failed to create a certificate: {made.stderr.strip()}")
