"""Checkpoints of several workers: each writes a part, and any number of workers resumes.

A run of two workers that stops and resumes gives the bits of one that does not. With another number of workers, sums
have another order: after 18 steps of Adam, weights differ by rounding.
"""

import os
import pathlib
import shutil

import numpy as np
import pytest
from launching import neomx_run

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "checkpointing.py"


def train(workers, directory, stop=0, dropout=0.5):
    run = neomx_run("-n", workers, PROGRAM, directory, directory / "w", 4, stop, dropout)
    assert run.returncode == 0, run.stdout + run.stderr
    if stop:
        return run.stdout
    return [dict(np.load(directory / f"w-{rank}.npz")) for rank in range(workers)]


def keep_only(directory, step):
    for name in os.listdir(directory):
        if name.startswith("step-") and name != f"step-{step:08d}":
            shutil.rmtree(directory / name)


@pytest.mark.parametrize("step", [5, 10])
def test_two_workers_resume_exactly(tmp_path, step):
    expected = train(2, tmp_path)  # saves at 5, 10 and 15
    assert sorted(name for name in os.listdir(tmp_path) if "step" in name)[:2] == ["step-00000005", "step-00000010"]
    keep_only(tmp_path, step)
    assert len(os.listdir(tmp_path / f"step-{step:08d}")) == 3
    found = train(2, tmp_path)
    for rank in range(2):
        for name, value in expected[rank].items():
            np.testing.assert_array_equal(found[rank][name], value, err_msg=f"{name} of worker {rank}")


@pytest.mark.parametrize(("before", "after"), [(2, 1), (1, 2)])
def test_another_number_of_workers_resumes(tmp_path, before, after):
    expected = train(before, tmp_path, dropout=0)
    keep_only(tmp_path, 10)
    found = train(after, tmp_path, dropout=0)
    for name, value in expected[0].items():
        if name != "next random":
            np.testing.assert_allclose(found[0][name], value, rtol=0, atol=1e-5, err_msg=name)


SERVERS = PROGRAM.with_name("checkpointing_servers.py")


@pytest.mark.parametrize(("what", "servers"), [("trainer", 2), ("module", 1), ("module", 0)])
def test_optimizers_on_servers_and_modules_resume_exactly(tmp_path, what, servers):
    """Servers hold weights and states, also row-sparse ones; without servers, a Module sums by all-reduce."""
    run = neomx_run("-n", 2, "-s", servers, SERVERS, tmp_path, what)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("resumed exactly") == 2


def test_asynchronous_servers_are_refused_before_the_first_step(tmp_path):
    run = neomx_run("-n", 2, "-s", 1, SERVERS, tmp_path, "async")
    assert run.returncode != 0
    assert "the workers of an asynchronous store take no step together" in run.stderr
    assert "epoch 0" not in run.stdout + run.stderr
