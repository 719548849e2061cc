"""FeedForward trains `mx.sym`'s networks on two workers to the weights of one process.

The order of summation differs, so weights differ by rounding: 2e-7 after eight steps when measured.
"""

import pathlib
import subprocess
import sys

import numpy as np
from launching import LIMIT, environment, neomx_run

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "networks_training.py"


def test_two_workers_match_one_process(tmp_path):
    command = [sys.executable, str(PROGRAM), str(tmp_path / "alone"), "local"]
    subprocess.run(command, check=True, timeout=LIMIT, capture_output=True, env=environment())
    run = neomx_run("-n", 2, PROGRAM, tmp_path / "both", "dist_sync")
    assert run.returncode == 0, run.stdout + run.stderr
    alone, first, second = (dict(np.load(tmp_path / f"{name}.npz")) for name in ("alone-0", "both-0", "both-1"))
    assert len(alone) > 30 and alone.keys() == first.keys()
    for name, expected in alone.items():
        np.testing.assert_allclose(first[name], expected, rtol=0, atol=2e-6, err_msg=name)
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)
    assert np.abs(alone["recurrent/lstm_l0_i2h_bias"]).max() > 1e-3  # zero at first
