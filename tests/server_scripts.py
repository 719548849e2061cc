"""The workers of test_server.py and test_hostile.py: one function per job."""

from __future__ import annotations

import contextlib
import os
import time

import numpy as np
import torch
from launching import LIMIT, until

import neomx as mx
from neomx.comm.session import session
from neomx.comm.store import PeerError
from neomx.kvstore.remote import RemoteStore
from parity.kvstore_programs import PROGRAMS
from parity.spec import plain

WORKERS = int(os.environ["WORLD_SIZE"])
RANK = int(os.environ["RANK"])
SHAPES = {"small": (7, 3), "bias": (5,), "rows": (40, 50), "flat": (3, 700), "more": (64, 16)}
SPLIT_ABOVE = "1000"  # elements: "rows" and "flat" and "more" are split over two servers


@contextlib.contextmanager
def raises(kind, *words):
    try:
        yield
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        assert not missing, f"{missing} not in: {error}"
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def gradients(step, rank, shapes=SHAPES, dtype="float32"):
    """Return a worker's gradients in a step; every worker can compute those of all others."""
    random = np.random.RandomState(1000 * step + rank)
    return {key: random.uniform(-1, 1, shape).astype(dtype) for key, shape in shapes.items()}


def first_values(shapes=SHAPES):
    random = np.random.RandomState(7)
    return {key: random.uniform(-1, 1, shape).astype("float32") for key, shape in shapes.items()}


def made(name, **settings):
    kv = RemoteStore(name, **settings)
    for key, value in first_values().items():
        kv.init(key, mx.nd.array(value))
    return kv


def pulled(kv, shapes=SHAPES, dtype="float32"):
    outs = {key: mx.nd.zeros(shape, dtype=dtype) for key, shape in shapes.items()}
    kv.pull(list(outs), list(outs.values()))
    return {key: out.asnumpy() for key, out in outs.items()}


# ---- semantics of a synchronous store ----


def contract(argument):
    os.environ["MXNET_KVSTORE_BIGARRAY_BOUND"] = SPLIT_ABOVE
    sums()
    kinds_of_arrays()
    rows()
    mistakes()
    compressed()
    for name, settings in (
        ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01}),
        ("adam", {"learning_rate": 0.01, "wd": 0.01}),
        ("lamb", {"learning_rate": 0.01, "wd": 0.01}),
    ):
        updates(name, settings)
    staleness_zero_is_synchronous()
    optimizer_after_init()
    states(argument)
    last = RemoteStore("dist_sync")
    last.barrier()
    assert last.get_num_dead_node(6) == 0


def sums():
    kv = made("dist_sync")
    assert (kv.rank, kv.num_workers, kv.type) == (RANK, WORKERS, "dist_sync")
    for key, value in first_values().items():
        np.testing.assert_array_equal(pulled(kv)[key], value)  # the values of worker 0
    split = {key: len(spec.segments) for key, spec in kv._specs.items()}
    assert split == {"small": 1, "bias": 1, "rows": 2, "flat": 2, "more": 2}, split
    assert [segment[1:] for segment in kv._specs["flat"].segments] == [(0, 700), (700, 2100)]  # whole rows
    places = {kv._specs[key].segments[0].server for key in ("small", "bias")}
    assert places == {0, 1}
    for step in range(3):
        mine = gradients(step, RANK)
        kv.push(list(mine), [mx.nd.array(value) for value in mine.values()])
        expected = {key: sum(gradients(step, rank)[key] for rank in range(WORKERS)) for key in SHAPES}
        for key, value in pulled(kv).items():
            np.testing.assert_array_equal(value, expected[key])
    for step in range(5):  # pushes without a pull
        kv.push("small", mx.nd.ones(SHAPES["small"]) * step)
    np.testing.assert_array_equal(pulled(kv)["small"], np.full(SHAPES["small"], 4.0 * WORKERS))
    two = [mx.nd.ones(SHAPES["bias"]), mx.nd.ones(SHAPES["bias"]) * 2]  # from two contexts
    out = mx.nd.zeros(SHAPES["bias"])
    kv.pushpull("bias", two, out=out)
    np.testing.assert_array_equal(out.asnumpy(), np.full(SHAPES["bias"], 3.0 * WORKERS))


