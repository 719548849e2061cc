"""A benchmark writes its result; the quickest one runs, with as few calls as it takes."""

import os
import re
import subprocess
import sys

from launching import LIMIT, ROOT

from benchmarks import record
from scripts import figures


def test_a_benchmark_writes_its_result(tmp_path):
    path = tmp_path / "np_ops.json"
    words = ["benchmarks/np_ops.py", "--rounds", "1", "--calls", "20", "--only", "sin"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *words, "--json", str(path)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=LIMIT)
    found = record.read(path)
    assert found.command == " ".join(["python", *words])
    assert {"cpu", "cores", "memory_gb", "python", "torch", "numpy", "load"} == set(found.machine)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)
    assert [row.group for row in found.rows] == ["mx.np", "mx.nd"]
    assert "µs for `mx.np`" in figures.text_of("calls-sentence", {"np_ops": found})
