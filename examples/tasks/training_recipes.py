"""A training loop with what practitioners add to it, on any number of workers.

    neomx run -n 2 examples/tasks/training_recipes.py

A network classifies digits. A batch of 200 pictures is processed in four micro-batches, which need a quarter of the
memory, and workers exchange gradients once per batch. Their norm is clipped, labels are smoothed, and the weights are
averaged over the steps. Training ends when the loss of the averaged weights on a tenth of the training pictures has not
improved for three epochs. Each worker evaluates its part of these pictures, and all workers stop in the same epoch. The
metric is the accuracy of the averaged weights on test pictures. One worker and several give the same numbers up to
rounding, whose effect grows with the number of steps.
"""

import numpy as np
from made.digits import digits
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

BATCH, PARTS, MAX_NORM = 200, 4, 1.0


def network():
    net = nn.HybridSequential()
    for channels in (16, 32):
        net.add(nn.Conv2D(channels, 5), nn.GroupNorm(8), nn.Activation("relu"), nn.MaxPool2D())
    net.add(nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net(nd.zeros((1, 1, 28, 28)))
    net.hybridize()
    return net


def dataset(pictures, labels):
    return gluon.data.ArrayDataset(nd.array(pictures[:, None] / 255), nd.array(labels))


def train_epoch(net, trainer, ema, loader):
    """Train for one epoch. Return the mean norm of the gradients before clipping."""
    loss_of = learn.SmoothedCrossEntropyLoss(0.1)
    norms = []
    for x, y in loader:
        for part_x, part_y in learn.micro_batches(trainer, PARTS, x, y):
            with autograd.record():
                loss = loss_of(net(part_x), part_y)
            loss.backward()
        norms.append(learn.clipped_step(trainer, BATCH, MAX_NORM))
        ema.update()
    return np.mean(norms)


def accuracy(net, loader):
    metric = mx.metric.Accuracy()
    for x, y in loader:
        metric.update(y, net(x))
    return mean_over_workers(metric.sum_metric, metric.num_inst)


def main():
    task = Task(__doc__, metric="accuracy", target=0.975, short=0.7, epochs=(40, 5))
    train_x, train_y, test_x, test_y = digits(task.options.data)
    if task.options.short:
        train_x, train_y = train_x[:2000], train_y[:2000]
    held = len(train_x) // 10
    train = mx.dist.shard(dataset(train_x[held:], train_y[held:]), shuffle=True, seed=task.options.seed)
    loader = gluon.data.DataLoader(train, task.part(BATCH), last_batch="discard")
    validation, test = (
        gluon.data.DataLoader(mx.dist.shard(dataset(x, y)), 100)
        for x, y in ((train_x[:held], train_y[:held]), (test_x, test_y))
    )

    net = network()
    trainer = gluon.Trainer(
        net.collect_params(), "adam", {"learning_rate": 3e-3}, kvstore="dist_sync", update_on_kvstore=False
    )
    ema = learn.EMA(net, decay=0.98)
    monitor, loss_of = mx.metric.Loss(), gluon.loss.SoftmaxCrossEntropyLoss()
    stopping = learn.EarlyStopping(monitor, patience=3, mode="min")
    for epoch in range(1, 1 + task.options.epochs):
        task.epoch(len(loader) * BATCH)
        norm = train_epoch(net, trainer, ema, loader)
        monitor.reset()
        with ema:
            for x, y in validation:
                monitor.update(None, [loss_of(net(x), y)])
        ends = stopping.should_stop()
        task.report(epoch, norm=norm, best_loss=stopping.best)
        if ends:
            break
    last = accuracy(net, test)
    with ema:
        task.finish(accuracy(net, test), epochs=epoch, with_last_weights=last)


if __name__ == "__main__":
    main()
