"""Elastic jobs: the decisions on the node with the store, with fakes for processes, and a few runs with real ones."""

import json
import os
import signal

import pytest
from fake_job import Store, Tree
from launching import LIMIT, alive, assert_gone, launcher, until, write

from neomx.comm import supervision
from neomx.comm.jobspec import JobSpec
from neomx.comm.store import Member
from neomx.launch import elastic
from neomx.launch.cli import main
from neomx.launch.crew import Crew, Host, Limits
from neomx.launch.elastic import Elastic, Here, There

SPEC = JobSpec("job", "secret", "127.0.0.1:1", size=0)


class Job:
    """An elastic job on this machine, and maybe on others with launchers of their own."""

    def __init__(self, *rooms, timeout=600.0, saves=False, **limits):
        limits = {"least": 1, "most": sum(rooms), **limits}
        self.store, self.tree = Store(), Tree()
        self.verdict = Elastic(self.store, Crew(Limits(**limits)), 30.0, timeout, saves)
        self.hosts = [Host(f"host {node}", room, node=node) for node, room in enumerate(rooms)]
        for host in self.hosts:
            here = Here(self.tree, SPEC, ["train"])
            self.verdict.add(host, There(self.store, host.node) if host.node else here)
            self.store.members[f"node {host.node}"] = Member(f"node {host.node}", "h", 1)
        self.verdict.begin(self.tree)
        self.verdict.tick()

    def end(self, member, code, *lines):
        """End a worker of this machine and return what the user is told."""
        child = self.tree.started[f"worker {member}"]
        child.code, child.lines = code, list(lines)
        self.verdict.ended(child)
        self.verdict.tick()
        return " | ".join(self.verdict.news())

    def fail(self, member, step, error):
        self.store.say(f"elastic/failed/{member}", {"step": step, "error": error})
        return self.end(member, 1)

    @property
    def running(self):
        return sorted(name for name, child in self.tree.started.items() if child.code is None)

    @property
    def is_over(self):
        return self.verdict.over(running=False)


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(elastic, "FAREWELL", 0.0)


def test_lost_worker_is_replaced_by_one_that_joins():
    job = Job(3)
    said = job.end(1, -9)
    assert said == (
        "worker 1 on here is lost (signal SIGKILL). 2 workers remain; worker 3 replaces it (restart 1 of 3)"
    )
    assert job.store.gone == {"worker 1": "signal SIGKILL"} and job.tree.buried == ["worker 1"]
    first, new = (job.tree.started[name].environ for name in ("worker 1", "worker 3"))
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NEOMX_JOINS")
    assert [first.get(name) for name in names] == ["1", "3", "1", "3", None]
    assert [new.get(name) for name in names] == ["3", "3", "1", "3", "1"]
    assert not job.is_over


def test_news_tell_how_many_workers_wait_to_join():
    job = Job(4, most=3, spares=1)
    assert "2 workers remain, 1 waits to join; worker 4 replaces it" in job.end(0, -9)
    job.store.say("elastic/generation", {"number": 1, "members": [1, 2, 3]})
    assert "2 workers remain, 1 waits to join; worker 5 replaces it" in job.end(1, 2)


def test_job_fails_when_no_worker_is_left_and_says_why():
    job = Job(2, restarts=0)
    assert job.end(0, -9).endswith("1 worker remains; it is not replaced (--restarts 0)")
    assert not job.is_over
    job.end(1, 3, "last words")
    assert job.is_over
    failure = job.verdict.failure()
    assert failure.exit_code == 3
    assert job.verdict.report(failure) == (
        "the job failed: no worker is left, and --restarts 0 allows no more replacements. Lost last: worker 1 on here, "
        "exit code 3: last words"
    )


def test_job_fails_when_fewer_workers_than_the_minimum_are_left():
    job = Job(3, least=2, restarts=0)
    job.end(0, -9)
    assert not job.is_over
    job.end(1, -9)
    assert job.is_over and "it has 1 of at least 2 workers" in job.verdict.report(job.verdict.failure())


@pytest.mark.parametrize("begun", [True, False])
def test_job_fails_when_only_workers_are_left_that_wait_to_join(begun):
    """No worker can admit them, so they would wait forever."""
    job = Job(3, most=2, spares=1, saves=True)
    if begun:
        job.store.say("elastic/generation", {"members": [0, 1]})
    else:
        job.store.members["worker 2"] = Member("worker 2", "h", 1)
    job.end(0, -9)
    assert not job.is_over
    job.end(1, 3, "last words")
    assert job.is_over and job.verdict.failure().exit_code == 3
    assert job.verdict.why == (
        "the job failed: every worker that had the state of the training is lost. Lost last: worker 1 on here, exit "
        "code 3: last words. Start the job again with --resume auto"
    )


