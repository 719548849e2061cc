"""Horovod's API: in one process, and on two workers in programs that the launcher starts."""

import pathlib
import re

import numpy as np
import pytest
from launching import neomx_run

import neomx as mx
import neomx.horovod as hvd
from neomx import autograd, gluon, nd
from neomx.base import MXNetError

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def alone():
    hvd.init()
    yield
    hvd.shutdown()


def launched(*command, workers=2):
    """Return the output of a program run by the launcher."""
    done = neomx_run("-n", workers, *command)
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    return done.stdout


# ---- two workers ----


def test_every_call_and_training_on_two_workers():
    printed = launched("tests/workers/horovod_calls.py")
    for rank in range(2):
        assert f"worker {rank} trained" in printed
        assert f"worker {rank} passed 14" in printed


def test_digits_example():
    printed = launched("examples/horovod_mnist.py", "--epochs", 1, "--fp16-allreduce")
    assert [float(found) for found in re.findall(r"test accuracy ([\d.]+)", printed)][-1] > 0.85


def test_uneven_example_resumes_from_a_checkpoint(tmp_path):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Dense(128, activation="relu", in_units=28 * 28), gluon.nn.Dense(10, in_units=128))
    net.initialize(mx.init.Xavier())
    net.save_parameters(str(tmp_path / "kept.params"))
    (tmp_path / "kept.epoch").write_text("1")
    printed = launched("examples/horovod_uneven.py", "--epochs", 2, "--checkpoint", tmp_path / "kept")
    assert printed.count("epoch") == 1 and "epoch 2: batches [34, 67], worker 1 was last" in printed
    assert float(re.search(r"test accuracy ([\d.]+)", printed)[1]) > 0.75
    assert (tmp_path / "kept.epoch").read_text() == "2"


# ---- one process ----


def test_calls_before_init_and_after_shutdown_are_errors():
    hvd.shutdown()  # another test may have left it open
    assert not hvd.is_initialized()
    for call in (hvd.rank, hvd.size, hvd.local_rank, lambda: hvd.allreduce(nd.ones(2))):
        with pytest.raises(ValueError, match=re.escape("Call hvd.init() first")):
            call()
    hvd.init(process_sets=[hvd.ProcessSet([0])])
    assert hvd.is_initialized() and (hvd.rank(), hvd.size()) == (0, 1)
    hvd.init(comm=[0])
    with pytest.raises(MXNetError, match=r"expects all workers of the job, \[0\], received comm=\[0, 1\]"):
        hvd.init(comm=[0, 1])
    hvd.shutdown()
    assert not hvd.is_initialized()


def test_build_flags():
    assert hvd.gloo_built() and hvd.gloo_enabled()
    for missing in (hvd.mpi_built, hvd.mpi_enabled, hvd.mpi_threads_supported, hvd.ddl_built, hvd.ccl_built):
        assert not missing()
    assert bool(hvd.nccl_built()) == hvd.cuda_built()
    assert hvd.rocm_built() in (True, False)


def test_calls_in_one_process(alone):
    assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (0, 1, 0, 1)
    x = nd.array([[1, 2], [3, 4]])
    for found in (hvd.allreduce(x), hvd.broadcast(x, 0), hvd.allgather(x), hvd.alltoall(x), hvd.reducescatter(x)):
        assert found is not x and found._data.data_ptr() != x._data.data_ptr()
        np.testing.assert_array_equal(found.asnumpy(), x.asnumpy())
    np.testing.assert_array_equal(hvd.allreduce(x, prescale_factor=3).asnumpy(), 3 * x.asnumpy())
    rows, received = hvd.alltoall(x, splits=[2])
    assert rows.shape == (2, 2) and received.asnumpy().tolist() == [2]
    assert hvd.allgather_object({"a": 1}) == [{"a": 1}] and hvd.broadcast_object("b") == "b"
    assert hvd.join() == 0 and hvd.is_homogeneous()
    hvd.allreduce_(x, average=False, postscale_factor=0.5)
    assert x.asnumpy().tolist() == [[0.5, 1], [1.5, 2]]


