"""The basis of communication: authenticated frames, the store with its roll call, the place of a process in its job."""

import os
import signal
import socket
import struct
import subprocess
import sys
import textwrap
import threading

import pytest
import torch
from launching import LIMIT, environment, until

from neomx.base import MXNetError
from neomx.comm import listener, wire
from neomx.comm.store import PeerError, StoreClient, StoreServer
from neomx.comm.world import World, discover, node_names

SECRET = b"s" * 32


@pytest.fixture
def pair():
    """Return a function that opens a connection and returns both ends, or the error of each."""
    made = []

    def make(**how):
        made.extend(_pair(**how))
        return made[-2:]

    yield make
    for end in made:
        if isinstance(end, wire.Connection):
            end.close()


def _pair(secret_of_caller=SECRET, tls=None):
    listening = wire.listen()
    address = wire.join_address(*listening.getsockname())
    ends = {}

    def called():
        sock, _ = listening.accept()
        try:
            ends["called"] = wire.accept(sock, SECRET, tls, timeout=LIMIT)
        except wire.WireError as error:
            ends["called"] = error

    thread = threading.Thread(target=called)
    thread.start()
    try:
        ends["caller"] = wire.connect(address, secret_of_caller, {"name": "worker 7"}, tls, timeout=LIMIT)
    except wire.WireError as error:
        ends["caller"] = error
    thread.join(LIMIT)
    listening.close()
    return ends["caller"], ends["called"]


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    path = tmp_path_factory.mktemp("tls") / "job.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=job"]
        + ["-keyout", str(path), "-out", str(path.with_suffix(".crt"))],
        check=True,
        capture_output=True,
    )
    path.write_text(path.read_text() + path.with_suffix(".crt").read_text())
    return str(path)


@pytest.mark.parametrize("encrypted", [False, True])
def test_frames_are_copied_between_tensor_memory(encrypted, certificate, pair):
    caller, called = pair(tls=certificate if encrypted else None)
    assert called.peer == {"name": "worker 7"}
    sent = torch.randn(300_000)
    received = torch.empty(300_000)
    thread = threading.Thread(target=caller.send, args=(5, {"key": "w"}, sent[:7], sent[7:]))
    thread.start()
    frame = called.receive(lambda kind, meta, size: wire.as_bytes(received), timeout=LIMIT)
    thread.join(LIMIT)
    assert (frame.kind, frame.meta) == (5, {"key": "w"})
    assert torch.equal(sent, received)
    called.send(6, None, b"small")
    assert bytes(caller.receive(timeout=LIMIT).payload) == b"small"
    caller.close()
    with pytest.raises(wire.Closed):
        called.receive(timeout=LIMIT)


def test_wrong_secret_is_refused_on_both_sides(pair):
    caller, called = pair(secret_of_caller=b"other")
    assert "the secrets differ" in str(caller)
    assert isinstance(called, wire.Refused) and "secret" in str(called)


def test_peer_without_tls_is_refused(certificate):
    listening = wire.listen()
    refused = []
    stop = listener.serve(listening, SECRET, certificate, lambda c: None, refused.append)
    with pytest.raises(wire.WireError):
        wire.connect(wire.join_address(*listening.getsockname()), SECRET, {}, None, timeout=1)
    assert until(lambda: refused)
    stop()


@pytest.mark.parametrize(
    "header",
    [b"GET / HTTP/1.1\r\nHo", struct.pack("<4sBxxxIQ", b"NMX2", 1, 1 << 30, 0), b"\0" * 20],
)
def test_invalid_frame_is_refused(header, pair):
    caller, called = pair()
    caller.write([memoryview(header.ljust(36, b"x"))])
    with pytest.raises(wire.Refused, match="invalid data instead of a frame"):
        called.receive(timeout=LIMIT)


def test_absurd_length_allocates_no_memory(pair):
    caller, called = pair()
    header = struct.pack("<4sBxxxIQ", b"NMX2", 1, 0, 1 << 60)
    caller.write([memoryview(header + caller._out.tag(header, b""))])
    with pytest.raises(wire.Refused, match=str(1 << 60)):
        called.receive(timeout=LIMIT)


def test_payload_of_unexpected_size_is_refused(pair):
    caller, called = pair()
    caller.send(1, None, b"1234")
    with pytest.raises(wire.Refused, match="4 bytes, expected 8"):
        called.receive(lambda kind, meta, size: memoryview(bytearray(8)), timeout=LIMIT)


def test_failed_connection_names_the_address():
    listening = wire.listen()
    address = wire.join_address(*listening.getsockname())
    listening.close()
    with pytest.raises(wire.WireError, match=address):
        wire.connect(address, SECRET, {}, timeout=0.3)


