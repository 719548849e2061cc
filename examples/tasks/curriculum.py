"""Curriculum learning: begin with easy pictures, and use the hardest ones, most of them with wrong labels, late.

    neomx run -n 2 examples/tasks/curriculum.py

A third of the training labels are wrong. A linear model is trained for a few epochs, and its loss on a picture is the
difficulty of the picture: large for unusual digits and for wrong labels. A convolutional network then begins with the
easiest 40 % of the pictures, and each epoch adds harder ones, up to 70 %. An equal network is trained for the same
number of steps on all pictures, and begins to learn the wrong labels by heart. The metric is the accuracy of the first
network on test pictures, whose labels are right; that of the other is printed too. One worker and several give the same
numbers up to rounding, whose effect grows with the number of steps.
"""

import numpy as np
from made.digits import digits
from task import Task

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

BATCH = 50
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


def network(*layers):
    net = nn.HybridSequential()
    net.add(*layers, nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def convolutional():
    layers = [layer for size in (8, 16) for layer in (nn.Conv2D(size, 5, activation="relu"), nn.MaxPool2D())]
    return network(*layers, nn.Dense(64, activation="relu"))


def train(task, net, part, steps, rate=2e-3, evaluate=None):
    """Train for a number of steps on this worker's part of the data, for as many epochs as that takes."""
    loader = gluon.data.DataLoader(part, task.part(BATCH), last_batch="discard")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate}, kvstore="dist_sync")
    done = 0
    while done < steps:
        task.epoch(len(loader) * BATCH)
        for x, y in loader:
            with autograd.record():
                loss = LOSS(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            done += 1
        if evaluate is not None:
            task.report(part.epoch, accuracy=evaluate(net))


def main():
    task = Task(__doc__, metric="accuracy", target=0.9, short=0.55, epochs=(30, 4))
    random = np.random.default_rng(task.options.seed)
    train_x, train_y, test_x, test_y = digits(task.options.data)
    if task.options.short:
        train_x, train_y = train_x[:2500], train_y[:2500]
    is_wrong = random.random(len(train_y)) < 1 / 3
    labels = np.where(is_wrong, (train_y + random.integers(1, 10, len(train_y))) % 10, train_y)
    x, test_x = (nd.array(pictures[:, None] / 255) for pictures in (train_x, test_x))
    data = gluon.data.ArrayDataset(x, nd.array(labels))

    def accuracy(net):
        return (net(test_x).argmax(axis=1) == nd.array(test_y)).mean().asscalar()

    seed, epochs = task.options.seed, task.options.epochs
    linear = network()
    train(task, linear, mx.dist.shard(data, shuffle=True, seed=seed), 4 * len(data) // BATCH)
    difficulty = LOSS(linear(x), nd.array(labels))
    course = learn.Curriculum(data, difficulty, first=0.4, epochs=2 * epochs, seed=seed)
    hardest = is_wrong[course.ranked[-len(data) // 4 :]].mean()
    steps = sum(course.pool(epoch) // BATCH for epoch in range(epochs))

    net, plain = convolutional(), convolutional()
    train(task, net, course, steps, evaluate=accuracy)
    train(task, plain, mx.dist.shard(data, shuffle=True, seed=seed), steps)
    task.finish(accuracy(net), without_curriculum=accuracy(plain), wrong_among_hardest=hardest)


if __name__ == "__main__":
    main()
