"""Elastic jobs on several hosts: launchers that come and go, with fakes, and with processes behind a fake ssh."""

import os
import signal

import pytest
from fake_job import Process, Store, Tree
from launching import FAMILY, LIMIT, alive, assert_they_go, family_of, launcher, until, write

from neomx.comm.child import Command
from neomx.comm.store import Member
from neomx.launch import fleet
from neomx.launch.cli import main
from neomx.launch.crew import Crew, Limits
from neomx.launch.fleet import Fleet


class Hosts:
    """The list of hosts, as the user's script would print it."""

    def __init__(self, **hosts):
        self.hosts, self.problem = hosts, ""

    def poll(self):
        problem, self.problem = self.problem, ""
        return problem


class Job:
    """An elastic job whose launchers on other hosts are fakes."""

    def __init__(self, changes=True, least=1, most=8, timeout=600.0, **hosts):
        self.store, self.tree, self.list = Store(), Tree(), Hosts(**hosts)
        self.launched = []  # (node, host) of each launcher
        crew = Crew(Limits(least, most, cooldown=(100.0, 600.0)))
        found = self.list if changes else None
        self.fleet = Fleet(self.store, crew, 30.0, timeout, False, self.tree, self.launch, found)
        self.fleet.expect(hosts)
        self.tick()

    def launch(self, node, host):
        self.launched.append((node, host.name, host.room))
        child = Process(Command(f"node {node}", [], {}))
        child.group = 1 << 30  # no process has it
        self.tree.started[child.name] = child
        return child

    def tick(self):
        self.fleet.tick()
        return self.fleet.news()

    def connect(self, *nodes):
        for node in nodes:
            self.store.say(f"launch/node/{node}", {"name": "somewhere"})
            self.store.members[f"node {node}"] = Member(f"node {node}", "h", 1)
        return self.tick()

    def end(self, node, code, *lines):
        child = self.tree.started[f"node {node}"]
        child.code, child.lines = code, list(lines)
        self.fleet.ended(child)
        return self.tick()

    def started(self, node):
        return [order["member"] for order in self.store.orders(node) if order["do"] == "start"]

    @property
    def is_over(self):
        return self.fleet.over(running=False)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(fleet, "RETRY", 0.0)


def test_job_begins_when_every_host_has_connected_or_failed():
    job = Job(alpha=2, beta=2, gamma=2)
    assert job.launched == [(0, "alpha", 2), (1, "beta", 2), (2, "gamma", 2)]
    job.connect(0)
    assert job.started(0) == []
    (said,) = job.end(2, 255, "ssh: no route to gamma")
    assert said == "gamma cannot be used: its launcher ended with exit code 255: ssh: no route to gamma"
    assert job.launched[-1] == (3, "gamma", 2)  # tried again
    job.connect(1, 3)
    assert [job.started(node) for node in (0, 1, 2, 3)] == [[0, 1], [2, 3], [], [4, 5]]
    assert job.store.orders(0)[0] == {
        "do": "start", "member": 0, "local": 0, "joins": False, "size": 6, "nodes": 3, "room": 2
    }  # fmt: skip


def test_fixed_hosts_that_fail_at_the_start_are_left_out_until_the_job_has_begun():
    job = Job(changes=False, alpha=2, beta=2)
    job.end(1, 255, "no route")
    assert len(job.launched) == 2
    job.connect(0)
    assert job.started(0) == [0, 1]
    job.tick()
    assert job.launched[2:] == [(2, "beta", 2)]
    assert job.connect(2) == ["worker 2 starts on beta", "worker 3 starts on beta"]
    assert all(order["joins"] for order in job.store.orders(2))


def test_too_few_hosts_at_the_start_fail_the_job_with_the_reasons():
    job = Job(changes=False, least=3, alpha=2, beta=2)
    job.connect(0)
    job.end(1, 255, "no route to beta")
    assert job.is_over and job.started(0) == []
    failure = job.fleet.failure()
    assert failure.exit_code == 255
    assert job.fleet.report(failure) == (
        "nothing was started: the hosts have room for 2 of at least 3 workers; beta: its launcher ended with exit code "
        "255: no route to beta"
    )