def test_port_in_use_is_named():
    listening = wire.listen()
    port = listening.getsockname()[1]
    with pytest.raises(wire.WireError, match=f":{port}: Address already in use"):
        wire.listen("127.0.0.1", port)
    listening.close()


# ---- the store ----


@pytest.fixture
def store():
    server = StoreServer("127.0.0.1", 0, SECRET, silence=3.0).start()
    yield server
    server.close()


def test_store_values_counters_and_waits(store):
    client = StoreClient(store.address, SECRET, timeout=LIMIT)
    client.set("a", b"\x00\xff")
    assert client.get("a") == b"\x00\xff" and client.check(["a"]) and not client.check(["a", "b"])
    assert [client.add("n", 2), client.add("n", -3)] == [2, -1]
    assert client.compare_set("c", "", "first") == b"first"
    assert client.compare_set("c", "other", "second") == b"first"
    assert client.compare_set("c", "first", "second") == b"second"
    threading.Timer(0.2, client.set, ("late", b"x")).start()
    client.wait(["late", "a"], timeout=LIMIT)
    assert client.num_keys() == 4 and client.delete_key("a") and not client.delete_key("a")
    with pytest.raises(PeerError, match="never.*within 0 s"):
        client.get("never", timeout=0.2)
    with pytest.raises(PeerError, match="never"):
        client.wait(["late", "never"], timeout=0.2)
    client.close()


def test_store_refuses_invalid_requests_and_keeps_serving(store, caplog):
    stranger = wire.connect(store.address, SECRET, {"name": "stranger", "token": "x"}, service="the job's store")
    stranger.send(1, {"do": "get", "key": 5, "timeout": "x"})
    with pytest.raises(wire.Closed):
        stranger.receive(timeout=LIMIT)
    stranger.close()
    with socket.create_connection(wire.split_address(store.address)) as sock:
        sock.sendall(os.urandom(500))
    client = StoreClient(store.address, SECRET, timeout=LIMIT)
    client.set("a", b"1")
    assert client.get("a") == b"1"
    assert "stranger" in caplog.text
    client.close()


def test_ended_store_is_named_in_the_error(store):
    client = StoreClient(store.address, SECRET, timeout=LIMIT)
    store.close()
    with pytest.raises(PeerError, match=f"store at {store.address} does not answer"):
        client.get("a")
    client.close()


DIES = """
import sys, os, time, signal
from neomx.comm.store import StoreClient
client = StoreClient(sys.argv[1], b"s" * 32)
client.join(sys.argv[2])
print("joined", flush=True)
time.sleep(3600)
"""


def test_roll_call_reports_dead_silent_and_left_members(store):
    start = [sys.executable, "-c", DIES, store.address]
    victims = {
        name: subprocess.Popen([*start, name], stdout=subprocess.PIPE, text=True) for name in ("worker 1", "worker 2")
    }
    try:
        for victim in victims.values():
            assert victim.stdout.readline() == "joined\n"
        witness = StoreClient(store.address, SECRET, timeout=LIMIT)
        witness.join("worker 0")
        news = []
        witness.on_gone(lambda name, why: news.append(name))
        other = StoreClient(store.address, SECRET, timeout=LIMIT)
        other.join("worker 3")
        other.close()
        victims["worker 1"].kill()
        assert until(lambda: "worker 1" in witness.gone)
        assert "died" in witness.gone["worker 1"] and news == ["worker 1"]
        os.kill(victims["worker 2"].pid, 19)
        assert until(lambda: "worker 2" in witness.gone)
        assert "not heard from" in witness.gone["worker 2"]
        os.kill(victims["worker 2"].pid, 18)
        assert until(lambda: "worker 2" not in witness.gone)  # it came back
        assert witness.roster()["worker 3"]["state"] == "left"
        said = witness.missing(["worker 1", "worker 3", "worker 4"])
        assert "worker 1 on" in said and "is gone" in said and "worker 3" in said and "worker 4 never connected" in said
        store.mark_gone("worker 2", 7)
        assert until(lambda: "worker 2" in witness.gone)
        assert "code 7" in witness.gone["worker 2"]
        witness.close()
    finally:
        for victim in victims.values():
            victim.kill()
            victim.wait()
            victim.stdout.close()


# ---- the place of a process in its job ----

