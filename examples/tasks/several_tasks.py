"""Learn three tasks at once, and weigh their losses in three ways.

    neomx run -n 2 examples/tasks/several_tasks.py

From the picture of a digit, a network with one trunk and three heads finds the digit, the amount of ink, and whether
the digit is odd. The loss of the ink is much larger than the others. The weights of the losses are

    fixed         equal, so the network mostly learns the ink
    uncertainty   learned together with the network, from the noise of each task
    norms         adjusted so that the gradients of all tasks have similar norms (GradNorm)

The metric is the accuracy on digits in the worse of the two adaptive ways. That with fixed weights is printed too. One
worker and several give the same numbers up to rounding, whose effect grows with the number of steps.
"""

import numpy as np
from made.digits import digits
from task import Task

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

BATCH = 50
CLASSES, VALUES = gluon.loss.SoftmaxCrossEntropyLoss(), gluon.loss.L2Loss()


def dataset(images, labels):
    """Return pictures with the targets of three tasks: the digit, its ink in units of two pixels, and whether odd."""
    x = images[:, None].astype("float32") / 255
    ink = (x.sum((1, 2, 3)) - 100) / 2
    return gluon.data.ArrayDataset(nd.array(x), nd.array(labels), nd.array(ink), nd.array(labels % 2))


def network():
    trunk = nn.HybridSequential()
    for channels in (8, 16):
        trunk.add(nn.Conv2D(channels, 5, activation="relu"), nn.MaxPool2D())
    trunk.add(nn.Dense(64, activation="relu"))
    net = learn.SharedTrunk(trunk, {"digit": nn.Dense(10), "ink": nn.Dense(1), "parity": nn.Dense(2)})
    net.initialize(mx.init.Xavier())
    net(nd.zeros((1, 1, 28, 28)))
    net.hybridize()
    return net


def train(task, weighting, data, test):
    """Train a network with one way to weigh losses. Return its accuracy on digits and the error of the ink."""
    mx.random.seed(task.options.seed)
    net = network()
    uncertainty = learn.UncertaintyWeights(3)
    uncertainty.initialize()
    uncertainty.log_variance.lr_mult = 25  # a single number needs larger steps than a weight
    norms = learn.GradNorm(3, net.trunk[-1].weight, alpha=0.5)
    params = dict(net.collect_params().items())
    if weighting == "uncertainty":
        params |= uncertainty.collect_params().items()
    trainer = gluon.Trainer(params, "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")
    part = mx.dist.shard(data, shuffle=True, seed=task.options.seed)
    loader = gluon.data.DataLoader(part, task.part(BATCH), last_batch="discard")
    for epoch in range(1, 1 + task.options.epochs):
        task.epoch(len(data))
        for x, *targets in loader:
            with autograd.record():
                losses = [
                    loss(out, y) for loss, out, y in zip((CLASSES, VALUES, CLASSES), net(x), targets, strict=True)
                ]
                if weighting == "fixed":
                    total = learn.weighted_loss(losses, [1, 1, 1])
                elif weighting == "uncertainty":
                    total = uncertainty(*losses)
            if weighting == "norms":
                norms.backward(losses)
            else:
                total.backward()
            trainer.step(BATCH)
        x, digit, ink, _ = test[:]
        scores, guess, _ = net(x)
        accuracy = (scores.argmax(axis=1) == nd.array(digit)).mean().asscalar()
        error = float(np.sqrt(np.mean((guess.asnumpy()[:, 0] - ink) ** 2)))
        task.report(epoch, **{f"accuracy_{weighting}": accuracy, "ink_error": error})
    return accuracy, error


def main():
    task = Task(__doc__, metric="accuracy", target=0.92, short=0.3, epochs=(15, 2))
    train_x, train_y, test_x, test_y = digits(task.options.data)
    if task.options.short:
        train_x, train_y = train_x[:2500], train_y[:2500]
    data, test = dataset(train_x, train_y), dataset(test_x, test_y)
    found = {way: train(task, way, data, test) for way in ("fixed", "uncertainty", "norms")}
    more = {f"with_{way}": accuracy for way, (accuracy, _) in found.items()}
    task.finish(min(found["uncertainty"][0], found["norms"][0]), **more)


if __name__ == "__main__":
    main()
