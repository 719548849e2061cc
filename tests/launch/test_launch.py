"""`neomx run` with real processes on one machine. The scripts do not import neomx, so they start quickly."""

import io
import os
import pty
import signal
import subprocess
import sys
import threading
import time

import pytest
from launching import FAMILY, LIMIT, assert_gone, assert_they_go, environment, family_of, launcher, until, write

from neomx.comm import output, supervision, tree
from neomx.comm.child import Command, Failure
from neomx.comm.jobspec import new_job
from neomx.comm.store import TOLERATES_LOSS, StoreServer
from neomx.launch.cli import main


@pytest.fixture
def script(tmp_path):
    return lambda text: write(tmp_path, text)


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """Make the launcher write a file when it has noticed the end of a process. Return code that waits for the file."""
    real = supervision.Verdict.ended

    def noted(verdict, child):
        real(verdict, child)
        (tmp_path / f"{child.name} ended").touch()

    monkeypatch.setattr(supervision.Verdict, "ended", noted)
    monkeypatch.setattr(supervision, "FAREWELL", LIMIT)
    seen = "import os, time\nwhile not os.path.exists({!r}): time.sleep(0.02)\n"
    return lambda name: seen.format(str(tmp_path / f"{name} ended"))


def test_each_process_gets_its_environment_and_an_output_prefix(script, capfd, tmp_path, monkeypatch):
    monkeypatch.setenv("MASTER_ADDR", "elsewhere")
    monkeypatch.setenv("NEOMX_ROLE", "server")  # of another job
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    path = script("""
        import os, sys
        names = "NEOMX_ROLE RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE NEOMX_NODE NEOMX_NODES NEOMX_SERVERS"
        names += " NEOMX_TIMEOUT NEOMX_HOST OMP_NUM_THREADS MASTER_ADDR COLOUR NEOMX_TENSORBOARD"
        print(*[os.environ.get(name) for name in names.split()], *sys.argv[1:])
        print(os.environ["NEOMX_JOB"], os.environ["NEOMX_SECRET"], os.environ["NEOMX_STORE"])
        print(__name__, os.path.basename(__file__), os.path.basename(sys.path[0]), file=sys.stderr)
    """)
    logs = tmp_path / "logs"
    options = ["--logs", str(logs), "--env", "COLOUR=blue", "--timeout", "40", "--tensorboard", "board"]
    assert main(["run", "-n", "3", *options, path, "--lr", "1"]) == 0
    out, err = capfd.readouterr()
    told = f"worker {{0}} 3 {{0}} 3 0 1 0 40 127.0.0.1 1 None blue {os.path.abspath('board')} --lr 1"
    lines = out.splitlines()
    for rank, prefix in enumerate(["", "[1] ", "[2] "]):
        assert prefix + told.format(rank) in lines
    facts = {tuple(line.split()[-3:]) for line in lines if "127.0.0.1:" in line}
    assert len(facts) == 1  # one job, one secret, one store
    assert sorted(err.splitlines()) == sorted(
        f"{prefix}__main__ script.py {tmp_path.name}" for prefix in ["", "[1] ", "[2] "]
    )
    assert sorted(os.listdir(logs)) == ["worker-0.log", "worker-1.log", "worker-2.log"]
    log = (logs / "worker-2.log").read_text()
    assert told.format(2) in log and "__main__ script.py" in log and "[2]" not in log


def test_first_failure_is_named_with_code_and_exception_and_its_traceback_shown_once(script, capfd, ended):
    path = script(f"""
        import os, sys
        def deep(n):
            if n: return deep(n - 1)
            raise ValueError("no good\\nat all")
        if os.environ["RANK"] == "1":
            print("before")
            deep(2)
        exec({ended("worker 1")!r})
        sys.exit(7)  # as the others do when they notice it
    """)
    assert main(["run", "-n", "3", path]) == 1
    out, err = capfd.readouterr()
    assert err.count("Traceback (most recent call last)") == 1 and "[1] Traceback (most recent call last)" in err
    assert "[1] ValueError: no good\n[1] at all\n" in err and out.count("before") == 1 and "before" not in err
    report = err[err.rindex("neomx: ") :].splitlines()
    assert report[0].startswith("neomx: worker 1 on ")
    assert report[0].endswith(" failed first, with exit code 1: ValueError: no good")
    assert sorted(report[1].removeprefix("After it: ").split(", ")) == [
        "worker 0 (exit code 7)",
        "worker 2 (exit code 7)",
    ]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["Traceback (most recent call last):", '  File "a.py"', "KeyError: 'k'", "terminate: done"], "KeyError: 'k'"),
        (["    return deep(n - 1)", "package.errors.Stop: enough"], "package.errors.Stop: enough"),
        (["Traceback (most recent call last):", "  x", "KeyError", "", "Traceback (most recent call last):", "  y",
          "ValueError: two"], "ValueError: two"),
        (["said something", "", ""], "said something"),
        ([], "no output"),
    ],
)  # fmt: skip
def test_summary_of_a_failure_has_its_exception_or_last_line(lines, words):
    assert (
        Failure("worker 1", 3, "here", lines).summary() == f"worker 1 on here failed first, with exit code 3: {words}"
    )