def kinds_of_arrays():
    kv = RemoteStore("dist_sync")
    for key, dtype in enumerate(["float16", "float64", "int32", "uint8", "int64"]):
        out = mx.nd.zeros((60, 30), dtype=dtype)
        kv.broadcast(key, mx.nd.ones((60, 30), dtype=dtype), out=out)
        assert (out.asnumpy() == 1).all() and out.dtype == np.dtype(dtype)
        kv.push(key, mx.nd.ones((60, 30), dtype=dtype) * (RANK + 2))
        kv.pull(key, out=out)
        assert (out.asnumpy() == sum(range(2, WORKERS + 2))).all(), out
    transposed = mx.nd.NDArray(torch.arange(1800.0).reshape(30, 60).t())
    kv.init(10, transposed)
    kv.push(10, transposed)
    back = mx.nd.NDArray(torch.zeros(30, 60).t())
    kv.pull(10, out=back)
    np.testing.assert_array_equal(back.asnumpy(), WORKERS * transposed.asnumpy())


def rows():
    kv = RemoteStore("dist_sync")
    table = np.random.RandomState(3).uniform(-1, 1, (100, 20)).astype("float32")
    kv.init("table", mx.nd.array(table).tostype("row_sparse"))
    out = mx.nd.sparse.zeros("row_sparse", (100, 20))
    kv.row_sparse_pull("table", out=out, row_ids=mx.nd.array([70, 3, 3, 49, 50]))
    assert out.indices.asnumpy().tolist() == [3, 49, 50, 70]
    np.testing.assert_array_equal(out.data.asnumpy(), table[[3, 49, 50, 70]])
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    updater = mx.optimizer.get_updater(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    alone = mx.nd.array(table)
    for step in range(3):
        dense = np.zeros((WORKERS, 100, 20), dtype="float32")
        for rank in range(WORKERS):
            dense[rank, [5 + rank, 50 + step, 99]] = 1 + rank + step
        pushed = mx.nd.array(dense[RANK]).tostype("row_sparse")
        kv.push("table", pushed)
        updater("table", mx.nd.array(dense.sum(0)).tostype("row_sparse"), alone)
        kv.row_sparse_pull("table", out=out, row_ids=mx.nd.arange(100))
        np.testing.assert_array_equal(out.asnumpy(), alone.asnumpy())
    kv.push("table", mx.nd.zeros((100, 20)) if RANK else pushed)  # dense from one worker, rows from the other
    updater("table", mx.nd.array(dense[0]), alone)
    whole = mx.nd.zeros((100, 20))
    kv.pull("table", out=whole)
    np.testing.assert_allclose(whole.asnumpy(), alone.asnumpy(), rtol=1e-6, atol=1e-6)


def mistakes():
    kv = RemoteStore("dist_sync")
    kv.init("a", mx.nd.ones((2, 2)))
    with raises(mx.base.MXNetError, "a", "duplicate init"):
        kv.init("a", mx.nd.ones((2, 2)))
    kv.init([3, "3"], [mx.nd.ones((2, 2)), mx.nd.zeros((2, 2))])  # integers and strings are different keys
    with raises(mx.base.MXNetError, "b", "not been initialized"):
        kv.push("b", mx.nd.ones((2, 2)))
    with raises(mx.base.MXNetError, "(2, 2)", "(4,)"):
        kv.push("a", mx.nd.ones((4,)))
    with raises(mx.base.MXNetError, "float16", "float32"):
        kv.push("a", mx.nd.ones((2, 2), dtype="float16"))
    with raises(mx.base.MXNetError, "servers", "update_on_kvstore"):
        kv.set_updater(lambda key, grad, weight: None)
    lone = RemoteStore("dist_async")
    lone.init("a", mx.nd.ones((2, 2)))
    with raises(mx.base.MXNetError, "set_optimizer"):
        lone.push("a", mx.nd.ones((2, 2)))

    @mx.optimizer.register
    class HomeMade(mx.optimizer.SGD):
        pass

    with raises(mx.base.MXNetError, "HomeMade", "update_on_kvstore=False"):
        kv.set_optimizer(HomeMade())
    with raises(AssertionError, "no optimizer"):
        kv.save_optimizer_states("nowhere")
    if RANK:  # worker 1 uses the same key for another array
        with raises(mx.base.MXNetError, "'c'", "(3,)", "(4,)", "worker 1"):
            kv.init("c", mx.nd.ones((4,)))
    else:
        kv.init("c", mx.nd.ones((3,)))
    kv.push("a", mx.nd.ones((2, 2)))  # the store still works
    out = mx.nd.zeros((2, 2))
    kv.pull("a", out)
    assert (out.asnumpy() == WORKERS).all()


def compressed():
    for params, expected in (({"type": "2bit", "threshold": 0.5}, [0.0, 0.5, 0.5]), ({"type": "fp16"}, [0.375] * 3)):
        kv = RemoteStore("dist_sync")
        kv.set_gradient_compression(params)
        kv.init([1, 2], [mx.nd.zeros((3,)), mx.nd.zeros((50, 40))])
        for value in expected:  # 0.375 three times: the residual is sent when it reaches the threshold
            for key, shape in ((1, (3,)), (2, (50, 40))):
                out = mx.nd.zeros(shape)
                kv.pushpull(key, mx.nd.full(shape, 0.375), out=out)
                np.testing.assert_array_equal(out.asnumpy(), np.full(shape, value * WORKERS, dtype="float32"))


# ---- results of one process ----


def changed(optimizer, step):
    """Change settings during training; the servers must apply them too."""
    optimizer.rescale_grad = 1 / (4 + step)
    if step == 5:
        optimizer.set_learning_rate(0.02)
        optimizer.wd = 0.1
    if step == 8:
        optimizer.set_lr_mult({"bias": 0.5})
        optimizer.set_wd_mult({"rows": 0.0})


def one_process(name, settings, steps):
    optimizer = mx.optimizer.create(name, **settings)
    updater = mx.optimizer.get_updater(optimizer)
    weights = {key: mx.nd.array(value) for key, value in first_values().items()}
    for step in range(steps):
        changed(optimizer, step)
        every = [gradients(step, rank) for rank in range(WORKERS)]
        total = {key: mx.nd.array(sum(each[key] for each in every)) for key in SHAPES}
        updater(list(weights), list(total.values()), list(weights.values()))
    return {key: weight.asnumpy() for key, weight in weights.items()}, updater


def exchange(kv, step):
    """Run a step as a Trainer does: some gradients early, a commit, then the weights."""
    mine = {key: torch.from_numpy(value) for key, value in gradients(step, RANK).items()}
    late, early = list(mine)[:2], list(mine)[2:]
    kv.exchange_push(early, [mine[key] for key in early])
    kv.exchange_push(late, [torch.ones_like(mine[key]) for key in late])  # the program changes these gradients
    kv.exchange_push(late, [mine[key].reshape(-1) for key in late])
    kv.exchange_commit(list(mine))
    outs = {key: torch.empty(shape) for key, shape in SHAPES.items()}
    kv.exchange_pull(list(outs), [out if key in early else out.view(-1) for key, out in outs.items()])
    return {key: out.numpy() for key, out in outs.items()}


def updates(name, settings, steps=20):
    expected, _ = one_process(name, settings, steps)
    by_keys, by_exchange = RemoteStore("dist_sync"), RemoteStore("dist_device_sync")
    optimizers = []
    for kv in (by_keys, by_exchange):
        optimizers.append(mx.optimizer.create(name, **settings))
        kv.set_optimizer(optimizers[-1])
        kv.init(list(SHAPES), [mx.nd.array(value) for value in first_values().values()])
    for step in range(steps):
        for optimizer in optimizers:
            changed(optimizer, step)
        for key, value in gradients(step, RANK).items():
            by_keys.push(key, mx.nd.array(value))
        exchanged = exchange(by_exchange, step)
    for key, value in pulled(by_keys).items():
        # Pieces start at other offsets within a kernel's vectors than the whole array: the last bit may differ.
        np.testing.assert_allclose(value, expected[key], rtol=2e-6, atol=2e-7, err_msg=f"{name} {key}")
        np.testing.assert_array_equal(value, exchanged[key])


def staleness_zero_is_synchronous():
    weights = []
    for kv in (made("dist_sync"), made("dist_stale", staleness=0)):
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
        for step in range(5):
            now = exchange(kv, step)
        weights.append(now)
    for key in SHAPES:
        np.testing.assert_array_equal(weights[0][key], weights[1][key])


def optimizer_after_init():
    """Set an optimizer of whole weights after arrays were split."""
    kv = made("dist_sync")
    optimizer = mx.optimizer.LAMB(learning_rate=0.01)
    kv.set_optimizer(optimizer)
    assert {len(spec.segments) for spec in kv._specs.values()} == {1}
    alone = mx.optimizer.get_updater(mx.optimizer.LAMB(learning_rate=0.01))
    weights = {key: mx.nd.array(value) for key, value in first_values().items()}
    for step in range(3):
        after = exchange(kv, step)
        for key, weight in weights.items():
            alone(key, mx.nd.array(sum(gradients(step, rank)[key] for rank in range(WORKERS))), weight)
    for key, weight in weights.items():
        np.testing.assert_allclose(after[key], weight.asnumpy(), rtol=1e-6)


def states(folder):
    schedule = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)
    settings = {"learning_rate": 0.1, "lr_scheduler": schedule, "beta1": 0.8}
    kv = made("dist_sync")
    kv.set_optimizer(mx.optimizer.Adam(**settings))
    for step in range(4):
        exchange(kv, step)
    if RANK == 0:
        kv.save_optimizer_states(f"{folder}/states", dump_optimizer=True)
    kv.barrier()
    values = pulled(kv)
    other = RemoteStore("dist_sync")
    other.set_optimizer(mx.optimizer.Adam())
    other.init(list(values), [mx.nd.array(value) for value in values.values()])
    other.load_optimizer_states(f"{folder}/states")
    assert other._updater.optimizer.beta1 == 0.8
    # The file equals that of one process: its updater can resume from it.
    alone = mx.optimizer.get_updater(mx.optimizer.Adam()).restored(f"{folder}/states", {})
    assert alone.states["rows"][0].shape == SHAPES["rows"]
    weights = {key: mx.nd.array(value) for key, value in values.items()}
    for step in range(4, 8):
        one, two = exchange(kv, step), exchange(other, step)
        total = [mx.nd.array(sum(gradients(step, rank)[key] for rank in range(WORKERS))) for key in SHAPES]
        alone(list(weights), total, list(weights.values()))
    for key in SHAPES:
        np.testing.assert_array_equal(one[key], two[key])
        np.testing.assert_allclose(one[key], weights[key].asnumpy(), rtol=1e-5, atol=1e-6)


