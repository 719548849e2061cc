"""The names that guides use (docs/guide-names.md): on two workers they give the numbers of one process."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from launching import LIMIT, environment, neomx_run, write

import neomx as mx
from neomx import gluon, nd
from neomx.module.shards import PartIter
from neomx.parallel import data_parallel
from neomx.parallel.datashard import ScatterDataShard

PROGRAM = pathlib.Path(__file__).parents[1] / "workers" / "guide_names.py"
# Sums have another order on two workers, which changes weights of about 1 by 2e-7 when measured. Gradients that travel
# as float16 are rounded to 3 digits.
TOLERANCE, HALF = 2e-6, 2e-3


def test_two_workers_give_the_numbers_of_one_process(tmp_path):
    command = [sys.executable, "-m", "neomx", str(PROGRAM), str(tmp_path / "one")]
    alone = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, env=environment())
    assert alone.returncode == 0, alone.stdout + alone.stderr
    run = neomx_run("-n", 2, PROGRAM, tmp_path / "two")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "separate model" not in run.stderr and "different numbers" not in run.stderr
    expected = dict(np.load(tmp_path / "one-0.npz"))
    found = [dict(np.load(tmp_path / f"two-{rank}.npz")) for rank in range(2)]
    assert len(expected) > 30 and expected.keys() == found[0].keys()
    for name, values in expected.items():
        tolerance = HALF if "half" in name else TOLERANCE
        np.testing.assert_allclose(found[0][name], values, rtol=0, atol=tolerance, err_msg=name)
        np.testing.assert_array_equal(found[0][name], found[1][name], err_msg=name)


# ---- launching ----


def run_program(tmp_path, text):
    """Return the result of a program that launches others, started by plain Python."""
    path = write(tmp_path, text, "go.py")
    return subprocess.run(
        [sys.executable, path], capture_output=True, text=True, timeout=LIMIT, env=environment(), cwd=tmp_path
    )


def test_launch_starts_commands_modules_and_functions(tmp_path):
    write(tmp_path, "import sys, mxnet as mx\nprint(mx.parallel.rank(), mx.parallel.size(), sys.argv[1:])", "train.py")
    done = run_program(
        tmp_path,
        """
        import neomx as mx

        def place(start):
            return start + mx.parallel.rank()

        if __name__ == "__main__":
            assert mx.parallel.num_devices() >= 1
            mx.parallel.set_num_devices(2)
            assert mx.parallel.num_devices() == 2
            assert mx.parallel.launch("python", "-u", "train.py", "--epochs", 3) is None
            mx.parallel.launch("-m", "train", "as a module", n=1)
            assert mx.parallel.launch(place, 10) == [10, 11]
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sorted(lines[:2]) == ["0 2 ['--epochs', '3']", "[1] 1 2 ['--epochs', '3']"]
    assert lines[2:] == ["0 1 ['as a module']"]


def test_launch_reports_failures_and_refuses_workers(tmp_path):
    write(tmp_path, "import sys\nsys.exit(3)", "bad.py")
    write(tmp_path, "import neomx as mx\nmx.parallel.launch('python', 'again.py')", "again.py")
    done = run_program(
        tmp_path,
        """
        import neomx as mx

        for name in ("bad.py", "again.py"):
            try:
                mx.parallel.launch("python", name, n=1)
            except mx.MXNetError as error:
                print(error)
        """,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launch: bad.py failed with exit code 3" in done.stdout
    assert "launch: again.py failed with exit code 1" in done.stdout
    assert "this process is already worker 0 of a job with 1 worker(s), so it cannot launch another" in done.stderr


@pytest.mark.parametrize(
    ("command", "kind", "words"),
    [
        (("python", "missing.py"), mx.MXNetError, "no such script: missing.py"),
        (("python", "-u"), ValueError, "needs a script or -m module, such as 'train.py'"),
        (("python", "-c", "print(1)"), ValueError, "received '-c'"),
        (("bash", "run.sh"), ValueError, "begins with 'python', a script or -m; received 'bash'"),
        (("/nowhere/python", "train.py"), ValueError, "received '/nowhere/python'"),
        (("python3.1", "train.py"), ValueError, "received 'python3.1'"),
    ],
)
def test_launch_rejects_what_it_cannot_start(command, kind, words):
    with pytest.raises(kind, match=words):
        mx.parallel.launch(*command, n=2)


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True])
def test_number_of_devices_must_be_a_positive_integer(number):
    with pytest.raises(ValueError, match="expects a positive integer"):
        mx.parallel.set_num_devices(number)


# ---- one process ----


def test_one_process_is_a_group_of_one():
    assert (mx.parallel.rank(), mx.parallel.size(), mx.parallel.local_rank(), mx.parallel_rank()) == (0, 1, 0, 0)
    assert mx.comm_allreduce() is None
    with pytest.raises(mx.MXNetError, match="no group is open. Call init_group first"):
        mx.parallel.finalize_group()
    with pytest.raises(mx.MXNetError, match="no group 'decoder' is open. Open groups: none"):
        mx.parallel.get_group("decoder")
    group = mx.parallel.init_group("all")
    with pytest.raises(ValueError, match=r"a group needs distinct ranks from 0 to 0, received \[0, 0\]"):
        mx.parallel.init_group("all", [0, 0])
    with pytest.raises(TypeError, match="a list of integers, received 'ab'"):
        mx.parallel.init_group(ranks="ab")
    assert mx.parallel.get_group() is group
    mx.parallel.finalize_group("all")


