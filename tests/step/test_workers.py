"""Training on 1, 2 and 4 real workers, with every way to exchange gradients, gives the weights of one process.

The sums over samples are the same, only in a different order: weights may differ by rounding, about 1e-6 after twenty
steps (measured: at most 8e-7). On two ranks of one run they are bitwise equal.
"""

import os
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from launching import LIMIT, neomx_run

HERE = pathlib.Path(__file__).parents[1]
TOLERANCE = 5e-6


@pytest.fixture(scope="session")
def one_process(tmp_path_factory):
    """Return the weights of one process for the program with this name."""
    folder = tmp_path_factory.mktemp("alone")
    known = {}

    def weights(program):
        if program not in known:
            command = [sys.executable, str(HERE / "workers" / program), str(folder / program), "local"]
            subprocess.run(command, check=True, timeout=LIMIT, capture_output=True)
            known[program] = dict(np.load(folder / f"{program}-0.npz"))
        return known[program]

    return weights


def compare(program, workers, servers, store, one_process, folder):
    how = ["-n", workers, "-s", servers, HERE / "workers" / program, folder / "w", *store]
    run = neomx_run(*how)
    assert run.returncode == 0, run.stdout + run.stderr
    check(program, workers, one_process, folder)


def check(program, workers, one_process, folder):
    expected = one_process(program)
    found = [dict(np.load(folder / f"w-{rank}.npz")) for rank in range(workers)]
    assert len(found[0]) > 5
    for rank in range(workers):
        for key, value in found[rank].items():
            if key.endswith("/loss"):
                total = sum(each[key] for each in found)
                np.testing.assert_allclose(total, expected[key], rtol=1e-5, err_msg=key)
            else:
                np.testing.assert_allclose(value, expected[key], rtol=0, atol=TOLERANCE, err_msg=f"{key} of {rank}")
                np.testing.assert_array_equal(value, found[0][key], err_msg=f"{key} of worker {rank} and worker 0")


@pytest.mark.parametrize(
    ("workers", "servers", "store"),
    [
        (1, 0, ["dist_sync"]),
        (2, 0, ["dist_device_sync"]),
        (4, 0, ["dist_sync"]),
        (2, 0, ["horovod"]),
        (1, 1, ["dist_sync_device"]),
        (2, 2, ["dist"]),
        (4, 2, ["p3store_dist_sync"]),
        (2, 1, ["dist_stale", "staleness=0"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else str(value),
)
def test_weights_after_twenty_steps_equal_one_process(workers, servers, store, one_process, tmp_path):
    compare("equal.py", workers, servers, store, one_process, tmp_path)


@pytest.mark.parametrize(("workers", "servers"), [(2, 0), (4, 0), (2, 2)])
def test_unusual_steps_equal_one_process(workers, servers, one_process, tmp_path):
    compare("odd.py", workers, servers, ["dist_sync"], one_process, tmp_path)


@pytest.mark.parametrize("servers", [0, 2])
def test_wide_rows_schedules_and_batches_of_one_equal_one_process(servers, one_process, tmp_path):
    compare("once_different.py", 2, servers, [], one_process, tmp_path)


@pytest.mark.parametrize("servers", [0, 1])
def test_dropped_trainers_are_freed(servers):
    run = neomx_run("-n", 2, "-s", servers, HERE / "workers" / "dropped.py", 5)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("dropped") == 2


ALONE = """
import sys
import neomx as mx
net = mx.gluon.nn.Dense(1, in_units=2)
net.initialize()
trainer = mx.gluon.Trainer(net.collect_params(), "sgd", kvstore=sys.argv[1])
for _ in range(3):
    with mx.autograd.record():
        loss = net(mx.nd.ones((4, 2)))
    loss.backward()
    trainer.step(4)
"""


@pytest.mark.parametrize(("store", "told"), [("device", 1), ("dist_sync", 0)])
def test_workers_that_train_separate_models_warn_once(store, told, tmp_path):
    (tmp_path / "train.py").write_text(ALONE)
    run = neomx_run("-n", 2, tmp_path / "train.py", store)
    assert run.returncode == 0, run.stderr
    assert run.stderr.count("each of the 2 workers trains a separate model: kvstore='device'") == told
    assert run.stderr.count("pass kvstore='dist_sync'") == told


def test_training_under_torchrun(one_process, tmp_path):
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    command = [*launcher, str(HERE / "workers" / "equal.py"), str(tmp_path / "w"), "dist_sync"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert run.returncode == 0, run.stdout + run.stderr
    check("equal.py", 2, one_process, tmp_path)


def test_training_with_variables_of_mpirun(one_process, tmp_path):
    command = [sys.executable, str(HERE / "workers" / "equal.py"), str(tmp_path / "w"), "dist_sync"]
    place = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": f"job {os.getpid()}"}
    runs = [
        subprocess.Popen(
            command, env={**os.environ, **place, "OMPI_COMM_WORLD_RANK": rank, "OMPI_COMM_WORLD_LOCAL_RANK": rank}
        )
        for rank in ("0", "1")
    ]
    try:
        assert [run.wait(LIMIT) for run in runs] == [0, 0]
    finally:
        for run in runs:
            run.kill()
    check("equal.py", 2, one_process, tmp_path)


@pytest.mark.parametrize("store", ["dist_async", "dist_stale"])
def test_two_workers_learn_digits_asynchronously(store):
    script = HERE.parent / "examples" / "distributed_digits.py"
    run = neomx_run("-n", 2, "-s", 1, script, "--kvstore", store, "--batch", 200, "--rate", 0.05)
    assert run.returncode == 0, run.stdout + run.stderr
    accuracy = float(re.search(r"accuracy ([\d.]+)", run.stdout).group(1))
    assert accuracy > 0.85  # synchronous training reaches 0.92


SUMS = """
import neomx as mx
kv = mx.kv.create("dist_sync")
kv.init("a", mx.nd.zeros((300, 400)))
kv.push("a", mx.nd.ones((300, 400)) * (kv.rank + 1))
out = mx.nd.zeros((300, 400))
kv.pull("a", out)
assert (out.asnumpy() == 3).all()
print("summed")
"""


def test_encrypted_servers_and_store(tmp_path):
    (tmp_path / "sums.py").write_text(SUMS)
    run = neomx_run("-n", 2, "-s", 1, "--tls", tmp_path / "sums.py")
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("summed") == 2