# ---- asynchronous stores ----


def slope(weight, random):
    """Return the gradient of the squared error of `inputs @ weight` for weights (1, 2, ..., 8), on a random batch."""
    inputs = random.uniform(-1, 1, (32, 8)).astype("float32")
    return inputs.T @ (inputs @ weight - inputs @ np.arange(1.0, 9.0, dtype="float32")) / 32


def learn(kv, steps, random, pause=0.0):
    weight = mx.nd.zeros((8,))
    kv.pull("w", weight)
    for _ in range(steps):
        kv.push("w", mx.nd.array(slope(weight.asnumpy(), random)))
        kv.pull("w", weight)
        time.sleep(pause)
    return weight.asnumpy()


def tell(what):
    print(what, flush=True)


def told(kv, what):
    kv._store.get(what, timeout=LIMIT)


def without_rounds(argument):
    """Worker 1 is slow, then dies; worker 2 starts late. The others continue."""
    for kv in (RemoteStore("dist_async"), RemoteStore("dist_stale", staleness=2)):
        kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.2))
        kv.init("w", mx.nd.zeros((8,)))
        if RANK < 2:
            learn(kv, 20, np.random.RandomState(RANK), pause=0.01 * RANK)
        learned = learn(kv, 60, np.random.RandomState(RANK))
        np.testing.assert_allclose(learned, np.arange(1, 9), atol=0.3)
    bounded(kv)