def test_job_waits_for_listed_hosts_until_the_timeout():
    job = Job(least=3, alpha=2)
    assert job.connect(0) == ["waiting for hosts: the hosts have room for 2 of at least 3 workers"]
    assert job.tick() == [] and not job.is_over
    job.list.hosts = {"alpha": 2, "beta": 1}
    job.tick()
    job.connect(1)
    assert [job.started(node) for node in (0, 1)] == [[0, 1], [2]]
    late = Job(least=3, alpha=2, timeout=-1.0)
    late.connect(0)
    assert late.is_over and late.fleet.why.startswith("nothing was started: the hosts have room for 2 of at least 3")


def test_hosts_come_and_go_with_the_list():
    job = Job(alpha=2, most=4)
    job.connect(0)
    job.list.hosts = {"alpha": 2, "beta": 4}
    assert job.tick() == ["beta joins the job, with room for 4 workers"]
    assert job.connect(1) == ["worker 2 starts on beta", "worker 3 starts on beta"]
    job.list.hosts = {"beta": 4}
    (said,) = [text for text in job.tick() if "left" in text]
    assert said == "alpha has left the list of hosts: ending workers 0, 1. No worker remains, 2 wait to join"
    assert job.store.orders(0)[-1] == {"do": "leave", "why": "", "kills": False}
    assert job.store.gone == {f"worker {m}": "its host alpha has left the job" for m in (0, 1)}
    assert job.started(1) == [2, 3, 4, 5]  # replaced without waiting
    assert job.end(0, 0) == []
    job.list.hosts = {"alpha": 2, "beta": 4}
    job.tick()
    assert job.launched[-1] == (2, "alpha", 2)  # with a node number of its own


def test_lost_host_is_reported_once_and_tried_again():
    job = Job(alpha=2, beta=2)
    job.connect(0, 1)
    job.store.lose("node 1", "its connection broke")
    said = job.tick()
    assert said[0].startswith("beta is lost (its launcher is gone: its connection broke), and with it workers 2, 3. 2 ")
    assert job.end(1, -9) == [] and job.launched[2:] == [(2, "beta", 2)]
    assert job.connect(2) == ["worker 4 starts on beta", "worker 5 starts on beta"]


def test_lost_ssh_connection_counts_like_a_lost_host():
    job = Job(alpha=1, beta=1)
    job.connect(0, 1)
    said = job.end(1, 255, "Connection to beta closed by remote host.")
    assert said[0].startswith(
        "beta is lost (its launcher ended with exit code 255: Connection to beta closed by remote host.), and with it "
        "worker 1. 1 worker remains"
    )
    assert job.store.orders(1)[-1]["do"] == "leave" and not job.is_over


def test_host_that_fails_repeatedly_is_left_out_for_a_while():
    job = Job(alpha=1, beta=1)
    job.connect(0)
    told = []
    for node in (1, 2, 3):
        told += job.end(node, 255, "no route")
    assert told[-1] == "beta failed three times within a minute: no worker starts on it for 100 s"
    job.tick()
    assert job.launched[-1][0] == 3


def test_launcher_that_does_not_connect_is_ended(monkeypatch):
    ended = []
    monkeypatch.setattr(fleet, "START", -1.0)
    monkeypatch.setattr(fleet.guard, "signal_group", lambda group, signum: ended.append(signum))
    job = Job(alpha=1)
    job.tick()
    assert set(ended) == {signal.SIGKILL}


def test_problems_of_the_script_are_told_and_the_job_goes_on():
    job = Job(alpha=1)
    job.connect(0)
    job.list.problem = "--hosts-from x failed"
    assert job.tick() == ["--hosts-from x failed"] and not job.is_over


