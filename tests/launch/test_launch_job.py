"""The configuration of `neomx run`: parsed, validated as a whole, refused with a reason. Starts no process."""

import json
import os
import signal
import subprocess

import pytest

from neomx import __version__
from neomx.comm.jobspec import JobSpec
from neomx.comm.supervision import Interrupts
from neomx.launch import slurm
from neomx.launch.cli import main, read_job
from neomx.launch.errors import ConfigurationError
from neomx.launch.hosts import remote_command
from neomx.launch.job import Elastic, parse_host, parse_hosts
from neomx.launch.run import settings, start


@pytest.fixture(autouse=True)
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "hosts.sh").write_text("#!/bin/sh\nexit 7\n")
    (tmp_path / "hosts.sh").chmod(0o755)


def asked(text):
    return read_job(["run", *text.split()])


def test_options_after_the_script_belong_to_the_script():
    job = asked("-n 2 -s 1 --timeout 30 --env A=b=c train.py -n 7 --epochs 3")
    assert job.command == ["train.py", "-n", "7", "--epochs", "3"]
    assert (job.local_workers, job.servers, job.timeout, job.environ) == (2, 1, 30.0, (("A", "b=c"),))


def test_options_after_the_module_belong_to_the_module():
    job = asked("-n 2 -m pkg.train --lr 1 -m x")
    assert job.module and job.command == ["pkg.train", "--lr", "1", "-m", "x"]
    assert job.python[1:] == ["-m", "pkg.train", "--lr", "1", "-m", "x"]


