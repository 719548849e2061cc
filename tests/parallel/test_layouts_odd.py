"""Unusual models and orders of calls under layouts, on two workers: the losses equal those of one process."""

import pathlib
import subprocess
import sys

import numpy as np
from launching import LIMIT, environment, neomx_run

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "layouts_odd.py"
TOLERANCE = {"half_precision_in_a_pipeline": 1e-2}  # others differ by the rounding of float32 sums


def test_losses_equal_one_process(tmp_path):
    alone = subprocess.run(
        [sys.executable, PROGRAM, tmp_path], capture_output=True, text=True, timeout=LIMIT, env=environment()
    )
    assert alone.returncode == 0, alone.stderr
    ran = neomx_run("-n", 2, PROGRAM, tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    expected = dict(np.load(tmp_path / "1-0.npz"))
    for rank in range(2):
        found = dict(np.load(tmp_path / f"2-{rank}.npz"))
        assert found.keys() == expected.keys() and len(found) >= 3
        for name, losses in found.items():
            np.testing.assert_allclose(
                losses, expected[name], rtol=0, atol=TOLERANCE.get(name, 5e-6), err_msg=name, strict=True
            )