def test_replacements_may_work_alone_in_programs_that_do_not_connect():
    job = Job(1)
    assert "worker 1 replaces it" in job.end(0, -9)
    job.verdict.tick()
    assert job.running == ["worker 1"] and not job.is_over


def test_admitted_workers_carry_the_job_on():
    job = Job(3, most=2, spares=1)
    job.store.say("elastic/generation", {"members": [0, 1]})
    job.end(0, -9)
    job.store.say("elastic/generation", {"members": [1, 2]})
    job.end(1, -9)
    assert not job.is_over and "1 worker remains" in job.verdict._remaining()


def test_expelled_worker_counts_as_waiting():
    job = Job(2)
    job.store.say("elastic/generation", {"members": [1]})
    job.verdict.tick()
    assert job.verdict._remaining() == "1 worker remains, 1 waits to join" and not job.is_over
    job.end(1, -9)
    assert job.is_over  # the other one has an old state


def test_same_error_at_the_same_step_ends_the_job():
    job = Job(3)
    said = job.fail(1, 7, "ValueError: no good")
    assert "lost (exit code 1: ValueError: no good). 2 workers remain; worker 3 replaces it in 1 s" in said
    assert not job.is_over
    job.fail(2, 7, "ValueError: no good")
    assert job.is_over
    failure = job.verdict.failure()
    assert (failure.name, failure.exit_code) == ("worker 2", 1)
    assert job.verdict.report(failure).startswith(
        "worker 1 on here and worker 2 on here failed at step 7 with the same error, exit code 1: ValueError: no good\n"
    )
    assert job.running == ["worker 0"]  # no replacement


def test_replacement_that_fails_like_its_predecessor_ends_the_job(monkeypatch):
    job = Job(2)
    job.fail(1, 7, "ValueError: no good")
    for seat in job.verdict._crew._seats:
        seat.since = 0.0
    job.verdict.tick()
    assert "worker 2" in job.running
    job.fail(2, 7, "ValueError: no good")
    assert job.is_over and "worker 1 on here and worker 2 on here" in job.verdict.why


@pytest.mark.parametrize(
    "said",
    [
        {"step": 8, "error": "ValueError: no good"},
        {"step": 7, "error": "ValueError: another"},
        {"step": "7", "error": "ValueError: no good"},
        {"step": 7, "error": ["ValueError: no good"]},
        ["step", 7],
        None,
        "[" * 100_000,
    ],
)
def test_other_errors_are_losses(said):
    job = Job(4)
    job.store.say("elastic/generation", {"members": [0, 1, 2, 3]})
    job.fail(1, 7, "ValueError: no good")
    value = said.encode() if isinstance(said, str) else json.dumps(said).encode()
    job.store.set("elastic/failed/2", value)
    assert "worker 2 on here is lost" in job.end(2, 1) and not job.is_over


def test_errors_that_follow_from_another_loss_are_losses():
    job = Job(4)
    job.end(0, -9)
    for member in (1, 2):
        job.fail(member, 7, "neomx.comm.store.PeerError: worker 0 is gone")
    assert not job.is_over


TRACEBACK = ("Traceback (most recent call last):", '  File "train.py", line 1, in <module>', "ImportError: no such")


def test_same_exception_of_two_workers_before_the_training_ends_the_job():
    job = Job(3)
    job.end(0, 1, *TRACEBACK)
    assert not job.is_over
    job.end(1, 1, *TRACEBACK)
    assert job.is_over and "failed before the training began with the same error" in job.verdict.why


@pytest.mark.parametrize("lines", [("step 3",), ()])
def test_exit_codes_without_an_exception_are_losses(lines):
    job = Job(3)
    for member in (0, 1):
        job.end(member, 3, *lines)
    assert not job.is_over


def test_exceptions_without_a_step_are_losses_once_the_training_has_begun():
    job = Job(3)
    job.store.say("elastic/generation", {"members": [0, 1, 2]})
    for member in (0, 1):
        job.end(member, 1, *TRACEBACK)
    assert not job.is_over


def test_job_is_over_when_all_have_ended_although_workers_were_lost():
    job = Job(3)
    job.end(1, -9)
    job.store.say("elastic/generation", {"members": [0, 2, 3]})
    job.store.set("elastic/over", b"1")
    for member in (0, 2, 3):
        assert not job.is_over
        assert job.end(member, 0) == ""
    assert job.is_over and job.verdict.failure() is None


def test_workers_lost_after_the_program_are_not_replaced():
    job = Job(2)
    job.store.set("elastic/over", b"1")
    job.verdict.tick()
    assert job.end(1, -9) == "worker 1 on here is lost (signal SIGKILL). 1 worker remains"
    assert job.running == ["worker 0"]
    job.end(0, 0)
    assert job.is_over and job.verdict.failure() is None


