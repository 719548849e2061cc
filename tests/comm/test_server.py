"""The parameter server with real processes: the results of one process, asynchronous modes, and faults."""

from __future__ import annotations

import time

from launching import until
from server_jobs import GO_ON, KILL, STOP, TERMINATE, Job


def test_two_workers_and_two_servers_match_one_process(tmp_path):
    with Job(2, 2, "contract", argument=str(tmp_path)) as job:
        job.finish_all()


def test_asynchronous_workers_may_be_slow_die_and_reconnect():
    with Job(2, 2, "without_rounds", apart=True) as job:
        job.await_line("worker 0", "three ahead")
        job.await_line("worker 1", "ready")
        time.sleep(1.0)
        assert "went on" not in job.log("worker 0")  # it waits for worker 1, which pushed nothing
        job.store.set("die", b"")
        job.await_line("worker 0", "alone")
        assert until(lambda: job.store.roster()["worker 1"].state == "gone")
        job.start_worker(1, "back_again")
        job.await_line("worker 1", "joined")
        job.store.set("again", b"")
        job.finish_all()


def test_stopped_killed_and_lost_processes_are_named_soon():
    with Job(2, 2, "faults", timeout=3) as job:
        for number in range(2):  # all slow initialization is done before any worker waits for another
            job.await_line(f"worker {number}", "here")
            job.await_server(number)
        job.store.set("begin", b"")
        job.await_line("worker 0", "ready")
        job.await_line("worker 1", "ready")
        job.signal("worker 1", STOP)
        job.store.set("stopped", b"")
        job.await_line("worker 0", "stopped was seen")
        job.signal("worker 1", GO_ON)
        job.signal("worker 1", KILL)
        job.store.set("killed", b"")
        job.await_line("worker 0", "killed was seen")
        job.await_line("worker 0", "third store")
        job.signal("server 1", KILL)
        job.store.set("server killed", b"")
        assert job.finish("worker 0") == 0, job.log("worker 0")
        assert job.finish("server 0") == 0, job.log("server 0")


def test_server_ends_on_sigterm():
    with Job(0, 0, "") as job:
        job.workers, job.servers = 2, 1
        job.start("server", 0, ["neomx.kvstore.server", "main"])
        job.await_server(0)
        job.signal("server 0", TERMINATE)
        assert job.finish("server 0") == -TERMINATE, job.log("server 0")
        assert job.store.roster()["server 0"].state == "left"
