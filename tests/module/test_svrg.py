"""SVRGModule, beyond the recordings (parity/cases/svrg.py): contexts, workers, predictions and invalid input."""

import subprocess
import sys

import numpy as np
import pytest
from launching import LIMIT, environment, neomx_run, write

import neomx as mx
from neomx.contrib.svrg_optimization.svrg_module import SVRGModule

# Batch b of one process has the samples 8b to 8b + 7; worker r has every other four of them.
TRAINING = """
    import sys

    import numpy as np
    import torch

    import neomx as mx
    from neomx.contrib.svrg_optimization.svrg_module import SVRGModule

    torch.set_num_threads(1)
    place, kind = sys.argv[1:]
    store = mx.kv.create(kind)
    rng = np.random.default_rng(0)
    x = rng.standard_normal((24, 3)).astype("f")
    y = (x @ np.array([1, -2, 3.0]) + 0.5).astype("f")
    mine = np.arange(24).reshape(-1, 4)[store.rank :: store.num_workers].reshape(-1)
    data = mx.io.NDArrayIter(x[mine], y[mine], 8 // store.num_workers, label_name="label")
    dense = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc")
    module = SVRGModule(mx.sym.LinearRegressionOutput(dense, mx.sym.var("label")), label_names=["label"], update_freq=2)
    start = {"fc_weight": mx.nd.array([[0.1, 0.2, 0.3]]), "fc_bias": mx.nd.zeros(1)}
    params = {"learning_rate": 0.1, "momentum": 0.5}
    module.fit(data, kvstore=store, num_epoch=4, arg_params=start, optimizer_params=params, eval_metric="mse")
    np.savez(f"{place}-{store.rank}.npz", **{k: v.asnumpy() for k, v in module.get_params()[0].items()})
"""


def network():
    dense = mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=1, name="fc")
    return mx.sym.LinearRegressionOutput(dense, mx.sym.var("label"))


def data(batch_size=4):
    x = np.random.RandomState(0).randn(20, 3).astype("f")
    return mx.io.NDArrayIter(x, x @ np.array([1, -2, 3.0], "f") + 0.5, batch_size, label_name="label")


def fitted(**kwargs):
    module = SVRGModule(network(), label_names=["label"], update_freq=2, **kwargs)
    start = {"fc_weight": mx.nd.array([[0.1, 0.2, 0.3]]), "fc_bias": mx.nd.zeros(1)}
    module.fit(data(), num_epoch=4, arg_params=start, optimizer_params={"learning_rate": 0.1}, eval_metric="mse")
    return module


def test_two_contexts_match_one():
    one, two = (fitted(context=context).get_params()[0] for context in (mx.cpu(), [mx.cpu(0), mx.cpu(1)]))
    for name in one:  # the order of summation differs
        np.testing.assert_allclose(two[name].asnumpy(), one[name].asnumpy(), rtol=1e-5)


def test_two_workers_match_one_process(tmp_path):
    program = write(tmp_path, TRAINING)
    alone = [sys.executable, str(program), str(tmp_path / "one"), "local"]
    subprocess.run(alone, check=True, timeout=LIMIT, capture_output=True, env=environment())
    run = neomx_run("-n", 2, program, tmp_path / "two", "dist_sync")
    assert run.returncode == 0, run.stdout + run.stderr
    expected = np.load(tmp_path / "one-0.npz")
    for rank in range(2):
        found = np.load(tmp_path / f"two-{rank}.npz")
        for name in expected.files:  # the order of summation differs
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-5, atol=1e-6)


def test_predict_score_and_other_shapes():
    module = fitted()
    assert module.predict(data()).shape == (20, 1)
    assert module.score(data(5), "mse")[0][1] < 0.4
    module.reshape([("data", (2, 3))], [("label", (2,))])
    module.update_full_grads(data(2))
    module.forward_backward(next(data(2)))
    before = module.get_params()[0]["fc_weight"].asnumpy()
    module.update()
    assert not np.array_equal(module.get_params()[0]["fc_weight"].asnumpy(), before)


def test_step_without_full_gradients_names_the_remedy():
    module = SVRGModule(network(), label_names=["label"], update_freq=1)
    batches = data()
    module.bind(batches.provide_data, batches.provide_label)
    module.init_params()
    module.init_optimizer()
    module.forward_backward(batches.next())
    with pytest.raises(mx.MXNetError, match="Call update_full_grads first"):
        module.update()


def test_invalid_update_freq_raises():
    with pytest.raises(TypeError, match="must be an integer .*received None"):
        SVRGModule(network())
    with pytest.raises(ValueError, match="must be a positive integer .*received 0"):
        SVRGModule(network(), update_freq=0)
    assert mx.contrib.svrg_optimization.svrg_module.SVRGModule is SVRGModule