def test_default_is_one_worker_and_no_server():
    job = asked("train.py")
    assert (job.local_workers, job.servers, job.nodes, job.node) == (1, 0, 1, 0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("-n 2", "no program given"),
        ("-n 2 nothing.py", "no such script: nothing.py"),
        ("-n 0 train.py", "nodes x workers per node = 1 x 0 = 0"),
        ("--nnodes 2 --rdzv h:1 -n -1 train.py", "2 x -1 = -2"),
        ("-n 99999999 train.py", "exceed the limit of 65536 processes"),
        ("-n 60000 train.py", "60000 processes are too many for this machine"),
        ("-s 60000 train.py", "60001 processes are too many for this machine"),
        ("--hosts a:40000,b:40000 train.py", "80000 workers and 0 servers"),
        ("--timeout nan train.py", "must be a number of seconds above 0; received nan"),
        ("--timeout inf train.py", "must be a number of seconds above 0; received inf"),
        ("--rdzv h:99999 train.py", "a port up to 65535; received h:99999"),
        ("--logs /dev/null/x train.py", "--logs /dev/null/x: cannot create this directory: Not a directory"),
        ("-s -1 train.py", "-s must be 0 or more; received -1"),
        ("--nnodes 2 --node-rank 2 --rdzv h:1 train.py", "received --node-rank 2 and --nnodes 2"),
        ("--nnodes 2 train.py", "requires --rdzv host:port"),
        ("--nnodes 2 --rdzv host train.py", "must be host:port"),
        ("--hosts a:4,b:4 -n 6 train.py", "4 + 4 = 8 workers but -n is 6"),
        ("--hosts a:4 --nnodes 2 --rdzv h:1 train.py", "use --hosts (one command"),
        ("--hosts a:x train.py", "cannot parse 'a:x'"),
        ("--hosts a:4,,b train.py", "cannot parse ''"),
        ("--timeout 0 train.py", "must be a number of seconds above 0"),
        ("--env A train.py", "NAME=VALUE; received 'A'"),
        ("--secret-file none train.py", "--secret-file none: no such file"),
        ("--tls-file none train.py", "none: no such file"),
        ("--secret-file . train.py", "--secret-file .: it is a directory"),
        ("--tls-file . train.py", ": it is a directory"),
        ("--nnodes 2 --rdzv h:1 --tls train.py", "requires --tls-file"),
        ("--layout data=2,tensor=2 -n 3 train.py", "2 x 1 x 2 x 1 = 4, but there are 3"),
        ("--layout data=2,tensor=2 --hosts a:2,b:3 train.py", "2 x 1 x 2 x 1 = 4, but there are 5"),
        ("--layout data=3 --nnodes 2 --rdzv h:1 train.py", "3 x 1 x 1 x 1 = 3, but there are 2"),
        (
            "--layout data=3,ensemble=2 -n 3 train.py",
            "pipeline x ensemble workers: 3 x 1 x 1 x 1 x 2 = 6, but there are 3",
        ),
        ("--layout data=0 train.py", "data must be a positive integer"),
        ("--layout data=x train.py", "data must be a number, received 'x'"),
        ("-n 2:8 train.py", "-n 2:8 needs --elastic: without it, the workers of a job do not change"),
        (
            "--elastic -n 8:2 train.py",
            "-n 8:2: the minimum is larger than the maximum; write -n MIN:MAX, such as -n 2:8",
        ),
        ("--elastic -n 0:2 train.py", "-n MIN:MAX expects a minimum of at least 1; received 0"),
        ("--elastic -n 1:0 train.py", "-n must be at least 1"),
        ("--elastic --min-np 3 -n 2 train.py", "-n 3:2: the minimum is larger"),
        ("--elastic --min-np 3 -n 2:4 train.py", "pass either -n MIN:MAX or --min-np MIN and --max-np MAX"),
        ("--elastic --max-np 3 -n 2 train.py", "pass either -n MIN:MAX or --min-np MIN and --max-np MAX"),
        ("--max-np 3 train.py", "--max-np needs --elastic"),
        ("--spares 1 train.py", "--spares needs --elastic"),
        ("--restarts 1 train.py", "--restarts needs --elastic"),
        ("--hosts-from x train.py", "--hosts-from needs --elastic"),
        ("--scale-batch train.py", "--scale-batch needs --elastic"),
        ("--elastic --spares -1 train.py", "--spares must be 0 or more; received -1"),
        ("--elastic -n 2 --spares 3 train.py", "--spares 3 are more than the 2 workers that they could replace"),
        ("--elastic -n 2 --hosts a:2 --spares 1 train.py", "has room for 2 workers, but 2 workers and 1 spares need 3"),
        ("--elastic -n 3 --hosts a:2 train.py", "--hosts has room for 2 workers, but 3 workers and 0 spares need 3"),
        (
            "--elastic --hosts a:1 --spares 1 train.py",
            "--hosts has room for 1 workers, but 1 workers and 1 spares need 2",
        ),
        ("--elastic --hosts a:1,a:1 train.py", "must name each host once"),
        ("--elastic --restarts -1 train.py", "--restarts must be 0 or more; received -1"),
        ("--elastic --cooldown 0 5 train.py", "--cooldown expects seconds with 0 < MIN <= MAX; received 0 5"),
        ("--elastic --cooldown 9 5 train.py", "received 9 5"),
        (
            "--elastic -s 1 --hosts a:2,b:2 train.py",
            "--elastic works with parameter servers on one machine: omit -s, or",
        ),
        ("--elastic -n 2 --hosts-from none train.py", "--hosts-from none: no such file (looked in "),
        ("--elastic -n 2 --hosts-from . train.py", "--hosts-from .: no such file (looked in "),
        ("--elastic -n 2 --hosts-from train.py train.py", "the file is not executable; run chmod +x train.py"),
        ("--elastic --hosts-from hosts.sh train.py", "--hosts-from needs the numbers of workers: pass -n MIN:MAX"),
        ("--elastic -n 2 --hosts a:2 --hosts-from hosts.sh train.py", "--hosts-from replaces --hosts and --nnodes"),
        ("--elastic -n 2 --hosts-from hosts.sh train.py", "hosts.sh failed with exit code 7; nothing was started"),
        ("--elastic -n 200 --spares 65400 train.py", "more than the 200 workers"),
        ("--elastic -n 40000 --spares 39999 train.py", "79999 workers and 0 servers exceed the limit"),
        ("--detach --hosts a:2 train.py", "--detach works for a job on one machine"),
        ("--detach --nnodes 2 --rdzv h:1 train.py", "--detach works for a job on one machine"),
        ("--every 5 train.py", "--every needs --checkpoint DIR, the directory of the checkpoints"),
        ("--keep 5 train.py", "--keep needs --checkpoint DIR"),
        ("--checkpoint saved --every 0 train.py", "--every must be at least 1; received 0"),
        ("--checkpoint saved --keep 0 train.py", "--keep must be at least 1; received 0"),
        ("--checkpoint train.py train.py", "expected a directory, but "),
        (
            "--checkpoint /dev/null/x train.py",
            "--checkpoint /dev/null/x: expected a directory, but /dev/null is not one",
        ),
        ("--resume auto train.py", "--resume auto continues from the directory of --checkpoint DIR, which is missing"),
        ("--resume none train.py", "none: there is no checkpoint in this directory"),
        ("--checkpoint saved --resume= train.py", "--resume needs the name of a directory; received an empty one"),
        ("--grace -1 train.py", "--grace must be a number of seconds, 0 or more; received -1"),
        ("--grace inf train.py", "--grace must be a number of seconds, 0 or more; received inf"),
    ],
)
def test_invalid_configuration_is_refused_before_anything_starts(text, says, capsys):
    assert main(["run", *text.split()]) == 2
    assert says in capsys.readouterr().err


