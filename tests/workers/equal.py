"""Trains small networks on this worker's part of every global batch, and saves the weights.

equal.py OUT KVSTORE [KEY=VALUE of its create ...]
"""

import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd

STEPS, GLOBAL = 20, 24
CASES = {
    "sgd": dict(optimizer="sgd", optimizer_params={"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}),
    "adam": dict(optimizer="adam", optimizer_params={"learning_rate": 0.01}),
    "lamb": dict(optimizer="lamb", optimizer_params={"learning_rate": 0.01}),
    "updated here": dict(
        optimizer="sgd", optimizer_params={"learning_rate": 0.1, "momentum": 0.9}, update_on_kvstore=False
    ),
}


def network(seed=0):
    """Return three layers, one of them with a 4-D weight, with random weights from numpy."""
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 3, in_channels=1, activation="relu"), gluon.nn.Flatten())
    net.add(gluon.nn.Dense(16, activation="tanh", in_units=4 * 6 * 6), gluon.nn.Dense(5, in_units=16))
    net.initialize()
    random = np.random.default_rng(seed)
    for param in net.collect_params().values():
        param.set_data(nd.array(random.standard_normal(param.shape).astype("float32") * 0.3))
    return net


def data():
    random = np.random.default_rng(1)
    x = random.standard_normal((STEPS, GLOBAL, 1, 8, 8)).astype("float32")
    return x, random.integers(0, 5, (STEPS, GLOBAL)).astype("float32")


def train(kv, hybridize, **how):
    net = network(seed=kv.rank)  # all must start with the weights of worker 0
    if hybridize:
        net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), kvstore=kv, **how)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    share = GLOBAL // kv.num_workers
    x, y = (nd.array(part[:, kv.rank * share : (kv.rank + 1) * share]) for part in data())
    losses = []
    for step in range(STEPS):
        with autograd.record():
            value = loss(net(x[step]), y[step])
        value.backward()
        if step == STEPS // 2 and trainer.optimizer.lr_scheduler is None:
            trainer.set_learning_rate(trainer.learning_rate / 2)
        trainer.step(GLOBAL)
        losses.append(float(value.sum().asscalar()))
    found = {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}
    return {**found, "loss": np.array(losses)}


def main(out, kind, *settings):
    found = {}
    for name, how in CASES.items():
        kv = mx.kv.create(kind, **{key: int(value) for key, value in (each.split("=") for each in settings)})
        for key, value in train(kv, hybridize=name == "adam", **how).items():
            found[f"{name}/{key}"] = value
    np.savez(f"{out}-{kv.rank}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
