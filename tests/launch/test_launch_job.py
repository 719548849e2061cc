"""The configuration of `neomx run`: parsed, validated as a whole, refused with a reason. Starts no process."""

import os
import signal
import subprocess

import pytest

from neomx import __version__
from neomx.comm.jobspec import JobSpec
from neomx.comm.supervision import Interrupts
from neomx.launch import slurm
from neomx.launch.cli import main, read_job
from neomx.launch.hosts import remote_command
from neomx.launch.job import ConfigurationError, parse_hosts
from neomx.launch.run import start


@pytest.fixture(autouse=True)
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("SLURM_"):
            monkeypatch.delenv(name)
    (tmp_path / "train.py").write_text("")


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
