"""What goes wrong while checkpoints are written: older ones are never harmed, and unfinished ones never look whole."""

import errno
import fcntl
import logging
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
from launching import neomx_run
from test_checkpointer import assert_same, run

import neomx as mx
from neomx import gluon
from neomx.checkpoint import Checkpointer, CheckpointError, folder, manifest
from neomx.checkpoint.storage import Local

PROGRAMS = pathlib.Path(__file__).parents[1] / "workers"


def small():
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize()
    return net


def saved(directory, count, **options):
    """Return a Checkpointer that has saved after each of its steps."""
    ckpt = Checkpointer(directory, net=small(), signals=False, **options)
    for _ in range(count):
        ckpt.step()
        ckpt.save()
        ckpt.wait()
    return ckpt


# ---- killed writers ----


class Kill(BaseException):
    """Stands for SIGKILL: nothing that follows in the program runs."""


# The calls that a writer makes, in order, for the third checkpoint with keep=2. "after" kills it when the call is done.
MOMENTS = [
    ("make", "before"),
    ("create", "before"),
    ("create", "within"),
    ("create", "after"),
    ("put", "before"),
    ("put", "after"),
    ("remove", "before"),
    ("remove", "after"),
    ("remove_folder", "before"),
    ("remove_folder", "after"),
]


@pytest.mark.parametrize(("call", "moment"), MOMENTS)
def test_a_writer_may_be_killed_at_any_moment(tmp_path, call, moment):
    """The program is forked, so that the kill is real: the child ends without any cleaning up."""
    ckpt = saved(tmp_path, 2, keep=2)
    before = [manifest.read(Local(str(tmp_path)), folder.name_of(step)) for step in (1, 2)]
    child = os.fork()
    if child == 0:
        kill_at(call, moment)
        ckpt._writer._run(*third(ckpt))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 9 << 8
    ckpt.close()
    storage = Local(str(tmp_path))
    is_new = (call, moment) in MOMENTS[MOMENTS.index(("put", "after")) :]
    kept = [2, 3] if call == "remove_folder" or (call, moment) == ("remove", "after") else [1, 2, 3][: 2 + is_new]
    found = [step for step in folder.steps(storage) if folder.is_finished(storage, step)]
    assert found == kept
    for step in found:
        manifest.read(storage, folder.name_of(step)).verify(storage, folder.name_of(step))
    assert all(manifest.read(storage, folder.name_of(each.step)) == each for each in before if each.step in found)
    again = saved(tmp_path, 0, keep=2)
    assert again.restore() and again.steps == found[-1]
    again.step()
    again.save()
    again.close()
    names = sorted(name for name in os.listdir(tmp_path) if name.startswith("step"))
    assert names == [folder.name_of(step) for step in (found[-1], found[-1] + 1)]


def third(ckpt):
    """Return the arguments with which the background thread writes the next checkpoint."""
    taken = []
    ckpt._writer.write = lambda snapshot, layout: taken.extend((snapshot, f"{'0' * 12}-9", layout))
    ckpt.step()
    ckpt.save()
    return taken


def kill_at(call, moment):
    """Make a call of the storage end the process. The first part of a file may be there."""
    real = getattr(Local, call)

    def dies(self, *arguments):
        if moment == "before":
            os._exit(9)
        if call == "create":
            return Dying(real(self, *arguments), moment)
        real(self, *arguments)
        os._exit(9)

    setattr(Local, call, dies)


