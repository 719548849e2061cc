"""One worker of tests/kvstore/test_kvstore.py, started by `neomx run`: runs all programs, one after the other.

Results are written to FOLDER/RANK.npz as "program|name", exceptions as "program|error".
"""

import os
import pathlib
import shutil
import sys
import tempfile
import traceback
import warnings

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import neomx as mx
from neomx.comm.session import session
from parity.kvstore_programs import PROGRAMS, row_sparse, rows, values
from parity.spec import outcome, plain


def sparse_sums(kv, rank, size):
    """Without an optimizer, the sum of row-sparse arrays replaces the stored array."""
    shape, seen = (8, 3), {}
    kv.init("e", values(mx, shape, 1).tostype("row_sparse"))
    kv.push("e", row_sparse(mx, shape, [rank, 5], 2, rank))
    seen["ids"], seen["rows"] = rows(mx, kv, "e", [0, 1, 5], shape)
    dense = sum(row_sparse(mx, shape, [r, 5], 2, r).asnumpy() for r in range(size))
    seen["expected"] = dense[[0, 1, 5]]
    return seen


def one_bit(kv, rank, size):
    """Compare 1bit compression with its definition, for all workers."""
    kv.set_gradient_compression({"type": "1bit", "threshold": 0.2})
    kv.init(1, mx.nd.zeros((19,)))
    residuals, seen, out = np.zeros((size, 19), "float32"), {}, mx.nd.zeros((19,))
    for turn in range(4):
        gradients = np.stack([values(mx, (19,), turn, r).asnumpy() for r in range(size)])
        residuals += gradients
        sent = np.where(residuals > np.float32(0.2), 1, -1).astype("float32")
        residuals -= sent
        kv.push(1, mx.nd.array(gradients[rank]))
        kv.pull(1, out=out)
        seen[f"{turn}"], seen[f"{turn} expected"] = out.asnumpy(), sent.sum(0)
    return seen


def half_way(kv, rank, size):
    """fp16 messages with float32 sums; also float64, and pushpull."""
    kv.set_gradient_compression({"type": "fp16"})
    kv.init([1, 2], [mx.nd.zeros((5,)), mx.nd.zeros((3,), dtype="float64")])
    outs = [mx.nd.zeros((5,)), mx.nd.zeros((3,), dtype="float64")]
    kv.pushpull([1, 2], [values(mx, (5,), rank), values(mx, (3,), rank, dtype="float64")], out=outs)
    half = [sum(values(mx, (5,), r).asnumpy().astype("float16").astype("float32") for r in range(size))]
    half += [
        sum(values(mx, (3,), r, dtype="float64").asnumpy().astype("float16").astype("float64") for r in range(size))
    ]
    return {"0": outs[0], "0 expected": half[0], "1": outs[1], "1 expected": half[1]}


def repeated(kv, rank, size):
    """Consecutive pushes, without a pull or a barrier in between, are rounds in this order."""
    kv.init("a", mx.nd.zeros((3,)))
    kv._set_updater(lambda key, gradient, stored: stored.__imul__(2).__iadd__(gradient))
    for turn in range(4):
        kv.push("a", mx.nd.ones((3,)) * (rank + 1) * (turn + 1))
    out, expected, each = mx.nd.zeros((3,)), 0, size * (size + 1) / 2
    kv.pull("a", out=out)
    for turn in range(4):
        expected = expected * 2 + each * (turn + 1)
    return {"": out, " expected": np.full((3,), expected, "float32")}


