"""Floods of a listener, relays between two members, and members that misbehave or are only busy."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time

import pytest
from launching import LIMIT, SOON, environment, until

from neomx.base import MXNetError
from neomx.comm import listener, wire
from neomx.comm.server import messages as m
from neomx.comm.store import SERVICE, PeerError, StoreClient, StoreServer
from neomx.comm.store import server as store_server
from neomx.comm.store import values as store_values
from neomx.comm.wire.greeting import Greeting
from neomx.comm.wire.tls import certificates

SECRET = b"s" * 32


# ---- listeners that stay open ----


class Failing:
    """A listening socket whose `accept` fails at first."""

    def __init__(self, sock, errors):
        self._sock, self._errors = sock, errors

    def accept(self):
        if self._errors:
            raise self._errors.pop()
        return self._sock.accept()

    def __getattr__(self, name):
        return getattr(self._sock, name)


@contextlib.contextmanager
def echo(listening, service="echo", tls=None):
    """A listener that replies to each frame with the same frame."""

    def handle(connection):
        while True:
            frame = connection.receive()
            connection.send(frame.kind, frame.meta, frame.payload)

    refusals = []
    stop = listener.serve(listening, SECRET, tls, handle, refusals.append, service)
    try:
        yield refusals
    finally:
        stop()


def address_of(listening):
    return wire.join_address(*listening.getsockname())


def call(address, service="echo", tls=None, timeout=LIMIT):
    return wire.connect(address, SECRET, {"name": "honest"}, tls, timeout, service)


def is_answered(address, tls=None):
    with contextlib.closing(call(address, tls=tls)) as connection:
        connection.send(1, {"a": 1}, b"payload")
        frame = connection.receive(timeout=LIMIT)
        return frame.meta == {"a": 1} and bytes(frame.payload) == b"payload"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ECONNABORTED])
def test_listener_survives_a_failing_accept(number):
    listening = wire.listen()
    with echo(Failing(listening, [OSError(number, os.strerror(number))] * 3)):
        assert is_answered(address_of(listening))


def test_listener_survives_a_thread_that_cannot_start(monkeypatch):
    listening = wire.listen()
    begin, failures = threading.Thread.start, [RuntimeError("can't start new thread")] * 2

    def start(thread):
        if failures and thread._target.__name__ == "_talk":
            raise failures.pop()
        begin(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with echo(listening):
        assert is_answered(address_of(listening))
    assert not failures


FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))
from neomx.comm.store import StoreServer
print(StoreServer("127.0.0.1", 0, b"s" * 32).start().address, flush=True)
sys.stdin.read()
"""


def test_members_connect_despite_more_half_open_connections_than_descriptors():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", FEW_DESCRIPTORS], env=environment(), **pipes) as process:
        address = process.stdout.readline().strip()
        with contextlib.ExitStack() as stack:
            for _ in range(300):
                stack.enter_context(socket.create_connection(wire.split_address(address), timeout=LIMIT))
            client = StoreClient(address, SECRET, timeout=LIMIT)
            client.set("a", b"1")
            assert client.get("a") == b"1"
            client.close()
        process.stdin.close()


def test_members_connect_despite_a_flood_from_their_address():
    listening = wire.listen()
    address = address_of(listening)
    over, opened = threading.Event(), []

    def flood():
        with contextlib.ExitStack() as stack:
            while not over.is_set():
                with contextlib.suppress(OSError):
                    opened.append(stack.enter_context(socket.create_connection(wire.split_address(address), 5)))
                if len(opened) % 300 == 0:
                    stack.close()

    with echo(listening):
        thread = threading.Thread(target=flood)
        thread.start()
        try:
            assert until(lambda: len(opened) > 200)
            assert all(is_answered(address) for _ in range(5))
        finally:
            over.set()
            thread.join()


def test_unauthenticated_peers_get_no_threads():
    listening = wire.listen()
    with echo(listening), contextlib.ExitStack() as stack:
        before = threading.active_count()
        for _ in range(50):
            stack.enter_context(socket.create_connection(listening.getsockname(), LIMIT)).recv(100)  # it was greeted
        assert threading.active_count() == before
        assert is_answered(address_of(listening))


def test_refusals_in_a_flood_are_logged_sparingly():
    listening = wire.listen()
    with echo(listening) as refusals:
        for _ in range(40):
            with socket.create_connection(listening.getsockname(), LIMIT) as sock:
                sock.sendall(bytes(80))
                with contextlib.suppress(ConnectionError):
                    while sock.recv(100):
                        pass
        assert is_answered(address_of(listening))
    assert len(refusals) == 11 and "Further refusals are counted" in str(refusals[-1])


