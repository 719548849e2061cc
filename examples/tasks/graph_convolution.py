"""Classify the nodes of a graph with a graph convolutional network (https://arxiv.org/abs/1609.02907).

    neomx run -n 2 examples/tasks/graph_convolution.py

Few nodes have labels. The words of a node say little about its class, but the words of its neighbors and of their
neighbors say more. The metric is the accuracy on nodes without a label; `words` is that of the same network without
edges.

The workers share the labeled nodes. For its nodes, a worker cuts out the part of the graph that they depend on, so
workers compute different parts of the graph and together the same as one process. The graph is made (a stochastic block
model), or Cora if `--data` is a directory with `cora.content` and `cora.cites`.
"""

import numpy as np
from made.graphs import cora, made_graph
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH, LABELED = 60, 20  # nodes in a batch, labeled nodes of each class


class GCN(gluon.HybridBlock):
    """Two layers. Each one mixes the features of neighbors and then applies a dense layer.

    The network is not hybridized, because that would make the sparse parts of the graph dense.
    """

    def __init__(self, classes, hidden=32):
        super().__init__()
        self.first, self.second = nn.Dense(hidden, activation="tanh"), nn.Dense(classes)

    def hybrid_forward(self, F, x, near, far):
        """Return scores. `far` mixes the features of the nodes that `near` mixes."""
        return self.second(F.sparse.dot(near, self.first(F.sparse.dot(far, x))))


def mixing(graph, nodes):
    """Return a sparse matrix that mixes the neighbors of these nodes, and the neighbors that it takes."""
    degree = np.diff(graph.starts)
    rows = [graph.neighbors[graph.starts[node] : graph.starts[node + 1]] for node in nodes]
    all_neighbors = np.concatenate(rows)
    taken, columns = np.unique(all_neighbors, return_inverse=True)
    weights = 1 / np.sqrt(np.repeat(degree[nodes], degree[nodes]) * degree[all_neighbors])
    starts = np.concatenate([[0], np.cumsum(degree[nodes])])
    return nd.sparse.csr_matrix((weights.astype("float32"), columns, starts), shape=(len(nodes), len(taken))), taken


def scores(net, graph, nodes):
    """Return the scores of some nodes, computed from the part of the graph that they depend on."""
    near, neighbors = mixing(graph, nodes)
    far, taken = mixing(graph, neighbors)
    return net(nd.array(graph.features[taken]), near, far)


def without_edges(graph):
    """Return the graph in which each node has only itself as a neighbor."""
    nodes = np.arange(len(graph.classes) + 1)
    return graph._replace(starts=nodes, neighbors=nodes[:-1])


def train(task, graph, labeled, test, report):
    """Train on labeled nodes. Return the accuracy on test nodes. Each worker tests a part of them."""
    data = gluon.data.ArrayDataset(labeled, graph.classes[labeled])
    batches = gluon.data.DataLoader(mx.dist.shard(data, shuffle=True, seed=task.options.seed), task.part(BATCH))
    own_test = test[task.rank :: task.workers]
    net = GCN(int(graph.classes.max()) + 1)
    net.initialize(mx.init.Xavier())
    loss_of = gluon.loss.SoftmaxCrossEntropyLoss()
    settings = {"learning_rate": 1e-2, "wd": 1e-3}
    trainer = gluon.Trainer(net.collect_params(), "adam", settings, kvstore="dist_sync")
    for epoch in range(task.options.epochs):
        if report and epoch % 10 == 0:
            task.epoch(10 * len(data))
        total, seen = nd.zeros(1), 0
        for nodes, labels in batches:
            with autograd.record():
                loss = loss_of(scores(net, graph, nodes.asnumpy()), labels)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(nodes)
        if report and epoch % 10 == 9:
            task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen))
    right = scores(net, graph, own_test).argmax(axis=1).asnumpy() == graph.classes[own_test]
    return mean_over_workers(right.sum(), len(right))


def main():
    options = {"epochs": (60, 10), "nodes": (20000, 2000)}
    task = Task(__doc__, metric="accuracy", target=0.8, short=0.5, **options)
    seed = task.options.seed
    graph = cora(task.options.data) if task.options.data else made_graph(task.options.nodes, seed)
    order = np.random.default_rng(seed).permutation(len(graph.classes))
    kinds = range(graph.classes.max() + 1)
    labeled = np.concatenate([order[graph.classes[order] == kind][:LABELED] for kind in kinds])
    test = np.setdiff1d(order, labeled)
    words = train(task, without_edges(graph), labeled, test, report=False)
    task.finish(train(task, graph, labeled, test, report=True), words=words)


if __name__ == "__main__":
    main()
