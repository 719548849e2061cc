"""Faults in real jobs under `neomx run`, as a table.

A row describes a fault, which ranks get an error and with which words, which ranks finish nevertheless, and the exit
code of the launcher. The errors must be raised soon, not only after the timeout for waiting on other workers. After
every row no process of the job is left, and none of them crashed while exiting. The processes measure the seconds
from the fault to the error in the program themselves.
"""

import json
import os
import pathlib
import socket
import time
from dataclasses import dataclass, field

import pytest
from launching import LIMIT, SOON, assert_gone, launcher

from neomx.comm import supervision
from neomx.launch.cli import main
from neomx.ndarray import load

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "faulty.py"
STEPS = 12
SILENCE = 4.0  # NEOMX_SILENCE in rows with a stopped process
CRASHES = ("terminate called", "Fatal Python error", "core dumped", "Exception ignored", "Segmentation")


@dataclass(frozen=True)
class Row:
    """A job, a fault in it, and the expected outcome."""

    name: str
    stores: str
    faults: tuple[str, ...]  # WHAT@RANK:STEP
    code: int
    told: dict[int, tuple[str, ...]] = field(default_factory=dict)  # by rank: words of the error that it gets
    finish: tuple[int, ...] = ()  # the ranks that complete all their steps
    workers: int = 2
    servers: int = 0
    timeout: float = LIMIT
    more: tuple[str, ...] = ()
    says: str = ""  # words of the launcher's output
    last_words: bool = False  # whether no process prints anything after the first has ended


KILLED, STOPPED = ("worker 1", "process", "gone"), ("worker 1", "process", "not heard from for")
EXITED = (*KILLED, "exit code 3")
HOST = socket.gethostname()
WITHOUT_ROUNDS = "dist_async,dist_stale:1"
FAILED = f"worker 1 on {HOST} failed first, with "
LOST = f"worker 1 on {HOST} is lost "

ROWS = [
    # With all-reduce, which cannot continue without a worker: the others get an error, and may save their weights.
    Row(
        "killed",
        "dist_sync",
        ("kill@1:3",),
        137,
        {0: KILLED, 2: KILLED},
        workers=3,
        more=("--forgiving", "0"),
        says=FAILED + "signal SIGKILL",
    ),
    Row("killed before it came", "dist_sync", ("kill@1:0",), 137, {0: ("worker 1", "gone")}, says=FAILED),
    Row("stopped", "dist_sync", ("stop@1:3",), 1, {0: STOPPED}, last_words=True),
    Row("slowed, then leaves early", "dist_sync", ("slow@1:3", "leave@1:6"), 0, finish=(0,)),
    Row("raises", "dist_sync", ("raise@1:3",), 1, {0: KILLED}, says="RuntimeError: a mistake in the script"),
    Row("gives up", "dist_sync", ("exit@1:3",), 3, {0: EXITED}, says=FAILED + "exit code 3"),
    Row("gives up by SystemExit", "dist_sync", ("raise-exit@1:3",), 3, {0: EXITED}, says=FAILED + "exit code 3"),
    Row("leaves by SystemExit(0)", "dist_sync", ("raise-success@1:6",), 0, finish=(0,)),
    Row("catches its own exit", "dist_sync", ("catch-exit@1:3",), 0, finish=(0, 1)),
    Row(
        "never comes",
        "dist_sync",
        ("absent@1:0",),
        1,
        {0: ("worker 1 never connected", "within 3 s")},
        timeout=3,
        last_words=True,
    ),
    # The same with synchronous servers.
    Row("gives up by SystemExit, servers", "dist_sync", ("raise-exit@1:3",), 3, {0: EXITED}, servers=1, says=FAILED),
    Row("killed, servers", "dist_sync", ("kill@1:3",), 137, {0: KILLED}, servers=1, says=FAILED),
    Row(
        "stopped, servers",
        "dist_sync",
        ("stop@1:3",),
        1,
        {0: STOPPED},
        servers=1,
        last_words=True,
    ),
    Row("slowed, then leaves early, servers", "dist_sync", ("slow@1:3", "leave@1:6"), 0, finish=(0,), servers=1),
    Row("Ctrl-C", "dist_sync", ("interrupt@1:3",), 130, servers=1, says="SIGINT received"),
    Row(
        "server killed",
        "dist_sync",
        ("server-kill@1:3",),
        137,
        {0: ("server 0", "gone"), 1: ("server 0", "gone")},
        servers=2,
        says=f"server 0 on {HOST} failed first, with signal SIGKILL",
    ),
    Row(
        "server stopped",
        "dist_sync",
        ("server-stop@1:3",),
        1,
        {0: ("server 0", "not heard from for"), 1: ("server 0", "not heard from for")},
        servers=1,
    ),
    # Asynchronous, and with a staleness of one step, in one job. Training continues without a worker.
    Row("killed, no rounds", WITHOUT_ROUNDS, ("kill@1:3",), 0, finish=(0,), servers=1, says=LOST + "(signal SIGKILL)"),
    Row("stopped, no rounds", WITHOUT_ROUNDS, ("stop@1:3",), 0, finish=(0,), servers=1, says="worker 1 is silent"),
    Row("slowed, then leaves early, no rounds", WITHOUT_ROUNDS, ("slow@1:3", "leave@1:9"), 0, finish=(0,), servers=1),
    Row(
        "slowed, then raises, no bound",
        "dist_async",
        ("slow@1:3", "outlast@1:12", "raise@1:12"),
        0,
        finish=(0,),
        servers=1,
        says=LOST + "(exit code 1)",
    ),
    Row(
        "server killed, no rounds",
        WITHOUT_ROUNDS,
        ("server-kill@1:3",),
        137,
        {0: ("server 0", "gone"), 1: ("server 0", "gone")},
        servers=1,
        says=f"server 0 on {HOST} failed first, with signal SIGKILL",
    ),
]


