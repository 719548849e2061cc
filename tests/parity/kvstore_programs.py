"""Programs on a key-value store, the same under real MXNet's servers, which is recorded, and under neomx.

A program is given `mx`, its store, this worker's rank and their number, and returns {name: what it saw}. Under MXNet
workers are kept in step by barriers, since its servers count pushes and do not ask who sent them.
"""

import os
import tempfile

import numpy as np

from .spec import outcome

PROGRAMS = {}  # name -> Program
BIG = 40  # elements from which an array is split over the servers, so that small arrays show it


class Program:
    """A program, the kind of store it wants, and with how many workers it is run."""

    def __init__(self, function, kind, workers, environ):
        self.function, self.kind, self.workers = function, kind, workers
        self.environ = dict(environ, MXNET_KVSTORE_BIGARRAY_BOUND=str(BIG))

    def run(self, mx):
        """(rank, {name: result}) on a store of its own."""
        kv = mx.kv.create(self.kind)
        results = self.function(mx, kv, kv.rank, kv.num_workers)
        kv._barrier()
        return kv.rank, results


def program(kind="dist_sync", workers=(2,), **environ):
    def add(function):
        PROGRAMS[function.__name__] = Program(function, kind, workers, environ)
        return function

    return add


def values(mx, shape, *seed, dtype="float32"):
    """An array of numbers between -1 and 1 that depend on `seed` alone."""
    numbers = np.random.RandomState(list(seed)).uniform(-1, 1, shape)
    return mx.nd.array(numbers.astype(dtype), dtype=dtype)


def pulled(mx, kv, key, shape, dtype="float32"):
    """What the store holds, after which all workers meet."""
    out = mx.nd.zeros(shape, dtype=dtype)
    kv.pull(key, out=out)
    result = out.asnumpy()
    kv._barrier()
    return result


@program(workers=(1, 2, 3))
def sums(mx, kv, rank, size):
    """Init, push, pull, pushpull and broadcast, without an optimizer."""
    seen = {"rank below size": rank < size, "size": size, "type": kv.type, "optimizer": kv.is_capable("optimizer")}
    for key, shape in [(3, (2, 3)), (5, (1,)), (9, (7, 11))]:  # the last is a big one
        name = str(key)
        kv.init(key, values(mx, shape, 1, rank))
        seen["init " + name] = pulled(mx, kv, key, shape)
        for turn in range(3):
            kv.push(key, values(mx, shape, 2, turn, rank))
            seen["push %s %d" % (name, turn)] = pulled(mx, kv, key, shape)
        kv.push(key, [values(mx, shape, 3, device, rank) for device in range(3)])
        seen["devices " + name] = pulled(mx, kv, key, shape)
        out = mx.nd.zeros(shape)
        kv.pushpull(key, values(mx, shape, 4, rank), out=out)
        seen["pushpull " + name] = out.asnumpy()
        inplace = values(mx, shape, 5, rank)
        kv.pushpull(key, inplace, priority=-3)
        seen["pushpull in place " + name] = inplace.asnumpy()
        outs = [mx.nd.zeros(shape), mx.nd.zeros(shape)]
        kv.pull(key, out=outs)
        seen["pull to two " + name] = outs[1].asnumpy()
    return seen


@program(workers=(2, 3))
def many_keys(mx, kv, rank, size):
    """Lists of string keys, of values, and of values for each device."""
    names, shapes = ["a", "b", "weight"], [(3,), (2, 4), (9, 9)]
    kv.init(names, [values(mx, shape, 1, rank) for shape in shapes])
    outs = [mx.nd.zeros(shape) for shape in shapes]
    kv.pull(names, out=outs)
    seen = {"init " + name: out.asnumpy() for name, out in zip(names, outs)}
    kv.push(names, [values(mx, shape, 2, rank) for shape in shapes], priority=2)
    kv.pull(names, out=outs, priority=2)
    seen.update({"push " + name: out.asnumpy() for name, out in zip(names, outs)})
    kv._barrier()
    kv.push(names, [[values(mx, shape, 3, device, rank) for device in range(2)] for shape in shapes])
    kv.pull(names, out=outs)
    seen.update({"devices " + name: out.asnumpy() for name, out in zip(names, outs)})
    kv._barrier()
    grads = [values(mx, shape, 4, rank) for shape in shapes]
    kv.pushpull(names, grads, out=outs)
    seen.update({"pushpull " + name: out.asnumpy() for name, out in zip(names, outs)})
    more = [mx.nd.zeros((2,)), mx.nd.zeros((3,))]
    kv.broadcast(["x", "y"], [values(mx, (2,), 5, rank), values(mx, (3,), 6, rank)], out=more)
    seen.update({"broadcast %d" % i: out.asnumpy() for i, out in enumerate(more)})
    return seen


