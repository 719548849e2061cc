"""Recognize digits after training on few of them, with and without augmentation.

    neomx run -n 2 examples/tasks/augmentation.py

The same network is trained twice on 200 digits: as they are, and changed in each epoch by RandAugment
(https://arxiv.org/abs/1909.13719), an elastic deformation and MixUp (https://arxiv.org/abs/1710.09412). The metric is
the accuracy on the test digits with augmentation. The random numbers of a sample depend only on the seed, the epoch and
its index, so any number of workers trains on the same changed digits.

The digits are those included in neomx, or those of MNIST if `--data` is a directory with its files.
"""

import numpy as np
from made.digits import digits
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn
from neomx.gluon.data.vision import transforms

BATCH, CLASSES = 20, 10


def network():
    net = nn.HybridSequential()
    for channels in (16, 32):
        net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"))
        net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"), nn.MaxPool2D())
    net.add(nn.Dense(96, activation="relu"), nn.Dense(CLASSES))
    return net


def changed():
    """Return the transform of a digit (28, 28, 1)."""
    return transforms.Compose(
        [
            transforms.RandAugment(1, magnitude=9, fill=0),
            transforms.RandomAffine(degrees=10, translate=0.08, scale=(0.85, 1.15), shear=10),
            transforms.ElasticTransform(alpha=20, sigma=4),
            transforms.ToTensor(),
        ]
    )


def accuracy(net, pictures, labels):
    """Return the accuracy on all test digits, of which each worker evaluates a part."""
    part = slice(mx.dist.rank(), None, mx.dist.size())
    found = net(nd.array(pictures[part, None]) / 255).argmax(axis=1).asnumpy()
    return mean_over_workers((found == labels[part]).sum(), len(found))


def train(task, dataset, test, name):
    """Return the accuracy after training on a dataset of pictures (1, 28, 28) and probabilities of the classes."""
    batches = gluon.data.DataLoader(mx.dist.shard(dataset, shuffle=True, seed=task.options.seed), task.part(BATCH))
    mx.random.seed(task.options.seed)
    net = network()
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss(sparse_label=False)
    steps = task.options.epochs * len(dataset) // BATCH
    rate = mx.lr_scheduler.CosineScheduler(steps, base_lr=2e-3, warmup_steps=steps // 20)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"lr_scheduler": rate}, kvstore="dist_sync")
    shown = max(task.options.epochs // 5, 1)
    for epoch in range(1, task.options.epochs + 1):
        task.epoch(len(dataset))
        for x, y in batches:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(BATCH)
        if epoch % shown == 0:
            task.report(epoch, **{name: accuracy(net, *test)})
    return accuracy(net, *test)


def main():
    options = {"epochs": (100, 8), "count": (200, 200)}
    task = Task(__doc__, metric="accuracy", target=0.91, short=0.5, **options)
    pictures, labels, *test = digits(task.options.data)
    pictures = nd.array(pictures[: task.options.count, :, :, None], dtype="uint8")
    labels = labels[: task.options.count]
    plain = gluon.data.ArrayDataset(transforms.ToTensor()(pictures), np.eye(CLASSES, dtype="float32")[labels])
    augmented = gluon.data.ArrayDataset(pictures, labels).transform_first(changed())
    mixed = transforms.MixedDataset(augmented, transforms.MixUp(0.2, CLASSES))

    without = train(task, plain, test, "without augmentation")
    task.finish(train(task, mixed, test, "with augmentation"), without=without)


if __name__ == "__main__":
    main()
