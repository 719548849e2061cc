"""Signals to a launcher: the workers save a checkpoint and exit with 75, and so does the launcher."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import sys

import pytest
from fake_job import Process, Store
from launching import LIMIT, ROOT, environment, launcher, until, write

from neomx.comm import supervision
from neomx.comm.child import Command
from neomx.comm.supervision import Interrupts, Verdict

SIGNALS = [signal.SIGTERM, signal.SIGUSR1]

# Workers that save when they are told to, like those of mx.checkpoint, except those whose ranks are arguments.
WORKER = """
    import os, signal, sys, time
    here, rank = sys.argv[1], os.environ["RANK"]

    def save(number, frame):
        open(f"{here}/saved-{rank}-{signal.Signals(number).name}", "w").close()
        sys.exit(75)

    def note(number, frame):
        open(f"{here}/noted-{rank}", "w").close()

    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, note if rank in sys.argv[2:] else save)
    open(f"{here}/ready-{rank}", "w").close()
    while not os.path.exists(f"{here}/end"):
        time.sleep(0.02)
"""


@pytest.fixture
def script(tmp_path):
    return write(tmp_path, WORKER)


def ready(directory, workers=2):
    return until(lambda: all((directory / f"ready-{rank}").exists() for rank in range(workers)))


def saved(directory):
    return sorted(file.name for file in directory.glob("saved-*"))


@pytest.mark.parametrize("signum", SIGNALS)
@pytest.mark.parametrize("options", [["-n", 2], ["-n", 2, "--elastic"]], ids=["fixed", "elastic"])
def test_workers_save_after_a_signal_to_the_launcher(script, tmp_path, signum, options):
    with launcher(*options, "--checkpoint", tmp_path / "saved", script, tmp_path) as process:
        assert ready(tmp_path)
        process.send_signal(signum)
        _, err = process.communicate(timeout=LIMIT)
    name = signal.Signals(signum).name
    assert process.returncode == 75, err
    assert saved(tmp_path) == [f"saved-0-{name}", f"saved-1-{name}"]
    assert f"{name} received: the workers have 30 s to save a checkpoint" in err
    assert "the job saved a checkpoint and ended early, with exit code 75: continue it with --resume" in err
    assert "failed" not in err and "lost" not in err


@pytest.mark.parametrize(("hang", "code"), [(["1"], 75), (["0", "1"], 143)])
def test_workers_that_do_not_save_in_time_are_ended(script, tmp_path, hang, code):
    """If one worker exits with 75, all have saved: they wait for each other before that."""
    with launcher("-n", 2, "--grace", 0.5, script, tmp_path, *hang) as process:
        assert ready(tmp_path)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == code, err
    assert (tmp_path / "noted-1").exists()
    assert "not all workers saved a checkpoint within 0.5 s (--grace): ending all processes" in err


def test_second_signal_ends_the_workers_without_waiting(script, tmp_path):
    with launcher("-n", 1, "--grace", LIMIT, script, tmp_path, 0) as process:
        assert ready(tmp_path, 1)
        process.send_signal(signal.SIGTERM)
        assert until(lambda: (tmp_path / "noted-0").exists())
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 143 and "SIGTERM received: ending all processes" in err


def test_without_checkpoints_sigterm_ends_the_job_at_once(script, tmp_path):
    with launcher("-n", 2, script, tmp_path, 0, 1) as process:
        assert ready(tmp_path)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 143 and "SIGTERM received: ending all processes" in err


def test_workers_that_save_without_the_option_give_their_exit_code(script, tmp_path):
    with launcher("-n", 2, script, tmp_path) as process:
        assert ready(tmp_path)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 75, err


def test_without_checkpoints_sigusr1_is_for_the_program(script, tmp_path):
    with launcher("-n", 2, script, tmp_path, 0, 1) as process:
        assert ready(tmp_path)
        process.send_signal(signal.SIGUSR1)
        assert until(lambda: len(list(tmp_path.glob("noted-*"))) == 2)
        (tmp_path / "end").touch()
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 0 and err == ""


@pytest.fixture
def meeting(monkeypatch):
    monkeypatch.setenv("NEOMX_SECRET", "shared by all nodes")
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return f"127.0.0.1:{sock.getsockname()[1]}"


@pytest.mark.parametrize("told", [[0], [0, 1]], ids=["node 0 is told", "all nodes are told"])
@pytest.mark.parametrize("elastic", [[], ["--elastic"]], ids=["fixed", "elastic"])
def test_launchers_of_all_nodes_exit_with_75(script, tmp_path, meeting, told, elastic):
    options = ["--nnodes", 2, "--rdzv", meeting, "-n", 1, *elastic, "--checkpoint", tmp_path / "saved", "--node-rank"]
    with launcher(*options, 0, script, tmp_path) as first, launcher(*options, 1, script, tmp_path) as other:
        assert ready(tmp_path)
        for node in told:
            [first, other][node].send_signal(signal.SIGUSR1)
        errors = [process.communicate(timeout=LIMIT)[1] for process in (first, other)]
    assert (first.returncode, other.returncode) == (75, 75), errors
    assert saved(tmp_path) == ["saved-0-SIGUSR1", "saved-1-SIGUSR1"]


@pytest.mark.parametrize("elastic", [[], ["--elastic"]], ids=["fixed", "elastic"])
def test_launcher_over_ssh_exits_with_75(script, tmp_path, monkeypatch, elastic):
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nshift\nexec sh -c "$*"\n')
    ssh.chmod(0o755)
    monkeypatch.setenv("NEOMX_SSH", str(ssh))
    options = ["--hosts", "localhost:1,127.0.0.1:1", *elastic, "--checkpoint", tmp_path / "saved"]
    with launcher(*options, script, tmp_path) as process:
        assert ready(tmp_path)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 75, err
    assert saved(tmp_path) == ["saved-0-SIGTERM", "saved-1-SIGTERM"]
    assert err.count("SIGTERM received") == 1 and err.count("the job saved a checkpoint") == 1


def test_script_for_slurm_saves_and_requeues_the_job(tmp_path):
    """With substitutes for Slurm's commands. srun passes signals on, and returns the highest exit code of its tasks."""
    page = (pathlib.Path(ROOT) / "docs" / "how-to" / "slurm.md").read_text()
    (text,) = [block for block in re.findall(r"```sh\n(.*?)```", page, flags=re.S) if "requeue $SLURM_JOB_ID" in block]
    for name, body in {
        "srun": 'while [ "${1#--}" != "$1" ]; do shift; done; exec "$@"',
        "scontrol": f'echo "$@" > {tmp_path}/told',
        "neomx": f'shift; exec {sys.executable} -m neomx run "$@"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / name).chmod(0o755)
    write(tmp_path, WORKER.replace("sys.argv[1]", "os.getcwd()"), "train.py")
    (tmp_path / "job.sh").write_text(text)
    path = f"{tmp_path}:{os.environ['PATH']}"
    environ = {name: value for name, value in environment(PATH=path).items() if not name.startswith("SLURM_")}
    command = ["bash", str(tmp_path / "job.sh")]
    with subprocess.Popen(command, cwd=tmp_path, env={**environ, "SLURM_JOB_ID": "7"}, stderr=subprocess.PIPE) as job:
        assert ready(tmp_path, 4)
        job.send_signal(signal.SIGUSR1)
        _, err = job.communicate(timeout=LIMIT)
    assert job.returncode == 75, err
    assert len(saved(tmp_path)) == 4 and (tmp_path / "told").read_text() == "requeue 7\n"
    assert b"the workers have 100 s to save" in err


# ---- decisions ----


def ended(verdict, name, code):
    process = Process(Command(name, [], {}))
    process.code = code
    verdict.ended(process)


def test_others_have_time_to_save_after_the_first_worker():
    verdict = Verdict(Store(), grace=60.0)
    ended(verdict, "worker 0", 75)
    assert verdict.saved == 1 and not verdict.over(running=True) and verdict.failure() is None
    verdict._grace = -1.0
    assert verdict.over(running=True)


def test_exit_code_75_of_a_server_or_of_a_function_is_a_failure():
    for verdict, name in ((Verdict(Store(), grace=60.0), "server 0"), (Verdict(Store()), "worker 0")):
        ended(verdict, name, 75)
        assert verdict.saved == 0 and [failure.name for failure in verdict.failures] == [name]


def test_ignored_sighup_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupts.received == []
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
        assert interrupts.received == [signal.SIGHUP]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_sigusr1_is_left_to_programs_that_launch_functions():
    noted = []
    before = signal.signal(signal.SIGUSR1, lambda *_: noted.append(1))
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert noted == [1] and supervision.GRACE > supervision.FAREWELL