@pytest.mark.parametrize(
    ("kind", "words", "call"),
    [
        (TypeError, "hvd.allreduce expects an NDArray, received list", lambda: hvd.allreduce([1.0])),
        (MXNetError, "expects a dense array", lambda: hvd.allreduce(nd.ones((2, 2)).tostype("row_sparse"))),
        (MXNetError, "Adasum is not supported", lambda: hvd.allreduce(nd.ones(2), op=hvd.Adasum)),
        (ValueError, "op must be hvd.Average", lambda: hvd.allreduce(nd.ones(2), op="median")),
        (ValueError, "average= or op=, not both", lambda: hvd.allreduce(nd.ones(2), True, op=hvd.Sum)),
        (ValueError, "op must be hvd.Average or hvd.Sum", lambda: hvd.reducescatter(nd.ones(2), op=hvd.Max)),
        (ValueError, "root_rank must be one of the workers [0], received 1", lambda: hvd.broadcast(nd.ones(2), 1)),
        (ValueError, "received 3", lambda: hvd.broadcast_parameters({"a": nd.ones(2)}, root_rank=3)),
        (ValueError, "expected a dict of arrays or Parameters", lambda: hvd.broadcast_parameters([nd.ones(2)])),
        (
            RuntimeError,
            "has not been initialized",
            lambda: hvd.broadcast_parameters(gluon.nn.Dense(1).collect_params()),
        ),
        (ValueError, "splits must be 1 row counts", lambda: hvd.alltoall(nd.ones(2), splits=[1])),
        (TypeError, "cannot send", lambda: hvd.broadcast_object({1, 2})),
        (TypeError, "expected an Optimizer", lambda: hvd.DistributedOptimizer("sgd")),
        (
            ValueError,
            "gradient_predivide_factor",
            lambda: hvd.DistributedTrainer([], "sgd", None, hvd.Compression.none, 0),
        ),
        (ValueError, "num_groups", lambda: hvd.DistributedTrainer([], "sgd", num_groups=-1)),
        (ValueError, "hvd.Compression.none or fp16", lambda: hvd.DistributedTrainer([], "sgd", compression="2bit")),
        (ValueError, "is already registered", lambda: hvd.add_process_set(hvd.global_process_set)),
        (ValueError, "distinct ranks from 0 to 0", lambda: hvd.add_process_set([0, 1])),
        (ValueError, "add_process_set first", lambda: hvd.allreduce(nd.ones(1), process_set=hvd.ProcessSet([0]))),
    ],
)
def test_invalid_calls_are_rejected(alone, kind, words, call):
    with pytest.raises(kind, match=re.escape(words)):
        call()


def test_compression():
    x = nd.array([1 / 3, 2])
    packed, ctx = hvd.Compression.fp16.compress(x)
    assert packed.dtype == np.float16
    unpacked = hvd.Compression.fp16.decompress(packed, ctx)
    assert unpacked.dtype == np.float32 and abs(unpacked.asnumpy() - x.asnumpy()).max() < 1e-3
    for compressor, given in ((hvd.Compression.none, x), (hvd.Compression.fp16, nd.arange(3, dtype="int32"))):
        packed, ctx = compressor.compress(given)
        assert compressor.decompress(packed, ctx) is given


def trained(make_trainer):
    net = gluon.nn.Dense(2, in_units=3)
    net.initialize(mx.init.One())
    trainer = make_trainer(net.collect_params())
    for step in range(3):
        with autograd.record():
            loss = (net(nd.arange(6).reshape((2, 3)) + step) ** 2).sum()
        loss.backward()
        trainer.step(2)
    return net.weight.data().asnumpy()


def test_distributed_trainer_in_one_process_equals_gluon_trainer(alone):
    how = {"learning_rate": 1e-3, "momentum": 0.9}
    plain = trained(lambda params: gluon.Trainer(params, "sgd", how))
    for extra in ({}, {"compression": hvd.Compression.fp16}, {"gradient_predivide_factor": 2.0}):
        assert (trained(lambda params: hvd.DistributedTrainer(params, "sgd", how, **extra)) == plain).all()  # noqa: B023


def test_distributed_trainer_unwraps_a_distributed_optimizer(alone):
    inner = mx.optimizer.create("sgd", learning_rate=1e-3)
    shared = hvd.DistributedOptimizer(inner, gradient_predivide_factor=4.0)
    assert inner.rescale_grad == shared.rescale_grad == 4  # the gradients are divided by it before they are summed
    with pytest.warns(UserWarning, match="already sums gradients"):
        found = trained(lambda params: hvd.DistributedTrainer(params, shared))
    assert (found == trained(lambda params: gluon.Trainer(params, "sgd", {"learning_rate": 1e-3}))).all()


def test_distributed_optimizer_has_the_attributes_of_its_optimizer(alone):
    inner = mx.optimizer.create("nag", learning_rate=0.5, momentum=0.75, param_idx2name={0: "w_weight"})
    shared = hvd.DistributedOptimizer(inner)
    shared.set_learning_rate(0.25)
    shared.set_lr_mult({"w_weight": 2.0})
    shared.rescale_grad = 0.5
    assert (inner.lr, inner.lr_mult, inner.rescale_grad) == (0.25, {"w_weight": 2.0}, 0.5)
    assert shared.momentum == 0.75 and shared.idx2name == {0: "w_weight"}
    weights = []
    for optimizer in (shared, mx.optimizer.create("nag", learning_rate=0.5, momentum=0.75, rescale_grad=0.5)):
        updater = mx.optimizer.get_updater(optimizer)
        weight = nd.ones(3)
        for step in range(3):
            updater(0, nd.arange(3) + step, weight)
        weights.append(weight.asnumpy())
    np.testing.assert_allclose(*weights, rtol=1e-6)


def test_distributed_optimizer_with_multi_precision(alone):
    weight = nd.ones(3, dtype="float16")
    updater = mx.optimizer.get_updater(
        hvd.DistributedOptimizer(mx.optimizer.create("sgd", learning_rate=0.5, multi_precision=True))
    )
    updater(0, nd.ones(3, dtype="float16"), weight)
    assert weight.asnumpy().tolist() == [0.5] * 3
    assert np.float32 in [part.dtype for part in updater.states[0] if part is not None]