def test_workers_with_the_same_error_are_named_together(script, capfd):
    path = script("raise ValueError('the same')")
    assert main(["run", "-n", "2", path]) == 1
    report = capfd.readouterr().err.splitlines()[-1]
    assert report in {
        f"neomx: worker {first}, worker {1 - first} failed with the same error, exit code 1: ValueError: the same"
        for first in (0, 1)
    }


def test_killed_worker_gives_the_exit_code_of_a_shell(script, capfd):
    path = script("import os; os.kill(os.getpid(), 9)")
    assert main(["run", path]) == 128 + 9
    assert "worker 0 on " in (err := capfd.readouterr().err) and "with signal SIGKILL" in err
    assert "no output\nIf it was not killed on purpose, the system ran out of memory" in err


def test_failure_ends_the_other_workers_and_their_descendants(script, capfd, tmp_path, monkeypatch):
    monkeypatch.setattr(supervision, "FAREWELL", 0.5)
    started = time.monotonic()
    assert main(["run", "-n", "2", script(FAMILY), str(tmp_path), "fail"]) == 4
    assert time.monotonic() - started < LIMIT  # it did not wait for their own ends
    assert_gone(family_of(tmp_path, 2))
    assert "worker 1" in capfd.readouterr().err


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupt_leaves_no_process(script, tmp_path, signum, code):
    with launcher("-n", 2, script(FAMILY), tmp_path) as process:
        pids = family_of(tmp_path, 2)
        process.send_signal(signum)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code
    assert f"{signal.Signals(signum).name} received" in err
    assert_gone(pids)


def test_killed_launcher_leaves_no_process(script, tmp_path):
    with launcher("-n", 2, script(FAMILY), tmp_path) as process:
        pids = family_of(tmp_path, 2)
        process.kill()
        process.communicate(timeout=LIMIT)
    assert_they_go(pids)


def test_closed_output_pipe_ends_the_job(script, tmp_path):
    with launcher("-n", 2, script("import time\nwhile True: print('x' * 99); time.sleep(0.01)")) as process:
        assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=LIMIT) == 141


def test_port_in_use_is_named(script, capfd):
    store = StoreServer("127.0.0.1", 0, b"x")
    try:
        assert main(["run", "--rdzv", store.address, script("")]) == 2
    finally:
        store.close()
    assert f"cannot listen on {store.address}" in capfd.readouterr().err


def test_tls_creates_a_certificate_for_the_job(script, capfd):
    path = script("""
        import os, ssl
        path = os.environ["NEOMX_TLS"]
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(path)
        print(path, oct(os.stat(path).st_mode))
    """)
    assert main(["run", "--tls", path]) == 0
    path, mode = capfd.readouterr().out.split()
    assert mode == "0o100600" and not os.path.exists(path)


def test_bar_of_rank_0_is_unchanged_and_of_others_only_the_last_state_is_shown(script, capfd):
    path = script(r"""
        import sys, time
        for i in range(3):
            sys.stdout.write(f"\r{i}0%"); time.sleep(0.05)
        sys.stdout.write("\n\xe4")
    """)
    assert main(["run", "-n", "2", path]) == 0
    out = capfd.readouterr().out
    assert "\r00%\r10%\r20%\n" in out
    assert "[1] 20%\n" in out and "[1] ä" in out


