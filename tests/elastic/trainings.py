"""Small trainings that survive faults, as data: one for each way in which a program may step."""

import contextlib
from dataclasses import dataclass, replace

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH = 4  # samples of each worker in a batch, while there are as many workers as at the start
STEPS = 8  # batches in an epoch
EPOCHS = 3


@dataclass(frozen=True)
class Mode:
    """How a program trains."""

    optimizer: str = "sgd"
    splits: bool = False  # allreduce_grads, clip, update
    micro: int = 1  # batches whose gradients are accumulated before a step
    loaders: int = 0
    threads: bool = False  # whether the loaders are threads
    layers: str = "dense"
    rest: int = 0  # samples that are missing for a batch of all workers at the end of an epoch: 0 or 1
    trainers: int = 1
    half: bool = False
    compression: str = ""
    own: bool = False  # whether steps are divided by the samples of the batch
    drops: bool = False  # whether layers draw random numbers
    defers: bool = False  # whether the first forward pass determines shapes
    calls: bool = False  # whether the program makes a collective call of its own before each step
    servers: int = 0
    replicas: int = 1  # servers that hold each parameter
    is_replayed: bool = True  # whether the weights can be computed again, bit by bit, in one process


PLAIN = Mode()
MODES = {
    "plain": PLAIN,
    "deferred": replace(PLAIN, defers=True),
    "adam": replace(PLAIN, optimizer="adam"),
    "split": replace(PLAIN, splits=True),
    "accumulate": replace(PLAIN, micro=2),
    "accumulate split": replace(PLAIN, micro=2, splits=True),
    "norm": replace(PLAIN, layers="norm"),
    "dropout": replace(PLAIN, layers="dropout", drops=True),
    "uneven": replace(PLAIN, rest=1),
    "uneven split": replace(PLAIN, rest=1, splits=True),
    "own": replace(PLAIN, rest=1, own=True),
    "loaders": replace(PLAIN, loaders=2),
    "threads": replace(PLAIN, loaders=2, threads=True),
    "calls": replace(PLAIN, calls=True),
    "half": replace(PLAIN, half=True, is_replayed=False),
    "two": replace(PLAIN, trainers=2),
    "buckets": replace(PLAIN, layers="wide"),
    "sparse": replace(PLAIN, layers="sparse"),
    "compressed": replace(PLAIN, compression="2bit", is_replayed=False),
    "servers": replace(PLAIN, servers=2),
    "servers adam": replace(PLAIN, servers=2, optimizer="adam"),
    "servers deferred": replace(PLAIN, servers=2, defers=True),
    "servers split": replace(PLAIN, servers=2, splits=True),
    "servers accumulate": replace(PLAIN, servers=2, micro=2),
    "servers norm": replace(PLAIN, servers=1, layers="norm"),
    "servers uneven": replace(PLAIN, servers=2, rest=1),
    "servers uneven split": replace(PLAIN, servers=1, rest=1, splits=True),
    "servers wide": replace(PLAIN, servers=2, layers="wide"),
    "servers sparse": replace(PLAIN, servers=2, layers="sparse"),
    "servers compressed": replace(PLAIN, servers=2, compression="2bit", is_replayed=False),
    "replicas": replace(PLAIN, servers=2, replicas=2),
    "replicas adam": replace(PLAIN, servers=3, replicas=2, optimizer="adam"),
    "replicas wide": replace(PLAIN, servers=2, replicas=2, layers="wide"),
    "replicas sparse": replace(PLAIN, servers=2, replicas=2, layers="sparse"),
    "replicas split": replace(PLAIN, servers=2, replicas=2, splits=True),
}


def total(mode, workers):
    """Return the number of samples of the data, for a number of workers at the start."""
    return BATCH * workers * STEPS - mode.rest * (BATCH * workers - workers + 1)


def steps_of_epoch(mode):
    """Return the number of steps of all Trainers in an epoch."""
    return STEPS // mode.micro * mode.trainers


def data(count):
    rng = np.random.RandomState(3)
    x, y = rng.randn(count, 8).astype("float32"), rng.randn(count, 1).astype("float32")
    return gluon.data.ArrayDataset(x, y, np.arange(count).astype("float32"))


def network(layers):
    net = nn.HybridSequential()
    if layers == "sparse":
        net.add(nn.Embedding(50, 4, sparse_grad=True), nn.Dense(1))
    elif layers == "wide":
        net.add(*(nn.Dense(width, activation="tanh", in_units=into) for into, width in ((8, 1100), (1100, 1100))))
        net.add(nn.Dense(1, in_units=1100))
    else:
        net.add(nn.Dense(9 if layers == "other" else 16, activation="tanh"))
        if layers == "norm":
            net.add(nn.BatchNorm())
        if layers == "dropout":
            net.add(nn.Dropout(0.3))
        net.add(nn.Dense(1))
    net.initialize(mx.init.Xavier())
    return net


class Program:
    """The networks and Trainers of a training."""

    def __init__(self, mode, kvstore):
        mx.random.seed(1)
        if mode.half:
            mx.amp.init("bfloat16")
        self.mode, self.loss = mode, gluon.loss.L2Loss()
        self.nets = [network(mode.layers) for _ in range(mode.trainers)]
        if kvstore is None or not mode.defers:
            for net in self.nets:
                self.output(net, nd.zeros((2, 8)))
        settings = {"learning_rate": 0.01} if mode.optimizer == "adam" else {"learning_rate": 0.05, "momentum": 0.9}
        more = {"compression_params": {"type": mode.compression, "threshold": 0.01}} if mode.compression else {}
        if mode.splits:
            more["update_on_kvstore"] = False
        self.trainers = [
            gluon.Trainer(net.collect_params(), mode.optimizer, settings, kvstore=kvstore, **more) for net in self.nets
        ]
        if mode.half:
            for trainer in self.trainers:
                mx.amp.init_trainer(trainer)
        if mode.micro > 1:
            for net in self.nets:
                net.collect_params().setattr("grad_req", "add")

    def output(self, net, x):
        if self.mode.layers == "sparse":
            x = nd.abs(x * 7).astype("int32")
        return net(x)

    def backward(self, x, y, then=lambda: None):
        """Compute the gradients of a batch. `then` is called between forward and backward."""
        with autograd.record():
            values = [self.loss(self.output(net, x), y) for net in self.nets]
            with contextlib.ExitStack() as scales:
                if self.mode.half:
                    for value, trainer in zip(list(values), self.trainers, strict=True):
                        values.append(scales.enter_context(mx.amp.scale_loss(value, trainer)))
                    del values[: len(self.nets)]
                then()
                autograd.backward(values)

    def gradients(self):
        return [[p.grad() for p in net.collect_params().values() if p.grad_req != "null"] for net in self.nets]

    def clip(self):
        for arrays in self.gradients():
            gluon.utils.clip_global_norm(arrays, 1.0)

    def step(self, divisor):
        for trainer in self.trainers:
            if self.mode.splits:
                trainer.allreduce_grads()
                self.clip()
                trainer.update(divisor)
            else:
                trainer.step(divisor)
        self.forget()

    def forget(self):
        """Drop accumulated gradients."""
        if self.mode.micro > 1:
            for net in self.nets:
                net.collect_params().zero_grad()

    def weights(self, trained_only=False):
        """Return all values by name."""
        return {
            f"{number}/{name}": param.data().asnumpy()
            for number, net in enumerate(self.nets)
            for name, param in net._collect_params_with_prefix().items()
            if not trained_only or param.grad_req != "null"
        }