RUN = {"NEOMX_STORE": "127.0.0.1:5", "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}


def test_process_without_launcher_is_a_single_worker():
    assert discover({}) == World() and World().is_alone


def test_world_from_neomx_run():
    world = discover({**RUN, "NEOMX_NODE": "1", "NEOMX_NODES": "2", "NEOMX_SECRET": "x" * 16, "NEOMX_TIMEOUT": "7"})
    assert (world.rank, world.size, world.local_rank, world.local_size, world.node, world.nodes) == (3, 4, 1, 2, 1, 2)
    assert (world.store, world.secret, world.timeout, world.host) == ("127.0.0.1:5", b"x" * 16, 7.0, "127.0.0.1")
    server = discover({**RUN, "NEOMX_ROLE": "server", "NEOMX_SERVER_ID": "1", "NEOMX_SERVERS": "2"})
    assert (server.name, server.servers) == ("server 1", 2)


def test_world_from_torchrun_mpirun_srun_and_mxnet_launcher():
    torchrun = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "GROUP_RANK": "0"}
    torchrun |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "r"}
    world = discover(torchrun)
    assert (world.rank, world.size, world.agent, world.store, world.hosts_store) == (
        1,
        2,
        "127.0.0.1:29500",
        None,
        False,
    )

    mpi = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "0"}
    world = discover({**mpi, "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "job1"})
    assert (world.rank, world.size, world.hosts_store) == (0, 2, True) and world.store.startswith("127.0.0.1:2")
    with pytest.raises(MXNetError, match="MASTER_ADDR"):
        discover({**mpi, "OMPI_COMM_WORLD_LOCAL_SIZE": "1"})

    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "9", "SLURM_LOCALID": "1"}
    world = discover({**slurm, "SLURM_STEP_NODELIST": "n7", "SLURM_STEP_TASKS_PER_NODE": "2"})
    assert (world.rank, world.size, world.local_rank, world.local_size) == (1, 2, 1, 2)

    dmlc = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": "91", "DMLC_NUM_WORKER": "2", "DMLC_NUM_SERVER": "1"}
    roles = {role: discover({**dmlc, "DMLC_ROLE": role}) for role in ("scheduler", "server", "worker")}
    assert roles["scheduler"].hosts_store and not roles["worker"].hosts_store
    assert {(w.store, w.size, w.servers) for w in roles.values()} == {("127.0.0.1:91", 2, 1)}
    assert roles["worker"].rank == -1 and len({w.secret for w in roles.values()}) == 1


@pytest.mark.parametrize("bad", [{"RANK": "x"}, {"NEOMX_TIMEOUT": "-1"}, {"NEOMX_TIMEOUT": "soon"}])
def test_invalid_variable_is_named(bad):
    with pytest.raises(MXNetError, match=next(iter(bad))):
        discover({**RUN, **bad})


def test_slurm_host_lists_are_expanded():
    assert node_names("n[01-03,7],gpu5") == ["n01", "n02", "n03", "n7", "gpu5"]
    assert node_names("a-1,b") == ["a-1", "b"]
    assert node_names("") == []


@pytest.mark.parametrize(
    ("program", "code", "told"),
    [
        ("raise SystemExit(3)", 3, "its program ended with exit code 3"),
        ("sys.exit(3)", 3, "its program ended with exit code 3"),
        ("exit(3)", 3, "its program ended with exit code 3"),
        ("sys.exit('no data')", 1, "its program ended with exit code 1"),
        ("1 / 0", 1, "its program ended with ZeroDivisionError"),
        ("raise SystemExit(0)", 0, ""),
        ("sys.exit()", 0, ""),
        ("try: sys.exit(3)\nexcept SystemExit as error: sys.exit(error.code - 3)", 0, ""),
        ("threading.Thread(target=lambda: sys.exit(3)).start()", 0, ""),
    ],
)
def test_only_failing_exits_are_reported(program, code, told):
    begin = "import sys, threading\nfrom neomx.comm import exits\nexits.on_failure(lambda why, error: print(why))\n"
    run = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, text=True, timeout=LIMIT)
    assert (run.returncode, run.stdout.strip()) == (code, told), run.stderr


def test_system_exit_code_can_still_be_read_and_set():
    begin = "from neomx.comm import exits\nexits.on_failure(print)\nclass Own(SystemExit): pass\n"
    program = "found = Own(4)\nprint(found.code)\nfound.code = 5\nprint(found.code, SystemExit().code)\n"
    run = subprocess.run([sys.executable, "-c", begin + program], capture_output=True, text=True, timeout=LIMIT)
    assert run.stdout.split() == ["4", "5", "None"] and run.returncode == 0, run.stderr


def test_interrupt_traceback_omits_frames_of_neomx(tmp_path):
    script = """
        from neomx.comm import exits, wire

        class Name(str):
            def startswith(self, _):
                raise KeyboardInterrupt

        exits.on_failure(lambda why, error: print(why, flush=True))
        wire.is_loopback(Name("host"))
    """
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(script))
    ended = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert ended.returncode == -signal.SIGINT and ended.stdout == "its program ended with KeyboardInterrupt\n"
    assert 'wire.is_loopback(Name("host"))' in ended.stderr and "wire.py" not in ended.stderr
    assert ended.stderr.endswith("\nKeyboardInterrupt\n")
