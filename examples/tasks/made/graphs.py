"""Graphs with features and classes of nodes: made ones, or Cora from files."""

import pathlib
from typing import NamedTuple

import numpy as np


class Graph(NamedTuple):
    """A graph without directions. The neighbors of node i are `neighbors[starts[i] : starts[i + 1]]`."""

    features: np.ndarray  # (nodes, features)
    classes: np.ndarray  # (nodes,), from 0 on
    starts: np.ndarray  # (nodes + 1,)
    neighbors: np.ndarray


def made_graph(nodes, seed, classes=6, words=100, degree=8, same=0.7):
    """Return a stochastic block model: a share of `same` of the edges connects nodes of one class.

    The features are the words of each node. Each class prefers some words a little, so they say little about one node.
    """
    random = np.random.default_rng(seed)
    labels = random.integers(classes, size=nodes)
    members = [np.flatnonzero(labels == number) for number in range(classes)]
    start = random.integers(nodes, size=nodes * degree // 2)
    inside = np.array([random.choice(members[labels[node]]) for node in start])
    end = np.where(random.random(len(start)) < same, inside, random.integers(nodes, size=len(start)))
    rates = 0.1 * random.lognormal(0, 0.3, (classes, words))
    return _graph((random.random((nodes, words)) < rates[labels]).astype("float32"), labels, start, end)


def cora(folder):
    """Return the graph of the papers in `cora.content` (number, words, subject) and `cora.cites` (cited, citing)."""
    folder = pathlib.Path(folder)
    rows = [line.split() for line in (folder / "cora.content").read_text().splitlines()]
    numbers = {row[0]: number for number, row in enumerate(rows)}
    pairs = [line.split() for line in (folder / "cora.cites").read_text().splitlines()]
    start, end = np.array([[numbers[name] for name in pair] for pair in pairs if set(pair) <= set(numbers)]).T
    features = np.array([row[1:-1] for row in rows], "float32")
    return _graph(features, np.unique([row[-1] for row in rows], return_inverse=True)[1], start, end)


def _graph(features, classes, start, end):
    """Return the graph with edges in both directions, each one once, and from each node to itself."""
    count = len(classes)
    own = np.arange(count)
    edges = np.unique(np.concatenate([start * count + end, end * count + start, own * count + own]))
    return Graph(features, classes, np.searchsorted(edges, np.arange(count + 1) * count), edges % count)
