"""Trains small networks by each method of mx.learn that needs few labels, on this worker's part of every batch.

less_labels.py OUT
"""

import sys

import numpy as np

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

GLOBAL, EPOCHS = 8, 2
RANDOM = np.random.default_rng(1)
PICTURES = RANDOM.standard_normal((28, 1, 6, 6)).astype("float32")
CLASSES = (np.arange(28) % 3).astype("float32")


def encoder(units=4, seed=0):
    net = nn.HybridSequential()
    net.add(nn.Conv2D(3, 3, in_channels=1, activation="relu"), nn.Dense(units, in_units=3 * 16))
    return started(net, seed)


def started(net, seed=0):
    """Return the network with weights from numpy, hybridized."""
    net.initialize()
    random = np.random.default_rng([seed, mx.dist.rank()])  # all must start with the weights of worker 0
    for param in net.collect_params().values():
        param.set_data(nd.array(random.standard_normal(param.shape).astype("float32") * 0.3))
    net.hybridize()
    return net


def trainer_of(params):
    return gluon.Trainer(params, "sgd", {"learning_rate": 0.05, "momentum": 0.9}, kvstore="dist_sync")


def noisy(x):
    return (x + 0.1 * mx.random.rng().standard_normal(x.shape)).astype("float32")


def batches(dataset, last_batch="discard", size=GLOBAL):
    """Yield this worker's batches of two epochs, with augmentation by sample."""
    data = mx.dist.shard(dataset, shuffle=True, seed=3)
    loader = gluon.data.DataLoader(data, size // mx.dist.size(), last_batch=last_batch)
    for _ in range(EPOCHS):
        yield from loader


def fit(params, steps, update=lambda: None):
    """Train on pairs of (a function that returns losses, the divisor), and return all losses of this worker."""
    trainer, totals = trainer_of(params), []
    for compute, divisor in steps:
        with autograd.record():
            losses = compute()
        losses.backward()
        trainer.step(divisor)
        update()
        totals.append(float(losses.sum().asscalar()))
    return np.array(totals)


def result(net, totals):
    found = {name: p.data().asnumpy() for name, p in net._collect_params_with_prefix().items()}
    return {**found, "loss": totals}


def simclr():
    """The last batch has 28 - 3 * 8 = 4 samples, so four workers have one each and need each other's negatives."""
    net, loss = encoder(), learn.NTXentLoss(0.5)
    loss.hybridize()
    views = gluon.data.SimpleDataset(PICTURES).transform(learn.Views(noisy, noisy))
    steps = (
        (lambda a=a, b=b: loss(net(a), net(b)), len(a) * mx.dist.size()) for a, b in batches(views, last_batch="keep")
    )
    return result(net, fit(net.collect_params(), steps))


class OfAllRows(gluon.HybridBlock):
    """A loss of each row of this worker that depends on the rows of all workers."""

    def hybrid_forward(self, F, rows, factor):
        return F.softmax(F.dot(rows, learn.gather(rows), transpose_b=True), axis=1).slice_axis(1, 0, 1) * factor


def unequal():
    """Workers have different numbers of rows, and each uses all of them in its loss."""
    net, rank = encoder(), mx.dist.rank()
    ends = {1: [0, 9], 2: [0, 6, 9], 4: [0, 4, 6, 8, 9]}[mx.dist.size()]
    share = slice(ends[rank], ends[rank + 1])
    x, y = nd.array(PICTURES[share]), nd.array(CLASSES[share, None] + 1)

    loss = OfAllRows()
    loss.hybridize()
    return result(net, fit(net.collect_params(), [(lambda: loss(net(x), y), 9)] * 4))


def byol():
    net, predictor = encoder(), started(nn.Dense(4, in_units=4), seed=9)
    both = learn.BYOL(net, predictor, decay=0.8)
    views = gluon.data.SimpleDataset(PICTURES).transform(learn.Views(noisy, noisy))
    steps = ((lambda a=a, b=b: both(a, b), GLOBAL) for a, b in batches(views))
    totals = fit(both.collect_params(), steps, both.update)
    target = {f"target.{name}": value for name, value in result(both.target, totals).items() if name != "loss"}
    return {**result(net, totals), **target}


def rotation():
    net, loss = encoder(), gluon.loss.SoftmaxCrossEntropyLoss()

    def compute(x):
        turned, turns = learn.rotations(x)
        return loss(net(turned), turns)

    steps = ((lambda x=x: compute(x), 4 * GLOBAL) for x in batches(gluon.data.SimpleDataset(PICTURES)))
    return result(net, fit(net.collect_params(), steps))


def patches():
    net, loss = started(nn.Dense(9 * 4, in_units=9 * 4)), learn.MaskedPatchLoss()
    loss.hybridize()
    data = gluon.data.SimpleDataset(PICTURES).transform(lambda x: (x, learn.patch_mask(9, 0.5)))

    def compute(x, mask):
        cut = learn.to_patches(x, 2)
        return loss(net(learn.hide_patches(cut, mask)).reshape(cut.shape), cut, mask)

    steps = ((lambda x=x, mask=mask: compute(x, mask), GLOBAL) for x, mask in batches(data))
    return result(net, fit(net.collect_params(), steps))


def tokens():
    net, loss = started(nn.Dense(7, in_units=5, flatten=False)), learn.MaskedTokenLoss()
    loss.hybridize()
    random = np.random.default_rng(5)
    x = random.standard_normal((28, 6, 5)).astype("float32")
    y, mask = random.integers(0, 7, (28, 6)), (random.random((28, 6)) < 0.4).astype("float32")
    data = batches(gluon.data.ArrayDataset(x, y.astype("float32"), mask))
    steps = ((lambda x=x, y=y, mask=mask: loss(net(x), y, mask), learn.count_masked(mask)) for x, y, mask in data)
    return result(net, fit(net.collect_params(), steps))


def few(kind):
    net = kind(encoder(), ways=3)
    net.hybridize()
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    data = learn.Episodes(PICTURES, CLASSES, ways=3, shots=2, queries=2, length=12)
    steps = ((lambda e=e: loss(net(*e[:3]), e[3]), 4) for e in batches(data, size=4))
    return result(net, fit(net.collect_params(), steps))


def maml():
    net, loss = encoder(units=3), gluon.loss.SoftmaxCrossEntropyLoss()
    data = learn.Episodes(PICTURES, CLASSES, ways=3, shots=2, queries=2, length=12)
    steps = ((lambda e=e: learn.maml_loss(net, loss, *e, rate=0.1, steps=2), 4) for e in batches(data, size=4))
    return result(net, fit(net.collect_params(), steps))


def fixmatch():
    net, loss = encoder(units=3), learn.FixMatchLoss(0.4, ratio=2)
    loss.hybridize()
    labeled = batches(gluon.data.ArrayDataset(PICTURES[:8], CLASSES[:8]), size=4)
    views = gluon.data.SimpleDataset(PICTURES).transform(learn.Views(noisy, lambda x: noisy(noisy(x))))
    both = zip(labeled, batches(views), strict=False)
    steps = ((lambda x=x, y=y, a=a, b=b: loss(net(x), y, net(a), net(b)), 4) for (x, y), (a, b) in both)
    return result(net, fit(net.collect_params(), steps))


def probe():
    rows = np.random.default_rng(2).standard_normal((28, 5)) + np.eye(3, 5)[CLASSES.astype(int)]
    ends = {1: [0, 28], 2: [0, 20, 28], 4: [0, 20, 20, 24, 28]}[mx.dist.size()]  # one worker of four has none
    own = slice(ends[mx.dist.rank()], ends[mx.dist.rank() + 1])
    fitted = learn.LinearProbe(3).fit(rows[own], CLASSES[own])
    return {"weight": fitted.weight.numpy(), "accuracy": np.array(fitted.accuracy(rows[own], CLASSES[own]))}


CASES = {
    "simclr": simclr,
    "unequal": unequal,
    "byol": byol,
    "rotation": rotation,
    "patches": patches,
    "tokens": tokens,
    "prototypical": lambda: few(learn.PrototypicalNet),
    "matching": lambda: few(learn.MatchingNet),
    "maml": maml,
    "fixmatch": fixmatch,
    "probe": probe,
}


def main(out):
    found = {}
    for name, run in CASES.items():
        mx.random.seed(1)
        found |= {f"{name}/{key}": value for key, value in run().items()}
    np.savez(f"{out}-{mx.dist.rank()}.npz", **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
