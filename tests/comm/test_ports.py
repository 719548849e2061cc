"""Listening ports of a job: workers that share memory have none, and a flood of connections stops no process."""

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys

import hostile_tls
import pytest
from launching import LIMIT, environment, until, write

from neomx.comm.child import Failure

# Prints the ports on which this process listens.
LISTENING = """
    import os, socket

    def listening():
        inodes = set()
        for fd in os.listdir("/proc/self/fd"):
            try:
                inodes.add(os.readlink(f"/proc/self/fd/{fd}"))
            except OSError:
                pass
        rows = [line.split() for name in ("tcp", "tcp6") for line in list(open(f"/proc/net/{name}"))[1:]]
        return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]
"""
TRAIN = """
    import neomx as mx
    from neomx import autograd, gluon

    kv = mx.kv.create("dist_sync")
    net = gluon.nn.Dense(1)
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.01}, kvstore=kv)

    def step():
        with autograd.record():
            loss = (net(mx.nd.ones((4, 3)) * (kv.rank + 1)) ** 2).mean()
        loss.backward()
        trainer.step(4 * kv.num_workers)
        return loss.asscalar()
"""


def run(directory, text, *arguments, **options):
    path = write(directory, LISTENING + TRAIN + text)
    command = [sys.executable, "-m", "neomx", "run", "-n", "2", "--no-progress", *arguments, path]
    return subprocess.Popen(
        command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options
    )


def test_all_reduce_workers_of_one_host_listen_on_no_port(tmp_path):
    job = run(
        tmp_path,
        """
    for _ in range(3):
        step()
    mx.dist.all_reduce(mx.nd.ones((2,)))
    mx.dist.barrier()
    print("ports", listening())
    """,
    )
    out, err = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, err
    assert sorted(out.split("\n"))[-2:] == ["[1] ports []", "ports []"], out


def test_message_waits_only_for_its_receiver(tmp_path):
    """The first message opens gloo between two workers only, and the receiver may make other calls first."""
    job = run(
        tmp_path,
        """
    import torch
    if kv.rank == 0:
        sent = mx.dist.send(torch.ones(3), 1, async_op=True)
    mx.dist.all_reduce(mx.nd.ones((2,)))
    if kv.rank == 1:
        print("received", mx.dist.recv(torch.zeros(3), 0).tolist(), len(listening()))
    if kv.rank == 0:
        sent.wait()
    if kv.rank == 2:
        print("ports", listening())
    """,
        "-n",
        "3",
    )
    out, err = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, err
    assert "[1] received [1.0, 1.0, 1.0] 1" in out and "[2] ports []" in out


def test_torch_default_group_is_opened_by_its_first_call(tmp_path):
    job = run(
        tmp_path,
        """
    import torch
    step()
    assert listening() == [] and torch.distributed.is_initialized()
    total = torch.ones(2)
    torch.distributed.all_reduce(total)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
    model(torch.full((1, 2), kv.rank * 2.0)).sum().backward()
    half = torch.distributed.new_group([1])
    if kv.rank == 1:
        torch.distributed.all_reduce(total, group=half)
    print("torch", total.tolist(), model.module.weight.grad.tolist())
    """,
    )
    out, err = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, err
    assert "torch [2.0, 2.0] [[1.0, 1.0]]" in out and "[1] torch [2.0, 2.0] [[1.0, 1.0]]" in out


