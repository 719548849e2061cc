"""Every call of Horovod's API on two workers, compared with computed values. Written as for Horovod and MXNet."""

import json
import os
import shutil
import tempfile

import horovod.mxnet as hvd
import horovod_training
import mxnet as mx
import numpy as np
from mxnet import nd


def raises(kind, words, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except kind as error:
        assert words in str(error), (words, str(error))
    else:
        raise AssertionError(f"{call} raised nothing")


def mine(*shape, dtype="float32"):
    """An array with known values on every worker: 1, 2, ... on worker 0, twice that on worker 1."""
    return nd.arange(1, 1 + int(np.prod(shape)), dtype=dtype).reshape(shape) * (hvd.rank() + 1)


def same(array, expected, dtype=None):
    np.testing.assert_array_equal(array.asnumpy(), expected)
    assert dtype is None or array.dtype == np.dtype(dtype), (array.dtype, dtype)


def place():
    assert hvd.is_initialized()
    assert (hvd.size(), hvd.local_size(), hvd.cross_size()) == (2, 2, 1)
    assert hvd.rank() == hvd.local_rank() and hvd.cross_rank() == 0
    assert hvd.is_homogeneous() is True


def allreduce():
    one = np.arange(1, 7).reshape(2, 3)
    for dtype in ("float16", "float32", "float64", "uint8", "int8", "int32", "int64"):
        given = mine(2, 3, dtype=dtype)
        same(hvd.allreduce(given, average=False), 3 * one, dtype)
        same(given, one * (hvd.rank() + 1))  # not in place
        average = 1.5 * one
        same(hvd.allreduce(given), average if "float" in dtype else average.astype(dtype), dtype)
    same(hvd.allreduce(mine(2, 3), True, "named", -3), 1.5 * one)
    same(hvd.allreduce(mine(2, 3), op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), 6 * one)
    same(hvd.allreduce(mine(2, 3), op=hvd.Average, prescale_factor=0.5, postscale_factor=4.0), 3 * one)
    same(hvd.allreduce(mine(2, 3, dtype="int32"), average=False, postscale_factor=0.5), 3 * one // 2)
    same(hvd.allreduce(mine(2, 3), op=hvd.Min), one)
    same(hvd.allreduce(mine(2, 3), op=hvd.Max), 2 * one)
    same(hvd.allreduce(mine(2, 3), op=hvd.Product), 2 * one * one)
    given = mine(2, 3)
    assert hvd.allreduce_(given, average=False) is given
    same(given, 3 * one)
    same(hvd.allreduce(mine(4, 3)[1:3], average=False), 3 * np.arange(4, 10).reshape(2, 3))  # a view
    half = mine(3)[1:]
    hvd.allreduce_(half)
    same(half, [3, 4.5])


def grouped_allreduce():
    given = [mine(2, 3), mine(4, dtype="float64"), mine(1), mine(3, dtype="int32")]
    found = hvd.grouped_allreduce(given, average=False, name="group")
    for array, each in zip(found, given, strict=True):
        same(array, 3 * each.asnumpy() // (hvd.rank() + 1), each.dtype)
    assert hvd.grouped_allreduce_(given, op=hvd.Max)[0] is given[0]
    same(given[1], [2, 4, 6, 8])
    same(given[3], [2, 4, 6])


def allgather():
    same(hvd.allgather(mine(2, 2)), [[1, 2], [3, 4], [2, 4], [6, 8]])
    same(hvd.allgather(mine(1 + hvd.rank(), 2), name="rows"), [[1, 2], [2, 4], [6, 8]])
    found = hvd.grouped_allgather([mine(1), mine(2 - hvd.rank(), dtype="int64")])
    same(found[0], [1, 2])
    same(found[1], [1, 2, 2], "int64")


def broadcast():
    for root in range(2):
        given = mine(2, 3)
        same(hvd.broadcast(given, root), np.arange(1, 7).reshape(2, 3) * (root + 1))
        same(given, np.arange(1, 7).reshape(2, 3) * (hvd.rank() + 1))
        assert hvd.broadcast_(given, root_rank=root, name="b", priority=1) is given
        same(given, np.arange(1, 7).reshape(2, 3) * (root + 1))
    raises(ValueError, "root_rank must be one of the workers [0, 1], received 2", hvd.broadcast, mine(1), 2)


def alltoall():
    same(hvd.alltoall(mine(2, 2)), [[1, 2], [2, 4]] if hvd.rank() == 0 else [[3, 4], [6, 8]])
    splits = [1, 2] if hvd.rank() == 0 else [3, 0]  # rows to worker 0, rows to worker 1
    rows, received = hvd.alltoall(mine(3), splits=nd.array(splits, dtype="int32"))
    same(rows, [1, 2, 4, 6] if hvd.rank() == 0 else [2, 3])
    same(received, [1, 3] if hvd.rank() == 0 else [2, 0], "int32")
    raises(ValueError, "splits must be 2 row counts", hvd.alltoall, mine(3), splits=[1, 1])


def reducescatter():
    same(hvd.reducescatter(mine(4), op=hvd.Sum), [3, 6] if hvd.rank() == 0 else [9, 12])
    same(hvd.reducescatter(mine(3)), [1.5, 3] if hvd.rank() == 0 else [4.5])  # the first has one row more
    found = hvd.grouped_reducescatter([mine(2), mine(2, 2)], op=hvd.Sum, postscale_factor=2.0)
    same(found[1], [[6, 12]] if hvd.rank() == 0 else [[18, 24]])


def objects():
    sent = {"epoch": 3, 7: (1.5, None, [True, "ö"])} if hvd.rank() == 1 else None
    assert hvd.broadcast_object(sent, root_rank=1) == {"epoch": 3, 7: (1.5, None, [True, "ö"])}
    assert hvd.allgather_object((hvd.rank(), "x" * hvd.rank())) == [(0, ""), (1, "x")]
    raises(TypeError, "cannot send", hvd.allgather_object, object())


def parameters():
    arrays = {"b": mine(3), "a": mine(2, dtype="float64")}
    hvd.broadcast_parameters(arrays, root_rank=1)
    same(arrays["b"], [2, 4, 6])
    same(arrays["a"], [2, 4])

    mx.random.seed(hvd.rank())
    net = mx.gluon.nn.HybridSequential()
    net.add(mx.gluon.nn.Conv2D(3, 3), mx.gluon.nn.Dense(2, in_units=12), mx.gluon.nn.Dense(1))
    net.initialize(mx.init.Xavier(), ctx=[mx.cpu(0), mx.cpu(1)])
    hvd.broadcast_parameters(net.collect_params(), root_rank=0)  # the shape of one layer is known, those of two are not
    net(nd.ones((1, 1, 4, 4)))
    for param in net.collect_params().values():
        for replica in param.list_data():
            same(hvd.allreduce(replica, op=hvd.Min), replica.asnumpy())
            same(hvd.allreduce(replica, op=hvd.Max), replica.asnumpy())
    assert net[0].weight.data(mx.cpu(0)).asnumpy().std() > 0


def process_sets():
    both, first = hvd.add_process_set([0, 1]), hvd.ProcessSet([0])
    hvd.add_process_set(first)
    assert (both.size(), both.rank(), both.included(), first.included()) == (2, hvd.rank(), True, hvd.rank() == 0)
    same(hvd.allreduce(mine(2), average=False, process_set=both), [3, 6])
    same(hvd.broadcast(mine(2), 1, process_set=both), [2, 4])
    same(hvd.allgather(mine(1), process_set=both), [1, 2])
    if first.included():
        same(hvd.allreduce(mine(2), process_set=first), [1, 2])
    else:
        raises(ValueError, "this worker is not in it", hvd.allreduce, mine(2), process_set=first)
    assert hvd.remove_process_set(both) and not hvd.remove_process_set(both)
    raises(ValueError, "add_process_set first", hvd.allreduce, mine(2), process_set=both)
    same(hvd.allreduce(mine(2), process_set=hvd.global_process_set), [1.5, 3])


def join():
    if hvd.rank() == 0:  # a joined worker counts as zero in sums, and in averages over all
        same(hvd.allreduce(mine(2), average=False, name="alone"), [1, 2])
        same(hvd.grouped_allreduce([mine(2), mine(3, dtype="int64")])[0], [0.5, 1])
    assert hvd.join() == 0  # the last one that joined
    if hvd.rank() == 0:
        raises(hvd_error(), "while some workers have joined, here [1]", hvd.allgather, mine(2))
    else:
        raises(hvd_error(), "while some workers have joined, here [1]", hvd.join)
    if hvd.rank() == 1:  # it gets this sum when the other has joined
        same(hvd.allreduce(mine(2), average=False), [2, 4])
    assert hvd.join() == 1


def hvd_error():
    return mx.base.MXNetError


def timeline():
    path = os.path.join(tempfile.mkdtemp(), f"trace-{hvd.rank()}.json")
    hvd.start_timeline(path)
    net = mx.gluon.nn.Dense(1, in_units=2)
    net.initialize()
    trainer = hvd.DistributedTrainer(net.collect_params(), "sgd")
    with mx.autograd.record():
        loss = net(nd.ones((1, 2)))
    loss.backward()
    trainer.step(1)
    hvd.allreduce(mine(2), name="seen")
    hvd.stop_timeline()
    assert os.path.exists(path) == (hvd.rank() == 0)
    if hvd.rank() == 0:
        with open(path) as file:
            slices = json.load(file)["traceEvents"]
        names = ["waiting for gradients", "gradients", "waiting for allreduce of seen", "allreduce of seen"]
        assert [each["name"] for each in slices] == names
        assert all(each["dur"] >= 0 and each["ph"] == "X" for each in slices)
    shutil.rmtree(os.path.dirname(path))


def different_calls():
    """Leaves the communication of the workers broken."""
    call = hvd.allreduce if hvd.rank() == 0 else hvd.allgather
    raises(hvd_error(), "the workers must make the same calls in the same order", call, mine(2))


def shutdown():
    hvd.shutdown()
    assert not hvd.is_initialized()
    raises(ValueError, "Call hvd.init() first", hvd.rank)
    hvd.init()
    same(hvd.allreduce(mx.nd.ones(2), average=False), 2 * [hvd.size()])


CHECKS = [place, allreduce, grouped_allreduce, allgather, broadcast, alltoall, reducescatter, objects, parameters]
CHECKS += [process_sets, join, timeline, different_calls, shutdown]

if __name__ == "__main__":
    hvd.init()
    hvd.init()  # once is enough, twice does no harm
    rank = hvd.rank()
    horovod_training.main()
    for check in CHECKS:
        check()
    print(f"worker {rank} passed {len(CHECKS)}", flush=True)
