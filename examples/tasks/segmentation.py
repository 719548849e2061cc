"""Segment pictures: find the digit that each pixel belongs to, with a fully convolutional network or a U-Net.

    neomx run -n 2 examples/tasks/segmentation.py --network unet

Each canvas of 48x48 pixels has one to three digits in different sizes and places. The network gives eleven scores for
each pixel: for the background and for the ten digits. The metric is the mean intersection over union: for each class,
the number of pixels that have it in the answer and in truth, divided by the number that have it in either.

The digits are those included in neomx, or those of MNIST if `--data` is a directory with its files.
"""

import numpy as np
from made.canvases import canvases
from made.digits import digits
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH, CLASSES, CHANNELS = 20, 11, (12, 24, 48, 96)
BACKGROUND = 0.1  # the weight of a pixel of the background, which is nine tenths of a canvas


def conv(channels):
    return nn.Conv2D(channels, 3, padding=1, activation="relu")


class Stages(gluon.HybridBlock):
    """What both networks begin with: features of the picture in full size, and in one half, one quarter, one eighth."""

    def __init__(self):
        super().__init__()
        self.stages = nn.HybridSequential()
        for number, channels in enumerate(CHANNELS):
            stage = nn.HybridSequential()
            stage.add(*([nn.MaxPool2D()] if number else []), conv(channels), conv(channels))
            self.stages.add(stage)

    def features(self, x):
        """Return the features, the largest first."""
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        return found


class FCN(Stages):
    """Computes scores from the features of each size. It enlarges the small ones and adds them to the larger ones."""

    def __init__(self):
        super().__init__()
        self.scores, self.enlarge = nn.HybridSequential(), nn.HybridSequential()
        self.scores.add(*(nn.Conv2D(CLASSES, 1) for _ in CHANNELS))
        self.enlarge.add(*(nn.Conv2DTranspose(CLASSES, 4, strides=2, padding=1) for _ in CHANNELS[1:]))

    def hybrid_forward(self, F, x):
        *larger, result = (score(features) for score, features in zip(self.scores, self.features(x), strict=True))
        for enlarge, scores in zip(self.enlarge, reversed(larger), strict=True):
            result = enlarge(result) + scores
        return result


class UNet(Stages):
    """Enlarges the smallest features step by step. A convolution combines them with the larger ones at each step."""

    def __init__(self):
        super().__init__()
        self.combine = nn.HybridSequential()
        self.combine.add(*(conv(channels) for channels in reversed(CHANNELS[:-1])))
        self.scores = nn.Conv2D(CLASSES, 1)

    def hybrid_forward(self, F, x):
        *larger, x = self.features(x)
        for combine, features in zip(self.combine, reversed(larger), strict=True):
            x = combine(F.concat(F.UpSampling(x, scale=2, sample_type="nearest"), features, dim=1))
        return self.scores(x)


def mean_iou(net, batches):
    """Return the mean intersection over union of the classes. Each worker tests a part of the pictures."""
    counts = np.zeros((CLASSES, CLASSES))  # of pixels, by their class in truth and in the answer
    for x, y in batches:
        pairs = y.asnumpy() * CLASSES + net(x).argmax(axis=1).asnumpy()
        counts += np.bincount(pairs.astype(int).ravel(), minlength=CLASSES**2).reshape(CLASSES, CLASSES)
    counts = mx.dist.all_reduce(nd.array(counts, dtype="float64")).asnumpy()
    both = counts.diagonal()
    return (both / (counts.sum(axis=0) + counts.sum(axis=1) - both)).mean()


def main():
    networks = {"fcn": FCN, "unet": UNet}
    options = {"epochs": (8, 1), "count": (4000, 2000), "network": list(networks)}
    task = Task(__doc__, metric="mean IoU", target=0.75, short=0.12, **options)
    seed = task.options.seed
    train_x, train_y, test_x, test_y = digits(task.options.data)
    train = canvases(train_x, train_y, task.options.count, seed)
    test = canvases(test_x, test_y, task.options.count // 4, seed + 1)
    data, test_data = (gluon.data.ArrayDataset(part.pixels, part.masks) for part in (train, test))
    batches = gluon.data.DataLoader(mx.dist.shard(data, shuffle=True, seed=seed), task.part(BATCH))
    test_batches = gluon.data.DataLoader(mx.dist.shard(test_data), 100)

    net = networks[task.options.network]()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss(axis=1)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")

    for epoch in range(task.options.epochs):
        task.epoch(len(data))
        total, seen = nd.zeros(1), 0
        for x, y in batches:
            weight = nd.where(y == 0, BACKGROUND * nd.ones_like(y), nd.ones_like(y)).expand_dims(1)
            with autograd.record():
                loss = loss_of(net(x), y, weight)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(x)
        found = mean_iou(net, test_batches)
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen), iou=found)
    task.finish(found)


if __name__ == "__main__":
    main()
