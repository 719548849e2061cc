"""Trains small models that once differed from a single process; run by test_workers.py on one or several workers.

Every worker uses its samples of the same global batches, so that the weights must match those of a single process.
"""

import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon

CASES = {
    # Rows of more elements than a server's share of an array: they must stay whole for the lazy update.
    "wide rows": ("sgd", {"learning_rate": 0.1, "momentum": 0.5}),
    "schedule": ("lbsgd", {"learning_rate": 0.5, "lr_scheduler": (2, 0.5)}),
    "sparse lamb": ("lamb", {"learning_rate": 0.1}),
    "sparse adam": ("adam", {"learning_rate": 0.1}),
    # One sample for each of two workers in a batch: in the last step the second worker has none.
    "constant": ("sgd", {"learning_rate": 0.1, "momentum": 0.5}),
    "string keys": ("sgd", {"learning_rate": 0.1}),
    # The second worker never has a batch.
    "no batch": ("sgd", {"learning_rate": 0.1, "momentum": 0.5}),
    # The program changes part of the gradient, through a view, after it was sent.
    "view": ("sgd", {"learning_rate": 0.1, "momentum": 0.5}),
    # Gradients are summed and then used in two calls; in the second batch only the first worker has data.
    "two calls": ("sgd", {"learning_rate": 0.1, "momentum": 0.5}),
}


def optimizer_params(params):
    params = dict(params)
    if "lr_scheduler" in params:
        step, factor = params["lr_scheduler"]
        params["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(step, factor, base_lr=params["learning_rate"])
    return params


def embedding(rows, columns, batches):
    net = gluon.nn.Embedding(rows, columns, sparse_grad=True)
    net.initialize(mx.init.One())
    return net, batches


def dense(batches):
    net = gluon.nn.Dense(1, in_units=2, use_bias=False)
    net.initialize(mx.init.One())
    return net, batches


def model(name):
    """Return a network and its global batches."""
    if name == "wide rows":
        return embedding(11, 100_000, [[0, 1, 2, 3], [4, 5, 6, 7], [0, 4, 8, 9], [10, 1, 2, 3]])
    if name.startswith("sparse"):
        return embedding(7, 3, [[0, 1, 2, 3], [0, 4, 5, 6], [1, 1, 2, 2]])
    rng = np.random.RandomState(3)
    if name == "constant":
        return dense([rng.rand(size, 2).astype("float32") for size in (2, 2, 2, 2, 1)])
    return dense([rng.rand(4, 2).astype("float32") for _ in range(5)])


def two_calls(net, trainer, mine, count):
    if len(mine):
        with autograd.record():
            loss = (net(mx.nd.array(mine)) ** 2).sum()
        loss.backward()
    trainer.allreduce_grads()
    trainer.update(count, ignore_stale_grad=True)


def train(name):
    """Return the first columns of the weight after training."""
    rule, params = CASES[name]
    kv = mx.kv.create("dist_sync")
    if name == "string keys":
        kv.init("other", mx.nd.ones((2,)))
    net, batches = model(name)
    apart = False if name == "two calls" else None
    trainer = gluon.Trainer(net.collect_params(), rule, optimizer_params(params), kvstore=kv, update_on_kvstore=apart)
    for number, batch in enumerate(batches):
        mine = batch[kv.rank :: kv.num_workers]
        if name == "no batch" or (name, number) == ("two calls", 1):
            mine = batch if kv.rank == 0 else mine[:0]
        if name == "two calls":
            two_calls(net, trainer, mine, len(batch))
            continue
        if not len(mine):
            break
        with autograd.record():
            loss = (net(mx.nd.array(mine)) ** 2).sum()
        loss.backward()
        if name == "view":
            net.weight.grad()[0][:1] = 0
        trainer.step(2 if name == "constant" else len(batch))
    mx.dist.barrier()
    return net.weight.data().asnumpy()[:, :4]


if __name__ == "__main__":
    np.savez(f"{sys.argv[1]}-{mx.dist.rank()}.npz", **{name: train(name) for name in CASES})
