"""Layouts on 2, 4 and 8 real workers: losses, weights and files equal those of one process; memory, errors and faults.

Sums over samples are the same, only in a different order: after ten steps losses and weights differ by about 5e-7
(measured; TOLERANCE is ten times that). AdamW runs with a larger epsilon than usual: see workers/layouts.py.
"""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from launching import LIMIT, SOON, assert_they_go

from neomx import nd

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "layouts.py"
TOLERANCE = 5e-6


def run(workers, folder, what, *more):
    """Run the program on this many workers; return the results of each."""
    launcher = ["-m", "neomx", "run", "-n", str(workers)] if workers > 1 else []
    command = [sys.executable, *launcher, str(PROGRAM), str(folder), what, *more]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return [dict(np.load(folder / f"{workers}-{rank}.npz")) for rank in range(workers)]


# ---- losses and files of one process ----


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("layouts")


@pytest.fixture(scope="module")
def alone(folder):
    return run(1, folder, "matrix")[0]


# `make sweep` runs all cases; the suite runs one of `every`, chosen by a hash of its name.
ALL = [(2, 69, 1), (4, 99, 1), (8, 13, 1)]
SOME = [(2, 37, 2), (4, 32, 3), (8, 6, 3)]


@pytest.mark.parametrize(("workers", "cases", "every"), ALL if os.environ.get("NEOMX_SWEEP") else SOME)
def test_losses_and_files_equal_one_process(workers, cases, every, folder, alone):
    found = run(workers, folder, "matrix", str(every))
    assert len(found[0]) == cases
    wrong = {}
    for name in found[0]:
        model, _, _, way = name.split()
        expected = f"{model} data=1 None {way}"
        losses = np.mean([each[name] for each in found], axis=0)
        worst = max(np.abs(losses - alone[expected]).max(), difference(folder / name, folder / expected))
        if not worst < TOLERANCE:
            wrong[name] = worst
    assert not wrong


def difference(one, other):
    """Return the largest difference between two files with the same names."""
    found, expected = nd.load(f"{one}.params"), nd.load(f"{other}.params")
    assert found.keys() == expected.keys()
    return max(np.abs(found[name].asnumpy() - expected[name].asnumpy()).max() for name in expected)


# ---- all optimizers ----


def test_all_optimizers_on_sharded_parameters(tmp_path):
    """One way of sharding trains the first steps, others resume from its files. Results equal one process."""
    alone = run(1, tmp_path, "optimizers")[0]
    found = run(2, tmp_path, "optimizers")
    assert len(alone) == 2 * 20 and len(found[0]) == 2 * len(alone)
    for key in found[0]:
        name, kind, *on = key.split()
        losses = (found[0][key] + found[1][key]) / 2
        np.testing.assert_allclose(losses, alone[" ".join([name, "None", *on])], rtol=0, atol=TOLERANCE, err_msg=key)
        assert difference(tmp_path / f"{name} {kind}", tmp_path / f"{name} None") < TOLERANCE, key


# ---- memory ----


@pytest.mark.parametrize("workers", [2, 4])
def test_memory_per_worker_is_one_nth(workers, tmp_path):
    """Compare bytes of (parameters, gradients, AdamW's two states), up to less than one row of padding per array."""
    alone = run(1, tmp_path, "memory")[0]
    found = run(workers, tmp_path, "memory")
    for model in ("mlp", "resnet", "gpt2"):
        whole, padding = alone[f"{model} None"], alone[f"{model} rows"] * np.array([1, 1, 2])
        for each in found:
            np.testing.assert_array_equal(each[f"{model} None"], whole)
            np.testing.assert_array_equal(each[f"{model} optimizer"][:2], whole[:2])
            assert (each[f"{model} full"] < whole / workers + padding).all(), model
        for kind in ("full", "optimizer"):
            assert sum(each[f"{model} {kind}"][2] for each in found) == whole[2], (model, kind)


# ---- errors ----