def bounded(kv):
    """`kv` has a staleness of at most 2: worker 0 runs until it must wait for worker 1."""
    kv.init("x", mx.nd.zeros((1,)))
    out = mx.nd.zeros((1,))
    if RANK == 1:
        tell("ready")
        told(kv, "die")
        os._exit(9)
    for _ in range(2):
        kv.push("x", mx.nd.ones((1,)))
        kv.pull("x", out)
    kv.push("x", mx.nd.ones((1,)))
    began = time.monotonic()
    tell("three ahead")
    kv.pull("x", out)  # worker 1 has pushed nothing: this returns when it dies
    tell(f"went on after {time.monotonic() - began:.2f} s")
    for _ in range(3):
        kv.pushpull("x", mx.nd.ones((1,)), out=out)
    tell("alone")
    told(kv, "again")
    kv.barrier()


def back_again(argument):
    """Worker 1 is restarted and joins the running job."""
    RemoteStore("dist_async")
    kv = RemoteStore("dist_stale", staleness=2)
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.2))
    kv.init("w", mx.nd.ones((8,)))
    weight = mx.nd.zeros((8,))
    kv.pull("w", weight)
    np.testing.assert_allclose(weight.asnumpy(), np.arange(1, 9), atol=0.3)
    kv.push("w", mx.nd.zeros((8,)))
    kv.pull("w", weight)
    tell("joined")
    told(kv, "again")
    kv.barrier()


