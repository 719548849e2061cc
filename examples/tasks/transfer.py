"""Transfer learning: what a network learned from the digits 0 to 4 helps to learn 5 to 9 from a few examples.

    neomx run -n 2 examples/tasks/transfer.py

A network is trained on all pictures of the digits 0 to 4. It then gets a new output layer and learns the digits 5 to 9
from three examples of each: first the output alone, then also the layers below, each slower than the one above it. An
equal network learns the same examples from scratch. The digits are at random places of a noisy background, so that
there is more to learn than three examples show. The metric is the gain: how much more of the test pictures of 5 to 9
the first network classifies correctly, averaged over several draws of examples. One worker and several give the same
numbers up to rounding, whose effect grows with the number of steps.
"""

import copy

import numpy as np
from made.digits import digits
from task import Task

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

OLD, NEW, EXAMPLES, SIDE, NOISE = range(5), range(5, 10), 3, 36, 0.3
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()


class Net(gluon.HybridBlock):
    """Features of a picture, and scores of five classes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.features = nn.HybridSequential()
            for channels in (16, 32, 64):
                self.features.add(nn.Conv2D(channels, 3, padding=1), nn.GroupNorm(8), nn.Activation("relu"))
                self.features.add(nn.MaxPool2D())
            self.features.add(nn.GlobalMaxPool2D(), nn.Flatten())
            self.output = nn.Dense(5)

    def hybrid_forward(self, F, x):
        return self.output(self.features(x))


def new_network():
    net = Net()
    net.initialize(mx.init.Xavier())
    net(nd.zeros((1, 1, SIDE, SIDE)))
    net.hybridize()
    return net


def disturbed(pictures, random):
    """Return larger pictures, from 0 to 1, with a digit at a random place of a noisy background."""
    made = random.uniform(0, NOISE, (len(pictures), 1, SIDE, SIDE)).astype("float32")
    made *= random.integers(0, 2, made.shape, dtype="uint8")
    for i, (top, left) in enumerate(random.integers(0, SIDE - 27, (len(made), 2))):
        here = made[i, 0, top : top + 28, left : left + 28]
        np.maximum(here, pictures[i] / 255, out=here)
    return made


def chosen(pictures, labels, wanted):
    """Return the pictures of these digits, and their labels from 0 to 4."""
    here = np.isin(labels, wanted)
    return nd.array(pictures[here]), nd.array(labels[here] - wanted[0])


def train(task, net, x, y, batch, epochs, rate, begin_epoch=lambda epoch: None):
    """Train on batches of `batch` samples over all workers."""
    data = mx.dist.shard(gluon.data.ArrayDataset(x, y), shuffle=True, seed=task.options.seed)
    loader = gluon.data.DataLoader(data, task.part(batch), last_batch="discard")
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": rate}, kvstore="dist_sync")
    for epoch in range(epochs):
        begin_epoch(epoch)
        for batch_x, batch_y in loader:
            with autograd.record():
                loss = LOSS(net(batch_x), batch_y)
            loss.backward()
            trainer.step(batch)


def transferred(task, net, x, y):
    """Return a copy of the network that has learned the new digits."""
    net = copy.deepcopy(net)
    learn.replace_output(net, len(NEW), mx.init.Xavier())
    learn.discriminative_rates(net, 0.5)
    every = max(1, task.options.tuning // (2 * len(learn.depth_groups(net))))
    train(
        *(task, net, x, y, 6, task.options.tuning, 5e-3),
        begin_epoch=lambda epoch: learn.unfreeze_gradually(net, epoch, every=every),
    )
    return net


def accuracy(net, x, y):
    return (net(x).argmax(axis=1) == y).mean().asscalar()


def main():
    how = {"epochs": (15, 3), "tuning": (40, 40), "draws": (5, 2)}
    task = Task(__doc__, metric="gain", target=0.08, short=0.03, **how)
    random = np.random.default_rng(task.options.seed)
    train_x, train_y, test_x, test_y = digits(task.options.data)
    if task.options.short:
        train_x, train_y, test_x, test_y = train_x[:3000], train_y[:3000], test_x[:500], test_y[:500]
    train_x, test_x = disturbed(train_x, random), disturbed(test_x, random)
    old_x, old_y = chosen(train_x, train_y, OLD)
    base = new_network()
    task.epoch(len(old_x) * task.options.epochs)
    train(task, base, old_x, old_y, 50, task.options.epochs, 2e-3)
    task.report(0, accuracy_on_old_digits=accuracy(base, *chosen(test_x, test_y, OLD)))

    test = chosen(test_x, test_y, NEW)
    reached = []
    for draw in range(1, 1 + task.options.draws):
        few = np.concatenate([random.choice(np.flatnonzero(train_y == digit), EXAMPLES, False) for digit in NEW])
        x, y = chosen(train_x[few], train_y[few], NEW)
        fresh = new_network()
        train(task, fresh, x, y, 6, task.options.tuning, 2e-3)
        reached.append((accuracy(transferred(task, base, x, y), *test), accuracy(fresh, *test)))
        task.report(draw, transferred=reached[-1][0], from_scratch=reached[-1][1])
    best, scratch = np.mean(reached, axis=0)
    task.finish(best - scratch, transferred=best, from_scratch=scratch)


if __name__ == "__main__":
    main()
