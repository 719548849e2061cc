"""Classify the nodes of a graph with a graph convolutional network (GCN) that sees few labels.

    neomx run -n 2 examples/tasks/graph_convolution.py

A layer replaces the features of a node by the mean of its own and its neighbors', which is a product with a sparse
matrix, and multiplies them by a weight. Labels of few nodes thus reach their communities. The workers divide the
labelled nodes among themselves; each one has the whole graph.

Metric: accuracy on the nodes without labels. Target: 0.80. The features alone, without the graph, give about 0.5.
Real data: `--data DIR` with `cora.content` and `cora.cites`, as in the Cora data set.
"""

import pathlib

import numpy as np
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd

LABELLED = 20  # nodes of each class


class Layer(gluon.Block):
    """A graph convolution: the mean over neighbors, times a weight."""

    def __init__(self, units, inputs, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.dense = gluon.nn.Dense(units, in_units=inputs)

    def forward(self, graph, x):
        return nd.sparse.dot(graph, self.dense(x))


class GCN(gluon.Block):
    """Two graph convolutions."""

    def __init__(self, inputs, classes, hidden=32, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.first, self.second = Layer(hidden, inputs), Layer(classes, hidden)

    def forward(self, graph, x):
        return self.second(graph, nd.relu(self.first(graph, x)))


def made(nodes, seed, classes=5, features=24):
    """Return edges, features and labels of a stochastic block model: most edges join nodes of one class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, nodes)
    chance = np.where(labels[:, None] == labels, 20 / nodes, 1.5 / nodes)
    edges = np.argwhere(np.triu(rng.random((nodes, nodes)) < chance, 1))
    centers = rng.normal(0, 0.25, (classes, features))
    return edges, centers[labels] + rng.normal(size=(nodes, features)), labels


def read(folder):
    """Return edges, features and labels of Cora's files."""
    rows = [line.split() for line in (pathlib.Path(folder) / "cora.content").read_text().splitlines()]
    number = {row[0]: at for at, row in enumerate(rows)}
    cites = [line.split() for line in (pathlib.Path(folder) / "cora.cites").read_text().splitlines()]
    edges = [[number[a], number[b]] for a, b in cites if a in number and b in number]
    _, labels = np.unique([row[-1] for row in rows], return_inverse=True)
    return np.array(edges), np.array([row[1:-1] for row in rows], dtype="float32"), labels


def normalized(edges, nodes):
    """Return the sparse matrix that averages over a node and its neighbors."""
    pairs = np.unique(np.concatenate([edges, edges[:, ::-1], np.arange(nodes)[:, None].repeat(2, 1)]), axis=0)
    degree = np.bincount(pairs[:, 0], minlength=nodes)
    ends = np.concatenate([[0], np.cumsum(degree)])
    values = (1 / degree[pairs[:, 0]]).astype("float32")
    return nd.sparse.csr_matrix((values, pairs[:, 1], ends), shape=(nodes, nodes))


def main():
    task = Task(__doc__, "accuracy", 0.80, 0.7, epochs=(60, 30), nodes=(1500, 1000))
    options = task.options
    edges, features, labels = read(options.data) if options.data else made(options.nodes, seed=0)
    graph, x = normalized(edges, len(labels)), nd.array(features)
    order = np.random.default_rng(options.seed).permutation(len(labels))
    known = np.concatenate([order[labels[order] == each][:LABELLED] for each in np.unique(labels)])
    unknown = np.setdiff1d(order, known)
    mine = known[task.rank :: task.workers]

    net = GCN(features.shape[1], labels.max() + 1)
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01, "wd": 5e-3}, kvstore="dist_sync")
    rows, wanted = nd.array(mine), nd.array(labels[mine])
    for epoch in range(options.epochs):
        with autograd.record():
            loss = loss_of(nd.take(net(graph, x), rows), wanted)
        loss.backward()
        trainer.step(len(known))
        if (epoch + 1) % (options.epochs // 10) == 0:
            found = net(graph, x).argmax(axis=1).asnumpy()
            accuracy = (found == labels)[unknown].mean()
            task.report(epoch + 1, loss=mean_over_workers(loss.sum().asscalar(), len(mine)), accuracy=accuracy)
    task.finish(accuracy)


if __name__ == "__main__":
    main()
