"""Train LeNet or a perceptron on MNIST and print the test accuracy of every epoch.

`--data DIR` contains MNIST's four files, gzipped or not; by default the six thousand digits included in neomx are used.
"""

import argparse
import time

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn


def lenet():
    net = nn.HybridSequential()
    net.add(nn.Conv2D(20, kernel_size=5, activation="relu"), nn.MaxPool2D(pool_size=2, strides=2))
    net.add(nn.Conv2D(50, kernel_size=5, activation="relu"), nn.MaxPool2D(pool_size=2, strides=2))
    net.add(nn.Dense(256, activation="relu"), nn.Dropout(0.3), nn.Dense(10))
    return net


def mlp():
    net = nn.HybridSequential()
    net.add(nn.Dense(512, activation="relu"), nn.Dropout(0.2), nn.Dense(10))
    return net


def digits(data, train):
    """Return a dataset of (image (1, 28, 28) between 0 and 1, label), all in memory."""
    source = gluon.data.vision.MNIST(data, train) if data else gluon.data.vision.MNIST(train=train, sample=True)
    images, labels = source[:]
    return gluon.data.ArrayDataset(images.transpose((0, 3, 1, 2)).astype("float32") / 255, labels)


def accuracy(net, batches):
    metric = mx.metric.Accuracy()
    for x, y in batches:
        metric.update(y, net(x))
    return metric.get()[1]


def main(data=None, model="lenet", epochs=5, batch=64, rate=2e-3, seed=7, hybridize=False):
    mx.random.seed(seed)
    np.random.seed(seed)  # for the order of the loader
    train = gluon.data.DataLoader(digits(data, train=True), batch, shuffle=True, last_batch="discard")
    test = gluon.data.DataLoader(digits(data, train=False), 500)

    net = {"lenet": lenet, "mlp": mlp}[model]()
    net.initialize(mx.init.Xavier())
    if hybridize:
        net.hybridize()
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    schedule = mx.lr_scheduler.CosineScheduler(epochs * len(train), base_lr=rate, warmup_steps=len(train) // 10)
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate, "lr_scheduler": schedule})
    for epoch in range(epochs):
        start, total = time.time(), nd.zeros(1)
        for x, y in train:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(batch)
            total += loss.mean()
        seconds, reached = time.time() - start, accuracy(net, test)
        mean = total.asscalar() / len(train)
        print(f"epoch {epoch + 1:2}: {seconds:.1f} s, loss {mean:.4f}, test accuracy {reached:.4f}", flush=True)
    return reached


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", help="directory with MNIST's files")
    parser.add_argument("--model", choices=["lenet", "mlp"], default="lenet")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--hybridize", action="store_true")
    main(**vars(parser.parse_args()))
