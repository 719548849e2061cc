"""Some rows of the table of faults: each role and each fault. `make faults` runs more."""

import pytest
from faults import run
from forking import ForkServer
from rows import Row, all_rows, choose

pytestmark = pytest.mark.processes

ROWS = [
    "leader/killed/voting/plain/3/middle",
    "follower/killed/backward/buckets/4/first",
    "follower/killed/start/adam/3/first",
    "leader/stopped/summed/loaders/2/last",
    "follower/revived/forward/uneven/3/middle",
    "follower/failed/step/own/3/last",
    "leader/out of memory/batch/norm/2/middle",
    "follower/slowed/backward/half/2/middle",
    "leader/wrong clock/forward/two/2/first",
    "two/killed/update/dropout/4/middle",
    "second leader/killed/open/split/3/middle",
    "second follower/continued/agreed/compressed/3/middle",
    "source/killed/given/split/2/middle",
    "bystander/killed/opened/accumulate/3/middle",
    "joiner/killed/taken/uneven split/2/middle",
    "source/killed/passed on/norm/2/middle",
    "bystander/killed/voting/adam/3/middle",
    "one of two joiners/killed/ahead/threads/2/middle",
    "joiner/differs/take/plain/2/middle",
    "spare/takes over/voting/sparse/3/middle",
    "loader/killed/forward/loaders/2/middle",
    "follower/killed/offered/servers adam/3/middle",
    "leader/revived/settle/servers sparse/2/middle",
    "follower/revived/trainer/servers deferred/4/first",
    "joiner/killed/regrouped/servers split/2/middle",
    "server/killed/settled/replicas/2/middle",
    "second server/killed/agreed/replicas adam/3/first",
    "leader/killed/update/module/3/middle",
    "follower/failed/start/fit/2/first",
    "follower/killed/forward/arrays/3/middle",
    "follower/killed/backward/fit/3/last",
    "leader/killed/exchanged/fit csv/3/middle",
    "joiner/continued/forward/fit records/2/middle",
]


@pytest.fixture(scope="module")
def server():
    with ForkServer() as made:
        yield made


@pytest.mark.parametrize("text", ROWS)
def test_row_holds(tmp_path, server, text):
    job = run(Row.read(text), server, tmp_path)
    assert not job.problems, (job.problems, job.logs())


def test_rows_have_each_role_and_fault():
    rows = [Row.read(text) for text in ROWS]
    assert {row.role for row in rows} == {row.role for row in all_rows()}
    assert {row.fault for row in rows} == {row.fault for row in all_rows()}


def test_chosen_rows_differ_first_in_role_fault_and_phase():
    kinds = {(row.role, row.fault, row.phase) for row in all_rows()}
    assert {(row.role, row.fault, row.phase) for row in choose(len(kinds), seed=1)} == kinds
    assert choose(50, seed=1) == choose(50, seed=1) != choose(50, seed=2)
