"""Every way to learn gives the numbers of one process on two and on three real workers.

Sums over samples are the same, only in a different order: after at most 25 steps, weights and norms differ by rounding,
about 1e-6 (measured: at most 8e-7). On two ranks of one run they are bitwise equal. Three workers do not divide the
last batch of an epoch evenly, and one of them then has no samples.
"""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from launching import LIMIT, environment, neomx_run

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "learning.py"
CASES = (
    *("accumulation", "accumulation of Adam", "whole batches", "plain steps", "unfreezing", "unfreezing hybridized"),
    *("averages", "balanced", "stopping", "courses", "searches"),
)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    command = [sys.executable, str(PROGRAM), str(folder / "w")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert run.returncode == 0, run.stderr
    return dict(np.load(folder / "w-0.npz"))


@pytest.fixture(scope="module", params=[2, 3])
def found(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    run = neomx_run("-n", request.param, PROGRAM, folder / "w")
    assert run.returncode == 0, run.stdout + run.stderr
    return [dict(np.load(folder / f"w-{rank}.npz")) for rank in range(request.param)]


@pytest.mark.parametrize("case", CASES)
def test_results_equal_those_of_one_process(case, alone, found):
    names = [name for name in alone if name.startswith(case + ": ")]
    assert names
    for name in names:
        for rank, mine in enumerate(found):
            if name.endswith("norms"):  # of the batches of this worker, which may lack the last one of an epoch
                np.testing.assert_allclose(mine[name][:4], alone[name][:4], rtol=2e-6, err_msg=f"{name} of {rank}")
                continue
            np.testing.assert_allclose(mine[name], alone[name], rtol=0, atol=5e-6, err_msg=f"{name} of {rank}")
            np.testing.assert_array_equal(mine[name], found[0][name], err_msg=f"{name} of worker {rank} and worker 0")


def test_micro_batches_equal_whole_batches(alone):
    for name in (name for name in alone if name.startswith("whole batches: ")):
        other = name.replace("whole batches", "accumulation")
        np.testing.assert_allclose(alone[name], alone[other], rtol=0, atol=5e-6, err_msg=name)


def test_growing_pools_weights_and_stop_are_as_computed_by_hand(alone):
    np.testing.assert_array_equal(alone["courses: sizes"], [15, 27, 38, 50, 50])  # 0.3, then + 0.7 / 3 each
    assert int(alone["stopping: epochs"]) == 4
    assert float(alone["stopping: best"]) == 30 / 50
    assert alone["stopping: improved"].tolist() == [True, True, True, False, False]
    assert int(alone["averages: updates"]) == 10