@pytest.fixture
def pems(tmp_path):
    """Create key.pem and cert.pem, and another pair."""
    for name in ("", "other-"):
        key, cert = (str(tmp_path / f"{name}{part}.pem") for part in ("key", "cert"))
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=job"]
        subprocess.run(["openssl", "req", "-x509", *curve, "-keyout", key, "-out", cert], check=True, stderr=-3)
    encrypt = ["openssl", "pkey", "-in", str(tmp_path / "key.pem"), "-aes128", "-passout", "pass:word"]
    subprocess.run([*encrypt, "-out", str(tmp_path / "locked-key.pem")], check=True)
    return lambda *names: "".join((tmp_path / f"{name}.pem").read_text() for name in names)


@pytest.mark.parametrize(
    ("parts", "says"),
    [
        (
            ["cert"],
            "the file has no private key; expected key and certificate in one file: cat key.pem cert.pem > job.pem",
        ),
        (["key"], "the file has no certificate; expected key and certificate in one file"),
        (["key", "other-cert"], "its key does not belong to its first certificate, or one of them is damaged (KEY"),
        (["locked-key", "cert"], "its private key is encrypted; remove the password"),
    ],
)
def test_unusable_tls_file_is_refused_before_anything_starts(parts, says, pems, tmp_path, capsys):
    (tmp_path / "job.pem").write_text(pems(*parts))
    assert main(["run", "--tls-file", str(tmp_path / "job.pem"), "train.py"]) == 2
    assert f"--tls-file {tmp_path / 'job.pem'}: {says}" in capsys.readouterr().err
    (tmp_path / "job.pem").write_text(pems("key", "cert"))
    assert asked(f"--tls-file {tmp_path / 'job.pem'} train.py").tls_file


@pytest.mark.parametrize(
    "text, says",
    [
        ("run --tiemout 3 train.py", "neomx run: error: unknown option --tiemout. Did you mean --timeout?"),
        ("run --workers 2 train.py", "unknown option --workers. Did you mean -n?"),
        ("run -np 2 train.py", "expected an integer, received 'p'. Write -n 2, not -np 2"),
        ("run --elastic -n 2: train.py", "expected an integer, received '2:'"),
        ("run --elastic -n 1:2:3 train.py", "expected an integer, received '1:2:3'"),
        ("run --elastc train.py", "unknown option --elastc. Did you mean --elastic?"),
        ("run --nproc-per-node 2 train.py", "unknown option --nproc-per-node. Did you mean -n?"),
        ("check --fx train.py", "neomx check: error: unknown option --fx. Did you mean --fix"),
        ("doctor --node-rank 2", "unknown option --node-rank. Run neomx doctor --help"),
    ],
)
def test_unknown_options_suggest_similar_ones(text, says, capsys):
    with pytest.raises(SystemExit) as ended:
        main(text.split())
    assert ended.value.code == 2 and says in capsys.readouterr().err


def test_unknown_command_suggests_a_similar_one(capfd):
    assert main(["rnu", "-n", "2"]) == 2
    assert "unknown command 'rnu'. Did you mean run?" in capfd.readouterr().err


def test_command_without_arguments_prints_its_help(capsys):
    assert main([]) == 0
    assert "run a script as several processes" in capsys.readouterr().out