class Notes:
    """The files that the processes of a job wrote."""

    def __init__(self, folder):
        self._folder = folder

    def read(self, name, rank):
        return json.loads((self._folder / f"{name}-{rank}.json").read_text())

    def has(self, name, rank):
        return (self._folder / f"{name}-{rank}.json").exists()

    def fault(self):
        """When the fault happened; the last one of several."""
        return max(json.loads(file.read_text())["time"] for file in self._folder.glob("fault-*.json"))

    def pids(self):
        """All processes of the job, including servers."""
        files = [*self._folder.glob("started-*.json"), *self._folder.glob("roster-*.json")]
        return {pid for file in files for pid in json.loads(file.read_text())["pids"]}


def command(row, folder):
    faults = [word for fault in row.faults for word in ("--fault", fault)]
    how = ["-n", row.workers, "-s", row.servers, "--timeout", f"{row.timeout:g}"]
    return [str(word) for word in ("run", *how, PROGRAM, folder, row.stores, *faults, *row.more)]


def check(row, notes, ended, said):
    """Check all expectations of a row except the exit code of the launcher."""
    seconds, firsthand = {}, []
    assert not [word for word in CRASHES if word in said], said
    assert row.says in said, said
    for rank, words in row.told.items():
        caught = notes.read("caught", rank)
        seconds[rank] = caught["time"] - notes.fault()
        assert caught["kind"] == "PeerError"
        assert seconds[rank] <= SOON, (seconds, said)
        # Of two workers that a silent server leaves waiting, the second may learn first that the other one has ended.
        if row.name == "server stopped" and "its program ended with PeerError" in caught["message"]:
            continue
        firsthand.append(rank)
        assert not [word for word in words if word not in caught["message"]], caught["message"]
        if "not heard from for" not in words:  # a death is detected directly, not by missing heartbeats
            assert "not heard from" not in caught["message"], caught["message"]
    assert firsthand or not row.told, said
    told = [rank for rank in range(row.workers) if notes.has("caught", rank)]
    assert told == list(row.told), said
    for rank in row.finish:
        assert len(notes.read("done", rank)["ended"]) == STEPS
    pids = notes.pids()
    assert len(pids) == row.workers + row.servers, pids
    assert_gone(pids)
    print(f"{row.name}: told after {seconds}, ended after {ended - notes.fault():.2f} s")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_fault_is_reported_and_leaves_no_process(row, tmp_path, capfd, monkeypatch):
    if any("stop@" in fault for fault in row.faults):
        monkeypatch.setenv("NEOMX_SILENCE", str(SILENCE))
    monkeypatch.setattr(supervision, "FAREWELL", 0.1 if row.last_words else LIMIT)
    code = main(command(row, tmp_path))
    ended = time.time()
    notes = Notes(tmp_path)
    out, err = capfd.readouterr()
    assert code == row.code, out + err
    check(row, notes, ended, out + err)
    if row.told or row.code == 130:
        # All processes with an error end immediately; a stopped one is killed after the others had their time.
        assert ended - notes.fault() < SOON
    if row.name == "killed":
        weights = load(str(tmp_path / "weights-0-0.params"))  # the checkpoint of the surviving worker
        assert {array.shape for array in weights.values()} == {(16, 8), (16,), (3, 16), (3,)}
    if row.name == "slowed, then leaves early, no rounds":
        keeps_to_its_bound(notes.read("done", 0)["ended"], notes.read("done", 1)["began"])
    if row.name == "slowed, then raises, no bound":
        assert notes.read("done", 0)["time"] < notes.fault()  # it did not wait
    if row.name in ("killed, no rounds", "stopped, no rounds"):
        assert sum(at > notes.fault() for at in notes.read("done", 0)["ended"]) > STEPS // 2