def test_job_without_hosts_waits_until_the_timeout_and_fails(monkeypatch):
    job = Job(alpha=1)
    job.connect(0)
    job.list.hosts = {}
    job.tick()
    assert not job.is_over
    job.fleet._timeout = -1.0
    job.tick()
    assert job.is_over and "no worker is left, and no host has room for more" in job.fleet.why


def test_other_hosts_cannot_join_a_job_that_listens_on_loopback(monkeypatch):
    monkeypatch.setattr(Store, "address", "127.0.0.1:1")
    job = Job(localhost=1)
    job.list.hosts = {"localhost": 1, "beta": 1}
    (said,) = job.tick()
    assert said.startswith("beta cannot join: when the job began, all of its hosts were this machine")
    assert job.tick() == [] and len(job.launched) == 1


def test_finished_job_starts_no_launchers():
    job = Job(alpha=1)
    job.connect(0)
    job.store.set("elastic/over", b"1")
    job.tick()
    job.list.hosts = {"alpha": 1, "beta": 1}
    job.tick()
    job.tick()
    assert len(job.launched) == 1


# ---- real processes ----


@pytest.fixture
def script(tmp_path):
    return lambda text: write(tmp_path, text)


@pytest.fixture
def fake_ssh(tmp_path, monkeypatch):
    """A substitute for ssh, which becomes the command. A file 'down-HOST' makes a host unreachable."""
    path = tmp_path / "ssh"
    path.write_text(
        f"#!/bin/sh\nhost=$1\nshift\nif [ -e {tmp_path}/down-$host ]; then echo no route to $host >&2; exit 255; fi\n"
        f'echo $$ >> {tmp_path}/ssh-$host\nexec sh -c "$*"\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("NEOMX_SSH", str(path))
    return path


# Workers that say where they are, and whether they get SIGTERM. With --checkpoint it makes all workers save and end, so
# the loss of a host must not send it.
PLACES = """
    import os, signal, sys, time
    member, here = os.environ["RANK"], sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: (open(f"{here}/told-{member}", "w").close(), os._exit(0)))
    names = "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NEOMX_NODE NEOMX_NODES NEOMX_JOINS".split()
    print("place", *[os.environ.get(name) for name in names], flush=True)
    with open(f"{here}/part-{member}", "w") as file:
        file.write(str(os.getpid()))
    os.rename(f"{here}/part-{member}", f"{here}/worker-{member}")
    while not os.path.exists(f"{here}/end"):
        time.sleep(0.02)
"""


def places(directory):
    return {file.name for file in directory.glob("worker-*")}


def test_killed_launcher_of_a_host_is_replaced(script, fake_ssh, tmp_path):
    hosts = "localhost:1,127.0.0.1:2"
    with launcher("--hosts", hosts, "--elastic", "-n", "3", script(PLACES), tmp_path) as process:
        assert until(lambda: places(tmp_path) == {"worker-0", "worker-1", "worker-2"})
        os.kill(int((tmp_path / "ssh-127.0.0.1").read_text()), signal.SIGKILL)
        assert until(lambda: places(tmp_path) >= {"worker-3", "worker-4"})
        (tmp_path / "end").touch()
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert list(tmp_path.glob("told-*")) == []
    assert "place 0 3 0 1 0 2 None" in out and "[1] place 1 3 0 2 1 2 None" in out
    assert {"[3] place 3 3 0 2 2 2 1", "[4] place 4 3 1 2 2 2 1"} <= set(out.splitlines()) or {
        "[4] place 4 3 0 2 2 2 1", "[3] place 3 3 1 2 2 2 1"
    } <= set(out.splitlines())  # fmt: skip
    assert "127.0.0.1 is lost (" in err and "and with it workers 1, 2. 1 worker remains" in err


@pytest.mark.parametrize("saves", [False, True])
def test_hosts_from_a_script_come_and_go(script, fake_ssh, tmp_path, saves):
    listed = tmp_path / "hosts.sh"
    listed.write_text(f"#!/bin/sh\ncat {tmp_path}/list\n")
    listed.chmod(0o755)

    def lists(text):
        (tmp_path / "next").write_text(text)
        os.rename(tmp_path / "next", tmp_path / "list")

    lists("localhost:1\n")
    options = ["--checkpoint", tmp_path / "saved"] if saves else []
    with launcher("-n", "1:3", "--elastic", "--hosts-from", listed, *options, script(PLACES), tmp_path) as process:
        assert until(lambda: places(tmp_path) == {"worker-0"})
        lists("localhost:1\n127.0.0.1:4\n")
        assert until(lambda: places(tmp_path) == {"worker-0", "worker-1", "worker-2"})
        lists("127.0.0.1:4\n")
        assert until(lambda: "worker-3" in places(tmp_path))
        assert until(lambda: not alive(int((tmp_path / "worker-0").read_text())))
        (tmp_path / "end").touch()
        out, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0, err
    assert [file.name for file in tmp_path.glob("told-*")] == ([] if saves else ["told-0"])
    assert "127.0.0.1 joins the job, with room for 4 workers" in err
    assert "localhost has left the list of hosts: ending worker 0" in err
    assert "place 0 1 0 1 0 1 None" in out and "[3] place 3 1 2 4 1 1 1" in out


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL])
def test_no_process_of_an_elastic_job_is_left_on_any_host(script, fake_ssh, tmp_path, signum):
    with launcher("--hosts", "localhost:1,127.0.0.1:1", "--elastic", script(FAMILY), tmp_path) as process:
        pids = family_of(tmp_path, 2)
        process.send_signal(signum)
        process.communicate(timeout=LIMIT)
    assert_they_go(pids)


