"""Trains under layouts with custom dimensions, added with public names only.

own_dimension.py FOLDER [LAYOUT ...]

Without layouts it uses that of `neomx run --layout`. Each worker writes its losses to FOLDER/<layout>-<rank>.npz, and
each model's first worker FOLDER/<layout>-<member>.params. A single process trains the members of an ensemble one after
the other, to FOLDER/alone-<member>.npz and .params.
"""

import sys
from functools import partial

import numpy as np
import torch

import neomx as mx
from neomx import autograd, gluon, nd

STEPS, BATCH = 4, 8


@mx.parallel.register_dimension
class Ensemble(mx.parallel.Dimension):
    """Members that train separately on the same samples, each from different weights."""

    name = "ensemble"
    shares_model = False

    def check(self, degree):
        if degree > 8:
            raise ValueError(f"ensemble must be at most 8, received {degree}")

    def divide(self, net, mesh, plan):
        scale(net, 1 + mesh.get_local_rank())


@mx.parallel.register_dimension
class Hosts(mx.parallel.Dimension):
    """Replicas of the model, as along data."""

    name, order = "hosts", 15
    exchanges = "gradients between hosts"
    splits_samples = sums_gradients = True


def scale(net, factor):
    with torch.no_grad():
        for leaf in (net if isinstance(net, torch.nn.Module) else net.torch()).parameters():
            leaf *= factor


def block():
    net = gluon.nn.HybridSequential(prefix="net_")
    with net.name_scope():
        net.add(gluon.nn.Dense(8, activation="tanh", in_units=6), gluon.nn.Dense(4, in_units=8))
    net.initialize()
    random = np.random.default_rng(0)
    for param in net.collect_params().values():
        param.set_data(nd.array(random.standard_normal(param.shape) * 0.3))
    return net


def torch_module():
    net = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
    random = np.random.default_rng(0)
    for leaf in net.parameters():
        leaf.data.copy_(torch.from_numpy(random.standard_normal(leaf.shape) * 0.3))
    return net


def batches(layout):
    """Return this worker's share of each batch."""
    random = np.random.default_rng(1)
    for _ in range(STEPS):
        x, y = (random.standard_normal((BATCH, width)).astype("float32") for width in (6, 4))
        yield tuple(nd.array(np.split(a, layout.batch_size)[layout.batch_rank]) for a in (x, y))


def by_apply(net, layout):
    """The losses of this worker's samples, in a loop as for one process."""
    mx.parallel.apply(net, layout)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02, "epsilon": 1e-3})
    losses = []
    for x, y in batches(layout):
        with autograd.record():
            loss = gluon.loss.L2Loss()(net(x), y)
        loss.backward()
        trainer.step(len(x))
        losses.append(float(loss.mean().asscalar()))
    return losses


def by_step(net, layout):
    """The losses of the whole batch, with train_step."""
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.02, "epsilon": 1e-3})
    options = {"microbatches": 2, "schedule": "gpipe", "cut": "parameters", "clip": 0.5}
    step = mx.parallel.train_step(net, gluon.loss.L2Loss(), trainer, layout, **options)
    return [float(step(x, y).asscalar()) for x, y in batches(layout)]


def by_torch(net, layout):
    """The losses of the whole batch, with a torch module."""
    make = partial(torch.optim.SGD, lr=0.1)
    optimizer = make(net.parameters()) if layout.size == 1 else make
    step = mx.parallel.train_step(net, torch.nn.functional.mse_loss, optimizer, layout, schedule="gpipe")
    return [step(x._data, y._data).item() for x, y in batches(layout)]


def train(folder, layout, name, member, rank):
    nets = {"step": block(), "apply": block(), "torch": torch_module()}
    if layout.size == 1:
        for net in nets.values():
            scale(net, 1 + member)
    found = {"step": by_step(nets["step"], layout), "torch": by_torch(nets["torch"], layout)}
    if layout.pipeline == 1:
        found["apply"] = by_apply(nets["apply"], layout)
    np.savez(f"{folder}/{name}-{rank}.npz", **found)
    nets["step"].save_parameters(f"{folder}/{name}-{member}.params")


def main(folder, *texts):
    if mx.dist.size() == 1:
        for member in range(2):
            train(folder, mx.parallel.Layout(), "alone", member, member)
        return
    for layout in map(mx.parallel.Layout.parse, texts) if texts else [mx.parallel.Layout.from_env()]:
        train(folder, layout, str(layout), layout.coordinates()["ensemble"], mx.dist.rank())


if __name__ == "__main__":
    main(*sys.argv[1:])
