"""`neomx run` on several nodes: two launchers on loopback, or over ssh (a substitute that runs the command here)."""

import contextlib
import signal
import socket

import pytest
from launching import FAMILY, LIMIT, assert_gone, assert_they_go, family_of, launcher, until, write

from neomx.comm import supervision, wire
from neomx.comm.store import THE_STORE, StoreClient, StoreServer
from neomx.launch.cli import main
from neomx.launch.council import Delegate
from neomx.launch.run import _make_certificate as make_pem


@pytest.fixture
def script(tmp_path):
    return lambda text: write(tmp_path, text)


@pytest.fixture
def meeting(monkeypatch):
    """Set a secret shared by all nodes and return a free address on loopback."""
    monkeypatch.setenv("NEOMX_SECRET", "shared by all nodes")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


def node(number, meeting, *arguments):
    place = ["--nnodes", "2", "--node-rank", str(number), "--rdzv", meeting, "--timeout", str(LIMIT)]
    return [*place, *map(str, arguments)]


PLACE = """
    import os, sys
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NEOMX_NODE NEOMX_NODES NEOMX_STORE NEOMX_HOST".split()
    print("place", *[os.environ[name] for name in names], "shared by all nodes" == os.environ["NEOMX_SECRET"])
    if sys.argv[1:] == ["fail"] and os.environ["RANK"] == "2":
        sys.exit("last words")
"""


def test_two_nodes_number_their_workers_consecutively(script, meeting, capfd):
    path = script(PLACE)
    with launcher(*node(1, meeting, "-n", 1, path)) as other:
        assert main(["run", *node(0, meeting, "-n", 2, path)]) == 0
        theirs, _ = other.communicate(timeout=LIMIT)
    assert other.returncode == 0
    ours = capfd.readouterr().out.splitlines()
    assert f"place 0 3 0 2 0 2 {meeting} 127.0.0.1 True" in ours
    assert f"[1] place 1 3 1 2 0 2 {meeting} 127.0.0.1 True" in ours
    assert theirs.splitlines() == [f"[2] place 2 3 0 1 1 2 {meeting} 127.0.0.1 True"]


def test_failure_on_one_node_ends_all_and_is_named_on_all(script, meeting, capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "FAREWELL", 0.5)
    family = write(tmp_path, FAMILY, "family.py")
    fails = f"""
        import os, sys, time
        while not os.path.exists({str(tmp_path / "pids0")!r}): time.sleep(0.05)
        sys.exit("last words")
    """
    with launcher(*node(1, meeting, "-n", 1, script(fails))) as other:
        assert main(["run", *node(0, meeting, "-n", 1, family, tmp_path)]) == 1
        _, theirs = other.communicate(timeout=LIMIT)
    ours = capfd.readouterr().err
    assert other.returncode == 1
    for err in (ours, theirs):
        assert "worker 1 on " in err and "failed first, with exit code 1: last words" in err
    assert_gone(family_of(tmp_path, 1))


def test_node_that_dies_ends_the_others(script, meeting, capfd, tmp_path):
    path = script(FAMILY)
    ours, theirs = (node(number, meeting, "-n", 1, path, tmp_path) for number in (0, 1))
    with launcher(*ours) as first, launcher(*theirs) as other:
        pids = family_of(tmp_path, 2)
        other.kill()
        _, err = first.communicate(timeout=LIMIT)
    assert first.returncode == 1
    assert "node 1 on " in err and "its launcher is gone" in err
    assert_they_go(pids)


def test_timeout_names_missing_nodes(script, meeting, capfd):
    arguments = node(0, meeting, script(""))
    arguments[arguments.index("--timeout") + 1] = "1"
    assert main(["run", *arguments]) == 2
    assert f"timed out after 1 s waiting for node 1 of 2 at {meeting}" in capfd.readouterr().err
    arguments[3] = "1"
    assert main(["run", *arguments]) == 2
    err = capfd.readouterr().err
    assert f"node 1 timed out after 1 s waiting for node 0: cannot connect to {meeting}" in err


@pytest.mark.parametrize(
    ("given", "refused", "told"),
    [
        (
            ["--secret-file", "other"],
            "node 1 cannot join node 0: {} refused this process: the secrets differ",
            "does not hold the job's secret",
        ),
        (["--tls-file", "pem"], "node 1 cannot join node 0: {} does not use TLS", "uses TLS, but this process"),
    ],
)
def test_node_with_different_secret_or_tls_ends_immediately(given, refused, told, script, meeting, capfd, tmp_path):
    (tmp_path / "other").write_text("of another job, and so different")
    (tmp_path / "other").chmod(0o600)
    make_pem(str(tmp_path / "pem"))
    path = script("")
    arguments = node(0, meeting, path)
    arguments[arguments.index("--timeout") + 1] = "30"
    with launcher(*arguments) as first:
        assert until(lambda: can_connect(meeting))
        assert main(["run", *node(1, meeting, given[0], tmp_path / given[1], path)]) == 2
        _, err = first.communicate(timeout=LIMIT)
    ours = capfd.readouterr().err
    assert refused.format(meeting) in ours and ours.count("neomx: ") == 1
    assert f"timed out after 30 s waiting for node 1 of 2 at {meeting}" in err
    assert "1 connections were refused; the first: a peer at 127.0.0.1:" in err and told in err.splitlines()[-1]


