"""Recognize all digits on a canvas: a picture has several labels.

    neomx run -n 2 examples/tasks/several_labels.py

Each canvas of 48x48 pixels has one to three digits in different sizes and places. The network gives a score for each
of the ten digits, and each score is trained separately (binary cross entropy).

The metric is the mean average precision: for each digit, the test canvases are ranked by its score, and the precision
is averaged over those that have it. `exact` is the share of canvases on which all ten answers are right.

The digits are those included in neomx, or those of MNIST if `--data` is a directory with its files.
"""

import numpy as np
from made.canvases import canvases
from made.digits import digits
from made.precision import average_precision
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH = 50


def network():
    """Return a network that looks for each digit everywhere and keeps the best place (GlobalMaxPool2D)."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 5, strides=2, padding=2, activation="relu"))
    net.add(nn.Conv2D(32, 3, padding=1, activation="relu"), nn.MaxPool2D())
    net.add(nn.Conv2D(64, 3, padding=1, activation="relu"))
    net.add(nn.Conv2D(64, 3, padding=1, activation="relu"))
    absent = mx.init.Constant(-3)  # most places have none of the digits
    net.add(nn.Conv2D(10, 5, bias_initializer=absent), nn.GlobalMaxPool2D(), nn.Flatten())
    return net


def evaluate(net, test):
    """Return the mean average precision and the share of exact answers."""
    scores = np.concatenate([net(nd.array(x)).asnumpy() for x in np.array_split(test.pixels, 5)])
    precision = [average_precision(s, p, p.sum()) for s, p in zip(scores.T, test.present.T, strict=True)]
    return np.mean(precision), ((scores > 0) == test.present).all(axis=1).mean()


def main():
    task = Task(__doc__, metric="mean average precision", target=0.97, short=0.4, epochs=(10, 1), count=(6000, 4000))
    seed = task.options.seed
    train_x, train_y, test_x, test_y = digits(task.options.data)
    train = canvases(train_x, train_y, task.options.count, seed)
    test = canvases(test_x, test_y, task.options.count // 4, seed + 1)
    data = gluon.data.ArrayDataset(train.pixels, train.present)
    batches = gluon.data.DataLoader(mx.dist.shard(data, shuffle=True, seed=seed), task.part(BATCH))

    net = network()
    net.initialize(mx.init.MSRAPrelu(slope=0))
    net.hybridize()
    loss_of = gluon.loss.SigmoidBinaryCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")

    for epoch in range(task.options.epochs):
        task.epoch(len(data))
        total, seen = nd.zeros(1), 0
        for x, y in batches:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(x)
        precision, exact = evaluate(net, test)
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen), precision=precision, exact=exact)
    task.finish(precision, exact=exact)


if __name__ == "__main__":
    main()
