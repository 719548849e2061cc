"""Classify pictures of 32x32 pixels with a small ResNet, VGG or MobileNet of the model zoo.

    neomx run -n 2 examples/tasks/image_classification.py --network mobilenet

The pictures are handwritten digits, or those of CIFAR-10 or MNIST if `--data` is a directory with their files. The
networks are narrow, so that they train on a CPU within minutes. The metric is the accuracy on test pictures.

A plain BatchNorm uses the statistics of its worker's part of a batch, so its results depend on the number of workers.
`synchronize` replaces each one by a SyncBatchNorm, which uses the statistics of the whole batch.
"""

import pathlib

import numpy as np
from made.digits import digits
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.gluon.contrib.nn import SyncBatchNorm
from neomx.gluon.model_zoo import vision

BATCH, BORDER = 50, 2


def resnet(classes):
    """Return a ResNet with 14 layers."""
    return vision.ResNetV1(vision.BasicBlockV1, [2, 2, 2], [8, 8, 16, 32], classes=classes, thumbnail=True)


def vgg(classes):
    """Return the convolutions of a VGG with batch normalization, and small dense layers instead of the original."""
    net = nn.HybridSequential()
    convolutions = vision.VGG([1, 1, 2, 2], [16, 32, 64, 64], batch_norm=True).features[:-4]
    net.add(convolutions, nn.Dense(128, activation="relu"), nn.Dense(classes))
    return net


def mobilenet(classes):
    """Return a MobileNet with a quarter of the channels. It is made for large pictures, so enlarge them first."""
    net = nn.HybridSequential()
    net.add(nn.HybridLambda(lambda F, x: F.UpSampling(x, scale=2, sample_type="nearest")))
    net.add(vision.MobileNet(0.25, classes=classes))
    return net


def synchronize(block):
    """Replace each BatchNorm in a block by a SyncBatchNorm."""
    for name, child in list(block._children.items()):
        if isinstance(child, nn.BatchNorm):
            block.register_child(SyncBatchNorm(), name)
        else:
            synchronize(child)


def load(folder):
    """Return pictures (n, channels, 32, 32) from 0 to 1 and labels for training, then the same for testing."""
    if folder and any(pathlib.Path(folder).glob("*_batch*.bin")):
        train, test = (gluon.data.vision.CIFAR10(folder, train=train)[:] for train in (True, False))
        train_x, test_x = (pixels.asnumpy().transpose(0, 3, 1, 2) for pixels in (train[0], test[0]))
        train_y, test_y = train[1], test[1]
    else:
        train_x, train_y, test_x, test_y = digits(folder)
        train_x, test_x = (np.pad(x, ((0, 0), (2, 2), (2, 2)))[:, None] for x in (train_x, test_x))
    return train_x / np.float32(255), train_y, test_x / np.float32(255), test_y


def cropped(picture):
    """Return a random part of 32x32 pixels: a picture with a border, moved by up to the width of the border."""
    top, left = mx.random.rng().integers(2 * BORDER + 1, size=2)
    return picture[:, top : top + 32, left : left + 32]


def accuracy(net, batches):
    """Return the share of test pictures that the network classifies correctly. Each worker tests a part of them."""
    metric = mx.metric.Accuracy()
    for x, y in batches:
        metric.update(y, net(x))
    return mean_over_workers(metric.sum_metric, metric.num_inst)


def main():
    networks = {network.__name__: network for network in (resnet, vgg, mobilenet)}
    options = {"epochs": (16, 1), "count": (60000, 2500), "network": list(networks)}  # count: at most, for training
    task = Task(__doc__, metric="accuracy", target=0.97, short=0.3, **options)
    train_x, train_y, test_x, test_y = load(task.options.data)
    train_x, train_y = train_x[: task.options.count], train_y[: task.options.count]
    bordered = np.pad(train_x, ((0, 0), (0, 0), (BORDER, BORDER), (BORDER, BORDER)))
    train = gluon.data.ArrayDataset(bordered, train_y).transform_first(cropped)
    batches = gluon.data.DataLoader(mx.dist.shard(train, shuffle=True, seed=task.options.seed), task.part(BATCH))
    test = gluon.data.DataLoader(mx.dist.shard(gluon.data.ArrayDataset(test_x, test_y)), 250)

    net = networks[task.options.network](classes=10)
    synchronize(net)
    net.initialize(mx.init.MSRAPrelu("in", slope=0))
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    steps = task.options.epochs * -(-len(train) // BATCH)
    schedule = mx.lr_scheduler.CosineScheduler(steps, base_lr=0.05)
    trainer = gluon.Trainer(
        net.collect_params(), "nag", {"lr_scheduler": schedule, "momentum": 0.9}, kvstore="dist_sync"
    )

    for epoch in range(task.options.epochs):
        task.epoch(len(train))
        total, seen = nd.zeros(1), 0
        for x, y in batches:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(x)
        found = accuracy(net, test)
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen), accuracy=found)
    task.finish(found)


if __name__ == "__main__":
    main()