@program()
def dtypes(mx, kv, rank, size):
    """Sums of halves and doubles."""
    seen = {}
    for key, (dtype, shape) in enumerate([("float16", (3, 4)), ("float16", (7, 9)), ("float64", (5,))]):
        kv.init(key, mx.nd.zeros(shape, dtype=dtype))
        for turn in range(2):
            kv.push(key, [values(mx, shape, turn, device, rank, dtype=dtype) for device in range(2)])
            seen["%s %d %d" % (dtype, key, turn)] = pulled(mx, kv, key, shape, dtype)
    return seen


def trained(mx, kv, rank, optimizer, dtype="float32"):
    """Keys, one of them big, after each of three pushes to an optimizer, and after a pushpull."""
    shapes, seen = {4: (3,), 6: (6, 8)}, {}
    for key, shape in shapes.items():
        kv.init(key, values(mx, shape, 1, dtype=dtype))
    kv.set_optimizer(optimizer)
    for turn in range(3):
        for key, shape in shapes.items():
            kv.push(key, values(mx, shape, 2, turn, rank, dtype=dtype))
            seen["%d %d" % (key, turn)] = pulled(mx, kv, key, shape, dtype)
    out = mx.nd.zeros(shapes[4], dtype=dtype)
    kv.pushpull(4, values(mx, shapes[4], 3, rank, dtype=dtype), out=out)
    seen["pushpull"] = out.asnumpy()
    return seen


@program(workers=(1, 2, 3))
def momentum(mx, kv, rank, size):
    """SGD with momentum; then a second optimizer, which starts afresh."""
    seen = trained(mx, kv, rank, mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, wd=0.01, rescale_grad=0.5))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
    for turn in range(2):
        kv.push(4, values(mx, (3,), 4, turn, rank))
        seen["second %d" % turn] = pulled(mx, kv, 4, (3,))
    return seen


@program()
def adam(mx, kv, rank, size):
    return trained(mx, kv, rank, mx.optimizer.Adam(learning_rate=0.1))


@program()
def halves(mx, kv, rank, size):
    """float16 weights with a float32 master copy."""
    return trained(mx, kv, rank, mx.optimizer.SGD(learning_rate=0.1, momentum=0.9, multi_precision=True), "float16")


@program()
def named_rates(mx, kv, rank, size):
    """Learning rates and decays by key."""
    optimizer = mx.optimizer.SGD(learning_rate=0.1, wd=0.1)
    optimizer.set_lr_mult({4: 0.5})
    optimizer.set_wd_mult({6: 0.0})
    return trained(mx, kv, rank, optimizer)


def rows(mx, kv, key, ids, shape):
    """(indices, rows) that row_sparse_pull gives, after which all workers meet."""
    out = mx.nd.sparse.zeros("row_sparse", shape)
    kv.row_sparse_pull(key, out=out, row_ids=mx.nd.array(ids))
    got = out.indices.asnumpy(), out.data.asnumpy()
    kv._barrier()
    return got


def row_sparse(mx, shape, ids, *seed):
    return mx.nd.sparse.row_sparse_array((values(mx, (len(ids),) + shape[1:], *seed), ids), shape=shape)


def sparse_rounds(mx, kv, rank, optimizer):
    """Row-sparse pushes, of own and of common rows, to an optimizer; without one MXNet mixes the rows up."""
    shape, seen = (8, 3), {}
    kv.init("e", values(mx, shape, 1).tostype("row_sparse"))
    seen["ids"], seen["rows"] = rows(mx, kv, "e", [6, 1, 1], shape)
    kv.set_optimizer(optimizer)
    for turn in range(3):
        kv.push("e", row_sparse(mx, shape, [rank, 4 + turn], 2, turn, rank))
        seen["ids %d" % turn], seen["rows %d" % turn] = rows(mx, kv, "e", [7, 0, 5, 5], shape)
        seen["all %d" % turn] = rows(mx, kv, "e", list(range(8)), shape)[1]
    kv.push("e", [row_sparse(mx, shape, [rank], 3, rank), row_sparse(mx, shape, [rank, 6], 4, rank)])
    seen["devices"] = rows(mx, kv, "e", list(range(8)), shape)[1]
    return seen


@program(workers=(2, 3))
def sparse_plain(mx, kv, rank, size):
    return sparse_rounds(mx, kv, rank, mx.optimizer.SGD(learning_rate=0.5, wd=0.1))


@program()
def sparse_momentum(mx, kv, rank, size):
    return sparse_rounds(mx, kv, rank, mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))


@program()
def sparse_adam(mx, kv, rank, size):
    return sparse_rounds(mx, kv, rank, mx.optimizer.Adam(learning_rate=0.5))


