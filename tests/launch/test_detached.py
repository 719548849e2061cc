"""Jobs in the background: `neomx run --detach` and `neomx attach`."""

import dataclasses
import json
import os
import signal
import stat
import subprocess
import sys
import time

import pytest
from launching import LIMIT, alive, assert_they_go, environment, until, write

from neomx.launch import background
from neomx.launch.cli import main


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "neomx" / "jobs"


WAITING = """
    import os, sys, time
    here = sys.argv[1]
    print("hello from", os.environ["RANK"], sys.stdin.read(), os.isatty(1), flush=True)
    open(f"{here}/ready-{os.environ['RANK']}", "w").close()
    while not os.path.exists(f"{here}/end"):
        time.sleep(0.02)
    sys.exit(int(open(f"{here}/end").read()))
"""


def neomx(*arguments):
    command = [sys.executable, "-m", "neomx", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())


@pytest.fixture
def job(tmp_path, cache):
    """Start a job of two workers in the background and return its record."""
    started = neomx("run", "-n", "2", "--detach", write(tmp_path, WAITING), tmp_path)
    assert started.returncode == 0 and started.stdout == ""
    (name,) = os.listdir(cache)
    assert started.stderr == (
        f"neomx: job {name} runs in the background\n"
        f"neomx: neomx attach {name} shows its output, neomx attach {name} --stop ends it\n"
    )
    assert until(lambda: all((tmp_path / f"ready-{rank}").exists() for rank in (0, 1)))
    record = background.find(name)
    yield record
    state = record.read()
    if state is not None and state.is_running:
        os.kill(state.pid, signal.SIGKILL)


def test_job_outlives_its_terminal_and_reports_its_result(job, tmp_path, cache):
    state = job.read()
    assert os.getsid(state.pid) != os.getsid(0) and os.getsid(state.pid) != state.pid
    assert (os.stat(f"/proc/{state.pid}/fd/0").st_rdev, state.workers) == (os.stat(os.devnull).st_rdev, "2")
    os.kill(state.pid, signal.SIGHUP)
    for path, mode in ((cache, 0o700), (job.path, 0o700), (job.log, 0o600), (f"{job.path}/state.json", 0o600)):
        assert stat.S_IMODE(os.stat(path).st_mode) == mode
    listed = neomx("attach")
    assert listed.returncode == 0
    (row,) = listed.stdout.splitlines()[1:]
    assert row.split()[:2] == [job.name, "running"] and row.endswith(f"  2        {' '.join(state.command)}")
    (tmp_path / "part").write_text("3")
    os.rename(tmp_path / "part", tmp_path / "end")
    followed = neomx("attach", job.name)
    assert followed.returncode == 3
    assert "hello from 0  False\n" in followed.stdout and "[1] hello from 1  False\n" in followed.stdout
    assert "failed first, with exit code 3" in followed.stdout or "failed with the same error" in followed.stdout
    assert "ended, exit code 3" in neomx("attach").stdout
    assert neomx("attach", job.name, "--stop").returncode == 3


def test_interrupt_only_stops_following(job):
    command = [sys.executable, "-m", "neomx", "attach", job.name]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # it may be ignored here
    ) as follow:
        assert "hello" in follow.stdout.readline()
        follow.send_signal(signal.SIGINT)
        _, err = follow.communicate(timeout=LIMIT)
    assert follow.returncode == 130
    assert err == f"neomx: job {job.name} continues: neomx attach {job.name} follows it again\n"
    assert job.read().is_running


def test_stop_ends_the_job_with_all_of_its_processes(job, tmp_path):
    pids = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and _is_of(job.name, pid)]
    assert len(pids) == 2
    stopped = neomx("attach", job.name, "--stop")
    assert (stopped.returncode, stopped.stderr) == (0, f"neomx: job {job.name} ended with exit code 143\n")
    assert_they_go([*pids, job.read().pid])


def _is_of(name, pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"NEOMX_JOB={name}".encode() in file.read().split(b"\0")
    except OSError:
        return False


def test_killed_job_is_reported_as_killed(job):
    pid = job.read().pid
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: not alive(pid))
    followed = neomx("attach", job.name)
    assert followed.returncode == 2 and "was killed, or its machine was restarted" in followed.stderr
    assert f"{job.name}  killed" in neomx("attach").stdout


def test_invalid_jobs_are_refused_in_the_foreground(tmp_path, cache, capsys):
    assert main(["run", "--detach", "nothing.py"]) == 2
    assert "no such script" in capsys.readouterr().err and not cache.exists()


