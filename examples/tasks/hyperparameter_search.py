"""Search the learning rate, the width, the momentum and the weight decay of a network, with trials on all workers.

    neomx run -n 2 examples/tasks/hyperparameter_search.py

Successive halving trains many configurations for one epoch, the best third of them for three epochs, and the best ninth
for nine. Each trial runs on one worker, which takes the next trial when it has finished one, and is scored by the
accuracy on pictures that it was not trained on. A trial whose training diverges gets the worst score. The winner is
trained once more on all pictures, by all workers together. The metric is its accuracy on test pictures. The table of
trials is the same for any number of workers.
"""

import numpy as np
from made.digits import digits
from task import Task

import neomx as mx
from neomx import autograd, gluon, learn, nd
from neomx.gluon import nn

BATCH = 50
LOSS = gluon.loss.SoftmaxCrossEntropyLoss()
SPACE = {
    "rate": learn.log_uniform(1e-4, 10),
    "momentum": [0.0, 0.5, 0.9],
    "decay": learn.log_uniform(1e-6, 1e-2),
    "units": learn.integers(8, 128),
}


def train(config, x, y, epochs):
    """Train a network on these pictures with all workers that `mx.dist` sees: one in a trial, all in the end."""
    net = nn.HybridSequential()
    net.add(nn.Conv2D(8, 5, strides=2, activation="relu"), nn.Conv2D(16, 3, strides=2, activation="relu"))
    net.add(nn.Dense(config["units"], activation="relu"), nn.Dense(10))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    schedule = mx.lr_scheduler.CosineScheduler(epochs * (len(x) // BATCH), config["rate"])
    settings = {"lr_scheduler": schedule, "momentum": config["momentum"], "wd": config["decay"]}
    trainer = gluon.Trainer(net.collect_params(), "sgd", settings, kvstore="dist_sync")
    part = mx.dist.shard(gluon.data.ArrayDataset(x, y), shuffle=True, seed=1)
    for _ in range(epochs):
        for batch_x, batch_y in gluon.data.DataLoader(part, BATCH // mx.dist.size(), last_batch="discard"):
            with autograd.record():
                loss = LOSS(net(batch_x), batch_y)
            loss.backward()
            trainer.step(BATCH)
    return net


def accuracy(net, x, y):
    """Return the accuracy, or NaN if the network has diverged."""
    scores = net(x)
    return (scores.argmax(axis=1) == y).mean().asscalar() if np.isfinite(scores.asnumpy()).all() else float("nan")


def main():
    task = Task(__doc__, metric="accuracy", target=0.94, short=0.5, trials=(27, 6), epochs=(15, 3))
    task.part(BATCH)  # the last training divides its batches among all workers
    train_x, train_y, test_x, test_y = digits(task.options.data)
    if task.options.short:
        train_x, train_y = train_x[:1500], train_y[:1500]
    x, test_x = (nd.array(pictures[:, None] / 255) for pictures in (train_x, test_x))
    y, test_y = nd.array(train_y), nd.array(test_y)
    trained = len(x) * 4 // 5

    def trial(config, epochs):
        return accuracy(train(config, x[:trained], y[:trained], epochs), x[trained:], y[trained:])

    budgets = [1, 2] if task.options.short else [1, 3, 9]
    found = learn.successive_halving(trial, SPACE, task.options.trials, budgets, mode="max", seed=task.options.seed)
    if task.rank == 0:
        print(learn.table(found))
    net = train(found[0].config, x, y, task.options.epochs)
    task.finish(accuracy(net, test_x, test_y), best_trial=found[0].score)


if __name__ == "__main__":
    main()
