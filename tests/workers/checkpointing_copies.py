"""Loses a worker's memory, and gets its part back from its neighbor; run by test_checkpoint_faults.py.

Argument: a directory, in which no checkpoint of the restored step remains.
"""

import shutil
import sys

import numpy as np

import neomx as mx
from neomx import gluon, nd
from neomx.checkpoint.copies import copies_of
from neomx.parallel import Layout

RANK, SIZE = mx.dist.rank(), mx.dist.size()
directory = sys.argv[1]


def training(seed):
    mx.random.seed(seed)
    np.random.seed(seed)
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(9, activation="relu", in_units=10), gluon.nn.Dropout(0.3), gluon.nn.Dense(6, in_units=9))
    net.initialize(mx.init.Xavier())
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02})
    mx.parallel.apply(net, Layout(shard=SIZE), shard="full")
    ckpt = mx.checkpoint.Checkpointer(
        directory, net=net, trainer=trainer, every=1, keep=None, signals=False, peer_copies=1
    )
    return net, trainer, ckpt


def train(net, trainer, ckpt, steps):
    rng = np.random.RandomState(7 + RANK)
    x, y = rng.rand(8, 4, 10).astype("float32"), rng.randint(0, 6, (8, 4)).astype("float32")
    for i in steps:
        with mx.autograd.record():
            loss = gluon.loss.SoftmaxCrossEntropyLoss()(net(nd.array(x[i])), nd.array(y[i]))
        loss.backward()
        trainer.step(4)
        ckpt.step()


def weights(net):
    net.save_parameters(f"{directory}/weights.params")
    return {name: array.asnumpy() for name, array in nd.load(f"{directory}/weights.params").items()}


if __name__ == "__main__":
    net, trainer, ckpt = training(1)
    train(net, trainer, ckpt, range(3))
    ckpt.wait()
    train(net, trainer, ckpt, range(3, 6))
    expected = weights(net)
    ckpt.close()
    mx.dist.barrier()
    if RANK == 0:  # the disk is lost as well
        for step in range(1, 7):
            shutil.rmtree(f"{directory}/step-{step:08d}")
    mx.dist.barrier()
    copies = copies_of(directory)
    assert sorted(copies.own) == [5, 6] and sorted(copies.neighbors) == [5, 6]
    if RANK == 1:  # as in a process that takes the place of a lost one
        copies.own.clear()
        copies.neighbors.clear()
    for newest in (6, 5):
        if newest == 5:  # it is lost while the newest is exchanged: one part of that exists nowhere
            (copies.own if RANK == 0 else copies.neighbors).pop(6, None)
            if RANK == 1:
                copies.own.pop(6, None)
        mx.dist.barrier()
        net, trainer, ckpt = training(2)
        assert ckpt.restore() and ckpt.steps == newest, ckpt.steps
        train(net, trainer, ckpt, range(newest, 6))
        found = weights(net)
        for name, value in expected.items():
            assert np.array_equal(found[name], value), (newest, name)
        ckpt.close()
        mx.dist.barrier()
        if RANK == 0 and newest == 5:
            shutil.rmtree(f"{directory}/step-00000006")
    print("restored from memory", flush=True)