def keeps_to_its_bound(fast, slow):
    """Check that a worker that may be one step ahead ends a step only after the slow one began its previous update."""
    for step in range(2, len(slow)):
        assert fast[step] >= slow[step - 1], step


@pytest.fixture
def meeting(monkeypatch):
    """Set a secret shared by all nodes and return a free address on loopback."""
    monkeypatch.setenv("NEOMX_SECRET", "shared by all nodes")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


def on_nodes(number, meeting, timeout, folder, *faults):
    where = ["--nnodes", "2", "--node-rank", number, "--rdzv", meeting, "-n", 1, "--timeout", timeout]
    return [str(word) for word in (*where, PROGRAM, folder, "dist_sync", *faults)]


def test_worker_killed_on_another_node_is_reported(meeting, tmp_path, capfd, monkeypatch):
    """Between nodes gradients are sent over TCP, and each node has a launcher."""
    monkeypatch.setattr(supervision, "FAREWELL", LIMIT)
    fault = ["--fault", "kill@1:3"]
    with launcher(*on_nodes(1, meeting, LIMIT, tmp_path, *fault)) as other:
        code = main(["run", *on_nodes(0, meeting, LIMIT, tmp_path, *fault)])
        ended = time.time()
        _, theirs = other.communicate(timeout=LIMIT)
    out, err = capfd.readouterr()
    assert (code, other.returncode) == (137, 137), out + err + theirs
    row = Row("killed on another node", "dist_sync", ("kill@1:3",), 137, {0: KILLED}, says=FAILED + "signal SIGKILL")
    check(row, Notes(tmp_path), ended, out + err)
    assert row.says in theirs


def test_port_in_use_is_named_and_nothing_starts(tmp_path, capfd):
    with socket.create_server(("127.0.0.1", 0)) as sock:
        place = f"127.0.0.1:{sock.getsockname()[1]}"
        began = time.monotonic()
        assert main(["run", *on_nodes(0, place, LIMIT, tmp_path)]) == 2
        assert main(["run", "-n", "2", "--rdzv", place, str(PROGRAM), str(tmp_path), "dist_sync"]) == 2
        assert time.monotonic() - began < SOON
    said = capfd.readouterr().err
    assert said.count(place) >= 2 and "in use" in said, said
    assert os.listdir(tmp_path) == []


def test_missing_node_is_named_and_nothing_starts(meeting, tmp_path, capfd):
    began = time.monotonic()
    assert main(["run", *on_nodes(0, meeting, 1, tmp_path)]) == 2
    assert time.monotonic() - began < SOON
    said = capfd.readouterr().err
    assert f"timed out after 1 s waiting for node 1 of 2 at {meeting}: nothing was started" in said
    assert os.listdir(tmp_path) == []
