"""Saves and restores models under every layout of this number of workers; run by test_checkpoint_layouts.py.

checkpointing_layouts.py FOLDER WHAT...

WHAT is `save` (train under each layout, and resume under the same one, to the bit), or a number of workers: load what
they have saved, under other layouts, and train on. Raises if weights or states differ. After the first step of another
layout they may differ by rounding, because sums have another order.
"""

import os
import pathlib
import sys

import numpy as np
import torch

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.optimizer.states import loads
from neomx.parallel import Layout

torch.set_num_threads(1)
SIZE, RANK = mx.dist.size(), mx.dist.rank()
STEPS, SAVED, BATCH = 4, 2, 8
LAYOUTS = {
    1: [("data=1", None)],
    2: [
        ("data=2", None),
        ("data=2", "optimizer"),
        ("data=2", "grads"),
        ("shard=2", "full"),
        ("tensor=2", None),
        ("pipeline=2", None),
    ],
    4: [("data=2,shard=2", "full"), ("data=2,tensor=2", "optimizer"), ("shard=2,tensor=2", "full")]
    + [("tensor=2,pipeline=2", None), ("shard=2,pipeline=2", "full"), ("data=2,pipeline=2", "optimizer")],
}


class Case:
    """A training under a layout."""

    def __init__(self, text, shard, dropout):
        self.layout, self.shard = Layout.parse(text), shard
        self.name = f"{text} {shard} {dropout}"
        mx.random.seed(3)
        np.random.seed(3)
        self.net = gluon.nn.HybridSequential(prefix="net_")
        with self.net.name_scope():
            self.net.add(gluon.nn.Dense(16, activation="relu", in_units=10), gluon.nn.Dense(9, in_units=16))
            self.net.add(gluon.nn.Dropout(dropout))
            if self.layout.tensor == 1 and dropout:  # each worker has running averages of its own
                self.net.add(gluon.nn.BatchNorm(in_channels=9))
            self.net.add(gluon.nn.Dense(12, activation="tanh", in_units=9), gluon.nn.Dense(6, in_units=12))
        self.net.initialize(mx.init.Xavier())
        schedule = mx.lr_scheduler.FactorScheduler(1, 0.9, base_lr=0.02)
        options = {"lr_scheduler": schedule, "epsilon": 1e-3}
        self.trainer = gluon.Trainer(self.net.collect_params(), "adam", options)
        self.loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.step = None
        if self.layout.pipeline > 1:
            how = {"microbatches": 1, "schedule": "gpipe", "shard": shard, "cut": "parameters"}
            self.step = mx.parallel.train_step(self.net, self.loss, self.trainer, self.layout, **how)
        elif SIZE > 1:
            mx.parallel.apply(self.net, self.layout, shard=shard)

    def train(self, steps):
        rng = np.random.RandomState(5)
        x, y = rng.rand(STEPS, BATCH, 10).astype("float32"), rng.randint(0, 6, (STEPS, BATCH)).astype("float32")
        for i in steps:
            mine = [nd.array(np.split(each[i], self.layout.batch_size)[self.layout.batch_rank]) for each in (x, y)]
            if self.step is not None:
                self.step(*mine)
                continue
            with autograd.record():
                loss = self.loss(self.net(mine[0]), mine[1])
            loss.backward()
            self.trainer.step(len(mine[0]))

    def checkpointer(self, folder):
        more = {} if SIZE == 1 else {"signals": False}
        return mx.checkpoint.Checkpointer(folder, net=self.net, trainer=self.trainer, keep=None, **more)

    def write(self, path):
        self.net.save_parameters(f"{path}.params")
        self.trainer.save_states(f"{path}.states")


def arrays(path):
    """Return all weights and states in the files of a case, by name."""
    found = dict(nd.load(f"{path}.params"))
    states, optimizer = loads(pathlib.Path(f"{path}.states").read_bytes())
    for index, state in states.items():
        for number, array in enumerate(state if isinstance(state, (list, tuple)) else [state]):
            found[f"state {index} {number}"] = array
    found["updates"] = nd.array([optimizer.num_update])
    return {name: array.asnumpy() for name, array in found.items()}


def compare(one, other, what, tolerance=0.0):
    if RANK:
        return
    one, other = arrays(one), arrays(other)
    assert one.keys() == other.keys(), (what, one.keys() ^ other.keys())
    for name, value in one.items():
        if tolerance:
            np.testing.assert_allclose(other[name], value, rtol=0, atol=tolerance, err_msg=f"{what}: {name}")
        else:
            assert np.array_equal(value, other[name]), (what, name, np.abs(value - other[name]).max())


def save(folder):
    for text, shard in LAYOUTS[SIZE]:
        for dropout in (0.0, 0.3):
            case = Case(text, shard, dropout)
            path = f"{folder}/{SIZE} {case.name}"
            case.train(range(SAVED))
            ckpt = case.checkpointer(path)
            for _ in range(SAVED):
                ckpt.step()
            ckpt.save()
            case.write(f"{path}-2")
            case.train(range(SAVED, STEPS))
            case.write(f"{path}-4")
            ckpt.close()
            mx.dist.barrier()
            again = Case(text, shard, dropout)
            ckpt = again.checkpointer(path)
            assert ckpt.restore() and ckpt.steps == SAVED
            again.train(range(SAVED, STEPS))
            again.write(f"{path}-again")
            ckpt.close()
            compare(f"{path}-4", f"{path}-again", f"{case.name} after resuming")


def load(folder, workers):
    saved = [f"{workers} {text} {shard} 0.0" for text, shard in LAYOUTS[workers]]
    for number, name in enumerate(saved):
        layouts = LAYOUTS[SIZE]
        case = Case(*layouts[(number + 1) % len(layouts)], 0.0)
        ckpt = case.checkpointer(f"{folder}/own {SIZE} {number}")
        assert ckpt.restore(f"{folder}/{name}")
        what = f"{name} under {case.name}"
        if case.step is None:  # a pipeline is laid out, and restored, in its first step
            case.write(f"{folder}/loaded {SIZE}")
            compare(f"{folder}/{name}-2", f"{folder}/loaded {SIZE}", what)
        else:
            ckpt.step()
            case.train(range(0))
        case.train(range(SAVED, STEPS))
        case.write(f"{folder}/loaded {SIZE}")
        compare(f"{folder}/{name}-4", f"{folder}/loaded {SIZE}", what, tolerance=2e-6)
        ckpt.close()
        mx.dist.barrier()


if __name__ == "__main__":
    folder, *what = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    for each in what:
        save(folder) if each == "save" else load(folder, int(each))
