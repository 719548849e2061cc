"""The job's store in several processes: clients go on when the leader is gone, and nothing is lost or done twice."""

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from launching import LIMIT, SOON, environment, until

from neomx.base import MXNetError
from neomx.comm import wire
from neomx.comm.store import THE_STORE, PeerError, StoreClient, StoreServer, peers
from neomx.comm.store.messages import Append, Appended, Candidacy, Entry, Invalid, Piece, Urge, Vote, decode, encode

SECRET = b"s" * 32


class Cluster:
    """Processes that keep a store, played by threads of this one. Each has a client, like a launcher."""

    def __init__(self, count, wanted=3):
        self.servers, self.clients = [], []
        self.wanted = wanted
        for _ in range(count):
            self.add()
        voters = min(count, wanted) - (min(count, wanted) + 1) % 2
        assert until(lambda: len(self.voters()) == voters), self.voters()

    def add(self):
        number = len(self.servers)
        server = StoreServer("127.0.0.1", 0, SECRET, None, 3.0, self.wanted, founds=not self.servers).start()
        self.servers.append(server)
        client = StoreClient(self.servers[0].address if number == 0 else self.addresses(), SECRET, timeout=LIMIT)
        client.join(f"node {number}")
        client.offer(server)
        self.clients.append(client)

    def addresses(self):
        return ",".join(server.address for server in self.servers)

    def client(self, name=""):
        client = StoreClient(self.addresses(), SECRET, timeout=LIMIT)
        if name:
            client.join(name)
        self.clients.append(client)
        return client

    def leader(self):
        """Return the server that leads, once there is exactly one."""
        assert until(lambda: len(self.leading()) == 1)
        return self.leading()[0]

    def leading(self):
        return [server for server in self.servers if server.leads]

    def voters(self):
        return self.leader()._replication._log.voters

    def close(self):
        for client in self.clients:
            client.give_up()
        for server in self.servers:
            server.close()
        for client in self.clients:  # without a goodbye, which would look for a leader
            if client._life is not None:
                client._life.close()
            client._connections.close()


