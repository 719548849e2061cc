"""Trains without a word about checkpoints; run by tests/checkpoint/test_checkpoint_programs.py.

Arguments: file for the weights, step to kill itself at (0: none), signal, and what trains: "epochs" or "range" (a
Trainer in such a loop), "fit" (a Module), "feedforward", or "iterator" (a Trainer and an iterator, which is refused).
"""

import os
import pathlib
import sys

import numpy as np

import neomx as mx

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "checkpoint"))
from training import fit, loader_of, network, trainer_of, weights

out, stop, signum, loop = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
steps = 0


def count(*_):
    global steps
    steps += 1
    if steps == stop:
        os.kill(os.getpid(), signum)


def train():
    net = network()
    net(mx.nd.zeros((1, 4)))
    trainer = trainer_of(net)
    loader = mx.io.NDArrayIter(np.ones((8, 4)), np.ones((8, 2)), 4) if loop == "iterator" else loader_of("shard", 4)
    for _ in mx.checkpoint.epochs(3) if loop == "epochs" else range(3):
        for each in loader:
            fit(net, trainer, (each.data[0], each.label[0]) if loop == "iterator" else each, 4)
            count()
    return weights(net, trainer)


def train_symbol():
    mx.random.seed(1)
    np.random.seed(1)
    hidden = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="first")
    hidden = mx.sym.Dropout(mx.sym.BatchNorm(mx.sym.Activation(hidden, act_type="relu"), name="norm"))
    symbol = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2, name="second"), name="softmax")
    rng = np.random.RandomState(3)
    data = mx.io.NDArrayIter(rng.rand(22, 4), rng.randint(0, 2, 22), 4, shuffle=True)
    if loop == "fit":
        module = mx.mod.Module(symbol)
        settings = {"momentum": 0.9}
        module.fit(data, num_epoch=3, optimizer_params=settings, initializer=mx.init.Xavier(), batch_end_callback=count)
        arguments, states = module.get_params()
    else:
        model = mx.model.FeedForward(symbol, num_epoch=3, initializer=mx.init.Xavier(), momentum=0.9)
        model.fit(data, batch_end_callback=count)
        arguments, states = model.arg_params, model.aux_params
    return {name: array.asnumpy() for name, array in {**arguments, **states}.items()}


if __name__ == "__main__":
    found = train_symbol() if loop in ("fit", "feedforward") else train()
    np.savez(out, **found)
