"""A job on several machines: the launchers of all nodes connect to the job's store and end together."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Iterator

from ..base import MXNetError
from ..comm import listener, wire
from ..comm.jobspec import JobSpec, new_job
from ..comm.output import say
from ..comm.secret import checked, find, public, read
from ..comm.store import StoreClient, StoreServer
from ..comm.supervision import Interrupts, Verdict, supervise
from ..comm.tree import Tree
from ..comm.world import address_towards
from ..programs import STARTUP
from .agent import Agent
from .council import Council, Delegate
from .crew import Host
from .elastic import Elastic, Here, There, verdict_of
from .job import Job
from .run import certificate, conclude, grace_of, settings, start, watched

PROBE = 10.0  # timeout in seconds for one connection of the probe


@dataclasses.dataclass(frozen=True)
class Node:
    """The information that a node shares with the others."""

    node: int
    name: str
    workers: int
    servers: int
    server_replicas: int
    probe: str
    job: str


def run(job: Job) -> int:
    """Run this node's part of a job on several nodes. Node 0 also hosts the store and makes decisions."""
    with contextlib.ExitStack() as stack:
        job, secret, pem = stack.enter_context(_credentials(job))
        assert job.rendezvous is not None
        council = None
        if job.node == 0 and not job.leash:
            council = _council(job, stack.enter_context(open_store(job.rendezvous, secret, pem)))
        client = stack.enter_context(_join(job, secret, pem))
        host = os.environ.get("NEOMX_HOST") or address_towards(wire.split_address(job.rendezvous)[0])
        nodes: list[Node] = []
        if job.elastic is None or not job.leash:  # hosts that may change need not reach each other before the start
            try:
                nodes = meet(client, job, host, secret, pem)
            except MXNetError as error:
                if council is None:
                    raise
                council.part()  # so that the other nodes can read the error from the store
                raise MXNetError(f"{error}{council.refusals()}") from error
        spec = spec_of(nodes, job, host, secret, pem)
        interrupts = stack.enter_context(watched(job))
        goes_on = job.elastic is not None and council is None  # the job, if this node is lost
        tree = stack.enter_context(Tree(spec.job, job.node, job.logs, abrupt=goes_on))
        if job.leash:
            tree.listen(sys.stdin.fileno(), lambda: _let_loose(tree, interrupts, goes_on))
        verdict: Verdict
        if job.elastic is None:
            verdict = council or Delegate(client, job.node, tree.tell_workers)
            start(tree, spec, job, interrupts)
        elif isinstance(council, Elastic):
            verdict = council
            for node in nodes:
                room = node.workers + job.spares_of(node.node)
                machine = Host(f"node {node.node} ({node.name})", room, node.workers, node.node)
                here = node.node == job.node
                council.add(machine, Here(tree, spec, job.python) if here else There(council.server, node.node))
            council.begin(tree)
        else:
            verdict = agent = Agent(client, tree.tell_workers, tree, spec, job.python)
            agent.ready()
        supervise(tree, verdict, interrupts)
        verdict.part()
    return conclude(verdict, interrupts, quiet=job.leash)


def _council(job: Job, store: StoreServer) -> Council:
    if job.elastic is not None:
        return verdict_of(job, store)
    return Council(store, range(1, job.nodes), grace_of(job))


def spec_of(nodes: list[Node], job: Job, host: str, secret: str, pem: str | None) -> JobSpec:
    """Return this node's part of the job."""
    assert job.rendezvous is not None
    return JobSpec(
        job=nodes[0].job if nodes else job.name,
        secret=secret,
        store=job.rendezvous,
        size=sum(node.workers for node in nodes),
        first_rank=sum(node.workers for node in nodes[: job.node]),
        local_size=job.local_workers,
        node=job.node,
        nodes=job.nodes,
        servers=job.servers,
        server_replicas=job.server_replicas,
        host=host,
        timeout=job.timeout,
        tls=pem,
        startup=STARTUP,
        extra=settings(job),
    )


# ---- rendezvous ----


@contextlib.contextmanager
def open_store(address: str, secret: str, pem: str | None) -> Iterator[StoreServer]:
    """Host the job's store at the rendezvous address."""
    host, port = wire.split_address(address)
    try:
        opened = StoreServer(host, port, secret.encode(), pem)
    except wire.WireError as error:
        if isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE and port:
            raise MXNetError(f"{error}. If this is not the first node, pass its --node-rank: 1, 2, ...") from error
        raise
    with contextlib.closing(opened) as store:
        store.start()
        yield store


@contextlib.contextmanager
def _credentials(job: Job) -> Iterator[tuple[Job, str, str | None]]:
    """Return the job with its variables, its secret and certificate, from ssh's stdin or from the user."""
    if job.leash:
        told = json.loads(sys.stdin.readline())
        environ = tuple((key, value) for key, value in told["environ"])
        job = dataclasses.replace(job, environ=environ, name=told["job"])
        with tempfile.NamedTemporaryFile("w", prefix="neomx-", suffix=".pem") as file:
            file.write(told["tls"] or "")
            file.flush()
            yield job, told["secret"], file.name if told["tls"] else None
        return
    with certificate(job) as pem:
        yield job, shared_secret(job), pem


