"""Learn to tell apart digits that were never trained, from five examples of each.

    neomx run -n 2 examples/tasks/few_examples.py --method prototypical

The network is trained on episodes: small tasks with three classes of the digits 0 to 6, five examples of each class
and five pictures of each to classify. It is tested on episodes with the digits 7, 8 and 9. `--method` is one of

    prototypical    compare a picture with the mean embedding of each class
    matching        let the examples vote, weighted by their similarity to the picture
    maml            find weights from which a few steps of gradient descent on the examples lead to a good network

The metric is the accuracy on pictures of the test episodes, and the target is 0.8. The numbers do not depend on the
number of workers, except for rounding: `mx.dist.shard` gives N workers the episodes of one process.
"""

import numpy as np
from made.digits import digits
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, learn
from neomx.gluon import nn

WAYS, SHOTS, QUERIES, BATCH = 3, 5, 5, 4  # BATCH: episodes of all workers in a step
RATE, STEPS, TEST_STEPS = 0.1, 5, 10  # of the gradient descent in MAML


def embedding(outputs):
    """Return convolutions, followed by a layer with this many outputs if MAML trains them."""
    net = nn.HybridSequential()
    for channels in (16, 32, 32):
        net.add(nn.Conv2D(channels, 3, padding=1, activation="relu"), nn.MaxPool2D())
    net.add(nn.Flatten() if outputs is None else nn.Dense(outputs))
    return net


METHODS = {
    "prototypical": lambda: learn.PrototypicalNet(embedding(None), WAYS),
    "matching": lambda: learn.MatchingNet(embedding(None), WAYS, scale=30),
    "maml": lambda: embedding(WAYS),
}


def episodes(task, pictures, labels, wanted, length, seed=None):
    """Return a loader of this worker's episodes of the wanted digits."""
    chosen = np.isin(labels, wanted)
    x = pictures[chosen, None].astype("float32") / 255
    made = learn.Episodes(x, labels[chosen], WAYS, SHOTS, QUERIES, length, seed)
    return gluon.data.DataLoader(mx.dist.shard(made, seed=task.options.seed), task.part(BATCH))


def adapted(net, support, label, query, loss_of):
    """Return the logits for the queries of each episode, after gradient descent on its support."""
    weights = [learn.adapt(net, loss_of, x, y, RATE, TEST_STEPS) for x, y in zip(support, label, strict=True)]
    return mx.nd.stack(*[learn.call_with(net, each, x) for each, x in zip(weights, query, strict=True)])


def main():
    task = Task(
        __doc__,
        metric="accuracy",
        target=0.8,
        short=0.83,
        method=list(METHODS),
        epochs=(10, 3),
        length=(200, 200),
        tests=(120, 100),
    )
    options = task.options
    net = METHODS[options.method]()
    comparing = options.method != "maml"
    net.initialize(mx.init.Xavier())
    net.hybridize()
    train_x, train_y, test_x, test_y = digits(options.data)
    train = episodes(task, train_x, train_y, range(7), options.length)
    test = episodes(task, test_x, test_y, [7, 8, 9], options.tests, seed=1)
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    net(*next(iter(test))[:3]) if comparing else net(next(iter(test))[0][0])  # the shapes of the weights
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-3}, kvstore="dist_sync")

    def accuracy():
        right = count = 0
        for support, label, query, expected in test:
            scores = net(support, label, query) if comparing else adapted(net, support, label, query, loss_of)
            right += (scores.argmax(axis=2) == expected).sum().asscalar()
            count += expected.size
        return mean_over_workers(right, count)

    task.report(0, accuracy=accuracy())
    for epoch in range(options.epochs):
        task.epoch(options.length)
        total = 0.0
        for support, label, query, expected in train:
            with autograd.record():
                if comparing:
                    loss = loss_of(net(support, label, query), expected)
                else:
                    loss = learn.maml_loss(net, loss_of, support, label, query, expected, RATE, STEPS)
            loss.backward()
            trainer.step(BATCH)
            total += loss.sum().asscalar()
        task.report(epoch + 1, loss=mean_over_workers(total, options.length / task.workers), accuracy=accuracy())
    task.finish(task.curve[-1]["accuracy"], before=task.curve[0]["accuracy"])


if __name__ == "__main__":
    main()
