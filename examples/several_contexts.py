"""One network on several devices: each processes a part of every batch, and one Trainer sums the gradients.

Here the devices are cpu(0) and cpu(1); with GPUs pass `[mx.gpu(0), mx.gpu(1)]`.
"""

import argparse

import numpy as np

import neomx as mx
from neomx import autograd, gluon
from neomx.gluon import nn
from neomx.gluon.data.vision import MNIST, transforms
from neomx.gluon.utils import split_and_load


def accuracy(net, batches, contexts):
    metric = mx.metric.Accuracy()
    for x, y in batches:
        outputs = [net(part) for part in split_and_load(x, contexts)]
        metric.update(split_and_load(y, contexts), outputs)
    return metric.get()[1]


def main(epochs=2, batch=100, rate=0.1, contexts=None):
    mx.random.seed(7)
    np.random.seed(7)  # for the order of the loader
    contexts, to_tensor = contexts or [mx.cpu(0), mx.cpu(1)], transforms.ToTensor()
    train = gluon.data.DataLoader(MNIST(train=True, sample=True).transform_first(to_tensor), batch, shuffle=True)
    test = gluon.data.DataLoader(MNIST(train=False, sample=True).transform_first(to_tensor), 500)

    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 5, strides=2, activation="relu"), nn.Conv2D(16, 3, strides=2, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier(), ctx=contexts)
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": rate, "momentum": 0.9})
    for epoch in range(epochs):
        total = 0.0
        for x, y in train:
            parts = zip(split_and_load(x, contexts), split_and_load(y, contexts), strict=True)
            with autograd.record():
                losses = [loss_of(net(data), label) for data, label in parts]
            autograd.backward(losses)
            trainer.step(len(y))
            total += sum(loss.sum().asscalar() for loss in losses)
        reached = accuracy(net, test, contexts)
        print(f"epoch {epoch + 1}: loss {total / 5000:.4f}, test accuracy {reached:.3f}")
    return net, reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    main(**vars(parser.parse_args()))
