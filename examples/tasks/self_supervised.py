"""Learn features of digits without labels, then read the digits from them with a linear probe and 100 labels.

    neomx run -n 2 examples/tasks/self_supervised.py --method simclr

A small convolutional network is trained on unlabeled pictures. `--method` is what it has to do:

    simclr      recognize two views of a picture among the views of all pictures of all workers
    byol        predict what a moving average of the network computes for another view
    rotation    recognize by how many quarter turns a view was turned
    masked      restore the hidden patches of a picture

A linear probe is logistic regression on the frozen features, fitted to ten labeled examples of each digit. The metric
is its gain: how much higher its accuracy on test digits is than with the random weights that the network started with.
Targets: 0.15 for simclr, 0.1 for byol and rotation, 0.05 for masked.

The numbers do not depend on the number of workers, except for rounding: `mx.dist.shard` divides the batches, views are
drawn by sample, SimCLR gathers the features of all workers, and SyncBatchNorm uses the statistics of all of them.
"""

from made.digits import digits
from made.few import few_of_each
from made.views import strong
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn
from neomx.gluon.contrib.nn import SyncBatchNorm

BATCH, FEATURES, PATCH = 100, 64, 7


def encoder():
    """Return the network whose features are probed."""
    net = nn.HybridSequential()
    for inputs, channels in ((1, 16), (16, 32)):
        net.add(nn.Conv2D(channels, 3, padding=1, activation="relu", in_channels=inputs), nn.MaxPool2D())
    net.add(nn.Dense(FEATURES, in_units=32 * 7 * 7))
    return net


def head(outputs):
    """Return layers on top of the features, which are not used after the training."""
    net = nn.HybridSequential()
    net.add(nn.Dense(FEATURES, in_units=FEATURES), SyncBatchNorm(in_channels=FEATURES), nn.Activation("relu"))
    net.add(nn.Dense(outputs, in_units=FEATURES))
    return net


def joined(*layers):
    """Return initialized layers, one after the other."""
    net = nn.HybridSequential()
    net.add(*layers)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    return net


# Each method returns the parameters to train, a transform of pictures, the loss of a batch, and what follows each step.


def simclr(net):
    net, loss_of = joined(net, head(FEATURES)), learn.NTXentLoss(0.2)
    return net.collect_params(), learn.Views(strong, strong), lambda x, y: loss_of(net(x), net(y)), None


def byol(net):
    both = learn.BYOL(joined(net, head(FEATURES)), joined(head(FEATURES)), decay=0.98)
    return both.collect_params(), learn.Views(strong, strong), both, both.update


def rotation(net):
    net, loss_of = joined(net, head(4)), gluon.loss.SoftmaxCrossEntropyLoss()

    def loss(x):
        pictures, turns = learn.rotations(x)
        return loss_of(net(pictures), turns) / 4  # so that a picture counts once

    return net.collect_params(), strong, loss, None


def masked(net):
    net, loss_of = joined(net, head(28 * 28)), learn.MaskedPatchLoss()

    def loss(x, mask):
        patches = learn.to_patches(x, PATCH)
        seen = learn.from_patches(learn.hide_patches(patches, mask), (1, 28, 28))
        return loss_of(net(seen).reshape(patches.shape), patches, mask)

    return net.collect_params(), lambda x: (x, learn.patch_mask((28 // PATCH) ** 2, 0.6)), loss, None


# Each method with its target.
METHODS = {"simclr": (simclr, 0.15), "byol": (byol, 0.1), "rotation": (rotation, 0.1), "masked": (masked, 0.05)}


def probed(task, net, train, test):
    """Return the accuracy of a linear probe. Each worker has a part of the pictures."""

    def rows(x, y):
        shard = mx.dist.shard(gluon.data.ArrayDataset(nd.array(x), nd.array(y)))
        return learn.features(net, gluon.data.DataLoader(shard, task.part(BATCH)))

    return learn.LinearProbe(10, l2=0.1).fit(*rows(*train)).accuracy(*rows(*test))


def main():
    task = Task(
        __doc__,
        metric="gain",
        target=None,
        short=0.06,
        method=list(METHODS),
        epochs=(15, 2),
        pictures=(5000, 2000),
    )
    options = task.options
    method, target = METHODS[options.method]
    task.target = task.target or target
    train_x, train_y, test_x, test_y = digits(options.data)
    train_x, test_x = (x[:, None].astype("float32") / 255 for x in (train_x, test_x))
    few, _ = few_of_each(train_y, 10)
    labeled, test = (train_x[few], train_y[few]), (test_x, test_y)
    net = encoder()
    params, transform, loss_of, after = method(net)
    trainer = gluon.Trainer(params, "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")
    unlabeled = gluon.data.SimpleDataset(train_x[: options.pictures]).transform(transform)
    shard = mx.dist.shard(unlabeled, shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(BATCH), last_batch="discard")
    accuracy = untrained = probed(task, net, labeled, test)
    task.report(0, accuracy=accuracy)
    for epoch in range(options.epochs):
        task.epoch(options.pictures)
        total = 0.0
        for batch in loader:
            batch = batch if isinstance(batch, list) else [batch]
            with autograd.record():
                loss = loss_of(*batch)
            loss.backward()
            trainer.step(BATCH)
            if after is not None:
                after()
            total += loss.sum().asscalar()
        accuracy = probed(task, net, labeled, test)
        task.report(epoch + 1, loss=mean_over_workers(total, options.pictures / task.workers), accuracy=accuracy)
    task.finish(accuracy - untrained, accuracy=accuracy, untrained=untrained)


if __name__ == "__main__":
    main()
