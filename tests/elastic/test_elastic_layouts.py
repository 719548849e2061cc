"""Layouts in elastic jobs: who sits where, which replicas go on, and what is refused at the start.

Trainings under layouts in which workers are lost are rows of `test_elastic_faults.py` and `make faults`.
"""

import json
import pathlib

import numpy as np
import pytest
import replicas
from cluster import Cluster
from faults import run
from forking import ForkServer
from rows import Row
from test_generations import start_store, together

from neomx.comm.generations import Expelled, Status, Unrecoverable
from neomx.comm.seats import Seats, complete, whole
from neomx.launch.cli import read_job
from neomx.launch.errors import ConfigurationError

WORKERS = pathlib.Path(__file__).parents[1] / "workers"
ROWS = [
    "follower/killed/inside/tensor/4/middle",
    "leader/killed/inside backward/pipeline/4/first",
    "follower/killed/voting/tensor split/4/last",
    "leader/killed/updated/pipeline adam/4/middle",
    "bystander/killed/opened/tensor uneven/4/middle",
    "joiner/continued/taken/shard/4/middle",
    "joiner/continued/take/pipeline/4/middle",
]
TENSOR = Seats(1, 2, (0, 0), "data=2,tensor=2")
PIPELINE = Seats(2, 1, (0, 0), "data=2,pipeline=2")


def test_seats_follow_the_order_of_ranks():
    assert TENSOR.replicas((0, 1, 2, 3)) == [(0, 1), (2, 3)]
    assert PIPELINE.replicas((0, 1, 2, 3)) == [(0, 2), (1, 3)]
    assert PIPELINE.members([(0, 2), (5, 6)]) == (0, 5, 2, 6)
    both = Seats(2, 2, (0, 0, 0, 0))
    for count in (1, 2, 3):
        members = tuple(range(4 * count))
        assert both.members(both.replicas(members)) == members
        for rank in members:
            place = both.place(rank, count)
            assert members[rank] in both.replicas(members)[both.replicas(members).index(both.replica_of(members, rank))]
            assert both.replica_of(members, rank)[place] == rank


def test_samples_are_divided_among_one_worker_of_each_share():
    assert TENSOR.sharers((4, 5, 2, 3)) == (4, 2)
    assert PIPELINE.sharers((4, 5, 2, 3)) == (4, 5)
    assert Seats(1, 2, (0, 1)).sharers((0, 1, 2, 3)) == (0, 1, 2, 3)  # shard
    assert Seats().sharers((7, 1)) == (7, 1)
    assert TENSOR.beside((4, 5, 2, 3), 3) == [5, 3]


def test_replicas_are_whole_or_left_out_and_join_when_all_places_are_taken():
    assert whole([(0, 1), (2, 3)], {0, 2, 3}) == [(2, 3)]
    assert complete([(0, 0), (4, 0)], 2, 8) == []
    assert complete([(0, 0), (4, 0), (5, 1)], 2, 8) == [(0, 5)]
    assert complete([(0, 0), (4, 1), (6, 0), (5, 1)], 2, 1) == [(0, 4)]
    assert complete([(0, 0)], 1, 0) == []


@pytest.fixture
def members():
    with start_store() as server:
        found = [server.member(number, initial=4, most=4) for number in range(4)]
        together(*(each.begin for each in found))
        assert not any(each.take_seats(TENSOR) for each in found)
        yield server, found


def test_partners_of_a_lost_worker_are_left_out_and_join_with_its_replacement(members):
    store, (a, b, c, d) = members
    store.mark_gone("worker 1", 1)
    status = Status(3, epoch=0)
    left, first, same = together(*(lambda each=each: each.next(status) for each in (a, c, d)))
    assert isinstance(left, Expelled) and "lost a partner in its replica" in str(left)
    assert first == same and first.members == (2, 3) and first.sharers == (2,)
    joiner = store.member(4, initial=4, most=4, joins=True)
    joiner.take_seats(TENSOR)
    assert joiner.seat == 1 and not c.can_admit(0)  # the place that is free

    def train():
        while not c.can_admit(0):
            pass
        return together(lambda: c.next(status), lambda: d.next(status))[0]

    found = together(lambda: a.join(0), lambda: joiner.join(0), train)
    assert all(each == found[0] for each in found)
    assert found[0].members == (2, 3, 0, 4) and found[0].new == (0, 4) and found[0].sharer(4) == 0


