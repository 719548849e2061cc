"""A short, seeded part of `make fuzz`: damaged files of every format."""

import os
import subprocess
import sys

RUNNER = os.path.join(os.path.dirname(__file__), "files.py")


def test_damaged_files_raise_only_mxnet_error(tmp_path):
    command = [sys.executable, RUNNER, "--cases", "150", "--seconds", "15", "--seed", "7", "--save", str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 failed" in run.stdout.splitlines()[-1]