def on_a_terminal(monkeypatch, run):
    """Return what a terminal shows."""
    master, slave = pty.openpty()
    with open(slave, "w") as screen, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", screen)
        code = run()
    shown = b""
    try:
        while piece := os.read(master, 1 << 16):
            shown += piece
    except OSError:  # the end of a terminal
        pass
    os.close(master)
    return code, shown.decode()


def test_on_a_terminal_rank_0_has_a_terminal_and_prefixes_have_colors(script, monkeypatch, ended, tmp_path):
    monkeypatch.delenv("NO_COLOR", raising=False)
    path = script(rf"""
        import os, sys, time
        if os.environ["RANK"] == "1":
            print(sys.stdout.isatty())
        else:
            sys.stdout.write(f"\r{{sys.stdout.isatty()}}")
            while not os.path.exists({str(tmp_path / "shown")!r}): time.sleep(0.02)
    """)
    real = output.Screen.tick

    def tick(screen):
        real(screen)
        if (tmp_path / "worker 1 ended").exists() and not screen._waiting:
            (tmp_path / "shown").touch()

    monkeypatch.setattr(output.Screen, "tick", tick)
    code, shown = on_a_terminal(monkeypatch, lambda: main(["run", "-n", "2", path]))
    assert code == 0
    assert "\rTrue" in shown
    assert "\x1b[33m[1] \x1b[0mFalse\r\n" in shown
    assert "\r\x1b[K\x1b[33m[1] \x1b[0mFalse\r\nTrue" in shown or shown.index("[1]") < shown.index("\rTrue")
    for name in ("worker 1 ended", "shown"):
        (tmp_path / name).unlink()
    monkeypatch.setenv("NO_COLOR", "1")
    code, shown = on_a_terminal(monkeypatch, lambda: main(["run", "-n", "2", path]))
    assert "[1] False" in shown and "\x1b[33m" not in shown


def run_tasks(store, interrupts=None, **commands):
    """Run commands, named 'worker_0' and so on, until the job ends."""
    job = new_job()
    environ = {**os.environ, "NEOMX_JOB": job, "NEOMX_NODE": "0"}
    verdict = supervision.Verdict(store)
    with interrupts or supervision.Interrupts() as interrupts, tree.Tree(job) as processes:
        for name, text in commands.items():
            processes.start(Command(name.replace("_", " "), [sys.executable, "-S", "-c", text], environ))
        supervision.supervise(processes, verdict, interrupts)
    return verdict


@pytest.fixture
def store():
    server = StoreServer("127.0.0.1", 0, b"x")
    server.start()
    yield server
    server.close()


def test_servers_end_with_the_workers_and_a_failed_worker_is_marked_gone(store, capfd):
    started = time.monotonic()
    forever = "import time; time.sleep(3600)"
    assert run_tasks(store, worker_0="pass", server_0=forever).failure() is None
    assert run_tasks(store, worker_1="raise SystemExit(3)", server_0=forever).failure().exit_code == 3
    assert time.monotonic() - started < LIMIT
    member = store.roster()["worker 1"]
    assert (member.state, member.why) == ("gone", "exit code 3")


def test_failed_server_fails_the_job(store, capfd, ended):
    failure = run_tasks(store, worker_0=ended("server 0"), server_0="raise SystemExit(5)").failure()
    assert (failure.name, failure.code) == ("server 0", 5)


def test_job_continues_if_losses_are_tolerated(store, capfd, ended):
    store.set(TOLERATES_LOSS, b"1")
    verdict = run_tasks(store, worker_0=ended("worker 1"), worker_1="raise SystemExit(3)")
    assert verdict.failure() is None and [lost.name for lost in verdict.lost] == ["worker 1"]
    assert "worker 1 on " in (err := capfd.readouterr().err) and "continues without it" in err
    assert store.roster()["worker 1"].state == "gone"
    assert run_tasks(store, worker_0="raise SystemExit(3)").failure().code == 3  # no worker was left to continue


def test_second_ctrl_c_ends_all_immediately(store, tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(tree, "PATIENCE", LIMIT)
    ready, done, interrupts = tmp_path / "ready", threading.Event(), supervision.Interrupts()
    stubborn = f"""
import signal, time
for number in (2, 15): signal.signal(number, signal.SIG_IGN)
open({str(ready)!r}, "w").close()
time.sleep(3600)
"""

    def interrupt_twice():
        until(lambda: ready.exists() or done.is_set())
        for received in range(2):
            until(lambda: len(interrupts.received) == received or done.is_set())  # noqa: B023
            if not done.is_set():
                os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_twice)
    thread.start()
    try:
        run_tasks(store, interrupts, worker_0=stubborn)
    finally:
        done.set()
        thread.join()
    assert time.time() - ready.stat().st_mtime < tree.PATIENCE  # it did not wait in vain
    assert "SIGINT received: ending all processes" in capfd.readouterr().err