def limited():
    """Set a low soft limit, as a shell may have."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def test_flood_of_connections_to_gloo_does_not_end_a_worker(tmp_path):
    job = run(
        tmp_path,
        f"""
    import time, torch
    torch.distributed.all_reduce(torch.ones(2))
    with open({str(tmp_path)!r} + f"/part{{kv.rank}}", "w") as file:
        file.write(" ".join(map(str, listening())))
    os.rename(file.name, file.name.replace("part", "ports"))
    while True:
        step()
        flooded = torch.tensor(os.path.exists({str(tmp_path / "flooded")!r}), dtype=torch.float32)
        torch.distributed.all_reduce(flooded)  # both workers stop after the same step
        if flooded:
            break
    print("trained")
    """,
        preexec_fn=limited,
    )
    assert until(lambda: (tmp_path / "ports0").exists() and (tmp_path / "ports1").exists() or job.poll() is not None)
    for rank in (0, 1):
        for port in map(int, (tmp_path / f"ports{rank}").read_text().split()):
            for _ in range(400):
                socket.create_connection(("127.0.0.1", port), LIMIT).close()
    (tmp_path / "flooded").touch()
    out, err = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, err
    assert sorted(out.split("\n"))[-2:] == ["[1] trained", "trained"]


def test_failure_report_mentions_exhausted_descriptors():
    failure = Failure("worker 1", -signal.SIGABRT, "here", ["gloo: accept: Too many open files"])
    assert (
        "ran out of file descriptors: raise the hard limit" in failure.report()
        and failure.summary().count("raise the hard limit") == 1
    )
    assert "descriptors" not in Failure("worker 1", 1, "here", ["something else"]).report()


def ports_of(pid):
    """The ports on which a process listens."""
    inodes = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            inodes.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    with open(f"/proc/{pid}/net/tcp") as file:
        rows = [line.split() for line in list(file)[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return file.read().split()


def servers_of(pid):
    def is_server(child):
        with open(f"/proc/{child}/environ", "rb") as file:
            return b"NEOMX_ROLE=server" in file.read().split(b"\0")

    return [child for child in children_of(pid) if is_server(child)]


def attack(port, held):
    """Connect and close, connect and send nothing, connect and send invalid data."""
    for kind in range(60):
        sock = socket.create_connection(("127.0.0.1", port), LIMIT)
        if kind % 3 == 0:
            sock.close()
            continue
        if kind % 3 == 1:
            with contextlib.suppress(OSError):
                sock.sendall(os.urandom(1 + 37 * kind))
        held.append(sock)


@pytest.mark.parametrize("tls", [False, True])
def test_unauthenticated_peers_at_every_port_do_not_stop_a_job_on_two_nodes(tmp_path, monkeypatch, tls):
    monkeypatch.setenv("NEOMX_SECRET", "shared by both nodes")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        meeting = f"127.0.0.1:{sock.getsockname()[1]}"
    text = f"""
    def note(name, *values):
        with open({str(tmp_path)!r} + f"/part{{kv.rank}}", "w") as file:
            file.write(" ".join(map(str, values)))
        os.rename(file.name, {str(tmp_path)!r} + f"/{{name}}{{kv.rank}}")

    steps = 0
    while not mx.dist.all_reduce(mx.nd.array([os.path.exists({str(tmp_path / "enough")!r})]), "max").asscalar():
        step()
        steps += 1
        note("steps", steps)
    print("trained")
    """
    pem, foreign = (hostile_tls.make_certificate(tmp_path, name) for name in ("job", "foreign"))
    secured = ["--tls", "--tls-file", pem] if tls else []
    place = ["--nnodes", "2", "--rdzv", meeting, "-n", "1", "-s", "1", *secured, "--node-rank"]
    steps = lambda: min(int((tmp_path / f"steps{rank}").read_text()) for rank in (0, 1))  # noqa: E731
    jobs, held = [run(tmp_path, text, *place, "0")], []

    def attack_all(ports):
        for port in ports:
            attack(port, held)
            if tls:
                held.extend(hostile_tls.attack(("127.0.0.1", port), foreign))

    try:
        assert until(lambda: len(ports_of(jobs[0].pid)) == 2 or jobs[0].poll() is not None)
        attack_all(ports_of(jobs[0].pid))  # the store and the probe, while the node waits for the other
        jobs.append(run(tmp_path, text, *place, "1"))
        assert until(lambda: all((tmp_path / f"steps{rank}").exists() for rank in (0, 1)) or jobs[0].poll() is not None)
        ports = [port for job in jobs for pid in (job.pid, *children_of(job.pid)) for port in ports_of(pid)]
        assert len(ports) >= 4  # the store, the server, and gloo of both workers
        own = {port for job in jobs for pid in (job.pid, *servers_of(job.pid)) for port in ports_of(pid)}
        attack_all(own)
        for port in set(ports) - own:  # those of gloo, without authentication or TLS
            attack(port, held)
        attacked = steps()
        assert until(lambda: steps() > attacked + 5 or jobs[0].poll() is not None)
    finally:
        (tmp_path / "enough").touch()
        outputs = [job.communicate(timeout=LIMIT) for job in jobs]
        for sock in held:
            sock.close()
    assert [job.returncode for job in jobs] == [0, 0], outputs
    assert all("trained" in out for out, _ in outputs)