def shared_secret(job: Job) -> str:
    """Return the secret of all nodes: from a file or the environment, or on one host from the user's own file."""
    assert job.rendezvous is not None
    if job.secret_file:
        return read(job.secret_file, f"--secret-file {job.secret_file}").decode()
    if "NEOMX_SECRET" in os.environ:
        return checked(os.environ["NEOMX_SECRET"], "NEOMX_SECRET").decode()
    one_host = wire.is_loopback(wire.split_address(job.rendezvous)[0])
    secret = find(os.environ, job.rendezvous, one_host, job.insecure)
    if secret == public(job.rendezvous):
        say(f"--insecure and no secret: any process that reaches {job.rendezvous} can join this job")
    return secret.hex()


@contextlib.contextmanager
def _join(job: Job, secret: str, pem: str | None) -> Iterator[StoreClient]:
    """Connect this node's launcher to the store, retrying until the timeout, and join the roll call."""
    assert job.rendezvous is not None
    limit = time.monotonic() + job.timeout
    patience = min(3.0, job.timeout)
    while True:
        try:
            client = StoreClient(job.rendezvous, secret.encode(), patience, pem)
            break
        except wire.WireError as error:
            if isinstance(error.__cause__, socket.gaierror):
                raise
            if isinstance(error, wire.SettingsDiffer):
                raise MXNetError(f"node {job.node} cannot join node 0: {error}") from error
            if time.monotonic() > limit:
                raise MXNetError(
                    f"node {job.node} timed out after {job.timeout:g} s waiting for node 0: {error}"
                ) from error
            say(f"node {job.node} is waiting for node 0 at {job.rendezvous} ({error.__cause__ or error})")
            patience = min(15.0, max(1.0, limit - time.monotonic()))
    client.set_timeout(datetime.timedelta(seconds=job.timeout))
    client.join(f"node {job.node}")
    try:
        yield client
    finally:
        client.close()


def meet(client: StoreClient, job: Job, host: str, secret: str, pem: str | None) -> list[Node]:
    """Wait for the launchers of all nodes and test all connections.

    Raises an error naming missing nodes or failures.
    """
    with contextlib.closing(wire.listen(host)) as listening:
        here = wire.join_address(host, listening.getsockname()[1])
        servers = job.servers, job.server_replicas
        me = Node(job.node, socket.gethostname(), job.local_workers, *servers, here, new_job())
        client.set(f"launch/node/{job.node}", json.dumps(dataclasses.asdict(me)))
        stop = listener.serve(listening, secret.encode(), pem, lambda peer: None, lambda error: None, here)
        try:
            nodes = _gather(client, job)
            _probe(client, job, nodes, secret, pem)
        finally:
            stop()
    return nodes


def _gather(client: StoreClient, job: Job) -> list[Node]:
    limit = time.monotonic() + job.timeout
    keys = {node: f"launch/node/{node}" for node in range(job.nodes)}
    said = time.monotonic() - 7.0
    while missing := [node for node, key in keys.items() if not client.check([key])]:
        names = ", ".join(f"node {node}" for node in missing)
        if time.monotonic() > limit:
            raise MXNetError(
                f"timed out after {job.timeout:g} s waiting for {names} of {job.nodes} at {job.rendezvous}: "
                "nothing was started"
            )
        if time.monotonic() - said > 10:
            said = time.monotonic()
            say(f"node {job.node} is waiting at {job.rendezvous} for {names} of {job.nodes}")
        time.sleep(0.1)
    nodes = [Node(**json.loads(client.get(key))) for key in keys.values()]
    if len({node.servers for node in nodes}) > 1:
        raise MXNetError(
            f"-s must be the same on every node; received {', '.join(f'node {n.node}: {n.servers}' for n in nodes)}"
        )
    if len({node.server_replicas for node in nodes}) > 1:
        given = ", ".join(f"node {n.node}: {n.server_replicas}" for n in nodes)
        raise MXNetError(f"--server-replicas must be the same on every node; received {given}")
    return nodes


def _probe(client: StoreClient, job: Job, nodes: list[Node], secret: str, pem: str | None) -> None:
    """Connect to every other node, publish the result, and read those of the others."""
    errors = [error for node in nodes if node.node != job.node and (error := _try(job, node, secret, pem))]
    client.set(f"launch/probe/{job.node}", json.dumps(errors))
    for node in nodes:
        errors += (
            json.loads(client.get(f"launch/probe/{node.node}", timeout=PROBE * len(nodes)))
            if node.node != job.node
            else []
        )
    if errors:
        raise MXNetError("not all nodes can reach each other, nothing was started:\n  " + "\n  ".join(errors))


def _try(job: Job, node: Node, secret: str, pem: str | None) -> str | None:
    try:
        wire.connect(node.probe, secret.encode(), {"name": f"node {job.node}"}, pem, PROBE, node.probe).close()
        return None
    except wire.WireError as error:
        return f"node {job.node} ({socket.gethostname()}) to node {node.node} ({node.name}) at {node.probe}: {error}"


def _let_loose(tree: Tree, interrupts: Interrupts, goes_on: bool) -> None:
    """End this node if the process that started this one over ssh is gone. The job may go on without it."""
    if not os.read(sys.stdin.fileno(), 1):
        tree.forget(sys.stdin.fileno())
        if goes_on:
            tree.tell_workers(signal.SIGKILL)  # SIGTERM would make all workers of the job save and end
        interrupts.received.append(signal.SIGHUP)