def test_version_is_printed(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0 and capsys.readouterr().out == f"neomx {__version__}\n"


def test_flags_of_neomx_run_after_the_script_give_a_hint(monkeypatch, capsys):
    monkeypatch.setattr("neomx.launch.cli.run", lambda job: 0)
    assert main(["run", "train.py", "-n", "2"]) == 0
    assert "-n comes after train.py, so it is passed to the script" in (said := capsys.readouterr().err)
    assert "neomx run -n ... train.py" in said
    assert main(["run", "-n", "1", "train.py", "-n", "2"]) == 0
    assert main(["run", "train.py", "--epochs", "2"]) == 0
    assert capsys.readouterr().err == ""


def test_signal_during_the_start_starts_no_more_processes():
    started, interrupts = [], Interrupts()

    class Tree:
        def start(self, command):
            started.append(command.name)
            if len(started) == 3:
                interrupts.received.append(signal.SIGTERM)

    start(Tree(), JobSpec("job", "secret", "h:1", size=9, local_size=9, servers=1), asked("-n 9 train.py"), interrupts)
    assert started == ["server 0", "worker 0", "worker 1"]


def test_layout_determines_the_number_of_workers():
    job = asked("--layout data=2,tensor=2 --env A=1 train.py")
    assert (job.local_workers, job.environ) == (4, (("A", "1"), ("NEOMX_LAYOUT", "data=2,tensor=2")))
    assert asked("--layout data=2,tensor=2 --nnodes 2 --rdzv h:1 train.py").local_workers == 2
    assert asked("--layout data=2,tensor=2 -n 4 train.py").local_workers == 4
    job = asked("--layout data=2,tensor=2 --hosts a:1,b:3 train.py")
    assert job.environ == (("NEOMX_LAYOUT", "data=2,tensor=2"),)
    assert "LAYOUT" not in remote_command(job, 1, 3, "h:1")  # it is sent through stdin


def test_dimension_similar_to_a_built_in_one_gives_a_hint(capfd):
    asked("--layout tensr=2,expert=1 train.py")
    told = capfd.readouterr().err
    assert "tensr is not a built-in dimension, so the program must register it. Did you mean tensor?" in told
    assert "expert" not in told.replace("tensr=2,expert=1", "")


def variables(job):
    return {name: value for name, value in settings(job) if name != "NEOMX_PROGRESS"}


def test_limits_of_an_elastic_job():
    def limits(text):
        job = asked(f"--elastic {text} train.py")
        return job.least, job.most, job.local_room

    assert limits("-n 4") == (1, 4, 4)
    assert limits("-n 2:8") == limits("--min-np 2 --max-np 8") == limits("-n 8 --min-np 2") == (2, 8, 8)
    assert limits("-n 4 --spares 2") == (1, 4, 6)
    assert limits("-n 2:4 --spares 1 --nnodes 2 --rdzv h:1") == (4, 8, 5)
    assert limits("-n 4 --spares 1 --nnodes 2 --node-rank 1 --rdzv h:1") == (1, 8, 4)
    assert limits("--hosts a:4,b:4")[:2] == (1, 8)
    assert limits("--hosts a:4,b:4 --spares 2")[:2] == (1, 6)
    assert limits("--hosts a:4,b:4 -n 2:6 --spares 2")[:2] == (2, 6)


def test_options_of_horovodrun_have_the_same_meaning(tmp_path):
    theirs = "--host-discovery-script hosts.sh --reset-limit 5 --blacklist-cooldown-range 10 100 --min-np 2 --max-np 4"
    ours = "--hosts-from hosts.sh --restarts 5 --cooldown 10 100 -n 2:4"
    assert asked(f"--elastic {theirs} train.py") == asked(f"--elastic {ours} train.py")
    assert asked(f"--elastic {ours} train.py").elastic == Elastic(2, 0, 5, "hosts.sh", (10.0, 100.0), False)


def test_workers_of_an_elastic_job_know_its_limits():
    job = asked("--elastic -n 2:8 --scale-batch train.py")
    assert variables(job) == {
        "NEOMX_ELASTIC": "1", "NEOMX_ELASTIC_MIN": "2", "NEOMX_ELASTIC_MAX": "8", "NEOMX_SCALE_BATCH": "1"
    }  # fmt: skip
    assert variables(asked("-n 2 train.py")) == {}


def test_variables_of_an_elastic_job_are_not_inherited(monkeypatch):
    for name in ("NEOMX_ELASTIC", "NEOMX_ELASTIC_MIN", "NEOMX_ELASTIC_MAX", "NEOMX_SCALE_BATCH", "NEOMX_JOINS"):
        monkeypatch.setenv(name, "1")
    environ = JobSpec("job", "secret", "h:1", size=1).worker_environ(0)
    assert [name for name in environ if "ELASTIC" in name or "JOINS" in name or "SCALE" in name] == []


def test_workers_know_where_to_save_with_absolute_paths(tmp_path):
    checkpoint(tmp_path / "old", 5)
    job = asked("--checkpoint saved --every 500 --keep 3 --resume old train.py")
    assert variables(job) == {
        "NEOMX_CHECKPOINT": str(tmp_path / "saved"),
        "NEOMX_CHECKPOINT_EVERY": "500",
        "NEOMX_CHECKPOINT_KEEP": "3",
        "NEOMX_RESUME": str(tmp_path / "old"),
    }
    assert not (tmp_path / "saved").exists()
    job = asked("--checkpoint s3://bucket/saved --resume auto train.py")
    assert variables(job) == {"NEOMX_CHECKPOINT": "s3://bucket/saved", "NEOMX_RESUME": "auto"}
    assert variables(asked("--resume s3://bucket/saved train.py")) == {"NEOMX_RESUME": "s3://bucket/saved"}


def checkpoint(directory, step, version=1):
    folder = directory / f"step-{step:08d}"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"format": "neomx checkpoint", "version": version}))