def test_joiners_that_never_trained_are_ended_with_the_program(monkeypatch):
    monkeypatch.setattr(elastic, "FAREWELL", 60.0)
    job = Job(3, most=2, spares=1)
    job.store.say("elastic/generation", {"members": [0, 1]})
    job.store.set("elastic/over", b"1")
    job.end(0, 0)
    assert not job.is_over
    job.end(1, 0)
    assert not job.is_over  # they end by themselves
    monkeypatch.setattr(elastic, "FAREWELL", -1.0)
    assert job.is_over and job.verdict.failure() is None


def test_members_may_take_long_after_the_program():
    job = Job(2)
    job.store.say("elastic/generation", {"members": [0, 1]})
    job.store.set("elastic/over", b"1")
    job.end(0, 0)
    assert not job.is_over


def test_workers_that_saved_are_not_replaced_and_no_failure():
    job = Job(3)
    assert job.end(0, 75) == ""
    assert job.running == ["worker 1", "worker 2"] and not job.is_over
    job.end(1, 75)
    job.end(2, -9)
    assert job.is_over and job.verdict.failure() is None and job.verdict.saved == 2


def test_signal_to_save_stops_replacements_and_reaches_all_nodes():
    job = Job(2, 1, saves=True)
    job.verdict.request(signal.SIGUSR1)
    assert job.store.get("launch/signal/0") == b"10"
    job.end(0, -10)
    assert job.running == ["worker 1"]
    other = Job(2)
    other.verdict.request(signal.SIGUSR1)
    assert "worker 2 replaces it" in other.end(0, -10)  # of a job that saves nothing, it ends no worker on purpose


def test_worker_that_cannot_be_started_counts_as_lost():
    job = Job(1, restarts=1)
    job.tree.refuses = True
    said = job.end(0, -9)
    assert "worker 1 on host 0 is lost (exit code 1). No worker remains; it is not replaced" in said
    assert "it cannot be started: [Errno 11] Resource temporarily unavailable" in job.verdict.why


def test_other_nodes_get_orders_and_report_exits():
    job = Job(1, 2)
    begin = {"do": "start", "joins": False, "size": 3, "nodes": 2, "room": 2}
    assert job.store.orders(1) == [{**begin, "member": 1, "local": 0}, {**begin, "member": 2, "local": 1}]
    report = {"name": "worker 2", "code": -9, "host": "beta", "lines": []}
    job.store.say("launch/ended/1/0", report)
    job.verdict.tick()
    lost, starts = job.verdict.news()
    assert "worker 2 on beta is lost" in lost and "2 workers remain" in lost and starts == "worker 3 starts on host 1"
    assert job.store.orders(1)[2] == {**begin, "member": 3, "local": 1, "joins": True}
    for number, member in enumerate((1, 3)):
        job.store.say(f"launch/ended/1/{number + 1}", {**report, "name": f"worker {member}", "code": 0})
    job.end(0, 0)
    assert job.is_over and job.verdict.successes == 3


def test_job_goes_on_without_a_lost_node():
    job = Job(2, 2, most=3)
    assert job.store.orders(1)[0]["member"] == 2
    job.store.lose("node 1", "its connection broke")
    job.verdict.tick()
    lost = "host 1 is lost (its launcher is gone: its connection broke), and with it worker 2. 2 workers remain"
    assert job.verdict.news() == [f"{lost}; other hosts have room for 0 replacements"]
    assert job.store.gone == {"worker 2": "its host host 1 is lost"}
    assert job.store.orders(1)[-1]["do"] == "leave"
    job.store.say("launch/ended/1/0", {"name": "worker 2", "code": 1, "host": "beta", "lines": []})
    assert "worker 4 replaces it" in job.end(1, -9)  # worker 3 would replace worker 2
    for member in (0, 4):
        assert not job.is_over
        job.end(member, 0)
    assert job.is_over and job.verdict.failure() is None


def test_loss_of_all_nodes_with_room_fails_the_job():
    job = Job(1, 1, least=2)
    job.store.lose("node 1", "its connection broke")
    job.verdict.tick()
    assert job.is_over
    said = job.verdict.report(job.verdict.failure())
    assert "the job failed: it has 1 of at least 2 workers, and no host has room for more" in said


# ---- real processes ----


@pytest.fixture
def script(tmp_path):
    return lambda text: write(tmp_path, text)


WORKER = """
    import json, os, sys, time
    from neomx.comm.store import StoreClient
    from neomx.comm.world import discover

    world, member = discover(), int(os.environ["RANK"])
    joins = "NEOMX_JOINS" in os.environ
    store = StoreClient(world.store, world.secret)
    store.join(f"worker {member}")

    def members():
        return json.loads(store.get("elastic/generation"))["members"]

    def wait(condition):
        while not condition():
            time.sleep(0.02)
"""


