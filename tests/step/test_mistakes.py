"""Mistakes in programs on two workers, and the resulting errors and warnings."""

import pytest
from launching import neomx_run

PROGRAM = """
import sys
import neomx as mx
from neomx import autograd, gluon

case, folder, rank = sys.argv[1], sys.argv[2], mx.dist.rank()
here = rank == 1
net = gluon.nn.HybridSequential()
net.add(gluon.nn.Dense(3, in_units=4), gluon.nn.Dense(5 if case == "shape" and here else 2, in_units=3))
if case == "layer" and here:
    net.add(gluon.nn.Dense(2, in_units=2))
net.initialize()
rate = 0.2 if case == "rate" and here else 0.1
how = {"learning_rate": rate, "clip_gradient": 1.0 if case == "clip" and here else None}
more = {}
name = "adam" if case == "optimizer" and here else "sgd"
if name == "adam":
    del how["clip_gradient"]
if case == "compression" and here:
    more["compression_params"] = {"type": "2bit", "threshold": 0.5}
trainer = gluon.Trainer(net.collect_params(), name, how, kvstore="dist_sync", **more)
if case == "lr_mult" and here:
    net[0].weight.lr_mult = 0.5
if case == "wd_mult" and here:
    net[1].bias.wd_mult = 0.0
if case == "grad_req" and here:
    net[0].weight.grad_req = "null"
if case == "two trainers":
    other = gluon.Trainer(net.collect_params(), "sgd", how, kvstore="dist_sync")
    trainer = other if here else trainer
batches = 5 if case in ("data", "barrier first") and not here else 4
for step in range(batches):
    with autograd.record():
        loss = net(mx.nd.ones((2, 4)))
    loss.backward()
    if case == "later" and here and step == 2:
        trainer.set_learning_rate(0.5)
    trainer.step(4)
if case == "barrier first":
    mx.dist.barrier()
if case in ("data", "barrier first") and here:
    net.save_parameters(f"{folder}/net.params")
if case == "written" and here:
    list(net.collect_params().values())[1].data()[:] = 7
print("done")
"""


def run(case, folder, servers=0):
    (folder / "train.py").write_text(PROGRAM)
    return neomx_run("-n", 2, "-s", servers, folder / "train.py", case, folder)


@pytest.mark.parametrize("servers", [0, 1])
@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("rate", "the same settings: learning_rate is 0.1 on worker 0 and 0.2 on worker 1"),
        ("clip", "the same settings: clip_gradient is None on worker 0 and 1.0 on worker 1"),
        ("optimizer", "the same settings: optimizer is 'SGD' on worker 0 and 'Adam' on worker 1"),
        ("lr_mult", "the same settings: lr_mult of dense0_weight is 1.0 on worker 0 and 0.5 on worker 1"),
        ("wd_mult", "the same settings: wd_mult of dense1_bias is 1.0 on worker 0 and 0.0 on worker 1"),
        ("grad_req", "the gradient of dense0_weight is 'dense (3, 4) float32' on worker 0 and None on worker 1"),
        ("compression", "compression is None on worker 0 and {'type': '2bit', 'threshold': 0.5} on worker 1"),
        ("two trainers", "worker 0 steps its Trainer number 0, worker 1 steps its Trainer number 1"),
        ("later", "the same settings: learning_rate is 0.1 on worker 0 and 0.5 on worker 1"),
        ("shape", "_bias (2,) float32, worker 1 has Parameter "),
        ("layer", "_bias (2,) float32, which worker 0 does not have"),
    ],
)
def test_error_names_the_difference_between_programs(case, told, servers, tmp_path):
    result = run(case, tmp_path, servers)
    assert result.returncode == 1 and told in result.stderr, result.stderr


@pytest.mark.parametrize("case", ["equal", "barrier first"])
def test_correct_programs_do_not_warn(case, tmp_path):
    result = run(case, tmp_path)
    assert result.returncode == 0 and result.stdout.count("done") == 2, result.stderr
    assert "saved" not in result.stderr and "different weights" not in result.stderr
    assert ("different numbers of training steps" in result.stderr) == (case == "barrier first")


def test_saving_outdated_weights_warns(tmp_path):
    result = run("data", tmp_path)
    assert result.returncode == 0, result.stderr
    assert f"worker 1 saved {tmp_path}/net.params before the last steps of other workers" in result.stderr
    assert "Call mx.dist.barrier() before saving" in result.stderr


def test_different_final_weights_warn(tmp_path):
    result = run("written", tmp_path)
    assert result.returncode == 0, result.stderr
    assert "the workers end with different weights: " in result.stderr
    assert "_bias of worker 1 differs from worker 0. Usually one worker has loaded or changed" in result.stderr