@pytest.fixture
def cluster():
    made = []

    def make(count=3, **how):
        made.append(Cluster(count, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def short_silence(monkeypatch):
    monkeypatch.setenv("NEOMX_SILENCE", "8")


def test_store_goes_on_when_its_leader_is_gone(cluster):
    store = cluster()
    worker, other = store.client("worker 0"), store.client("worker 1")
    worker.set("a", b"\x00\xff")
    assert worker.add("n", 2) == 2 and worker.compare_set("c", "", "first") == b"first"
    waiting = threading.Thread(target=other.wait, args=(["late"],))
    waiting.start()
    store.leader().close()
    began = time.monotonic()
    worker.set("late", b"x")
    print(f"a write succeeded {time.monotonic() - began:.2f} s after the leader was gone")
    waiting.join(LIMIT)
    assert other.get("a") == b"\x00\xff" and other.add("n", -3) == -1 and other.num_keys() == 4
    assert other.compare_set("c", "other", "second") == b"first" and worker.delete_key("a")
    members = worker.roster()
    assert {name: member["state"] for name, member in members.items() if name.startswith("worker")} == {
        "worker 0": "here",
        "worker 1": "here",
    }
    assert until(lambda: other.roster()["worker 0"]["silent"] < 1.0) and not worker.gone


def test_requests_are_executed_once_whenever_the_leader_dies(cluster):
    store = cluster()
    clients = [store.client() for _ in range(3)]
    totals, over = [[] for _ in clients], threading.Event()

    def count(client, mine):
        while not over.is_set():
            mine.append(client.add("n", 1))

    threads = [threading.Thread(target=count, args=pair) for pair in zip(clients, totals, strict=True)]
    for thread in threads:
        thread.start()
    assert until(lambda: all(len(mine) > 50 for mine in totals))
    store.leader().close()
    before = [len(mine) for mine in totals]
    assert until(lambda: all(len(mine) > count + 50 for mine, count in zip(totals, before, strict=True)))
    over.set()
    for thread in threads:
        thread.join(LIMIT)
    counted = sorted(total for mine in totals for total in mine)
    assert counted == list(range(1, len(counted) + 1))
    assert clients[0].get("n") == str(len(counted)).encode()


def test_leader_without_a_majority_answers_no_reads(cluster, monkeypatch):
    store = cluster()
    worker = store.client("worker 0")
    worker.add("n", 1)
    old = store.leader()
    alone = StoreClient(old.address, SECRET, timeout=LIMIT)  # knows only this address
    store.clients.append(alone)
    assert alone.get("n") == b"1"
    names, send = {old.replica}, peers.Peers.send

    def send_within(self, name, message):
        if (self.name in names) == (name in names):
            send(self, name, message)

    monkeypatch.setattr(peers.Peers, "send", send_within)  # a partition
    assert until(lambda: any(server.leads for server in store.servers if server is not old))
    assert until(lambda: not old.leads)
    majority = StoreClient(store.leader().address, SECRET, timeout=LIMIT)
    store.clients.append(majority)
    assert majority.add("n", 1) == 2
    alone._connections._stores = [old.address]  # so that it does not find the new leader
    with pytest.raises(PeerError):
        alone.get("n", timeout=1.0)
    monkeypatch.setattr(peers.Peers, "send", send)
    assert until(lambda: old.get("n") == b"2")  # it follows
    assert worker.get("n") == b"2"


def test_another_replica_takes_the_place_of_a_lost_one(cluster):
    store = cluster(4)
    worker = store.client("worker 0")
    for number in range(3000):  # more than the log keeps, so the new replica receives a copy of the state
        worker.set(f"key {number % 100}", b"%d" % number)
    lost = store.leader()
    lost.close()
    assert until(lambda: lost.replica not in (voters := store.voters()) and len(voters) == 3)
    spare = store.servers[3]
    assert spare.replica in store.voters()
    store.leader().close()  # the store survives a second loss
    worker.set("last", b"1")
    assert worker.get("key 99") == b"2999" and until(lambda: spare.get("last") == b"1")
    assert spare.get("key 42") == b"2942"


def test_every_launcher_can_set_values_and_report_losses(cluster):
    store = cluster()
    worker = store.client("worker 0")
    leader = store.leader()
    for number, server in enumerate(store.servers):
        server.set(f"order {number}", b"%d" % server.leads)
        server.mark_gone(f"worker {number + 1}", -9)
        assert worker.get(f"order {number}") == (b"1" if server is leader else b"0")
    assert until(lambda: set(worker.gone) == {"worker 1", "worker 2", "worker 3"})
    rosters = lambda: [server.roster().get("worker 3") for server in store.servers]  # noqa: E731
    assert until(lambda: all(found is not None and found.state == "gone" for found in rosters()))
    assert worker.look("order 0") is not None and worker.look("order 9") is None


def test_lost_majority_is_reported_in_time(cluster):
    store = cluster()
    worker = store.client("worker 0")
    heard = []
    worker.on_gone(lambda name, why: heard.append((name, why)))
    leader = store.leader()
    followers = [server for server in store.servers if server is not leader]
    for server in followers:
        server.close()
    assert until(lambda: not leader.leads)
    with pytest.raises(PeerError, match=r"no new leader: a majority of them ended"):
        worker.set("a", b"1")
    assert until(lambda: THE_STORE in worker.gone) and heard[0][0] == THE_STORE


DIES = """
import sys, time
from neomx.comm.store import StoreClient
client = StoreClient(sys.argv[1], b"s" * 32)
client.join(sys.argv[2])
print("joined", flush=True)
time.sleep(3600)
"""


def test_members_that_died_with_the_leader_are_found_out(cluster):
    store = cluster()
    witness = store.client("worker 0")
    start = [sys.executable, "-c", DIES, store.addresses()]
    pipes = {"stdout": subprocess.PIPE, "text": True, "env": environment()}
    victims = [subprocess.Popen([*start, f"worker {number}"], **pipes) for number in (1, 2)]
    try:
        for victim in victims:
            assert victim.stdout.readline() == "joined\n"
        victims[0].kill()
        store.leader().close()
        began = time.monotonic()
        assert until(lambda: "worker 1" in witness.gone)
        print(f"the loss was known after {time.monotonic() - began:.1f} s")
        assert "died" in witness.gone["worker 1"]
        victims[1].send_signal(signal.SIGKILL)
        assert until(lambda: "worker 2" in witness.gone)
        assert set(witness.gone) == {"worker 1", "worker 2"}
    finally:
        for victim in victims:
            victim.kill()
            victim.wait()
            victim.stdout.close()


def test_host_without_any_connection_counts_as_lost(cluster, monkeypatch):
    store = cluster()
    witness = store.client("worker 0")
    far = StoreClient(store.addresses(), SECRET, timeout=LIMIT)
    store.clients.append(far)
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "far")
        far.join("worker 1")
    far._connections.find = lambda *_: False  # its host is not reachable any more
    store.leader().close()
    assert until(lambda: "worker 1" in witness.gone)
    assert "its host is not reachable" in witness.gone["worker 1"] and set(witness.gone) == {"worker 1"}


def test_one_process_keeps_the_store_without_replication():
    before = threading.active_count()
    server = StoreServer("127.0.0.1", 0, SECRET).start()
    assert threading.active_count() == before + 2  # the listener and the roll call
    client = StoreClient(server.address, SECRET, timeout=LIMIT)
    with pytest.raises(MXNetError, match="kept by one process only"):
        client.offer(other := StoreServer("127.0.0.1", 0, SECRET, replicas=3, founds=False))
    client.close()
    other.close()
    server.close()


# ---- hostile replicas ----


def test_garbage_from_a_replica_is_refused(cluster, caplog):
    store = cluster()
    worker = store.client("worker 0")
    rng = random.Random(2)
    hello = {"name": "replica", "replica": "evil@127.0.0.1:1"}
    frames = [(1, None, b""), (2, [1, 2, 3], b""), (9, [], b""), (0, [1 << 70, 0, 0, True, False], b""), (2, "x", b"x")]
    frames += [(kind, [rng.choice((0, 1 << 61, -1, None, "x", [], True)) for _ in range(8)], b"") for kind in range(7)]
    for server in store.servers:
        name = server.replica
        for frame in frames:
            address = name.partition("@")[2]
            with contextlib.closing(
                wire.connect(address, SECRET, {**hello, "to": name}, None, 30.0, peers.SERVICE)
            ) as evil:
                evil.send(*frame)
                with pytest.raises(wire.Closed):
                    evil.receive(timeout=LIMIT)
        with (
            contextlib.closing(
                wire.connect(address, SECRET, {**hello, "to": "another"}, None, 30.0, peers.SERVICE)
            ) as evil,
            pytest.raises(wire.Closed),
        ):
            evil.receive(timeout=LIMIT)
    worker.set("a", b"1")
    assert worker.get("a") == b"1" and "between replicas is invalid" in caplog.text


def test_claims_of_huge_terms_and_indices_do_not_stop_the_store(cluster):
    store = cluster()
    worker = store.client("worker 0")
    worker.set("a", b"1")
    huge = 1 << 61
    claims = [
        Candidacy(huge, huge, huge, False),
        Candidacy(huge, huge, huge, True, True),
        Vote(huge, False, False),
        Append(huge, huge, huge, huge, (Entry(huge, b"x"),), huge),
        Append(2, huge, huge, huge, (), huge),
        Appended(1, huge, huge, True),
        Appended(2, 1, huge, True),
        Piece(3, 1, huge, huge, ("evil@127.0.0.1:1",), huge, huge, b"x"),
        Piece(3, 1, huge, huge, ("evil@127.0.0.1:1",), 1, 0, b"x"),
        Urge(4),
        Candidacy(1000, huge, 1000, False, True),
        Append(1500, 1, 0, 0, (), huge),
    ]
    for message in claims:
        for server in store.servers:
            sender = random.Random(3).choice([other.replica for other in store.servers if other is not server])
            with contextlib.suppress(Invalid):
                server._replication._hear(sender, message)
    worker.set("a", b"2")
    assert worker.get("a") == b"2"
    assert until(lambda: all(server.get("a") == b"2" for server in store.servers), SOON)


def test_messages_survive_their_form_on_the_wire():
    voters = ("a@127.0.0.1:1", "b@127.0.0.1:2")
    for message in [
        Candidacy(1, 2, 3, True, False),
        Vote(1, True, False),
        Append(1, 2, 3, 4, (Entry(1, b"one"), Entry(2), Entry(2, b"", voters)), 5),
        Append(1, 2, 3, 4, (), 5),
        Appended(1, 2, 3, True),
        Piece(1, 2, 3, 4, voters, 5, 6, b"data"),
        Urge(7),
    ]:
        kind, said, payload = encode(message)
        assert decode(kind, eval(repr(said).replace("(", "[").replace(")", "]")), b"".join(payload)) == message


def test_process_of_a_replica_can_be_stopped_and_continued(cluster):
    """A leader that does not run for a while loses its office, and follows afterwards."""
    keeps = """
import sys
from neomx.comm.store import StoreClient, StoreServer
server = StoreServer("127.0.0.1", 0, b"s" * 32, replicas=3, founds=False).start()
client = StoreClient(sys.argv[1], b"s" * 32)
client.join("node 9")
client.offer(server)
print(server.address, flush=True)
sys.stdin.read()
"""
    store = cluster(1)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment()}
    with subprocess.Popen([sys.executable, "-c", keeps, store.addresses()], **pipes) as keeper:
        try:
            address = keeper.stdout.readline().strip()
            store.add()
            assert until(lambda: len(store.voters()) == 3)
            worker = store.client("worker 0")
            os.kill(keeper.pid, signal.SIGSTOP)
            worker.set("a", b"1")
            os.kill(keeper.pid, signal.SIGCONT)
            assert until(lambda: len(store.voters()) == 3 and address in worker._connections._stores)
        finally:
            keeper.kill()
