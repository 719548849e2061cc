"""A user-defined layer with parameters: classify handwritten digits by radial basis functions."""

import argparse

import numpy as np

import neomx as mx
from neomx import autograd, gluon
from neomx.gluon import nn
from neomx.gluon.data.vision import MNIST, transforms


class RadialBasis(gluon.HybridBlock):
    """How close the input is to each of `units` centers: exp(-distance² / width²). Centers and widths are trained."""

    def __init__(self, units, in_units, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.centres = self.params.get("centres", shape=(units, in_units))
            self.widths = self.params.get("widths", shape=(1, units), init=mx.init.Constant(5))

    def hybrid_forward(self, F, x, centres, widths):
        """`F` is mx.nd, or mx.sym if the network is hybridized; parameters are passed as arguments."""
        squares = F.broadcast_add(F.sum(x**2, axis=1, keepdims=True), F.sum(centres**2, axis=1).expand_dims(0))
        distances = squares - 2 * F.dot(x, centres, transpose_b=True)
        return F.exp(-F.broadcast_div(distances, widths**2))


def accuracy(net, batches):
    metric = mx.metric.Accuracy()
    for x, y in batches:
        metric.update(y, net(x))
    return metric.get()[1]


def main(epochs=3, batch=50, rate=0.005, hybridize=True):
    mx.random.seed(7)
    np.random.seed(7)  # for the order of the loader
    to_tensor = transforms.ToTensor()
    train = gluon.data.DataLoader(MNIST(train=True, sample=True).transform_first(to_tensor), batch, shuffle=True)
    test = gluon.data.DataLoader(MNIST(train=False, sample=True).transform_first(to_tensor), 500)

    net = nn.HybridSequential()
    net.add(nn.Flatten(), RadialBasis(128, in_units=784), nn.BatchNorm(), nn.Dense(10))
    net.initialize(mx.init.Normal(0.1))
    if hybridize:
        net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate})
    for epoch in range(epochs):
        for x, y in train:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(len(y))
        reached = accuracy(net, test)
        print(f"epoch {epoch + 1}: loss {loss.mean().asscalar():.4f}, test accuracy {reached:.3f}")
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    main(**vars(parser.parse_args()))