def test_unreachable_hosts_are_named_with_their_reasons(script, fake_ssh, tmp_path, capfd):
    (tmp_path / "down-localhost").touch()
    assert main(["run", "--hosts", "localhost:1", "--elastic", script("")]) == 255
    err = capfd.readouterr().err
    assert (
        "nothing was started: the hosts have room for 0 of at least 1 workers; localhost: its launcher ended with"
        in err
    )
    assert "no route to localhost" in err


@pytest.fixture
def meeting(monkeypatch):
    import socket

    monkeypatch.setenv("NEOMX_SECRET", "shared by all nodes")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


def test_job_started_on_each_node_goes_on_without_one(script, meeting, tmp_path):
    path = script(PLACES)
    node = ["--nnodes", "2", "--rdzv", meeting, "-n", "1", "--elastic", "--timeout", LIMIT, "--node-rank"]
    with launcher(*node, 0, path, tmp_path) as first, launcher(*node, 1, path, tmp_path) as other:
        assert until(lambda: places(tmp_path) == {"worker-0", "worker-1"})
        other.kill()
        other.communicate(timeout=LIMIT)
        assert not until(lambda: first.poll() is not None, seconds=2)
        (tmp_path / "end").touch()
        out, err = first.communicate(timeout=LIMIT)
    assert first.returncode == 0, err
    assert "node 1 (" in err and "its launcher is gone" in err and "and with it worker 1. 1 worker remains" in err
    assert out == "place 0 2 0 1 0 2 None\n"


def test_node_without_the_store_ends_with_node_0(script, meeting, tmp_path):
    path = script(PLACES)
    node = ["--nnodes", "2", "--rdzv", meeting, "-n", "1", "--elastic", "--timeout", LIMIT, "--node-rank"]
    with launcher(*node, 0, path, tmp_path) as first, launcher(*node, 1, path, tmp_path) as other:
        assert until(lambda: places(tmp_path) == {"worker-0", "worker-1"})
        first.kill()
        _, err = other.communicate(timeout=LIMIT)
        first.communicate(timeout=LIMIT)
    assert other.returncode == 1 and "node 0 on " in err and "does not answer" in err
