"""Programs whose model has a layout, with the methods of `trainings.Program`."""

import os

import numpy as np
import trainings

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.parallel import Layout, apply, train_step

PLAN = {"0": "column", "2": "row"}


class Trap(gluon.HybridBlock):
    """Returns its input, and calls `at` in forward and in backward."""

    at = staticmethod(lambda phase: None)

    def forward(self, x):
        if autograd.is_training():
            Trap.at("inside")
            if x._data.requires_grad:
                x._data.register_hook(lambda gradient: Trap.at("inside backward"))
        return x * 1


def network(layers):
    net = nn.HybridSequential()
    net.add(nn.Dense(9 if layers == "other" else 16, activation="tanh", in_units=8), Trap())
    net.add(nn.Dense(16, in_units=9 if layers == "other" else 16), nn.BatchNorm() if layers == "norm" else Trap())
    net.add(nn.Dense(8, activation="tanh", in_units=16), Trap(), nn.Dense(1, in_units=8))
    net.initialize(mx.init.Xavier())
    net(nd.zeros((2, 8)))
    return net


class LayoutProgram(trainings.Program):
    """A training under a layout of all workers, or of one process that has all samples."""

    def __init__(self, mode, is_alone=False):
        mx.random.seed(1)
        self.mode, self.loss, self.nets = mode, gluon.loss.L2Loss(), [network(mode.layers)]
        (net,) = self.nets
        settings = {"learning_rate": 0.01} if mode.optimizer == "adam" else {"learning_rate": 0.05, "momentum": 0.9}
        self.trainers = [gluon.Trainer(net.collect_params(), mode.optimizer, settings)]
        self.train = None
        if is_alone:
            return
        replicas = int(os.environ["WORLD_SIZE"]) // trainings.replica_of(mode)
        self.layout = Layout.parse(f"data={replicas},{mode.layout}")
        if "pipeline" in mode.layout:
            self.train = train_step(net, self.loss, self.trainers[0], self.layout, microbatches=2, cut=["4"])
        else:
            apply(net, self.layout, plan=PLAN)

    def backward(self, x, y, then=lambda: None):
        """Compute the gradients of a batch; a pipeline does so in `step`."""
        if self.train is None:
            super().backward(x, y, then)
        else:
            then()
            self.batch = x, y

    def step(self, divisor):
        if self.train is None:
            super().step(divisor)
        else:
            self.train(*self.batch)

    def clip(self):
        mx.parallel.clip_global_norm(self.nets[0].collect_params(), 1.0)

    @property
    def has_share(self):
        """Whether this worker counts for the samples that it shares with others."""
        coordinates = self.layout.coordinates()
        return coordinates["tensor"] == coordinates["pipeline"] == 0

    def save(self, folder):
        """Write all values. All workers that have completed the training call it."""
        for _ in range(3):  # the one that writes may be lost
            self.nets[0].save_parameters(f"{folder}/whole.params")
            if os.path.exists(f"{folder}/whole.params"):
                return

    def weights(self, trained_only=False):
        """Return this worker's part of all values, by name and place in the replica."""
        if self.train is None and not hasattr(self, "layout"):
            return super().weights(trained_only)
        coordinates = self.layout.coordinates()
        place = "-".join(str(coordinates[name]) for name in ("pipeline", "shard", "tensor"))
        return {
            f"{place}/{name}": _local(param)
            for name, param in self.nets[0]._collect_params_with_prefix().items()
            if param.placement.is_here
        }


def whole(mode, folder):
    """Return the values that `save` wrote, as `weights` of one process returns them."""
    program = LayoutProgram(mode, is_alone=True)
    program.nets[0].load_parameters(f"{folder}/whole.params")
    return program.weights(trained_only=True)


def _local(param):
    param.placement.settle()
    array = param.placement.part(param.list_data()[0])
    return np.array(array._data.detach())