def test_step_counts_if_whole_replicas_have_its_sums(members):
    store, (a, b, c, d) = members
    store.mark_gone("worker 1", 1)
    holds = Status(3, True, 8.0, epoch=0)
    _, first, _ = together(lambda: a.next(Status(3)), lambda: c.next(holds), lambda: d.next(holds))
    assert (first.steps, first.divisor) == (4, 8.0)


def test_job_ends_if_no_replica_is_whole(members):
    store, (a, b, c, d) = members
    store.mark_gone("worker 1", 1)
    store.mark_gone("worker 2", 1)
    for error in together(lambda: a.next(Status(3)), lambda: d.next(Status(3))):
        assert isinstance(error, Unrecoverable)
        assert "no complete replica of the layout data=2,tensor=2 is left after the loss of workers 1, 2" in str(error)
    joiner = store.member(4, initial=4, most=4, joins=True)
    with pytest.raises(Unrecoverable, match="Start the job again"):
        joiner.place()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("--layout data=1,tensor=2", "needs data=2 or more"),
        ("--layout pipeline=4", "needs data=2 or more"),
        ("--layout data=2,expert=2", "supports the dimensions data, shard, tensor, pipeline, not expert"),
        ("--layout data=2,tensor=2 --checkpoint there", "cannot save checkpoints under a layout"),
    ],
)
def test_launcher_refuses_what_cannot_go_on(options, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    with pytest.raises(ConfigurationError, match=told):
        read_job(["run", *options.split(), "--elastic", "train.py"])
    assert read_job(["run", "--layout", "data=2,tensor=2", "--elastic", "train.py"]).most == 4


@pytest.fixture(scope="module")
def server():
    with ForkServer() as made:
        yield made


@pytest.mark.processes
@pytest.mark.parametrize("text", ROWS)
def test_row_holds(tmp_path, server, text):
    job = run(Row.read(text), server, tmp_path)
    assert not job.problems, (job.problems, job.logs())


@pytest.mark.processes
def test_program_is_told_at_the_start_what_cannot_go_on(tmp_path, server):
    with Cluster(WORKERS / "elastic_refused.py", [tmp_path], 2, output=tmp_path, popen=server.popen) as cluster:
        codes = cluster.wait()
    assert codes == {0: 0, 1: 0}, [path.read_text() for path in tmp_path.glob("*.log")]
    told = json.loads((tmp_path / "errors-0.json").read_text())
    assert told == json.loads((tmp_path / "errors-1.json").read_text())
    assert "needs data=2 or more" in told["tensor"]
    assert "use a layout such as data=2,shard=2" in told["full"].replace("Use", "use")
    assert "layouts of gluon Blocks" in told["torch"]
    assert "can have only one layout" in told["another"]
    assert "supports one Trainer" in told["two"]


@pytest.mark.processes
def test_update_that_needs_other_workers_is_refused_in_the_first_step(tmp_path, server):
    with Cluster(WORKERS / "elastic_refused.py", [tmp_path, "lamb"], 4, popen=server.popen) as cluster:
        cluster.wait()
    for number in range(4):
        told = json.loads((tmp_path / f"errors-{number}.json").read_text())
        assert "norms of whole layers" in told["lamb"]


@pytest.mark.processes
@pytest.mark.parametrize(("mode", "phase"), [("tensor", "inside backward"), ("pipeline", "inside")])
def test_dropped_step_leaves_no_trace(tmp_path, server, mode, phase):
    """The weights are, to the bit, those of a job that loses the same replica between two steps."""
    found = []
    for name in ("batch", phase):
        (tmp_path / name).mkdir()
        job = run(Row("follower", "killed", name, mode, 4, "first"), server, tmp_path / name)
        assert not job.problems, (job.problems, job.logs())
        found.append(job)
    first, second = (replicas.whole(job.mode, job.folder) for job in found)
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name])