def test_checkpoint_of_a_newer_version_is_refused_before_the_start(tmp_path, capsys):
    checkpoint(tmp_path / "old", 5, version=99)
    assert main(["run", "--resume", "old", "train.py"]) == 2
    assert "has version 99 of the format, but this version of neomx reads up to" in capsys.readouterr().err
    checkpoint(tmp_path / "damaged", 5, version="x")
    assert asked("--resume damaged train.py").saving.resume == "damaged"  # the workers may use an older one
    assert asked("--hosts a:2 --resume nowhere train.py").saving.resume == "nowhere"  # it may be on the hosts only


def test_time_to_save_follows_from_checkpoints(monkeypatch):
    assert asked("train.py").saving.patience is None
    assert asked("--grace 5 train.py").saving.patience == 5
    assert asked("--checkpoint saved train.py").saving.patience == 30
    assert asked("--checkpoint saved --grace 0 train.py").saving.patience == 0
    monkeypatch.setenv("NEOMX_CHECKPOINT", "saved")
    assert asked("--every 5 --resume auto train.py").saving.patience == 30


def test_launchers_of_hosts_know_the_time_to_save():
    job = asked("--hosts a:1,b:1 --checkpoint saved train.py")
    assert " --grace 30 " in remote_command(job, 1, 1, "h:1") and "saved" not in remote_command(job, 1, 1, "h:1")
    assert "--elastic" not in remote_command(job, 1, 1, "h:1")
    command = remote_command(asked("--elastic --hosts a:1,b:1 train.py"), 7, 3, "h:1")
    assert " --nnodes 9 --node-rank 7 --rdzv h:1 -n 3 " in command and " --elastic " in command


@pytest.mark.parametrize("name", ["-oProxyCommand=evil", "a b", "a;b", "$(x)", "a\n"])
def test_names_of_hosts_are_no_options_or_commands(name):
    assert parse_host(f"{name}:4") is None


def test_hosts():
    assert parse_hosts("a:4, b,[::1]:2") == (("a", 4), ("b", 1), ("[::1]", 2))


SLURM = {"SLURM_JOB_NODELIST": "n[03-05]", "SLURM_NNODES": "3", "SLURM_NODEID": "1", "SLURM_JOB_ID": "123456"}


def test_slurm_nodes_get_the_same_rendezvous_and_their_own_rank():
    assert slurm.place(SLURM) == (3, 1, "n03:23456")
    assert slurm.place({**SLURM, "SLURM_NODEID": "2"}) == (3, 2, "n03:23456")


def test_slurm_with_one_node_needs_no_rendezvous():
    assert slurm.place({}) is None
    assert slurm.place({**SLURM, "SLURM_NNODES": "1", "SLURM_JOB_NODELIST": "n03"}) is None


def test_slurm_starting_several_launchers_on_a_node_is_refused():
    with pytest.raises(ConfigurationError, match="--ntasks-per-node=1"):
        slurm.place({**SLURM, "SLURM_LOCALID": "1"})


def test_slurm_is_detected_unless_nodes_are_given(monkeypatch):
    for name, value in SLURM.items():
        monkeypatch.setenv(name, value)
    job = asked("-n 4 train.py")
    assert (job.nodes, job.node, job.rendezvous) == (3, 1, "n03:23456")
    assert asked("--nnodes 1 train.py").nodes == 1
    assert asked("--hosts a:1 train.py").nodes == 1


def test_timeout_defaults_to_the_environment_variable(monkeypatch, capsys):
    assert read_job(["run", "train.py"]).timeout == 600
    monkeypatch.setenv("NEOMX_TIMEOUT", "7")
    assert read_job(["run", "train.py"]).timeout == 7
    assert read_job(["run", "--timeout", "9", "train.py"]).timeout == 9
    monkeypatch.setenv("NEOMX_TIMEOUT", "abc")
    assert main(["run", "train.py"]) == 2
    assert "NEOMX_TIMEOUT must be a number of seconds above 0, received 'abc'" in capsys.readouterr().err