@program()
def sparse_ftrl(mx, kv, rank, size):
    return sparse_rounds(mx, kv, rank, mx.optimizer.Ftrl(learning_rate=0.5, wd=0.1))


@program()
def sparse_adagrad(mx, kv, rank, size):
    return sparse_rounds(mx, kv, rank, mx.optimizer.AdaGrad(learning_rate=0.5))


@program()
def few_rows(mx, kv, rank, size):
    """A big array of few rows, some of which are pushed: the others keep their values and their momentum."""
    shape, seen = (5, 10), {}
    kv.init("e", values(mx, shape, 1).tostype("row_sparse"))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.5, momentum=0.9))
    for turn in range(4):
        kv.push("e", row_sparse(mx, shape, [turn % 2, 3 + rank], 2, turn, rank))
        seen["rows %d" % turn] = rows(mx, kv, "e", list(range(5)), shape)[1]
    return seen


@program(workers=(1, 2))
def late_rate(mx, kv, rank, size):
    """LBSGD asks its schedule before it counts an update; other optimizers ask after."""
    return scheduled(mx, kv, "lbsgd")


@program(workers=(1, 2))
def early_rate(mx, kv, rank, size):
    return scheduled(mx, kv, "sgd")


def scheduled(mx, kv, optimizer):
    schedule, seen = mx.lr_scheduler.FactorScheduler(step=1, factor=0.5, base_lr=0.5), {}
    kv.init(1, mx.nd.ones((2,)))
    kv.set_optimizer(mx.optimizer.create(optimizer, learning_rate=0.5, lr_scheduler=schedule))
    for turn in range(4):
        kv.push(1, mx.nd.ones((2,)))
        seen[str(turn)] = pulled(mx, kv, 1, (2,))
    return seen


@program(workers=(1, 2, 3))
def two_bits(mx, kv, rank, size):
    """2bit compression over rounds, with residuals; a changed threshold keeps them; several devices; big arrays."""
    kv.set_gradient_compression({"type": "2bit"})
    shapes, seen = {1: (33,), 2: (9, 13), 3: (4,)}, {}
    for key, shape in shapes.items():
        kv.init(key, values(mx, shape, 1))
        seen["init %d" % key] = pulled(mx, kv, key, shape)
    for turn in range(6):
        if turn == 4:
            kv.set_gradient_compression({"type": "2bit", "threshold": 0.3})
            kv._barrier()
        for key, shape in shapes.items():
            kv.push(key, values(mx, shape, 2, turn, rank))
            seen["push %d %d" % (key, turn)] = pulled(mx, kv, key, shape)
    for turn in range(3):  # on the edge, just below it, and many times it
        kv.push(3, mx.nd.array([0.3, -0.3, 0.29, 1.7]))
        seen["edge %d" % turn] = pulled(mx, kv, 3, (4,))
    for turn in range(2):
        kv.push(1, [values(mx, (33,), 5, turn, device, rank) for device in range(2)])
        seen["devices %d" % turn] = pulled(mx, kv, 1, (33,))
    return seen


@program()
def two_bits_sgd(mx, kv, rank, size):
    """Compressed gradients, updated by SGD with momentum."""
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.4})
    kv.init(7, values(mx, (20,), 1))
    kv.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    seen = {}
    for turn in range(4):
        kv.push(7, values(mx, (20,), 2, turn, rank))
        seen[str(turn)] = pulled(mx, kv, 7, (20,))
    return seen


@program()
def refusals(mx, kv, rank, size):
    """The kind of error for each mistake."""
    array, out = mx.nd.ones((2,)), mx.nd.zeros((2,))
    kv.init(3, array)
    calls = {
        "string key among ints": lambda: kv.init("a", array),
        "pull without out": lambda: kv.pull(3),
        "fewer values than keys": lambda: kv.push([3, 4], [array]),
        "float key": lambda: kv.push(3.5, array),
        "numpy value": lambda: kv.push(3, np.ones(2)),
        "unknown capability": lambda: kv.is_capable("x"),
        "save": lambda: kv.save_optimizer_states(os.path.join(tempfile.gettempdir(), "no.states")),
        "load": lambda: kv.load_optimizer_states(os.path.join(tempfile.gettempdir(), "no.states")),
        "3bit": lambda: kv.set_gradient_compression({"type": "3bit"}),
        "negative threshold": lambda: kv.set_gradient_compression({"type": "2bit", "threshold": -1}),
        "zero threshold": lambda: kv.set_gradient_compression({"type": "2bit", "threshold": 0}),
        "word threshold": lambda: kv.set_gradient_compression({"type": "2bit", "threshold": "high"}),
        "no type": lambda: kv.set_gradient_compression({"threshold": 0.5}),
        "no dict": lambda: kv.set_gradient_compression("2bit"),
        "row_sparse_pull without rows": lambda: kv.row_sparse_pull(3, out=out),
        "row_sparse_pull without out": lambda: kv.row_sparse_pull(3, row_ids=mx.nd.array([0])),
    }
    seen = {name: str(outcome(call)) for name, call in calls.items()}
    kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})
    seen["pushpull compressed"] = str(outcome(lambda: kv.pushpull(3, array, out=out)))
    return seen


