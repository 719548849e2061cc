"""A user-defined loss: train on handwritten digits of which 40 percent have wrong labels.

Cross entropy also fits the wrong labels. The loss (1 - p^q) / q of the label's probability p puts less weight on
samples that are far off, and reaches a much better accuracy.
"""

import argparse

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.sample import digits


class GeneralisedCrossEntropy(gluon.loss.Loss):
    """(1 - p^q) / q: cross entropy for q near 0, the mean absolute error for q = 1."""

    def __init__(self, q=0.7, weight=None, batch_axis=0, **kwargs):
        super().__init__(weight, batch_axis, **kwargs)
        self._q = q

    def hybrid_forward(self, F, pred, label):
        p = F.pick(F.softmax(pred), label)
        return (1 - p**self._q) / self._q


def spoiled(labels, part, seed=7):
    """Return labels of which this fraction is replaced by random digits."""
    rng = np.random.RandomState(seed)
    return np.where(rng.uniform(size=labels.shape) < part, rng.randint(0, 10, labels.shape), labels)


def train(loss_of, batches, epochs, rate):
    mx.random.seed(7)
    np.random.seed(7)  # for the order of the loader
    net = nn.HybridSequential()
    net.add(nn.Dense(256, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate})
    for _ in range(epochs):
        for x, y in batches:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(len(y))
    return net


def main(epochs=10, batch=50, rate=1e-3, noise=0.4):
    train_x, train_y, test_x, test_y = digits()
    labels = spoiled(train_y, noise).astype("float32")
    data = gluon.data.ArrayDataset(nd.array(train_x).expand_dims(1) / 255, labels)
    batches = gluon.data.DataLoader(data, batch, shuffle=True)
    reached = {}
    for loss_of in (gluon.loss.SoftmaxCrossEntropyLoss(), GeneralisedCrossEntropy()):
        net = train(loss_of, batches, epochs, rate)
        metric = mx.metric.Accuracy()
        metric.update([nd.array(test_y)], [net(nd.array(test_x).expand_dims(1) / 255)])
        reached[type(loss_of).__name__] = metric.get()[1]
        print(f"{type(loss_of).__name__}: test accuracy {metric.get()[1]:.3f}")
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    main(**vars(parser.parse_args()))
