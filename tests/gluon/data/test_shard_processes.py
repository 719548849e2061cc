"""Two workers with sharded data train like one process, even if one worker has fewer batches."""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
from launching import LIMIT
from shard_worker import CASES, train
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

HERE = pathlib.Path(__file__).resolve().parents[2]


def test_two_workers_train_like_one_and_show_progress(tmp_path):
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent)}
    options = ["-n", "2", "--tensorboard", str(tmp_path)]
    command = [sys.executable, "-m", "neomx", "run", *options, str(HERE / "shard_worker.py"), str(tmp_path)]
    run = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stdout + run.stderr

    workers = [np.load(tmp_path / f"{rank}.npz") for rank in range(2)]
    alone = [train(*case) for case in CASES]
    for number, case in enumerate(CASES):
        for worker in workers:
            np.testing.assert_allclose(worker[f"arr_{number}"], alone[number][0], rtol=1e-5, err_msg=str(case))
    assert [worker["steps"].tolist() for worker in workers] == [[6, 6, 9, 6, 9, 9], [6, 6, 6, 6, 9, 6]]

    lines = [line for line in run.stderr.splitlines() if re.match(r"epoch \d+:", line)]  # others warn of a slow machine
    assert len(lines) == 3 * len(CASES)  # from one worker only
    assert re.fullmatch(r"epoch 2: 3 steps in \d+\.\d s, [\d.,]+ samples/s, loss [\d.e-]+", lines[-1])
    for rank in range(2):
        loaded = EventAccumulator(str(tmp_path / f"worker-{rank}"))
        loaded.Reload()
        names = {"forward", "backward", "waiting", "communication", "step"}
        assert {f"seconds/{name}" for name in names} | {"loss", "samples_per_second"} == set(loaded.Tags()["scalars"])