REFUSED = {
    "degrees": r"data x shard x tensor x pipeline workers: 3 x 1 x 1 x 1 = 3, but there are 2. .*start 3",
    "degrees of a step": r"2 x 1 x 2 x 1 = 4, but there are 2",
    "heads": r"attention.*: 3 heads are not divisible by 2 tensor-parallel workers",
    "width": r"7 is not divisible by 2 tensor-parallel workers \(style 'column'\)",
    "pattern": r"plan: 'block.\*.attention' matches no layer.*blocks",
    "nothing to divide": r"^(?=.*Dense)(?=.*Pass a plan)",
    "stages": r"2 stages need at least as many pieces, and the model has 1: 0",
    "homeless": r"^(?=.*extra)(?=.*stage)",
    "micro-batches": r"a batch of 8 samples is not divisible into 3 micro-batches: 8 / 3",
    "pipeline": r"layout pipeline=2: a pipeline schedules forward and backward itself. Use mx.parallel.train_step",
    "shard": r"shard must be one of 'full', 'grads', 'optimizer', or None, received 'half'",
    "no model": r"expected a gluon Block or a torch module, received list",
    "twice": r"the model already has a layout. Create a new model and load its parameters",
    "kvstore": r"kvstore='dist_sync': the layout already decides how the gradients .* are summed. Leave kvstore out",
    "sparse": r"'embedding\d+_weight' has row-sparse gradients, which a layout cannot sum. .*sparse_grad=False",
    "states": r"other.states: the state loaded for weight \d is .*\(8,\).*, but Adam with its settings needs",
}


def test_invalid_layouts_raise_before_training_starts(tmp_path):
    """Every worker raises, and the model is unchanged: a valid layout can train it afterwards."""
    for found in run(2, tmp_path, "bad"):
        said = {name: str(message) for name, message in found.items()}
        assert said.keys() == REFUSED.keys()
        for name, words in REFUSED.items():
            assert re.search(words, said[name], re.DOTALL), f"{name}: {said[name]}"


# ---- workers that die or hang within a step ----

FAULTY = PROGRAM.with_name("layouts_faulty.py")
PATIENCE = 8  # timeout of the workers, in seconds
FAULTS = [
    ("shard=2", "full", "kill", "forward", "all_gather of "),
    ("shard=2", "full", "hang", "backward", "reduce_scatter|all_gather"),
    ("data=2", "grads", "kill", "backward", "reduce_scatter"),
    ("tensor=2", "None", "kill", "backward", "all_reduce"),
    ("tensor=2", "None", "hang", "forward", "all_reduce"),
    ("data=2", "None", "hang", "backward", "gradients|a step"),
]


@pytest.fixture(scope="module")
def jobs(tmp_path_factory):
    """Run all jobs concurrently: they are mostly waiting."""
    started = {}
    for fault in FAULTS:
        folder = tmp_path_factory.mktemp("fault")
        command = [sys.executable, "-m", "neomx", "run", "-n", "2", "--timeout", str(PATIENCE), FAULTY, folder]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        started[fault] = subprocess.Popen([*map(str, command), *fault[:4]], **pipes), folder
    yield started
    for process, _ in started.values():
        process.terminate()
        process.communicate(timeout=LIMIT)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: "-".join(fault[:4]))
def test_error_names_worker_that_dies_or_hangs_in_a_step(fault, jobs):
    process, folder = jobs[fault]
    output, _ = process.communicate(timeout=LIMIT)
    assert process.returncode != 0 and (folder / "0").exists(), output
    when = float((folder / "fault").read_text())
    at, error = (folder / "0").read_text().split(" ", 1)
    told = "gone" if fault[2] == "kill" else f"within {PATIENCE} s"  # the roll call detects a death earlier
    assert re.match(rf"PeerError: .*({fault[4]}).*worker 1", error) and told in error, error
    assert float(at) - when < SOON
    assert_they_go([int((folder / f"pid{rank}").read_text().split()[1]) for rank in (0, 1)])
