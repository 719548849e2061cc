"""The secret of a job that has none from its launcher: the user's own on one host, and no default on several."""

import os
import stat
import subprocess
import sys

import pytest
from launching import LIMIT, ROOT

from neomx.base import MXNetError
from neomx.comm import secret
from neomx.comm.world import discover
from neomx.launch.cli import main, read_job
from neomx.launch.nodes import shared_secret

MPICH = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
OPENMPI = {f"OMPI_COMM_WORLD_{key}": value for key, value in [("RANK", "1"), ("SIZE", "2"), ("LOCAL_RANK", "1")]}
SLURM = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "9", "SLURM_LOCALID": "1"}
TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "r"}
DMLC = {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_PORT": "91", "DMLC_NUM_WORKER": "2"}
HERE = {
    "mpich": MPICH,
    "openmpi": OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "j"},
    "srun": SLURM | {"SLURM_STEP_NODELIST": "n7", "SLURM_STEP_TASKS_PER_NODE": "2"},
    "torchrun": TORCHRUN | {"MASTER_ADDR": "localhost", "LOCAL_WORLD_SIZE": "2"},
    "dmlc": DMLC | {"DMLC_PS_ROOT_URI": "127.0.0.1"},
}
ELSEWHERE = {
    "mpich": MPICH | {"MPI_LOCALNRANKS": "1", "MASTER_ADDR": "192.0.2.1"},
    "openmpi": OPENMPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "1", "PMIX_NAMESPACE": "j", "MASTER_ADDR": "192.0.2.1"},
    "srun": SLURM | {"SLURM_STEP_NODELIST": "n[7-8]", "MASTER_ADDR": "192.0.2.1"},
    "torchrun": TORCHRUN | {"MASTER_ADDR": "192.0.2.1", "LOCAL_WORLD_SIZE": "1"},
    "dmlc": DMLC | {"DMLC_PS_ROOT_URI": "192.0.2.1", "DMLC_NODE_HOST": "192.0.2.2"},
}


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    """Use a separate runtime directory and no secret."""
    for name in ("NEOMX_SECRET", "NEOMX_INSECURE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("neomx.comm.world.address_towards", lambda host: "192.0.2.9")
    return {"XDG_RUNTIME_DIR": str(tmp_path)}


@pytest.mark.parametrize("launcher", HERE)
def test_on_one_host_the_secret_is_in_a_private_file(launcher, own, tmp_path):
    world = discover(HERE[launcher] | own)
    assert world.secret == discover(HERE[launcher] | own).secret != secret.public(world.job)
    kept = tmp_path / "neomx" / "secret"
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600 and stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    assert [path.name for path in kept.parent.iterdir()] == ["secret"]
    kept.unlink()
    assert discover(HERE[launcher] | own).secret != world.secret


@pytest.mark.parametrize("launcher", ELSEWHERE)
def test_several_hosts_need_a_secret_or_insecure(launcher, own, tmp_path):
    with pytest.raises(MXNetError, match=r"several hosts needs a secret.*NEOMX_SECRET.*NEOMX_INSECURE=1"):
        discover(ELSEWHERE[launcher] | own)
    assert discover(ELSEWHERE[launcher] | own | {"NEOMX_SECRET": "s" * 16}).secret == b"s" * 16
    world = discover(ELSEWHERE[launcher] | own | {"NEOMX_INSECURE": "1"})
    assert world.secret == secret.public(world.job)
    assert not (tmp_path / "neomx").exists()


def test_mpich_jobs_of_two_users_are_separate(own, monkeypatch):
    mine = discover(MPICH | own)
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(MXNetError, match="other users may have accessed it: expected owner 12345"):
        discover(MPICH | own)
    theirs = discover(MPICH | {"NEOMX_SECRET": "s" * 16})
    assert (mine.job, mine.store) != (theirs.job, theirs.store)


@pytest.mark.parametrize("launcher", ["mpich", "openmpi", "srun", "torchrun"])
def test_listening_address_can_be_configured(launcher):
    given = ELSEWHERE[launcher] | {"NEOMX_SECRET": "s" * 16}
    assert discover(given).host == "192.0.2.9"
    assert discover(given | {"NEOMX_HOST": "192.0.2.7"}).host == "192.0.2.7"


def test_secret_directory_falls_back_to_the_temporary_directory(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    found = discover(MPICH | {"XDG_RUNTIME_DIR": "/none"}).secret
    assert (tmp_path / f"neomx-{os.getuid()}" / "secret").exists()
    assert discover(MPICH).secret == found


@pytest.mark.parametrize("change", ["directory", "file", "link"])
def test_secret_accessible_to_other_users_is_refused(change, own, tmp_path):
    discover(MPICH | own)
    kept = tmp_path / "neomx" / "secret"
    if change == "directory":
        kept.parent.chmod(0o755)
    elif change == "file":
        kept.chmod(0o644)
    else:
        kept.parent.rename(tmp_path / "theirs")
        kept.parent.symlink_to(tmp_path / "theirs")
    with pytest.raises(MXNetError, match="other users may have accessed it"):
        discover(MPICH | own)


def test_concurrently_started_processes_get_the_same_secret(own):
    program = "from neomx.comm.secret import find; import os; print(find(os.environ, 'job', True).hex())"
    command = [sys.executable, "-c", program]
    environ = os.environ | own | {"PYTHONPATH": ROOT}
    ranks = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    assert len({rank.communicate(timeout=LIMIT)[0] for rank in ranks}) == 1


@pytest.mark.parametrize(("given", "size"), [("", 0), ("\n", 0), ("short", 5), ("123456789012345\n", 15)])
def test_empty_or_short_secret_is_refused(given, size, own, tmp_path, capfd):
    with pytest.raises(MXNetError, match=f"NEOMX_SECRET must contain a secret of at least 16 bytes, received {size}"):
        discover(MPICH | own | {"NEOMX_SECRET": given})
    file = tmp_path / "given"
    file.write_text(given)
    place = ["--nnodes", "2", "--node-rank", "1", "--rdzv", "127.0.0.1:9", "--secret-file", str(file)]
    assert main(["run", *place, __file__]) == 2
    assert f"{file} must contain a secret of at least 16 bytes, received {size}" in capfd.readouterr().err


def test_on_one_host_short_secrets_are_refused_and_readable_files_warned_about(tmp_path, capfd, monkeypatch):
    program, file = tmp_path / "train.py", tmp_path / "given"
    program.write_text("")
    file.write_text("short")
    assert main(["run", "--secret-file", str(file), str(program)]) == 2
    assert f"{file} must contain a secret of at least 16 bytes, received 5" in capfd.readouterr().err
    file.write_text("s" * 16)
    file.chmod(0o644)
    assert main(["run", "--secret-file", str(file), str(program)]) == 0
    assert f"{file} has mode 0644: other users may access it. Run chmod 600" in capfd.readouterr().err
    file.chmod(0o600)
    assert main(["run", "--secret-file", str(file), str(program)]) == 0
    assert capfd.readouterr().err == ""
    monkeypatch.setenv("NEOMX_SECRET", "abc")
    assert main(["run", str(program)]) == 2
    assert "NEOMX_SECRET must contain a secret of at least 16 bytes, received 3" in capfd.readouterr().err


@pytest.mark.parametrize("missing", ["MASTER_ADDR", "MASTER_PORT"])
def test_world_without_rendezvous_address_is_refused(missing):
    given = TORCHRUN | {"MASTER_ADDR": "localhost", "LOCAL_WORLD_SIZE": "2"}
    del given[missing]
    with pytest.raises(MXNetError, match=f"WORLD_SIZE=2 is set and {missing} is not"):
        discover(given)
    assert discover({"WORLD_SIZE": "1"}).is_alone


def test_nodes_on_several_hosts_need_a_secret(capfd, tmp_path, monkeypatch):
    place = ["run", "--nnodes", "2", "--node-rank", "1", "--rdzv", "192.0.2.1:9"]
    assert main([*place, __file__]) == 2
    assert "several hosts needs a secret" in capfd.readouterr().err
    assert shared_secret(read_job([*place, "--insecure", __file__])) == secret.public("192.0.2.1:9").hex()
    assert "any process that reaches 192.0.2.1:9 can join" in capfd.readouterr().err
    file = tmp_path / "given"
    file.write_bytes(os.urandom(32) + b"\xff")
    with pytest.raises(MXNetError, match="must contain text"):
        shared_secret(read_job([*place, "--secret-file", str(file), __file__]))
    here = read_job(["run", "--nnodes", "2", "--rdzv", "127.0.0.1:9", __file__])
    assert shared_secret(here) == shared_secret(here) != secret.public("127.0.0.1:9").hex()