def test_text_only_stream_of_a_notebook_works(store, monkeypatch):
    cell = io.StringIO()
    monkeypatch.setattr(sys, "stdout", cell)
    run_tasks(store, worker_0="print('half \xe4', end='')", worker_1="print('one\\rtwo')")
    assert sorted(cell.getvalue().splitlines()) == ["[0] half ä", "[1] two"]


def test_consequence_of_another_failure_is_not_named_first(store, capfd, ended):
    """Other workers may end faster than the lost one."""
    lost = "import sys; sys.exit('neomx.comm.store.PeerError: worker 1 is gone')"
    verdict = run_tasks(store, worker_0=lost, worker_1=ended("worker 0") + "raise SystemExit(3)")
    assert [failure.name for failure in verdict.failures] == ["worker 0", "worker 1"]
    assert verdict.failure().name == "worker 1"


def test_launcher_does_not_import_torch(tmp_path):
    """Nor does it start the sinks that a variable requests, which are for the workers."""
    board = tmp_path / "board"
    command = [sys.executable, "-X", "importtime", "-m", "neomx", "run", "--help"]
    environ = environment(NEOMX_TENSORBOARD=str(board), NEOMX_PROGRESS="1")
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environ)
    imported = {line.split("|")[-1].strip() for line in run.stderr.splitlines()}
    assert run.returncode == 0 and "neomx.launch.cli" in imported and "neomx.monitor.tensorboard" in imported
    assert "torch" not in imported and not board.exists()


TRAINING = """
    import sys, time
    for step in range(200):
        print("step", step, flush=True)
        print("warning", step, file=sys.stderr, flush=True)
    with open(sys.argv[1], "w") as file:
        file.write("trained")
"""


def test_full_disk_under_the_output_does_not_end_the_job(script, tmp_path):
    done = tmp_path / "done"
    command = [sys.executable, "-m", "neomx", "run", "-n", "2", script(TRAINING), str(done)]
    with open("/dev/full", "wb") as full:
        job = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), timeout=LIMIT)
        assert job.returncode == 0 and done.read_text() == "trained", job.stderr
        assert job.stderr.count("lines are lost") == 1 and "cannot write to <stdout> (No space left" in job.stderr
        assert "Traceback" not in job.stderr and "[1] warning 199" in job.stderr
        done.unlink()
        job = subprocess.run(command, stdout=full, stderr=full, env=environment(), timeout=LIMIT)
    assert job.returncode == 0 and done.read_text() == "trained"


def test_full_disk_under_the_logs_does_not_end_the_job(script, tmp_path, capfd):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "worker-1.log").symlink_to("/dev/full")
    done = tmp_path / "done"
    assert main(["run", "-n", "2", "--logs", str(logs), script(TRAINING), str(done)]) == 0
    shown = capfd.readouterr()
    assert done.read_text() == "trained" and "[1] step 199" in shown.out
    assert shown.err.count("lines are lost") == 1 and "worker-1.log (No space left" in shown.err
    assert "step 199" in (logs / "worker-0.log").read_text()


def test_terminated_server_is_named(script, capfd):
    path = script("""
        import os, signal
        import neomx as mx
        from neomx.comm.session import session

        kv = mx.kv.create("dist_sync")
        kv.init("w", mx.nd.ones((3,)))
        if kv.rank == 1:
            os.kill(session().store.roster()["server 0"]["pid"], signal.SIGTERM)
        while True:
            kv.push("w", mx.nd.ones((3,)))
            kv.pull("w", out=mx.nd.zeros((3,)))
    """)
    assert main(["run", "-n", "2", "-s", "1", "--no-progress", path]) == 128 + signal.SIGTERM
    err = capfd.readouterr().err
    assert "server 0 on " in err and "failed first, with signal SIGTERM" in err
    assert "worker 0 on" not in err.partition("failed first")[0].rpartition("neomx:")[2]
