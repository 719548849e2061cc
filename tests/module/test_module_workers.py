"""Module.fit and FeedForward.fit on two workers reach the weights of one process with every gradient strategy.

The order of summation differs, so weights differ by rounding, 1.5e-7 after ten steps when measured. The weights of the
workers are bitwise equal. A worker with fewer batches takes part with zeros, as if its samples had no weight.
"""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
from launching import LIMIT, environment, neomx_run, write

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "module_training.py"
TOLERANCE = 1e-6

ASYNCHRONOUS = """
    import sys

    import numpy as np
    import torch

    import neomx as mx

    torch.set_num_threads(1)
    store = mx.kv.create(sys.argv[1])
    random = np.random.default_rng(store.rank)
    centres = np.random.default_rng(9).standard_normal((3, 5)) * 3
    labels = random.integers(0, 3, 60)
    data = (centres[labels] + random.standard_normal((60, 5))).astype("float32")
    iterator = mx.io.NDArrayIter(data, labels.astype("float32"), 10)
    scores = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(scores, name="softmax"))
    module.fit(iterator, kvstore=store, num_epoch=3 + store.rank, optimizer_params={"learning_rate": 0.05})
    assert module._optimizer.rescale_grad == 1 / 10  # each push is applied separately
    accuracy = module.score(iterator, "acc")[0][1]
    assert accuracy > 0.9, accuracy
    print("learned", accuracy)
"""


@pytest.fixture(scope="module")
def one_process(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    command = [sys.executable, str(PROGRAM), str(folder / "w"), "local"]
    subprocess.run(command, check=True, timeout=LIMIT, capture_output=True, env=environment())
    return dict(np.load(folder / "w-0.npz"))


@pytest.mark.parametrize(("servers", "store"), [(0, "dist_sync"), (1, "dist_device_sync")])
def test_two_workers_match_one_process(servers, store, one_process, tmp_path):
    run = neomx_run("-n", 2, "-s", servers, PROGRAM, tmp_path / "w", store)
    assert run.returncode == 0, run.stdout + run.stderr
    found = [dict(np.load(tmp_path / f"w-{rank}.npz")) for rank in range(2)]
    assert len(one_process) == 32 and one_process.keys() == found[0].keys()
    for key, expected in one_process.items():
        np.testing.assert_allclose(found[0][key], expected, rtol=0, atol=TOLERANCE, err_msg=key)
        np.testing.assert_array_equal(found[0][key], found[1][key], err_msg=key)
    assert np.abs(one_process["sgd/fc1_weight"] - one_process["unequal/fc1_weight"]).max() > 1e-3


@pytest.mark.parametrize("store", ["dist_async", "dist_stale"])
def test_asynchronous_workers_learn_and_finish_independently(store, tmp_path):
    run = neomx_run("-n", 2, "-s", 1, write(tmp_path, ASYNCHRONOUS), store)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.count("learned") == 2
