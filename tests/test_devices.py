"""Runs tests/devices in separate processes, because a pretend accelerator is registered there permanently."""

import pathlib
import subprocess
import sys

import pytest
from launching import LIMIT

ROOT = pathlib.Path(__file__).parents[1]


@pytest.mark.parametrize("part", ["test_ops.py", "test_programs.py", "test_arrays.py", "test_training.py"])
def test_on_pretend_devices(part):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", f"tests/devices/{part}"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stdout[-10_000:] + run.stderr[-2_000:]