class Dying:
    """A context manager whose process ends after the first write, or after the last."""

    def __init__(self, inner, moment):
        self.inner, self.moment = inner, moment

    def __enter__(self):
        self.file = self.inner.__enter__()
        return self

    def write(self, data):
        if self.moment == "within":
            self.file.write(data[: len(data) // 2])
            os._exit(9)
        return self.file.write(data)

    def __exit__(self, *error):
        self.inner.__exit__(*error)
        os._exit(9)


# ---- disks ----


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk(tmp_path):
    """The third checkpoint does not fit. Older ones stay, the error says why, and later ones are saved again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("this system does not allow mounts")
    try:
        net = gluon.nn.Dense(100, in_units=250)
        net.initialize()
        ckpt = Checkpointer(disk, net=net, signals=False, keep=1)
        for _ in (1, 2):
            ckpt.step()
            ckpt.save()
            ckpt.wait()
        filler = disk / "filler"
        filler.write_bytes(bytes(120_000))
        ckpt.step()
        ckpt.save()
        with pytest.raises(CheckpointError, match="No space left on device. Older checkpoints are unchanged"):
            ckpt.wait()
        storage = Local(str(disk))
        assert folder.steps(storage) == [2]
        manifest.read(storage, folder.name_of(2)).verify(storage, folder.name_of(2))
        filler.unlink()
        ckpt.step()
        ckpt.save()
        ckpt.close()
        assert folder.steps(storage) == [4]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("call", ["make", "create", "put"])
def test_errors_of_the_system_are_reported_and_change_nothing(tmp_path, monkeypatch, call):
    ckpt = saved(tmp_path, 2)

    def fails(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Local, call, fails)
    ckpt.step()
    ckpt.save()
    with pytest.raises(CheckpointError, match="Input/output error. Older checkpoints are unchanged"):
        ckpt.wait()
    monkeypatch.undo()
    assert folder.steps(Local(str(tmp_path))) == [1, 2]
    ckpt.step()
    ckpt.save()
    ckpt.close()
    assert folder.steps(Local(str(tmp_path))) == [1, 2, 4]


def test_the_directory_may_vanish(tmp_path):
    ckpt = saved(tmp_path / "run", 1)
    shutil.rmtree(tmp_path / "run")
    ckpt.step()
    ckpt.save()
    ckpt.wait()
    assert folder.steps(Local(str(tmp_path / "run"))) == [2]
    ckpt.close()


# ---- the end of the program ----


LAST_STEP = """
import threading, time
import neomx as mx
from neomx.checkpoint import Checkpointer
from neomx.checkpoint.storage import Local

make = Local.make

def late(self, folder=""):
    while folder and threading.main_thread().is_alive():  # until the interpreter waits for this thread
        time.sleep(0.01)
    make(self, folder)

Local.make = late
net = mx.gluon.nn.Dense(2, in_units=3)
net.initialize()
ckpt = Checkpointer("saved", net=net, every=1)
ckpt.step()
"""


@pytest.mark.processes
def test_the_checkpoint_of_the_last_step_is_written_although_the_program_has_ended(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(PROGRAMS.parents[1])}
    command = [sys.executable, "-c", LAST_STEP]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    storage = Local(str(tmp_path / "saved"))
    manifest.read(storage, folder.name_of(1)).verify(storage, folder.name_of(1))


# ---- several jobs ----


LOCKED = """
import fcntl, os, sys
file = open(sys.argv[1], "r+")
fcntl.lockf(file, fcntl.LOCK_EX)
os.write(file.fileno(), b"process 4711 on another")
print("locked", flush=True)
sys.stdin.read()
"""


def test_two_jobs_on_one_directory_are_refused(tmp_path):
    """A lock ends with its process, however that ends, so a stale one never blocks."""
    ckpt = saved(tmp_path, 1)
    ckpt.close()
    command = [sys.executable, "-S", "-c", LOCKED, str(tmp_path / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"locked\n"
        with pytest.raises(CheckpointError, match="another job writes checkpoints to .*: process 4711 on another"):
            Checkpointer(tmp_path, net=small(), signals=False)
        other.kill()
    assert saved(tmp_path, 0).restore()


def test_a_forked_process_does_not_keep_the_lock(tmp_path):
    ckpt = saved(tmp_path, 1)
    child = os.fork()
    if child == 0:
        os.read(0, 1)
        os._exit(0)
    ckpt.close()
    with open(tmp_path / ".lock", "r+") as file:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.kill(child, 9)
    os.waitpid(child, 0)


def test_a_second_one_in_a_process_closes_the_first(tmp_path):
    first = saved(tmp_path, 1)
    second = saved(tmp_path, 0)
    with pytest.raises(mx.MXNetError, match="this Checkpointer of .* is closed"):
        first.step()
    assert second.restore()
    second.close()


def test_a_file_system_without_locks_is_used_without(tmp_path, monkeypatch):
    def refuses(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "lockf", refuses)
    saved(tmp_path, 1).close()
    assert folder.steps(Local(str(tmp_path))) == [1]


# ---- numbers and files that are not what they should be ----


def test_nan_is_no_best_metric(tmp_path):
    ckpt = saved(tmp_path, 0, best="min", keep=1)
    for value, is_better in (
        (float("nan"), False),
        (2.0, True),
        (float("nan"), False),
        (float("inf"), False),
        (1, True),
    ):
        ckpt.step()
        assert ckpt.report(value) is is_better
    ckpt.step()
    ckpt.save(metric=float("nan"))
    ckpt.close()
    assert [each.metric for each in folder.readable(Local(str(tmp_path)))] == [1.0, None]


def test_checkpoints_after_the_one_that_was_restored_do_not_count(tmp_path, caplog):
    """The newest one is damaged, so the training resumes before it: keep=1 must not keep that one instead."""
    saved(tmp_path, 3, keep=None).close()
    (part,) = (tmp_path / folder.name_of(3)).glob("part-*")
    os.truncate(part, 10)
    with caplog.at_level(logging.WARNING, "neomx"):
        ckpt = saved(tmp_path, 0, keep=1)
        assert ckpt.restore() and ckpt.steps == 2
    assert "step 3 is not used" in caplog.text
    ckpt._own = 1  # a step later than the restored one, and before the damaged one, cannot exist otherwise
    ckpt.save()
    ckpt.close()
    assert folder.steps(Local(str(tmp_path))) == [1, 2, 3]
    assert saved(tmp_path, 0).restore()


def test_strange_files_are_left_alone(tmp_path):
    expected = run(tmp_path / "whole")
    run(tmp_path / "cut", every=3, stop=7)
    (tmp_path / "cut" / "notes.txt").write_text("mine")
    (tmp_path / "cut" / "step-00000001").mkdir()
    (tmp_path / "cut" / "step-00000001" / "notes.txt").write_text("mine")
    (tmp_path / "cut" / "step-0000000x").mkdir()
    (tmp_path / "cut" / "step-00000099").symlink_to(tmp_path / "whole")
    assert_same(run(tmp_path / "cut", resume=True), expected)
    assert (tmp_path / "cut" / "notes.txt").read_text() == "mine"
    assert (tmp_path / "cut" / "step-00000001" / "notes.txt").read_text() == "mine"


def test_parts_behind_links_are_not_read(tmp_path):
    saved(tmp_path, 1).close()
    (part,) = (tmp_path / folder.name_of(1)).glob("part-*")
    part.rename(tmp_path / "elsewhere")
    part.symlink_to(tmp_path / "elsewhere")
    ckpt = saved(tmp_path, 0)
    with pytest.raises(CheckpointError, match="none of the 1 checkpoints .* is missing"):
        ckpt.restore()
    ckpt.close()


# ---- workers ----


@pytest.mark.processes
@pytest.mark.parametrize("how", ["killed", "hung"])
def test_a_lost_worker_delays_the_others_no_longer_than_the_limit(tmp_path, how):
    """Worker 1 does not write its part of the second checkpoint, which is then dropped. The first stays."""
    program = PROGRAMS / "checkpointing_faults.py"
    done = neomx_run("-n", 2, "--timeout", 6, program, tmp_path, how)
    assert done.returncode != 0
    assert "a checkpoint is dropped: the part of worker 1 is missing" in done.stderr
    storage = Local(str(tmp_path))
    finished = [step for step in folder.steps(storage) if folder.is_finished(storage, step)]
    assert finished == [1]
    manifest.read(storage, folder.name_of(1)).verify(storage, folder.name_of(1))


@pytest.mark.processes
def test_copies_in_memory_come_back_to_workers_that_lost_them(tmp_path):
    done = neomx_run("-n", 3, PROGRAMS / "checkpointing_copies.py", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("restored from memory") == 3


def test_neighbors_are_on_other_hosts():
    from neomx.checkpoint.copies import distance

    assert distance([0, 0]) == 1
    assert distance([0, 0, 1, 1]) == 2
    assert distance([0, 1, 2]) == 1
    assert distance([0, 0, 0, 1]) in (1, 2, 3)
    assert distance([0, 1, 0, 1]) == 1
