"""Unauthenticated peers at every port of a job with TLS, while it starts and trains: the training continues."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import subprocess
import sys

import hostile_tls
import pytest
from launching import LIMIT, environment, until, write
from server_jobs import Job

from neomx.comm import store as stores
from neomx.comm import wire
from neomx.comm.server import messages as m


@pytest.fixture(scope="module")
def pem(tmp_path_factory):
    return hostile_tls.make_certificate(tmp_path_factory.mktemp("job"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory):
    return hostile_tls.make_certificate(tmp_path_factory.mktemp("foreign"), "foreign")


@pytest.fixture(scope="module")
def job(pem, foreign):
    """A job in training, held at step 10, that ends while both ports are under attack."""
    with Job(2, 1, "train", apart=True, tls=pem) as job:
        held = hostile_tls.attack(wire.split_address(job.store.address), foreign)  # while its processes join
        for rank in (0, 1):
            job.await_line(f"worker {rank}", "ready")
        yield job
        for address in addresses(job).values():
            held += hostile_tls.attack(wire.split_address(address), foreign)
        job.store.set("attacked", b"")
        job.finish_all()
        for sock in held:
            sock.close()


def addresses(job):
    return {"store": job.store.address, "server": job.store.get("server/0").decode()}


@pytest.fixture(params=["store", "server"])
def target(job, request):
    """The address of a listener, and the service name that members use."""
    address = addresses(job)[request.param]
    return address, stores.SERVICE if request.param == "store" else m.service_name(0, address)


def is_closed(sock):
    """Wait until the listener closes the connection, and return whether it did."""
    sock.settimeout(LIMIT)
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while sock.recv(4096):
            pass
    return True


def is_open(sock):
    """Whether the listener has not closed the connection yet."""
    with socket.socket(fileno=os.dup(sock.fileno())) as raw:  # plain: TLS does not notice a closed connection
        raw.setblocking(False)
        try:
            while raw.recv(4096):
                pass
        except BlockingIOError:
            return True
        except OSError:
            return False
    return False


def member_gets_in(job, address, service):
    hello = {"name": "guest", "token": "t", "rank": 1, "node": 5, "space": 70, "staleness": 0}
    wire.connect(address, job.secret, hello, job.tls, LIMIT, service).close()


@pytest.mark.parametrize("act", hostile_tls.CLOSED_AT_ONCE, ids=lambda act: act.__name__)
def test_peer_without_member_protocol_is_disconnected(job, target, foreign, act):
    address, service = target
    with contextlib.closing(act(wire.split_address(address), foreign)) as sock:
        assert is_closed(sock)
    member_gets_in(job, address, service)


@pytest.mark.parametrize("act", hostile_tls.LEFT_OPEN, ids=lambda act: act.__name__)
def test_incomplete_greeting_does_not_block_members(job, target, foreign, act):
    address, service = target
    with contextlib.closing(act(wire.split_address(address), foreign)) as sock:
        member_gets_in(job, address, service)
        assert is_open(sock)  # the member connected while the listener waited for the other half


def test_tls_without_the_secret_is_refused(job, target):
    address, service = target
    with pytest.raises(wire.WireError, match="the secrets differ"):
        wire.connect(address, b"a guess of a secret", {}, job.tls, LIMIT, service)


def test_secret_without_tls_is_refused(job, target):
    address, service = target
    with pytest.raises(wire.WireError):
        wire.connect(address, job.secret, {}, None, 3.0, service)
    member_gets_in(job, address, service)


def test_members_refuse_a_listener_with_a_foreign_certificate(pem, foreign, job):
    """It may even hold the secret."""
    impostor = stores.StoreServer("127.0.0.1", 0, job.secret, foreign).start()
    with contextlib.closing(impostor), pytest.raises(wire.WireError, match="has a certificate that is not in"):
        wire.connect(impostor.address, job.secret, {}, pem, LIMIT, stores.SERVICE)


def test_unauthenticated_peers_cause_no_traceback(job):
    assert "Traceback" not in job.logs()


# ---- the store in worker 0, as under torchrun and mpirun ----

TRAINING = """
    import os
    import neomx as mx

    kv = mx.kv.create("dist_sync")
    steps, enough = 0, 0
    while not enough:
        total = mx.dist.all_reduce(mx.nd.array([1.0, os.path.exists(os.environ["FOLDER"] + "/enough")]))
        assert total[0].asscalar() == 2
        enough, steps = total[1].asscalar(), steps + 1
        with open(os.environ["FOLDER"] + f"/part{kv.rank}", "w") as file:
            file.write(str(steps))
        os.rename(file.name, os.environ["FOLDER"] + f"/steps{kv.rank}")
    print("trained")
"""


def test_unauthenticated_peers_do_not_stop_a_worker_that_hosts_the_store(tmp_path, pem, foreign):
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = free.getsockname()
    shared = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": place[0],
        "MASTER_PORT": str(place[1]),
        "NEOMX_SECRET": os.urandom(16).hex(),
        "NEOMX_TLS": pem,
        "FOLDER": str(tmp_path),
    }
    command = [sys.executable, write(tmp_path, TRAINING)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def start(rank):
        environ = environment(**shared, RANK=str(rank), LOCAL_RANK=str(rank))
        return subprocess.Popen(command, env=environ, **pipes)

    steps = lambda: min(int((tmp_path / f"steps{rank}").read_text()) for rank in (0, 1))  # noqa: E731
    workers, held = [start(0)], []
    try:
        assert until(lambda: is_listening(place) or workers[0].poll() is not None)
        held += hostile_tls.attack(place, foreign)  # before worker 1 has connected
        workers.append(start(1))
        assert until(lambda: all((tmp_path / f"steps{rank}").exists() for rank in (0, 1)) or has_ended(workers))
        held += hostile_tls.attack(place, foreign)
        attacked = steps()
        assert until(lambda: steps() > attacked + 5 or has_ended(workers))
    finally:
        (tmp_path / "enough").touch()
        outputs = [worker.communicate(timeout=LIMIT) for worker in workers]
        for sock in held:
            sock.close()
    assert [worker.returncode for worker in workers] == [0, 0], outputs
    assert all(out == "trained\n" and "Traceback" not in err for out, err in outputs), outputs


def has_ended(workers):
    return any(worker.poll() is not None for worker in workers)


def is_listening(place):
    with contextlib.suppress(OSError), socket.create_connection(place, timeout=LIMIT):
        return True
    return False