def test_program_ends_well_although_a_worker_is_killed(script, capfd, tmp_path):
    path = script(
        WORKER
        + """
    if member == 1:
        os.kill(os.getpid(), 9)
    if member == 0:  # waits for the replacement, admits it, and leaves the spare waiting
        wait(lambda: "worker 3" in store.roster() and "worker 2" in store.roster())
        assert store.roster()["worker 1"]["state"] == "gone"
        store.set("elastic/generation", json.dumps({"number": 1, "members": [0, 3]}))
        store.set("elastic/over", b"1")
    else:
        wait(lambda: store.check(["elastic/over"]))
    print("worker", member, "of", os.environ["WORLD_SIZE"], joins, members(), os.environ["NEOMX_ELASTIC_MAX"])
    store.close()
    """
    )
    assert main(["run", "-n", "2", "--elastic", "--spares", "1", path]) == 0
    out, err = capfd.readouterr()
    assert sorted(out.splitlines()) == [
        "[2] worker 2 of 2 True [0, 3] 2",
        "[3] worker 3 of 2 True [0, 3] 2",
        "worker 0 of 2 False [0, 3] 2",
    ]
    assert "worker 1 on " in err and "is lost (signal SIGKILL). 1 worker remains, 1 waits to join; worker 3" in err


def test_descendants_of_a_lost_worker_end_while_the_job_goes_on(script, tmp_path):
    path = script(f"""
        import os, subprocess, sys, time
        if os.environ["RANK"] == "0":
            sleep = [sys.executable, "-S", "-c", "import time; time.sleep(3600)"]
            child = subprocess.Popen(sleep, start_new_session=True)
            with open({str(tmp_path / "part")!r}, "w") as file:
                file.write(str(child.pid))
            os.rename({str(tmp_path / "part")!r}, {str(tmp_path / "pid")!r})
            os._exit(3)
        while not os.path.exists({str(tmp_path / "end")!r}):
            time.sleep(0.02)
    """)
    with launcher("-n", 2, "--elastic", "--restarts", 0, path) as process:
        assert until(lambda: (tmp_path / "pid").exists())
        pid = int((tmp_path / "pid").read_text())
        assert until(lambda: not alive(pid)) and process.poll() is None
        (tmp_path / "end").touch()
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0 and "it is not replaced (--restarts 0)" in err
    assert_gone([pid])


def test_silent_worker_is_killed_and_replaced(script, capfd, monkeypatch):
    monkeypatch.setenv("NEOMX_SILENCE", "1.5")
    path = script(
        WORKER
        + """
    if member == 1:
        os.kill(os.getpid(), 19)  # stops
    else:
        wait(lambda: "worker 2" in store.roster())
    store.close()
    """
    )
    assert main(["run", "-n", "2", "--elastic", path]) == 0
    err = capfd.readouterr().err
    assert "worker 1 is silent, and the others continue without it: killing it" in err
    assert "worker 1 on " in err and "is lost (signal SIGKILL)" in err


def test_same_error_ends_the_job_with_its_exit_code(script, capfd):
    path = script(
        WORKER
        + """
    wait(lambda: len(store.roster()) == int(os.environ["WORLD_SIZE"]))
    store.set(f"elastic/failed/{member}", json.dumps({"step": 4, "error": "ValueError: no good"}))
    raise ValueError("no good")
    """
    )
    assert main(["run", "-n", "2", "--elastic", path]) == 1
    err = capfd.readouterr().err
    assert err.count("Traceback") == 2  # of the workers; the launcher adds none
    assert "failed at step 4 with the same error, exit code 1: ValueError: no good\n" in err


def test_loss_of_the_only_worker_with_the_state_ends_the_job(script, capfd):
    path = script(
        WORKER
        + """
    if not joins:
        wait(lambda: "worker 1" in store.roster())  # the spare
        os.kill(os.getpid(), 9)
    wait(lambda: False)
    """
    )
    assert main(["run", "-n", "1", "--elastic", "--spares", "1", path]) == 137
    assert "every worker that had the state of the training is lost. Lost last: worker 0 on " in capfd.readouterr().err


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_ends_an_elastic_job(script, tmp_path, signum, code):
    path = script(f"""
        import os, time
        open({str(tmp_path)!r} + "/pid" + str(os.getpid()), "w").close()
        time.sleep(3600)
    """)
    with launcher("-n", 2, "--elastic", path) as process:
        assert until(lambda: len(list(tmp_path.glob("pid*"))) == 2)
        process.send_signal(signum)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code and "is lost" not in err
    assert_gone([int(file.name[3:]) for file in tmp_path.glob("pid*")])


def test_exit_code_of_saving_is_that_of_the_checkpoints():
    from neomx.checkpoint import EXIT_CODE

    assert supervision.SAVED == EXIT_CODE and os.EX_TEMPFAIL == EXIT_CODE
