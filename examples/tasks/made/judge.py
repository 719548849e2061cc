"""Scores for generated pictures of digits, by a classifier that was trained on real ones."""

import pathlib

import numpy as np

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.formats import picture
from neomx.gluon import nn

BATCH = 50


def trained_judge(task, pictures, labels, epochs=3):
    """Return a classifier for pictures (n, 1, height, width) of digits. All workers train it together."""
    data = gluon.data.ArrayDataset(pictures, labels)
    shard = mx.dist.shard(data, shuffle=True, seed=task.options.seed)
    batches = gluon.data.DataLoader(shard, task.part(BATCH), last_batch="discard")
    net = nn.HybridSequential()
    net.add(nn.Conv2D(16, 5, strides=2, padding=2, activation="relu"))
    net.add(nn.Conv2D(32, 3, strides=2, padding=1, activation="relu"))
    net.add(nn.Dense(64, activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 2e-3}, kvstore="dist_sync")
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    for _ in range(epochs):
        for x, y in batches:
            with autograd.record():
                loss = loss_of(net(x), y)
            loss.backward()
            trainer.step(BATCH)
    return net


def inception_score(judge, pictures):
    """Return a number from 1 to 10: how clearly the judge recognizes each picture, and how evenly it sees all digits.

    It is exp of the mean KL divergence between the probabilities of the digits in one picture and in all pictures.
    """
    each = nd.softmax(judge(pictures).astype("float64")).asnumpy()
    return float(np.exp((each * np.log((each + 1e-12) / (each.mean(axis=0) + 1e-12))).sum(axis=1).mean()))


def share_recognized(judge, pictures, wanted):
    """Return the share of pictures in which the judge sees the wanted digit."""
    return float((judge(pictures).argmax(axis=1).asnumpy() == wanted).mean())


def write_sheet(file, pictures, columns=20):
    """Write the first pictures (n, 1, height, width), with values from 0 to 1, to one PNG file, in ten rows."""
    pixels = np.clip(pictures[: 10 * columns, 0].asnumpy() * 255, 0, 255).astype("uint8")
    height, width = pixels.shape[1:]
    sheet = pixels.reshape(10, columns, height, width).swapaxes(1, 2).reshape(10 * height, columns * width)
    pathlib.Path(file).write_bytes(picture.encode(sheet, 9, ".png"))
