"""Unusual orders of calls and kinds of models under layouts; their losses are saved.

layouts_odd.py FOLDER

Each worker writes FOLDER/<workers>-<rank>.npz; a single process runs the same program with layouts of one worker.
"""

import sys

import numpy as np
import torch
from layouts import SIZE, filled

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.parallel import Layout, train_step

torch.set_num_threads(1)
BATCH, STEPS = 8, 4
ADAM = ("adamw", {"learning_rate": 0.02, "epsilon": 1e-3})


def over(line):
    """All workers along one dimension of a layout."""
    return Layout(**{line: SIZE})


def mlp(*widths, inputs=6, dtype="float32", seed=None, **how):
    """Dense layers with weights from numpy; the prefix gives a Trainer's Parameters the same order each time."""
    net = nn.HybridSequential(prefix="odd_")
    with net.name_scope():
        for width in widths:
            net.add(nn.Dense(width, activation="tanh", in_units=inputs, **how))
            inputs = width
    filled(net, seed=mx.dist.rank() if seed is None else seed)
    net.cast(dtype)
    return net


def batches(layout, steps=STEPS, dtype="float32", shape=(6,)):
    """This worker's samples of each batch, and their targets."""
    random = np.random.default_rng(3)
    for _ in range(steps):
        x, y = random.standard_normal((BATCH, *shape)), random.standard_normal((BATCH, 4))
        yield tuple(nd.array(np.split(a, layout.batch_size)[layout.batch_rank], dtype=dtype) for a in (x, y))


def losses(step, layout, skip=0, **how):
    return [float(step(x, y).asscalar()) for x, y in list(batches(layout, **how))[skip:]]


def stepping(net, layout, optimizer=ADAM, **how):
    return train_step(net, gluon.loss.L2Loss(), gluon.Trainer(net.collect_params(), *optimizer), layout, **how)


def half_precision_in_a_pipeline(folder):
    """Only the last stage knows the dtype of the loss."""
    step = stepping(mlp(8, 8, 4, dtype="bfloat16"), over("pipeline"), schedule="gpipe", cut="parameters")
    return losses(step, over("pipeline"), dtype="bfloat16")


def states_of_a_pipeline(folder):
    """The file contains the update count of every stage, which Adam uses for bias correction."""
    path = f"{folder}/{SIZE}-pipeline"
    step = stepping(mlp(8, 8, 4), over("pipeline"), schedule="gpipe", cut="parameters")
    found = losses(step, over("pipeline"), steps=2)
    step.net.save_parameters(f"{path}.params")
    step.trainer.save_states(f"{path}.states")
    again = stepping(mlp(8, 8, 4), over("data"))
    again.net.load_parameters(f"{path}.params")
    again.trainer.load_states(f"{path}.states")
    return found + losses(again, over("data"), skip=2)


def states_loaded_before_the_layout(folder):
    """Weights are whole when the states are loaded, and parts when they are first updated."""
    path = f"{folder}/{SIZE}-before"
    first = stepping(mlp(8, 8, 4), over("data"))
    found = losses(first, over("data"), steps=2)
    first.net.save_parameters(f"{path}.params")
    first.trainer.save_states(f"{path}.states")
    net = mlp(8, 8, 4)
    net.load_parameters(f"{path}.params")
    trainer = gluon.Trainer(net.collect_params(), *ADAM)
    trainer.load_states(f"{path}.states")
    step = train_step(net, gluon.loss.L2Loss(), trainer, over("shard"))
    return found + losses(step, over("shard"), skip=2)


def a_step_before_the_layout(folder):
    """A step on one worker's samples, the same for all; then gradients are summed, and the states are parts."""
    net = mlp(8, 8, 4, seed=0)
    trainer = gluon.Trainer(net.collect_params(), *ADAM)
    alone = train_step_alone(net, trainer, *next(batches(Layout())))
    step = train_step(net, gluon.loss.L2Loss(), trainer, over("shard"))
    return [alone, *losses(step, over("shard"), skip=1)]


def train_step_alone(net, trainer, x, y):
    with autograd.record():
        value = gluon.loss.L2Loss()(net(x), y)
    value.backward()
    trainer.step(len(x))
    return value.mean().asscalar()


CASES = [half_precision_in_a_pipeline, states_of_a_pipeline, states_loaded_before_the_layout]
CASES += [a_step_before_the_layout]


def main(folder):
    found = {case.__name__: np.array(case(folder)) for case in CASES}
    np.savez(f"{folder}/{SIZE}-{mx.dist.rank()}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