def test_greetings_per_address_are_limited_and_members_retry(monkeypatch):
    monkeypatch.setattr(listener, "_A_SECOND", 5)
    listening = wire.listen()
    with echo(listening):
        greeted = 0
        for _ in range(30):
            with socket.create_connection(listening.getsockname(), LIMIT) as sock, contextlib.suppress(ConnectionError):
                greeted += bool(sock.recv(100))
        assert 5 <= greeted < 30
        assert is_answered(address_of(listening))


def test_the_whole_greeting_has_one_deadline():
    listening = wire.listen()
    with socket.create_connection(listening.getsockname()) as drip:
        sock, _ = listening.accept()
        refused = threading.Event()

        def greet():
            with pytest.raises(wire.WireError):
                wire.accept(sock, SECRET, timeout=1.0)
            refused.set()

        thread = threading.Thread(target=greet)
        thread.start()
        for _ in range(60):  # each byte arrives in time, but not all of them
            with contextlib.suppress(OSError):
                drip.send(b"N")
            if refused.wait(0.1):
                break
        assert refused.is_set()
        thread.join()
    listening.close()


# ---- relays ----


class Relay:
    """Forwards bytes between a caller and a listener, frame by frame after the greeting."""

    GREETING, ANSWER, PROOF = 41, 73, 32

    def __init__(self, address):
        self._between = socket.create_server(("127.0.0.1", 0))
        self.address = address_of(self._between)
        self._called = socket.create_connection(wire.split_address(address))
        self._greeted = threading.Event()
        threading.Thread(target=self._greet, daemon=True).start()

    def _greet(self):
        self._caller, _ = self._between.accept()
        self._caller.sendall(exactly(self._called, self.GREETING))
        self._called.sendall(exactly(self._caller, self.ANSWER))
        self._caller.sendall(exactly(self._called, self.PROOF))
        self._called.sendall(self._frame())
        self._greeted.set()

    def _frame(self):
        start = exactly(self._caller, 36)
        said, size = int.from_bytes(start[8:12], "little"), int.from_bytes(start[12:20], "little")
        return start + exactly(self._caller, said) + (exactly(self._caller, size + 16) if size else b"")

    def frame(self):
        """Receive the next frame of the caller without forwarding it."""
        assert self._greeted.wait(LIMIT)
        return self._frame()

    def pass_on(self, data):
        with contextlib.suppress(OSError):  # already closed because of what was forwarded before
            self._called.sendall(data)

    def close(self):
        for sock in (self._called, self._caller, self._between):
            sock.close()


def exactly(sock, count):
    data = b""
    while len(data) < count:
        piece = sock.recv(count - len(data))
        assert piece
        data += piece
    return data


def changed(one, two):
    return [one.replace(b"0.1", b"9.9"), two]


@pytest.mark.parametrize("gmac", [True, False])
@pytest.mark.parametrize(
    "misuse",
    [
        changed,
        lambda one, two: [one, one],
        lambda one, two: [two, one],
        lambda one, two: [two],
        lambda one, two: [one, two[:-17] + b"x" + two[-16:]],
        lambda one, two: [one, two[:-1] + bytes([two[-1] ^ 1])],
    ],
    ids=["changed", "repeated", "reordered", "left out", "another payload", "another tag"],
)
def test_relay_cannot_modify_frames(misuse, gmac, monkeypatch):
    if gmac:
        pytest.importorskip("cryptography")
    monkeypatch.setattr("neomx.comm.wire.greeting.has_gmac", lambda: gmac)
    listening = wire.listen()
    with echo(listening) as refusals, contextlib.closing(Relay(address_of(listening))) as relay:
        caller = call(relay.address)
        caller.send(4, {"k": [1], "s": {"lr": 0.1}})
        caller.send(3, {"k": [2]}, bytes(100_000))
        for data in misuse(relay.frame(), relay.frame()):
            relay.pass_on(data)
        assert until(lambda: refusals)
        assert isinstance(refusals[0], wire.Refused) and "authentication failed" in str(refusals[0])
        caller.close()


def test_passive_relay_is_harmless():
    listening = wire.listen()
    with echo(listening) as refusals, contextlib.closing(Relay(address_of(listening))) as relay:
        caller = call(relay.address)
        caller.send(4, {"lr": 0.1}, b"1234")
        relay.pass_on(relay.frame())
        relay._caller.sendall(exactly(relay._called, 36 + len('{"lr":0.1}') + 4 + 16))
        assert caller.receive(timeout=LIMIT).meta == {"lr": 0.1} and not refusals
        caller.close()