# ---- faults ----


def faults(argument):
    """Worker 1 is stopped, then killed; then server 1 is killed. Worker 0 reports what it observes."""
    tell("here")
    session().store.get("begin", timeout=LIMIT)
    kv = RemoteStore("dist_sync")
    kv.init(["a", "b"], [mx.nd.zeros((4,)), mx.nd.zeros((4,))])
    out = mx.nd.zeros((4,))
    kv.pushpull("a", mx.nd.ones((4,)), out=out)
    second = RemoteStore("dist_sync")
    second.init("c", mx.nd.zeros((4,)))
    tell("ready")
    told(kv, "stopped")
    if RANK:
        time.sleep(3600)
    seen = watch(lambda: kv.pushpull("a", mx.nd.ones((4,)), out=out))
    assert "worker 1" in seen and "'a'" in seen and "round 2" in seen and "heard" in seen, seen
    tell("stopped was seen")
    told(kv, "killed")
    seen = watch(lambda: second.pushpull("c", mx.nd.ones((4,)), out=out))
    assert "worker 1" in seen and "'c'" in seen and "gone" in seen, seen
    assert until(lambda: kv.get_num_dead_node(4) == 1)
    tell("killed was seen")
    third = RemoteStore("dist_async")
    third.set_optimizer(mx.optimizer.SGD())
    third.init(["d", "e"], [mx.nd.zeros((4,)), mx.nd.zeros((4,))])
    tell("third store")
    told(kv, "server killed")
    seen = watch(lambda: [third.pushpull(key, mx.nd.ones((4,)), out=out) for key in "de"])
    assert "server 1" in seen, seen
    tell("server was seen")


def watch(act):
    began = time.monotonic()
    try:
        act()
    except PeerError as error:
        tell(f"PeerError after {time.monotonic() - began:.1f} s: {error}")
        return str(error)
    raise AssertionError("nothing was raised")


def train(argument):
    """Train slowly until stopped, then compare with one process."""
    kv = made("dist_sync")
    kv.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9))
    tell("ready")
    for step in range(20):
        after = exchange(kv, step)
        if step == 10:
            told(kv, "attacked")
    optimizer = mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9)
    updater = mx.optimizer.get_updater(optimizer)
    weights = {key: mx.nd.array(value) for key, value in first_values().items()}
    for step in range(20):
        total = [mx.nd.array(sum(gradients(step, rank)[key] for rank in range(WORKERS))) for key in SHAPES]
        updater(list(weights), total, list(weights.values()))
    for key, weight in weights.items():
        np.testing.assert_allclose(after[key], weight.asnumpy(), rtol=2e-6, atol=2e-7)
    assert session().world.servers == 1


# ---- programs recorded with MXNet's servers ----


def recorded(folder):
    """Run all programs recorded with MXNet's servers for this many workers; write results to FOLDER/RANK.npz."""
    results = {}
    for name, program in PROGRAMS.items():
        if WORKERS in program.workers and "dist" in program.kind:
            os.environ.update(program.environ)
            _, seen = program.run(mx)
            results.update({f"{name}|{key}": plain(value) for key, value in seen.items()})
    np.savez(f"{folder}/{RANK}.npz", **results)