def integers(kv, rank, size):
    """Sums of integers, which MXNet's servers reject."""
    seen = {}
    for key, dtype in enumerate(["int32", "int64", "int8", "uint8"]):
        kv.init(key, mx.nd.zeros((3,), dtype=dtype))
        out = mx.nd.zeros((3,), dtype=dtype)
        kv.pushpull(key, mx.nd.array([rank, 1, 2], dtype=dtype), out=out)
        seen[dtype] = out
        seen[dtype + " expected"] = np.array([size * (size - 1) // 2, size, 2 * size], dtype)
    return seen


def states(kv, rank, size):
    """After saving and loading its states, the optimizer continues unchanged."""
    name = os.path.join(tempfile.mkdtemp(), "states")

    def train(store, turns):
        for turn in turns:
            store.push(["a", "b"], [values(mx, (4,), turn, rank), values(mx, (2,), turn, rank)])

    def fresh():
        store = mx.kv.create("dist_sync")
        store.init(["a", "b"], [mx.nd.ones((4,)), mx.nd.ones((2,))])
        store.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
        return store

    whole, before = fresh(), fresh()
    train(whole, range(5))
    train(before, range(3))
    before.save_optimizer_states(name, dump_optimizer=True)
    middle = mx.nd.zeros((4,)), mx.nd.zeros((2,))
    before.pull(["a", "b"], out=list(middle))
    after = mx.kv.create("dist_sync")
    after.init(["a", "b"], list(middle))
    after.set_optimizer(mx.optimizer.Adam(learning_rate=0.1))
    after.load_optimizer_states(name)
    shutil.rmtree(os.path.dirname(name))
    train(after, range(3, 5))
    outs = mx.nd.zeros((4,)), mx.nd.zeros((4,))
    after.pull("a", out=outs[0])
    whole.pull("a", out=outs[1])
    return {"": outs[0], " expected": outs[1]}


def many_small(kv, rank, size):
    """A thousand keys in one call need few exchanges."""
    names = [f"k{i}" for i in range(1000)]
    arrays = [mx.nd.ones((3,)) * (rank + i) for i in range(1000)]
    kv.init(names, arrays)
    calls = 0
    if size > 1:
        reduce = kv.group.all_reduce_

        def counted(*args, **kwargs):
            nonlocal calls
            calls += 1
            return reduce(*args, **kwargs)

        kv.group.all_reduce_ = counted
    outs = [mx.nd.zeros((3,)) for _ in names]
    kv.pushpull(names, arrays, out=outs)
    if size > 1:
        del kv.group.all_reduce_
    expected = [size * i + size * (size - 1) / 2 for i in range(1000)]
    return {
        "": np.stack([out.asnumpy()[0] for out in outs]),
        " expected": np.array(expected, "float32"),
        "calls": calls,
        "calls expected": int(size > 1),
    }


def names(kv, rank, size):
    """Every synchronous name sums; asynchronous ones raise an error about servers."""
    seen = {"dead": kv.get_num_dead_node(6), "dead expected": 0}
    for name in ["dist", "dist_device_sync", "dist_sync_device", "p3store_dist", "horovod", "byteps", "DIST_SYNC"]:
        store = mx.kv.create(name)
        out = mx.nd.zeros((1,))
        store.broadcast(0, mx.nd.ones((1,)) * rank, out=out)
        store.pushpull(0, mx.nd.ones((1,)), out=out)
        seen[name], seen[name + " expected"] = out, np.array([size], "float32")
    for name in ["dist_async", "dist_stale"]:
        seen[name], seen[name + " expected"] = str(outcome(lambda: mx.kv.create(name))), "raises MXNetError"  # noqa: B023
    return seen


def compressed_training(kv, rank, size):
    """A Trainer with compression trains and keeps the weights of all workers equal."""
    net = mx.gluon.nn.Dense(1, in_units=4)
    net.initialize()
    net.weight.set_data(values(mx, (1, 4), rank))
    settings = {"compression_params": {"type": "2bit", "threshold": 0.1}}
    trainer = mx.gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5}, kvstore=kv, **settings)
    x = values(mx, (32, 4), rank, 7)
    y = mx.nd.dot(x, mx.nd.array([[1], [-2], [0.5], [3]]))
    losses = []
    for _ in range(60):
        with mx.autograd.record():
            loss = ((net(x) - y) ** 2).mean()
        loss.backward()
        trainer.step(size)
        losses.append(float(loss.asscalar()))
    weight = net.weight.data()
    first = mx.nd.zeros(weight.shape)
    mx.kv.create("dist_sync").broadcast("w", weight, out=first)
    return {"": weight, " expected": first, "learnt": losses[-1] < losses[0] / 10, "learnt expected": True}


def disagreement(kv, rank, size):
    """One worker pushes another key: all workers raise. Runs last, as the workers cannot continue afterwards."""
    kv.init(["a", "b"], [mx.nd.ones((2,)), mx.nd.ones((2,))])
    name = "b" if rank == 1 else "a"
    try:
        kv.push(name, mx.nd.ones((2,)))
    except mx.MXNetError as error:
        told = all(word in str(error) for word in ("'a' (2,)", "'b' (2,)", "worker 0", "worker 1"))
        return {"told": told or str(error), "told expected": True}
    return {"told": size == 1, "told expected": True}


OWN = [
    *(sparse_sums, one_bit, half_way, repeated, integers, states, many_small, names, compressed_training),
    disagreement,
]


def main(folder):
    """Run all programs as this worker."""
    size, rank, results = session().world.size, session().world.rank, {}
    for name, program in PROGRAMS.items():
        if size in program.workers:
            results.update(attempt(name, lambda: program.run(mx)[1]))  # noqa: B023
    for program in [] if session().world.servers else OWN:
        kv = mx.kv.create("dist_sync")
        results.update(attempt(program.__name__, lambda: program(kv, rank, size)))  # noqa: B023
    np.savez(str(pathlib.Path(folder) / f"{rank}.npz"), **results)


def attempt(name, call):
    try:
        return {f"{name}|{key}": plain(value) for key, value in call().items()}
    except Exception:
        return {name + "|error": np.array(traceback.format_exc())}


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(sys.argv[1])