def test_values_without_arrays_are_rejected():
    for call in (mx.comm_allreduce, mx.comm_broadcast, mx.parallel.allreduce, mx.distributed.all_reduce):
        with pytest.raises(TypeError, match="expected an array, a number, a list .* received str"):
            call("x")
    with pytest.raises(ValueError, match="op must be one of 'sum', 'mean', .* received 'median'"):
        mx.comm_allreduce(nd.ones(1), "median")


def test_numbers_keep_their_kind():
    assert [mx.comm_allreduce_sum(each) for each in (3, 0.5, True)] == [3, 0.5, 1]
    assert isinstance(mx.comm_allreduce(3), float) and isinstance(mx.comm_allreduce(3, "max"), int)
    assert mx.comm_allreduce((1, 2), "sum") == (1, 2)


def test_data_parallel_returns_the_model_and_rejects_others():
    net = gluon.nn.Dense(1)
    net.initialize()
    module = mx.mod.Module(mx.sym.SoftmaxOutput(mx.sym.var("data"), name="softmax"))
    for model in (net, module, torch.nn.Linear(1, 1), gluon.Trainer(net.collect_params(), "sgd")):
        assert data_parallel(model) is model
    assert module.joins_workers
    for other in (mx.sym.var("x"), [net], "net", None, torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), lr=1)):
        with pytest.raises(TypeError, match="data_parallel expects a gluon Block, .* received"):
            data_parallel(other)
    with pytest.raises(ValueError, match="shard='full' needs a gluon Block or a torch module, received Module"):
        data_parallel(module, shard="full")
    with pytest.raises(TypeError, match="DDP expects a gluon Block, a Trainer or an Optimizer, received str"):
        gluon.distributed.DDP("sgd")


def test_shard_of_arrays_datasets_and_iterators():
    data, labels = np.arange(12.0).reshape(6, 2), np.arange(6)
    for given in ((data, labels), (nd.array(data), list(labels)), (torch.from_numpy(data), labels)):
        x, y = ScatterDataShard(*given)[4]
        assert np.ravel(x.asnumpy() if isinstance(x, nd.NDArray) else x).tolist() == [8, 9] and y == 4
    assert len(ScatterDataShard(data)) == len(ScatterDataShard((data, data), labels)) == 6
    dataset = gluon.data.ArrayDataset(data, labels)
    batches = gluon.data.DataLoader(ScatterDataShard(dataset, shuffle=True, seed=1), batch_size=4)
    assert sorted(y for _, batch in batches for y in batch.asnumpy()) == list(range(6))
    part = ScatterDataShard(mx.io.NDArrayIter(data, labels, 4))
    assert isinstance(part, PartIter)
    assert [(batch.data[0].shape, batch.pad) for batch in part] == [((4, 2), 0), ((4, 2), 2)]


def test_parts_of_batches_along_the_axis_of_samples():
    whole = np.arange(24.0).reshape(2, 6, 2)  # time, samples, features
    for rank in range(2):
        part = PartIter(mx.io.NDArrayIter(whole, None, 4, layout="TNC"), rank, 2)
        assert part.provide_data[0].shape == (2, 2, 2)
        batches = list(part)
        np.testing.assert_array_equal(batches[0].data[0].asnumpy(), whole[:, [rank, rank + 2]])
        np.testing.assert_array_equal(batches[1].data[0].asnumpy(), whole[:, [4 + rank, rank]])  # then padding
        assert [batch.pad for batch in batches] == [0, 1]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: ScatterDataShard(np.ones((3, 2)), np.ones(2)), ValueError, "received 3 and 2"),
        (lambda: ScatterDataShard(np.ones(3), batch_size=0), ValueError, "batch_size must be at least 1"),
        (lambda: ScatterDataShard({"data": np.ones(3)}), TypeError, "received dict"),
        (lambda: ScatterDataShard(None), TypeError, "received NoneType"),
        (lambda: ScatterDataShard(ScatterDataShard(np.ones(3))), ValueError, "already a shard"),
        (lambda: ScatterDataShard(mx.io.NDArrayIter(np.ones(3)), batch_size=2), ValueError, "has its own labels"),
        (
            lambda: ScatterDataShard(gluon.data.DataLoader(gluon.data.ArrayDataset(np.ones(3)), 1)),
            TypeError,
            r"DataLoader\(ScatterDataShard\(dataset\), batch_size\)",
        ),
        (lambda: PartIter(mx.io.NDArrayIter(np.ones((6, 1)), None, 3), 0, 2), mx.MXNetError, "a multiple of 2"),
    ],
)
def test_shard_rejects_what_it_cannot_divide(call, kind, words):
    with pytest.raises(kind, match=words):
        call()


def test_module_says_what_a_shard_lacks():
    module = mx.mod.Module(
        mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.var("data"), num_hidden=2), name="softmax")
    )
    with pytest.raises(ValueError, match=r"expects data, softmax_label, but a sample of the shard has 3 array"):
        module.fit(ScatterDataShard((np.ones((4, 2)), np.ones(4)), np.ones(4)), num_epoch=1)
    with pytest.raises(ValueError, match="the dataset of the shard is empty"):
        module.fit(ScatterDataShard(np.ones((0, 2)), np.ones(0)), num_epoch=1)