CERTIFICATE = """
import sys
from neomx.launch.run import _make_certificate
print(_make_certificate(sys.argv[1]))
"""


def test_certificate_of_a_job_tolerates_clock_differences(tmp_path):
    path = str(tmp_path / "job.pem")
    subprocess.run([sys.executable, "-c", CERTIFICATE, path], check=True, env=environment())
    listening = wire.listen()
    with echo(listening, tls=path):
        assert is_answered(address_of(listening), tls=path)
    said = subprocess.run(["openssl", "x509", "-in", path, "-noout", "-startdate"], capture_output=True, text=True)
    begins = ssl.cert_time_to_seconds(said.stdout.strip().partition("=")[2])
    assert 3000 < time.time() - begins < 4200
    assert os.stat(path).st_mode & 0o077 == 0


def test_proof_is_valid_for_one_service():
    listening = wire.listen()
    with echo(listening, service="server 1 at b") as refusals:
        with pytest.raises(wire.WireError, match="is not server 0 at a"):
            call(address_of(listening), service="server 0 at a")
        assert until(lambda: refusals)
        assert "another service than server 1" in str(refusals[0])


def test_weaker_authentication_cannot_be_negotiated_by_a_relay():
    listening = wire.listen()
    with echo(listening), socket.create_server(("127.0.0.1", 0)) as between:
        errors = []

        def calling():
            try:
                call(address_of(between))
            except wire.WireError as error:
                errors.append(error)

        thread = threading.Thread(target=calling)
        thread.start()
        caller, _ = between.accept()
        with caller, socket.create_connection(listening.getsockname()) as called:
            greeting = bytearray(exactly(called, Relay.GREETING))
            greeting[8] ^= 1
            caller.sendall(greeting)
            called.sendall(exactly(caller, Relay.ANSWER))
            caller.sendall(exactly(called, Relay.PROOF))
            thread.join(LIMIT)
        assert "refused" in str(errors[0])


def openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Return a function that creates the PEM file of a host: its key, its certificate, and that of the authority."""
    folder = tmp_path_factory.mktemp("ca")
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl(
        "req", "-x509", *key, "-days", 1, "-subj", "/CN=ca", "-keyout", folder / "ca.key", "-out", folder / "ca.crt"
    )

    def make(name):
        path = folder / f"{name}.pem"
        openssl("req", *key, "-subj", f"/CN={name}", "-keyout", folder / "key", "-out", folder / "csr")
        signing = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-CAcreateserial", "-days", 1]
        openssl("x509", "-req", "-in", folder / "csr", *signing, "-out", folder / "crt")
        path.write_text("".join((folder / part).read_text() for part in ("key", "crt", "ca.crt")))
        return str(path)

    return make


def test_another_certificate_of_the_same_authority_is_refused(authority):
    job, other = authority("job"), authority("other")
    listening = wire.listen()
    with echo(listening, tls=other), pytest.raises(wire.WireError, match="not a host of this job"):
        call(address_of(listening), tls=job)
    listening = wire.listen()
    with echo(listening, tls=job):
        assert is_answered(address_of(listening), tls=job)


def test_proof_under_tls_is_bound_to_the_certificate(authority):
    made = Greeting(b"\1" * 33, b"\1" * 33, b"one", "store")
    other = Greeting(b"\1" * 33, b"\1" * 33, b"another", "store")
    assert made.proof(SECRET, b"caller") != other.proof(SECRET, b"caller")
    job = authority("bound")
    listening = wire.listen()
    seen = certificates(job)[0]
    with echo(listening, tls=job), contextlib.closing(call(address_of(listening), tls=job)) as connection:
        assert connection._sock.getpeercert(binary_form=True) == seen


# ---- misbehaving members ----


@pytest.fixture
def store():
    server = StoreServer("127.0.0.1", 0, SECRET, silence=3.0).start()
    yield server
    server.close()


@pytest.fixture
def member(store):
    """Return a function that creates members of the store."""
    made = []

    def join(name):
        made.append(StoreClient(store.address, SECRET, timeout=LIMIT))
        made[-1].join(name)
        return made[-1]

    yield join
    for client in made:
        client.close()


def test_member_cannot_leave_or_fail_for_another(store, member):
    one, other = member("worker 0"), member("worker 1")
    for ask in ({"do": "leave"}, {"do": "beat"}, {"do": "gone", "why": "so"}):
        with pytest.raises(MXNetError):
            other._ask(ask.pop("do"), name="worker 0", **ask)
    with pytest.raises(MXNetError, match="worker 0 is already connected"):
        member("worker 0")
    assert store.roster()["worker 0"].state == "here"
    one.report_gone("task 3 of worker 0", "it failed")
    one.leave()
    assert store.roster()["worker 0"].state == "left"


def test_keys_belong_to_their_member_until_it_is_gone(store, member):
    one, other = member("server 0"), member("worker 0")
    one.set("server/0", b"here")
    other.set("server/0", b"here")  # nothing changes
    for act in (
        lambda: other.set("server/0", b"at mine"),
        lambda: other.compare_set("server/0", "here", "at mine"),
        lambda: other.delete_key("server/0"),
    ):
        with pytest.raises(MXNetError, match="belongs to another process"):
            act()
    store.set("launch/end", b"no")
    with pytest.raises(MXNetError, match="belongs to another process"):
        other.set("launch/end", b"yes")
    one.set("server/0", b"moved")
    assert other.get("server/0") == b"moved"
    one.close()
    other.set("server/0", b"after it")
    assert [one.add("n", 1) for one in (other, member("worker 1"))] == [1, 2]


def asking(store, ask, **hello):
    """Open a connection with `hello` and send a request without waiting for the reply."""
    who = {"name": "x", "token": "t", **hello}
    connection = wire.connect(store.address, SECRET, who, None, LIMIT, SERVICE)
    connection.send(1, ask)
    return connection


def test_no_token_owns_the_keys_of_the_hosting_process(store):
    store.set("launch/end", b"no")
    with contextlib.closing(asking(store, {"do": "delete", "key": "launch/end"}, token="host")) as connection:
        assert "belongs to another process" in connection.receive(timeout=LIMIT).meta["why"]
    assert store.get("launch/end") == b"no"


def test_waits_end_with_their_connection(store, member, monkeypatch):
    ended = []
    handle = store_server._HANDLERS["wait"]
    monkeypatch.setitem(store_server._HANDLERS, "wait", lambda *args: (handle(*args), ended.append(1))[0])
    asking(store, {"do": "wait", "keys": ["never"], "timeout": LIMIT}).close()
    assert until(lambda: ended, SOON)


def test_waits_have_a_key_limit_and_changes_check_few_keys(store, member):
    ask = {"do": "wait", "keys": [str(i) for i in range(1 << 17)], "timeout": LIMIT}
    with contextlib.closing(asking(store, ask)) as connection, pytest.raises(wire.Closed):
        connection.receive(timeout=LIMIT)
    looked = []

    class Entries(dict):
        def __contains__(self, key):
            looked.append(key)
            return super().__contains__(key)

    values = store_values.Values()
    values._entries = Entries()
    are_there = values.wait_for([str(i) for i in range(1000)])
    for _ in range(100):
        assert not are_there()
    assert len(looked) == 100
    for i in range(1000):
        values.put(str(i), b"", None)
    assert are_there() and not values.lacking(["1", "2"])


def test_names_of_members_are_escaped(store, caplog):
    name = "\ud800\n\x1b[2J"
    with contextlib.closing(asking(store, {"do": "nonsense"}, name=name)) as connection:
        with pytest.raises(wire.Closed):
            connection.receive(timeout=LIMIT)
        assert until(lambda: caplog.text, SOON)
        (text,) = [record.getMessage() for record in caplog.records]
        assert text.isprintable() and r"\ud800\n\x1b[2J at 127.0.0.1" in text
    ask = {"do": "join", "name": name, "host": "h", "pid": 1}
    with contextlib.closing(asking(store, ask)) as connection, pytest.raises(wire.Closed):
        connection.receive(timeout=LIMIT)
    assert not store.roster()


def test_greeted_caller_keeps_its_connection_in_a_flood(store, monkeypatch):
    """A flood begins after the proofs, before the caller identifies itself: it already counts as a member."""
    send, opened = wire.Connection.send, []

    def flood_first(connection, kind, *said):
        if kind == wire.HELLO:
            place = wire.split_address(store.address)
            opened.extend(socket.create_connection(place, timeout=LIMIT) for _ in range(200))
            while opened[0].recv(100):  # until the oldest unauthenticated connection is dropped
                pass
        send(connection, kind, *said)

    monkeypatch.setattr(wire.Connection, "send", flood_first)
    with contextlib.closing(asking(store, {"do": "count"})) as connection:
        assert connection.receive(timeout=LIMIT).meta == {"count": 0}
    for sock in opened:
        sock.close()


def test_unreachable_or_untrusted_store_is_named(store, member, monkeypatch):
    def changed_frame(*_, **__):
        raise wire.Refused("a frame was changed")

    def ended(*_, **__):
        raise wire.Closed("it closed the connection")

    one = member("worker 0")
    with monkeypatch.context() as patch:
        patch.setattr(wire.Connection, "receive", changed_frame)
        with pytest.raises(PeerError, match="store at .* cannot be trusted: a frame was changed$"):
            one.num_keys()
    joining = StoreClient(store.address, SECRET, timeout=LIMIT)
    with monkeypatch.context() as patch:
        patch.setattr(wire.Connection, "receive", ended)
        with pytest.raises(PeerError, match="worker 1 cannot join: the job's store at .* does not answer"):
            joining.join("worker 1")
    joining.close()


def test_the_store_has_quotas(store, member, monkeypatch):
    greedy, other = member("worker 0"), member("worker 1")
    monkeypatch.setattr(store_values, "_KEYS_EACH", 10)
    monkeypatch.setattr(store_values, "_BYTES_EACH", 1000)
    with pytest.raises(MXNetError, match="no room for 2000 bytes"):
        greedy.set("large", bytes(2000))
    with pytest.raises(MXNetError, match="no room"):
        for number in range(20):
            greedy.set(f"key {number}", b"")
    with pytest.raises(MXNetError, match="no room"):
        greedy.set("k" * 5000, b"")
    assert other.num_keys() == 10
    other.set("mine", b"1")
    assert greedy.delete_key("key 0")
    greedy.set("again", b"")
    monkeypatch.setattr(store_values, "_KEYS", 11)
    with pytest.raises(MXNetError, match="no room"):
        other.set("one more", b"")


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf])
def test_settings_must_be_finite(rate):
    with pytest.raises(wire.Refused, match="finite"):
        m.settings({"lr": rate})
    with pytest.raises(wire.Refused, match="finite"):
        m.settings({"lr_mult": [["w", rate]]})
    assert m.settings({"lr": 0.1, "clip": None}) == {"lr": 0.1, "clip": None}


# ---- silent processes ----

KEEPS = """
import sys
from neomx.comm.store import StoreServer
print(StoreServer("127.0.0.1", 0, b"s" * 32).start().address, flush=True)
sys.stdin.read()
"""


def test_stopped_store_is_waited_for_and_keeps_all_members(monkeypatch):
    monkeypatch.setenv("NEOMX_SILENCE", "8")
    pipes = {name: subprocess.PIPE for name in ("stdin", "stdout", "stderr")}
    with subprocess.Popen([sys.executable, "-c", KEEPS], env=environment(), text=True, **pipes) as keeper:
        clients = [StoreClient(keeper.stdout.readline().strip(), SECRET, timeout=LIMIT)]
        clients.append(StoreClient(clients[0].address, SECRET, timeout=LIMIT))
        for number, client in enumerate(clients):
            client.join(f"worker {number}")
        os.kill(keeper.pid, signal.SIGSTOP)
        time.sleep(6.5)
        os.kill(keeper.pid, signal.SIGCONT)
        clients[0].set("a", b"1")
        assert clients[1].get("a") == b"1"
        time.sleep(2.0)
        assert [client.gone for client in clients] == [{}, {}]
        for client in clients:
            client.close()
        _, said = keeper.communicate(timeout=LIMIT)
        assert "was stopped" in said


HOLDS = """
import ctypes, sys, time
from neomx.comm.store import StoreClient
client = StoreClient(sys.argv[1], b"s" * 32)
client.join("worker 1")
if len(sys.argv) > 2:
    import os
    client._life.send(1, {"do": "join", "name": "worker 1", "host": "far", "pid": os.getpid()})
print("joined", flush=True)
ctypes.PyDLL(None).sleep(6)
print("woke", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("far", [False, True])
def test_worker_that_holds_the_gil_counts_as_alive(store, member, monkeypatch, far):
    witness = member("worker 0")
    if far:  # the store is on another host; a process on the worker's host sees it run
        monkeypatch.setattr(socket, "gethostname", lambda: "far")
        client = member("node 1")
        monkeypatch.undo()
        assert client.roster()["node 1"]["host"] == "far"
    command = [sys.executable, "-c", HOLDS, store.address, *(["far"] if far else [])]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True) as worker:
        try:
            assert worker.stdout.readline() == "joined\n"
            gone = []
            witness.on_gone(lambda name, why: gone.append((name, why)))
            assert worker.stdout.readline() == "woke\n"
            assert not gone and store.roster()["worker 1"].state == "here"
            os.kill(worker.pid, signal.SIGSTOP)
            assert until(lambda: "worker 1" in witness.gone, SOON)  # a stopped process does not count as busy
        finally:
            worker.kill()
