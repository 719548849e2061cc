"""Learn digits from 100 labeled and 4900 unlabeled pictures.

    neomx run -n 2 examples/tasks/semi_supervised.py --method fixmatch

The program first trains a network on the labeled pictures only, and then another one, with as many steps, on all of
them. `--method` says how the second one uses unlabeled pictures:

    pseudo      the first network labels the pictures that it is sure of, and the second learns from them too
    fixmatch    the second network labels weakly changed views that it is sure of, for strongly changed ones

The metric is the gain: how much higher the accuracy of the second network on test digits is than that of the first. The
target is 0.07.

The numbers do not depend on the number of workers, except for rounding: `mx.dist.shard` divides the batches, and the
views of a picture are drawn by sample.
"""

import itertools

import numpy as np
from made.digits import digits
from made.few import few_of_each
from made.views import strong, weak
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

LABELED, RATIO = 50, 4  # labeled pictures in a batch of all workers, and how many times as many unlabeled ones
STEPS = 20  # in an epoch


def network():
    net = nn.HybridSequential()
    for channels in (16, 32):
        net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"), nn.MaxPool2D())
    net.add(nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


def batches(task, dataset, size):
    """Yield this worker's batches, epoch after epoch."""
    shard = mx.dist.shard(dataset, shuffle=True, seed=task.options.seed)
    loader = gluon.data.DataLoader(shard, task.part(size), last_batch="discard")
    return itertools.chain.from_iterable(itertools.repeat(loader))


def accuracy(task, net, test):
    right = count = 0
    for x, y in gluon.data.DataLoader(mx.dist.shard(test), task.part(200)):
        right, count = right + (net(x).argmax(axis=1) == y).sum().asscalar(), count + len(y)
    return mean_over_workers(right, count)


def train(task, loss_of, labeled, unlabeled, test):
    """Train a network with `loss_of(net, *labeled batch, *unlabeled batch)`; return it and its accuracy."""
    mx.random.seed(task.options.seed)  # both networks start with the same weights
    net = network()
    net(nd.zeros((1, 1, 28, 28)))
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3}, kvstore="dist_sync")
    with_labels = batches(task, labeled, LABELED)
    without = itertools.repeat([]) if unlabeled is None else batches(task, unlabeled, LABELED * RATIO)
    for epoch in range(task.options.epochs):
        task.epoch(STEPS * LABELED * (1 if unlabeled is None else 1 + RATIO))
        total = 0.0
        for _ in range(STEPS):
            one, other = next(with_labels), next(without)
            with autograd.record():
                losses = loss_of(net, *one, *other)
            losses.backward()
            trainer.step(LABELED)
            total += losses.sum().asscalar()
        found = accuracy(task, net, test)
        task.report(epoch + 1, loss=mean_over_workers(total, STEPS * LABELED / task.workers), accuracy=found)
    return net, found


supervised_loss = gluon.loss.SoftmaxCrossEntropyLoss()


def supervised(net, x, y):
    return supervised_loss(net(x), y)


def pseudo(task, teacher, labeled, pictures, test):
    parts = np.array_split(pictures, len(pictures) // 500)  # the memory for all at once would be large
    labels, sure = learn.confident(nd.concat(*[teacher(nd.array(part)) for part in parts], dim=0), 0.9)
    labels, sure = labels.asnumpy(), np.flatnonzero(sure.asnumpy())
    chosen = gluon.data.ArrayDataset(pictures[sure], labels[sure]).transform_first(strong)

    def losses(net, x, y, others, their_labels):
        return nd.concat(supervised(net, x, y), supervised(net, others, their_labels) / RATIO, dim=0)

    return train(task, losses, labeled, chosen, test)


def fixmatch(task, teacher, labeled, pictures, test):
    views = gluon.data.SimpleDataset(pictures).transform(learn.Views(weak, strong))
    loss_of = learn.FixMatchLoss(0.95, ratio=RATIO)
    return train(task, lambda net, x, y, one, other: loss_of(net(x), y, net(one), net(other)), labeled, views, test)


METHODS = {"pseudo": pseudo, "fixmatch": fixmatch}


def main():
    task = Task(__doc__, metric="gain", target=0.07, short=0.04, method=list(METHODS), epochs=(18, 5))
    method = task.options.method
    train_x, train_y, test_x, test_y = digits(task.options.data)
    train_x, test_x = (x[:, None].astype("float32") / 255 for x in (train_x, test_x))
    few, others = few_of_each(train_y, 10)
    labeled = gluon.data.ArrayDataset(train_x[few], train_y[few].astype("float32")).transform_first(weak)
    test = gluon.data.ArrayDataset(nd.array(test_x), nd.array(test_y))
    teacher, before = train(task, supervised, labeled, None, test)
    _, after = METHODS[method](task, teacher, labeled, train_x[others], test)
    task.finish(after - before, supervised=before, semi_supervised=after)


if __name__ == "__main__":
    main()
