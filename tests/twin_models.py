"""Small nets, data and loops shared by the tests of twins and the processes they start."""

import numpy as np
import torch

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

IMAGES = np.random.RandomState(0).randn(6, 1, 12, 12).astype("float32")
ROWS = np.random.RandomState(1).randn(8, 12).astype("float32")


def _initialized(*layers):
    net = nn.HybridSequential()
    net.add(*layers)
    mx.random.seed(7)
    net.initialize(mx.init.Xavier())
    return net


def mlp():
    """Return an MLP with the same weights at every call."""
    return _initialized(nn.Dense(16, in_units=12, activation="relu"), nn.Dense(4, in_units=16))


def lenet(dropout=0.0):
    """Return a convolution, BatchNorm, pooling, Dropout and Dense, with the same weights at every call."""
    return _initialized(
        nn.Conv2D(4, 3, in_channels=1, activation="relu"),
        nn.BatchNorm(in_channels=4),
        nn.MaxPool2D(2, 2),
        nn.Flatten(),
        nn.Dense(8, in_units=100, activation="relu"),
        nn.Dropout(dropout),
        nn.Dense(3, in_units=8),
    )


def train_torch(call, optimizer, data, steps=4):
    """Return the losses of a torch training loop, which reseeds dropout in each step."""
    losses = []
    for step in range(steps):
        mx.random.seed(step)
        optimizer.zero_grad()
        loss = call(torch.tensor(data)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def train_block(net, step_weights, data, steps=4):
    """Return the losses of an MXNet training loop, which reseeds dropout in each step."""
    losses = []
    for step in range(steps):
        mx.random.seed(step)
        with autograd.record():
            loss = (net(nd.array(data)) ** 2).mean()
        loss.backward()
        step_weights()
        losses.append(loss.asscalar().item())
    return losses


def sgd_trainer(net):
    """Return a step of gluon's momentum SGD with a constant rate, which is equivalent to torch's."""
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.02, "momentum": 0.9})
    return lambda: trainer.step(1)


def sgd_torch(twin):
    """Return torch's momentum SGD."""
    return torch.optim.SGD(twin.parameters(), lr=0.02, momentum=0.9)


def values(net):
    """Return all parameters of a Block, in order."""
    return [param.data().asnumpy() for param in net.collect_params().values()]