def stepped(mx, rank, kind, options, steps=3, **settings):
    """A small network's weights after each step on this worker's samples; workers start from different weights."""
    net = mx.gluon.nn.Dense(2, in_units=3)
    net.initialize()
    net.weight.set_data(values(mx, (2, 3), 1, rank))
    net.bias.set_data(values(mx, (2,), 2, rank))
    trainer = mx.gluon.Trainer(net.collect_params(), options.pop("name"), options, kvstore=kind, **settings)

    if mx.__name__ == "mxnet":  # whose first gradients overtake the first weights otherwise
        trainer._optimizer.rescale_grad = 1 / 8
        trainer._init_kvstore()
        trainer._init_params()
        mx.nd.waitall()
        trainer._kvstore._barrier()

    def step(turn, size):
        with mx.autograd.record():
            loss = (net(values(mx, (4, 3), 3, turn, rank)) ** 2).sum()
        loss.backward()
        trainer.step(size)

    seen = {}
    for turn in range(steps):
        step(turn, 8)
        seen["weight %d" % turn], seen["bias %d" % turn] = net.weight.data().asnumpy(), net.bias.data().asnumpy()
    seen["updates on the store"] = bool(trainer._update_on_kvstore)
    seen["another batch size"] = str(outcome(lambda: step(steps, 4)))
    seen["weight last"] = net.weight.data().asnumpy()
    return seen


@program(workers=(1, 2, 3))
def trainer_default(mx, kv, rank, size):
    return stepped(mx, rank, kv, {"name": "sgd", "learning_rate": 0.1, "momentum": 0.9})


@program()
def trainer_on_store(mx, kv, rank, size):
    return stepped(mx, rank, kv, {"name": "adam", "learning_rate": 0.1}, update_on_kvstore=True)


@program()
def trainer_on_worker(mx, kv, rank, size):
    return stepped(mx, rank, kv, {"name": "adam", "learning_rate": 0.1}, update_on_kvstore=False)


@program("local", workers=(1,))
def local(mx, kv, rank, size):
    """The store of one process, with several contexts."""
    return in_process(mx, kv)


@program("device", workers=(1,))
def device(mx, kv, rank, size):
    return in_process(mx, kv)


def in_process(mx, kv):
    seen = {"compress": str(outcome(lambda: kv.set_gradient_compression({"type": "2bit", "threshold": 0.5})))}
    seen["3bit"] = str(outcome(lambda: kv.set_gradient_compression({"type": "3bit"})))
    seen["no dict"] = str(outcome(lambda: kv.set_gradient_compression("2bit")))
    kv.init("a", mx.nd.zeros((12,)))
    for turn in range(4):
        kv.push("a", [values(mx, (12,), 1, turn, at).as_in_context(mx.cpu(at)) for at in range(2)])
        seen["two %d" % turn] = pulled(mx, kv, "a", (12,))
    for turn in range(2):
        kv.push("a", values(mx, (12,), 2, turn))
        seen["one %d" % turn] = pulled(mx, kv, "a", (12,))
    outs = [mx.nd.zeros((12,), mx.cpu(at)) for at in range(2)]
    grads = [values(mx, (12,), 3, at).as_in_context(mx.cpu(at)) for at in range(2)]
    seen["pushpull says"] = str(outcome(lambda: kv.pushpull("a", grads, out=outs)))
    seen["pushpull"] = outs[1].asnumpy()
    array, out = mx.nd.ones((12,)), mx.nd.zeros((12,))
    calls = {
        "int key among strings": lambda: kv.init(3, array),
        "again": lambda: kv.init("a", array),
        "pull unknown": lambda: kv.pull("z", out=out),
        "push unknown": lambda: kv.push("z", array),
        "unknown capability": lambda: kv.is_capable("x"),
        "pull without out": lambda: kv.pull("a"),
        "fewer values than keys": lambda: kv.push(["a", "b"], [array]),
        "numpy value": lambda: kv.push("a", np.ones(2)),
        "save": lambda: kv.save_optimizer_states(os.path.join(tempfile.gettempdir(), "no.states")),
    }
    seen.update({name: str(outcome(call)) for name, call in calls.items()})
    return seen
