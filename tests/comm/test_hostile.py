"""Malicious or broken peers are refused with a line in the log, while training continues unaffected."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading

import pytest
import torch
from launching import LIMIT, until
from server_jobs import Job

from neomx.comm import wire
from neomx.comm.server import messages as m

HEADER = struct.Struct("<4sBxxxIQ")  # the header format of the wire
FAR_NODE, NEAR_NODE = 5, 1


@pytest.fixture(scope="module")
def job():
    """A job in training, held at step 10, that the test may join as a worker of a second store."""
    with Job(2, 1, "train", apart=True) as job:
        job.await_line("worker 0", "ready")
        job.await_line("worker 1", "ready")
        yield job
        with flooded(job.store.address), flooded(job.store.get("server/0").decode()):
            job.store.set("attacked", b"")  # training continues and succeeds while both ports are under attack
            job.finish_all()


@contextlib.contextmanager
def flooded(address):
    """Open connections within the block, and leave them half open or send invalid data."""
    over = threading.Event()

    def flood():
        sockets = []
        while not over.wait(0.002):
            with contextlib.suppress(OSError):
                sockets.append(caller(address))
                sockets[-1].sendall(os.urandom(len(sockets) % 80))
            while len(sockets) > 150:
                sockets.pop(0).close()
        for sock in sockets:
            sock.close()

    thread = threading.Thread(target=flood)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def address(job):
    return job.store.get("server/0").decode()


def is_refused(job, address, *words):
    """Check that the server logs a refusal with these words."""
    assert until(lambda: all(word in job.log("server 0") for word in words)), job.log("server 0")


def is_closed(sock):
    sock.settimeout(LIMIT)
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass
    return True


def is_open(sock):
    """Whether the server has not closed the connection yet."""
    sock.setblocking(False)
    try:
        while sock.recv(4096):
            pass
    except BlockingIOError:
        return True
    return False


def caller(address):
    host, port = wire.split_address(address)
    return socket.create_connection((host, port), timeout=LIMIT)


# ---- before authentication ----


def test_random_bytes_are_refused(job, address):
    with caller(address) as sock:
        sock.sendall(os.urandom(4096))
        assert is_closed(sock)
    is_refused(job, address, "does not hold the job's secret")


def test_wrong_secret_is_refused(job, address):
    with pytest.raises(wire.WireError, match="secret"):
        wire.connect(address, b"a guess", {"rank": 0, "space": 0, "staleness": 0}, timeout=LIMIT)


def test_replayed_hello_is_refused(job, address):
    said = record_hello(job, address)
    with caller(address) as sock:
        sock.sendall(said)
        assert is_closed(sock)
    is_refused(job, address, "does not hold the job's secret")


def record_hello(job, address):
    """Record all that a worker sends when it connects."""
    with socket.create_server(("127.0.0.1", 0)) as between, caller(address) as server:
        through = f"127.0.0.1:{between.getsockname()[1]}"
        hello = {"rank": 1, "space": 99, "staleness": 0}
        service = m.service_name(0, address)
        thread = threading.Thread(
            target=lambda: wire.connect(through, job.secret, hello, timeout=LIMIT, service=service).close()
        )
        thread.start()
        worker, _ = between.accept()
        with worker:
            worker.sendall(server.recv(4096))
            proof = worker.recv(4096)
            server.sendall(proof)
            worker.sendall(server.recv(4096))
            thread.join()
            return proof + worker.recv(4096)


def test_incomplete_hello_or_frame_does_not_block_the_server(job, address, slots):
    connection, slot = slots
    half = guest(job, address, 60, rank=0)
    with caller(address) as sock, contextlib.closing(half):
        sock.sendall(b"NEOMX/2\n" + b"x" * 10)
        half._sock.send(HEADER.pack(b"NMX2", m.PUSH, 16, 48) + bytes(16) + b'{"k":')
        connection.send(m.PULL, {"k": [slot]})
        assert connection.receive(timeout=LIMIT).kind == m.READY
        assert is_open(sock) and is_open(half._sock)  # the reply came while the server waited for the other halves


# ---- a peer that holds the secret ----


def guest(job, address, space=1, rank=1, **said):
    hello = {"name": f"guest {rank}", "rank": rank, "node": FAR_NODE, "space": space, "staleness": 0, **said}
    return wire.connect(address, job.secret, hello, timeout=LIMIT, service=m.service_name(0, address))


@pytest.fixture
def slots(job, address):
    """A separate store with one key, 'k', of (4, 3) floats: (connection of worker 0, slot)."""
    slots.space = getattr(slots, "space", 10) + 1
    connection = guest(job, address, slots.space, rank=0)
    value = torch.arange(12.0)
    connection.send(m.DECLARE, {"keys": [["k", [4, 3], "float32", [[0, 0, 12]], 0, False]]}, value)
    (placed,) = connection.receive(timeout=LIMIT).meta["slots"]
    yield connection, placed[0]
    connection.close()


@pytest.mark.parametrize(
    "hello",
    [
        {"rank": 7},
        {"rank": -1},
        {"rank": "0"},
        {"space": 1 << 40},
        {"staleness": "much"},
        {"rank": 1, "space": 0},  # worker 1 is already connected
        {"space": 0, "staleness": 3, "rank": 0},  # differs from the store of the other workers
    ],
)
def test_invalid_hello_is_refused(job, address, hello):
    connection = guest(job, address, **hello)
    with contextlib.closing(connection):
        assert connection.receive(timeout=LIMIT).kind == m.FAILED
        with pytest.raises(wire.Closed):
            connection.receive(timeout=LIMIT)


@pytest.mark.parametrize(
    "data",
    [
        os.urandom(512),
        HEADER.pack(b"NMX2", m.PUSH, 16, 1 << 60) + b'{"k":[0],"c":10}',  # 2^60 bytes of payload
        HEADER.pack(b"NMX2", m.PUSH, 1 << 31, 0),  # 2^31 bytes of JSON
        HEADER.pack(b"NMX2", m.PUSH, 5, 0) + b"{nope",
        HEADER.pack(b"NMX2", m.PUSH, 20000, 0) + b"[" * 20000,
        HEADER.pack(b"NMX2", 77, 2, 0) + b"{}",
        HEADER.pack(b"NMX2", m.DONE, 2, 0) + b"{}",
    ],
    ids=["noise", "2^60 bytes", "2^31 of JSON", "no JSON", "deep JSON", "unknown kind", "a server's kind"],
)
def test_invalid_frames_end_the_connection(job, address, slots, data):
    connection, _ = slots
    head, words = data[: HEADER.size], data[HEADER.size :]
    connection._sock.setblocking(True)
    connection._sock.sendall(head + connection._out.tag(head, words) + words)
    assert is_closed(connection._sock)


def refused(connection, kind, meta, *payload):
    """Send a frame for which the server closes the connection, possibly with an error first."""
    try:
        connection.send(kind, meta, *payload)
        answer = connection.receive(timeout=LIMIT)
        assert answer.kind == m.FAILED, answer
        with pytest.raises(wire.Closed):
            connection.receive(timeout=LIMIT)
    except wire.Closed:
        pass


def declared(shape, pieces, *value, key="x", dtype="float32", row_sparse=False):
    return m.DECLARE, {"keys": [[key, shape, dtype, pieces, 0, row_sparse]]}, *value


BAD_PUSHES = {
    "unknown slot": lambda slot: (m.PUSH, {"k": [slot + 1000]}),
    "slot twice": lambda slot: (m.PUSH, {"k": [slot, slot]}),
    "no slots": lambda slot: (m.PUSH, {"k": []}),
    "slots of no sense": lambda slot: (m.PUSH, {"k": [{"a": 1}]}),
    "meta of no sense": lambda slot: (m.PUSH, [1, 2, 3]),
    "too many bytes": lambda slot: (m.PUSH, {"k": [slot]}, torch.zeros(13)),
    "too few bytes": lambda slot: (m.PUSH, {"k": [slot]}, torch.zeros(11)),
    "memory that is not shared": lambda slot: (m.PUSH, {"k": [slot]}),
    "rows outside": lambda slot: (m.PUSH_ROWS, {"k": [slot], "rows": 1}, torch.tensor([4]), torch.zeros(3)),
    "rows before the first": lambda slot: (m.PUSH_ROWS, {"k": [slot], "rows": 1}, torch.tensor([-1]), torch.zeros(3)),
    "rows twice": lambda slot: (m.PUSH_ROWS, {"k": [slot], "rows": 2}, torch.tensor([1, 1]), torch.zeros(6)),
    "rows too wide": lambda slot: (m.PUSH_ROWS, {"k": [slot], "rows": 1}, torch.tensor([1]), torch.zeros(4)),
    "rows without number": lambda slot: (m.PUSH_ROWS, {"k": [slot], "rows": "all"}, torch.tensor([1]), torch.zeros(3)),
    "an unknown code": lambda slot: (m.PUSH_CODED, {"k": [slot], "codec": {"type": "zip"}}, torch.zeros(2)),
    "a code too short": lambda slot: (m.PUSH_CODED, {"k": [slot], "codec": {"type": "2bit"}}, bytes(1)),
    "a huge threshold": lambda slot: (
        m.PUSH_CODED,
        {"k": [slot], "codec": {"type": "2bit", "threshold": 10**400}},
        bytes(4),
    ),
    "settings beyond 64 bits": lambda slot: (m.COMMIT, {"k": [slot], "s": {"lr": 10**400}}),
    "pulled rows outside": lambda slot: (m.PULL_ROWS, {"k": [slot]}, torch.tensor([9])),
    "half a row number": lambda slot: (m.PULL_ROWS, {"k": [slot]}, b"1234"),
    "settings of no sense": lambda slot: (m.COMMIT, {"k": [slot], "s": {"lr": "fast"}}),
    "settings of less sense": lambda slot: (m.COMMIT, {"k": [slot], "s": {"lr_mult": [["a", "b"]]}}),
    "a chunk that is not there": lambda slot: (m.ATTACH, {"chunk": 99, "name": "", "reads": True}),
    "a chunk before the first": lambda slot: (m.ATTACH, {"chunk": -1, "name": "", "reads": True}),
    "an unknown dtype": lambda slot: declared([2], [[0, 0, 2]], dtype="object"),
    "pieces with a gap": lambda slot: declared([2], [[0, 1, 2]]),
    "pieces too long": lambda slot: declared([2], [[0, 0, 9]], torch.zeros(9)),
    "an unknown server": lambda slot: declared([2], [[7, 0, 2]]),
    "a negative shape": lambda slot: declared([-2, -1], [[0, 0, 2]]),
    "a huge array": lambda slot: declared([1 << 50], [[0, 0, 1 << 50]], b"1"),
    "rows in pieces": lambda slot: declared([2, 2], [[0, 0, 1], [1, 1, 4]]),
    "a storage that is none": lambda slot: declared([2], [[0, 0, 2]], row_sparse="csr"),
    "a value too short": lambda slot: declared([2], [[0, 0, 2]], torch.zeros(1)),
    "a key that is none": lambda slot: declared([2], [[0, 0, 2]], torch.zeros(2), key=[1]),
}


@pytest.mark.parametrize("what", BAD_PUSHES)
def test_requests_that_do_not_match_a_key_end_the_connection(job, address, slots, what):
    connection, slot = slots
    refused(connection, *BAD_PUSHES[what](slot))


def test_names_of_shared_memory_cannot_open_files(job, address):
    connection = guest(job, address, 500, rank=0, node=NEAR_NODE)
    connection.send(m.DECLARE, {"keys": [["k", [2], "float32", [[0, 0, 2]], 0, False]]}, torch.zeros(2))
    assert connection.receive(timeout=LIMIT).kind == m.DONE
    refused(connection, m.ATTACH, {"chunk": 0, "name": "../../etc/passwd", "reads": False})
    connection.close()
    foreign = guest(job, address, 500, rank=0, node=NEAR_NODE)
    file = os.open("/etc/hostname", os.O_RDONLY)
    foreign.send(m.ATTACH, {"chunk": 0, "name": f"{os.getpid()}/{file}/{'0' * 32}", "reads": False})
    assert foreign.receive(timeout=LIMIT).meta == {"shared": False}
    os.close(file)
    foreign.close()


def test_pickled_or_invalid_optimizer_is_refused_with_an_error(job, address, slots):
    connection, _ = slots
    for generation, data in enumerate([b"\x80\x04cos\nsystem\n(S'true'\ntR.", os.urandom(100), b""], 1):
        connection.send(m.OPTIMIZER, {"generation": generation}, data)
        answer = connection.receive(timeout=LIMIT)
        assert answer.kind == m.FAILED and "optimizer" in answer.meta["message"]


def test_refusals_are_logged_and_the_server_keeps_serving(job, address, slots):
    connection, slot = slots
    connection.send(m.PULL, {"k": [slot]})
    answer = connection.receive(timeout=LIMIT)
    assert torch.frombuffer(bytearray(answer.payload), dtype=torch.float32).tolist() == list(range(12))
    log = job.log("server 0")
    assert log.count("refused: ") > 10 and "Traceback" not in log, log