def test_directory_that_others_may_read_is_refused(tmp_path, cache, capfd):
    cache.mkdir(parents=True)
    cache.chmod(0o755)
    assert main(["run", "--detach", write(tmp_path, "")]) == 2
    assert f"{cache} must be a directory of user {os.getuid()} without access for others" in capfd.readouterr().err


def test_unknown_jobs_are_errors(cache, capfd):
    for name in ("12345678", "../../etc", "", "x" * 9999):
        assert main(["attach", name]) == 2
        assert "in the background; neomx attach lists all jobs" in capfd.readouterr().err
    assert main(["attach", "--stop"]) == 2
    assert "--stop needs the name of a job" in capfd.readouterr().err
    assert main(["attach"]) == 0
    assert "there are no jobs in the background" in capfd.readouterr().err


# ---- records that are left over, damaged or crafted ----


@pytest.fixture
def record(cache):
    made = background.create("0a1b2c3d")
    made.write(background.here(["train.py"], "4", 5.0))
    with open(made.log, "w") as file:
        file.write("hello\n")
    return made


def change(record, **facts):
    record.write(dataclasses.replace(record.read(), **facts))


def test_process_id_of_another_process_is_not_the_job(record, capfd):
    assert record.read().told() == "running"
    change(record, began=record.read().began + 1)
    assert record.read().told() == "killed"
    assert main(["attach", record.name, "--stop"]) == 2  # this process lives on
    change(record, began=record.read().began - 1, boot="another")
    assert record.read().told() == "killed"
    change(record, pid=1 << 22)
    assert record.read().told() == "killed"


def test_job_on_another_host_is_not_touched(record, capfd):
    change(record, host="elsewhere")
    assert main(["attach", record.name]) == 2
    assert f"job {record.name} runs on elsewhere: run neomx attach there" in capfd.readouterr().err
    assert main(["attach"]) == 0 and "on elsewhere" in capfd.readouterr().out


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "{}", "[" * 100_000, "\0" * 100, "x" * (1 << 21),
        {"pid": "1"}, {"pid": -1}, {"pid": True}, {"pid": 1.5}, {"began": None}, {"command": "train.py"},
        {"command": [1]}, {"workers": 4}, {"since": "now"}, {"since": 1e300}, {"patience": float("nan")},
        {"code": "0"}, {"more": 1},
    ],
)  # fmt: skip
def test_damaged_record_is_no_job(record, content, capfd):
    if isinstance(content, dict):
        content = json.dumps({**dataclasses.asdict(record.read()), **content})
    with open(os.path.join(record.path, "state.json"), "w") as file:
        file.write(content)
    assert main(["attach", record.name]) == 2
    assert main(["attach"]) == 0
    said = capfd.readouterr()
    assert "there is no job" in said.err and "there are no jobs" in said.err and said.out == ""


def test_links_are_not_followed(record, tmp_path, capfd):
    (tmp_path / "secret").write_text("of another file")
    os.unlink(record.log)
    os.symlink(tmp_path / "secret", record.log)
    assert main(["attach", record.name]) == 2
    said = capfd.readouterr()
    assert "cannot read the output" in said.err and "of another file" not in said.out
    os.rename(record.path, tmp_path / "moved")
    os.symlink(tmp_path / "moved", record.path)
    assert background.find(record.name) is None


def test_control_characters_of_a_record_do_not_reach_the_terminal(record, capfd):
    change(record, command=["\x1b[2Jtrain.py"], workers="\x1b4")
    assert main(["attach"]) == 0
    assert "\x1b" not in capfd.readouterr().out


def test_long_output_is_shown_from_a_late_line(record, capfd):
    with open(record.log, "w") as file:
        file.writelines(f"line {number}\n" for number in range(50_000))
    change(record, code=0)
    assert main(["attach", record.name]) == 0
    out, err = capfd.readouterr()
    assert out.endswith("line 49999\n") and len(out) < 70_000 and out.startswith("line ")
    assert f"earlier output is in {record.log}" in err


def test_records_of_old_jobs_are_deleted(record, monkeypatch):
    long_ago = time.time() - background._KEPT - 9
    for path in (record.log, os.path.join(record.path, "state.json")):
        os.utime(path, (long_ago, long_ago))
    assert list(background.records()) == [record]  # it runs
    change(record, code=0)
    assert list(background.records()) == [record]  # it has just ended
    os.utime(os.path.join(record.path, "state.json"), (long_ago, long_ago))
    assert background.records() == {} and not os.path.exists(record.path)
