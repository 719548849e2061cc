"""Multi-task learning: predict the digit and the amount of ink, with a shared trunk, two heads and two losses."""

import argparse

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.sample import digits


class TwoHeads(gluon.HybridBlock):
    """Scores of the digits, and an estimate of the ink, from shared features."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.trunk = nn.HybridSequential()
            self.trunk.add(nn.Dense(128, activation="relu"), nn.Dense(64, activation="relu"))
            self.digit = nn.Dense(10)
            self.ink = nn.Dense(1)

    def hybrid_forward(self, F, x):
        h = self.trunk(x)
        return self.digit(h), self.ink(h)


def dataset(images, labels):
    """Return a dataset of (image, digit, ink), with the ink standardized."""
    x = nd.array(images).reshape((-1, 784)) / 255
    ink = x.mean(axis=1)
    return gluon.data.ArrayDataset(x, nd.array(labels), (ink - 0.13) / 0.043)


def main(epochs=5, batch=50, rate=2e-3, ink_weight=0.5):
    mx.random.seed(7)
    np.random.seed(7)  # for the order of the loader
    train_x, train_y, test_x, test_y = digits()
    train = gluon.data.DataLoader(dataset(train_x, train_y), batch, shuffle=True)
    x, digit, ink = (nd.array(part) for part in dataset(test_x, test_y)[:])

    net = TwoHeads()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    digit_loss, ink_loss = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L2Loss(weight=ink_weight)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate})
    accuracy, error = mx.metric.Accuracy(), mx.metric.RMSE()
    for epoch in range(epochs):
        for batch_x, batch_digit, batch_ink in train:
            with autograd.record():
                scores, estimate = net(batch_x)
                losses = [digit_loss(scores, batch_digit), ink_loss(estimate, batch_ink)]
            autograd.backward(losses)
            trainer.step(len(batch_x))
        scores, estimate = net(x)
        for metric, label, output in ((accuracy, digit, scores), (error, ink, estimate)):
            metric.reset()
            metric.update([label], [output])
        print(f"epoch {epoch + 1}: accuracy {accuracy.get()[1]:.3f}, error of the ink {error.get()[1]:.3f}")
    return accuracy.get()[1], error.get()[1]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    main(**vars(parser.parse_args()))