def can_connect(address):
    with contextlib.suppress(OSError), socket.create_connection(wire.split_address(address)) as sock:
        sock.recv(128)  # an unread greeting would reset the connection, which counts as a refusal
        return True
    return False


def test_node_without_its_rank_gets_a_hint(script, meeting, capfd):
    with contextlib.closing(StoreServer(*wire.split_address(meeting), b"x")):
        assert main(["run", *node(0, meeting, script(""))]) == 2
    assert "If this is not the first node, pass its --node-rank: 1, 2, ..." in capfd.readouterr().err


def test_blocked_connection_is_named_before_anything_starts(script, meeting, capfd, monkeypatch):
    from neomx.launch import nodes

    real = nodes.wire.connect

    def behind_a_firewall(address, secret, hello, *rest):
        if hello.get("name", "") == "node 0" and address != meeting:
            raise nodes.wire.WireError(f"cannot connect to {address}")
        return real(address, secret, hello, *rest)

    monkeypatch.setattr(nodes.wire, "connect", behind_a_firewall)
    path = script("print('started')")
    with launcher(*node(1, meeting, path)) as other:
        assert main(["run", *node(0, meeting, path)]) == 2
        out, theirs = other.communicate(timeout=LIMIT)
    ours = capfd.readouterr()
    assert other.returncode == 2 and out == "" and ours.out == ""
    for err in (ours.err, theirs):
        assert "node 0 (" in err and "to node 1 (" in err and "at 127.0.0.1:" in err


@pytest.fixture
def fake_ssh(tmp_path, monkeypatch):
    """A substitute for ssh: another session, connected by pipes only. Records its arguments."""
    path = tmp_path / "ssh"
    path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/told\nshift 2\ncat | setsid sh -c "$*"\n')
    path.chmod(0o755)
    monkeypatch.setenv("NEOMX_SSH", f"{path} -q")
    return tmp_path / "told"


def test_hosts_over_ssh(script, fake_ssh, capfd):
    path = script(PLACE)
    assert main(["run", "--hosts", "localhost:2,127.0.0.1:1", path, "a b", "$x"]) == 0
    out = capfd.readouterr().out
    assert "place 0 3 0 2 0 2 127.0.0.1:" in out
    assert "\n[1] place 1 3 1 2 0 2" in out or out.startswith("[1] place 1 3 1 2 0 2")
    assert "[2] place 2 3 0 1 1 2" in out
    told = fake_ssh.read_text()
    assert "-q localhost cd " in told and "'a b' '$x'" in told
    assert "secret" not in told.lower()


def test_variables_over_ssh_are_on_no_command_line(script, fake_ssh, capfd):
    path = script("import os; print('token', os.environ['TOKEN'], os.environ['NEOMX_LAYOUT'])")
    options = ["--hosts", "localhost:1,127.0.0.1:1", "--env", "TOKEN=pass word", "--layout", "data=2"]
    assert main(["run", *options, path]) == 0
    out = capfd.readouterr().out
    assert "token pass word data=2" in out and "[1] token pass word data=2" in out
    assert "pass word" not in fake_ssh.read_text() and "TOKEN" not in fake_ssh.read_text()


def test_failure_over_ssh_gives_the_exit_code_and_last_lines(script, fake_ssh, capfd, monkeypatch):
    monkeypatch.setattr(supervision, "FAREWELL", 0.5)
    assert main(["run", "--tls", "--hosts", "localhost:2,127.0.0.1:1", script(PLACE), "fail"]) == 1
    err = capfd.readouterr().err
    assert err.count("failed first, with exit code 1: last words") == 1


def test_unreachable_host_is_named(script, monkeypatch, capfd, tmp_path):
    path = tmp_path / "ssh"
    path.write_text("#!/bin/sh\necho no route to $1 >&2\nexit 255\n")
    path.chmod(0o755)
    monkeypatch.setenv("NEOMX_SSH", str(path))
    monkeypatch.setattr(supervision, "FAREWELL", 0.2)
    assert main(["run", "--hosts", "localhost:1", script("")]) == 255
    assert "node 0 on " in (err := capfd.readouterr().err) and ": no route to localhost" in err


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_no_process_is_left_on_any_host(script, fake_ssh, tmp_path, signum, code):
    with launcher("--hosts", "localhost:1,127.0.0.1:1", script(FAMILY), tmp_path) as process:
        pids = family_of(tmp_path, 2)
        process.send_signal(signum)
        process.communicate(timeout=LIMIT)
    assert process.returncode == code
    assert_they_go(pids) if signum == signal.SIGKILL else assert_gone(pids)


def test_node_that_lost_the_store_ends_immediately(monkeypatch):
    server = StoreServer("127.0.0.1", 0, b"x").start()
    client = StoreClient(server.address, b"x")
    client.join("node 1")
    delegate = Delegate(client, 1)
    assert not delegate.over(running=True)
    server.close()
    assert until(lambda: THE_STORE in client.gone)
    patience = []
    real = wire.connect
    monkeypatch.setattr(wire, "connect", lambda *given: patience.append(given[4]) or real(*given))
    delegate._members()  # as `supervise` checks for silent workers; the connection to the store breaks here
    assert delegate.over(running=True) and patience == []
    assert "does not answer" in delegate.failure().report()
    delegate.announce(signal.SIGHUP)
    client.close()
    assert len(patience) == 2 and max(patience) <= 1.0
