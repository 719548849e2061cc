"""Trains a small network on a sharded dataset; run by test_shard_processes.py, on one worker or on several."""

import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon
from neomx.gluon.data.place import current_batch

# (samples, batch size over all workers, the argument of step). Of 9 samples, the last one is for worker 0 only.
CASES = [
    (8, 4, "constant"),
    (7, 4, "constant"),
    (9, 4, "constant"),
    (7, 4, "samples"),
    (11, 4, "own samples"),
    (9, 4, "own samples"),
]


def network():
    rng, net = np.random.RandomState(5), gluon.nn.Dense(2, in_units=3)
    net.initialize()
    net.weight.set_data(mx.nd.array(rng.rand(2, 3)))
    return net


def train(samples, batch, said, epochs=3):
    """Return the weights after some epochs, and the number of steps of this worker."""
    kv = mx.kv.create("dist_sync")
    rng = np.random.RandomState(samples)
    data = gluon.data.ArrayDataset(rng.rand(samples, 3).astype("float32"), rng.rand(samples, 2).astype("float32"))
    loader = gluon.data.DataLoader(mx.dist.shard(data, shuffle=True, seed=2), batch // kv.num_workers)
    net, loss_of, steps = network(), gluon.loss.L2Loss(), 0
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.3, "momentum": 0.9}, kvstore=kv)
    for _ in range(epochs):
        for x, y in loader:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            divisor = {"constant": batch, "samples": current_batch().total, "own samples": len(x) * kv.num_workers}
            trainer.step(divisor[said])
            mx.monitor.report(loss=loss)
            steps += 1
    return net.weight.data().asnumpy(), steps


if __name__ == "__main__":
    results = [train(*case) for case in CASES]
    rank = mx.kv.create("dist_sync").rank
    np.savez(f"{sys.argv[1]}/{rank}.npz", *(weights for weights, _ in results), steps=[steps for _, steps in results])
