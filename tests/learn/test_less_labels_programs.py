"""The programs for few labels give the same losses on one and two workers, with some methods.

The runs are too short to reach a target. After about ten steps of Adam, which scales gradients that are nearly zero up,
losses differ by about 1e-5 (measured), so the tolerance leaves a factor of ten.
"""

import json
import pathlib

import numpy as np
import pytest
from launching import neomx_run

TASKS = pathlib.Path(__file__).resolve().parents[2] / "examples" / "tasks"
TOLERANCE = 1e-4
FEW = ("few_examples.py", "--length", 20, "--tests", 4, "--epochs", 2)
SELF = ("self_supervised.py", "--pictures", 400, "--epochs", 2)


def curve(workers, arguments, file):
    program, *options = arguments
    run = neomx_run("-n", workers, TASKS / program, "--short", "--curve", file, *options)
    assert run.returncode == 0 or "the target was not reached" in run.stderr, run.stdout + run.stderr
    return [each["loss"] for each in json.loads(file.read_text())["curve"] if "loss" in each]


@pytest.mark.parametrize(
    ("arguments", "method"),
    [(FEW, "prototypical"), (FEW, "maml"), (SELF, "simclr"), (SELF, "masked")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_losses_of_two_workers_equal_those_of_one(arguments, method, tmp_path):
    one, two = (curve(n, (*arguments, "--method", method), tmp_path / f"{n}.json") for n in (1, 2))
    assert len(one) == 2
    np.testing.assert_allclose(two, one, rtol=TOLERANCE)


def test_unknown_method_is_rejected():
    run = neomx_run("-n", 1, TASKS / "self_supervised.py", "--method", "none")
    assert run.returncode != 0 and "invalid choice: 'none'" in run.stderr
