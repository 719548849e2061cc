"""Predict how users rate items: matrix factorization, or Wide & Deep.

    neomx run -n 2 -s 1 examples/tasks/recommendation.py --network wide_deep

A batch contains few of the users and items, so the gradients of their embeddings are row-sparse: a worker sends only
these rows, and a parameter server updates only them. Without `-s`, the workers exchange the rows by all-reduce. The
numbers are the same.

Metric: root of the mean squared error on test ratings. Target: at most 0.60. The noise of the made ratings is 0.4, and
the best constant has an error of about 1.
Real data: `--data DIR` with `u.data`, `u.user` and `u.item`, as in MovieLens 100K.
"""

import pathlib

import numpy as np
from made.ratings import ratings
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn


def embedding(count, units):
    return nn.Embedding(count, units, sparse_grad=True, weight_initializer=mx.init.Normal(0.1))


class Factorization(gluon.HybridBlock):
    """The product of a user's and an item's vector, with a bias for each."""

    inputs = 2  # user and item

    def __init__(self, users, items, groups, genres, rank=8, **kwargs):
        super().__init__(**kwargs)
        with self.name_scope():
            self.user, self.item = embedding(users, rank), embedding(items, rank)
            self.user_bias, self.item_bias = embedding(users, 1), embedding(items, 1)
            self.mean = self.params.get("mean", shape=(1,), init=mx.init.Constant(3))

    def hybrid_forward(self, F, user, item, mean):
        product = F.sum(self.user(user) * self.item(item), axis=1)
        bias = F.reshape(self.user_bias(user) + self.item_bias(item), (-1,))
        return F.broadcast_add(product + bias, mean)


class WideDeep(gluon.HybridBlock):
    """Wide: a weight for each pair of a user's group and an item's genre. Deep: a network on embeddings."""

    inputs = 4  # user, item, group and genre

    def __init__(self, users, items, groups, genres, rank=8, **kwargs):
        super().__init__(**kwargs)
        self._genres = genres
        with self.name_scope():
            self.factors = Factorization(users, items, groups, genres, rank)
            self.wide = embedding(groups * genres, 1)
            self.group, self.genre = embedding(groups, 4), embedding(genres, 4)
            self.deep = nn.HybridSequential()
            self.deep.add(nn.Dense(32, activation="relu"), nn.Dense(1))

    def hybrid_forward(self, F, user, item, group, genre):
        known = [self.group(group), self.genre(genre), self.factors.user(user), self.factors.item(item)]
        both = self.wide(group * self._genres + genre) + self.deep(F.concat(*known, dim=1))
        return self.factors(user, item) + F.reshape(both, (-1,))


def read(folder):
    """Return users, items, ratings, and the users' occupation and the items' first genre, of MovieLens 100K."""
    folder = pathlib.Path(folder)
    user, item, rating, _ = np.loadtxt(folder / "u.data", dtype=int).T
    people = [line.split("|") for line in (folder / "u.user").read_text().splitlines()]
    films = [line.split("|") for line in (folder / "u.item").read_text(encoding="latin-1").splitlines()]
    _, group = np.unique([row[3] for row in people], return_inverse=True)
    genre = np.array([row[5:].index("1") for row in films])
    return user - 1, item - 1, rating.astype("float32"), group, genre


def main():
    networks = {"mf": Factorization, "wide_deep": WideDeep}
    options = {"epochs": (8, 3), "ratings": (120_000, 20_000), "batch": (400, 200), "network": list(networks)}
    task = Task(__doc__, "RMSE", 0.60, 0.95, lower=True, **options)
    options = task.options
    users, items = (1500, 800) if not options.short else (500, 300)
    user, item, rating, group, genre = read(options.data) if options.data else ratings(users, items, options.ratings, 0)
    columns = [each.astype("float32") for each in (user, item, group[user], genre[item], rating)]
    order = np.random.default_rng(0).permutation(len(rating))
    train, test = np.split(order, [len(order) * 9 // 10])
    dataset = gluon.data.ArrayDataset(*(column[train] for column in columns))
    shard = mx.dist.shard(dataset, shuffle=True, seed=options.seed)
    loader = gluon.data.DataLoader(shard, task.part(options.batch), last_batch="discard")

    net = networks[options.network](len(group), len(genre), group.max() + 1, genre.max() + 1)
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 0.01, "wd": 1e-5}, kvstore="dist_sync")
    *inputs, wanted = (nd.array(column[test]) for column in columns)
    for epoch in range(options.epochs):
        task.epoch(len(loader) * options.batch)
        total = nd.zeros(1)
        for *batch, y in loader:
            with autograd.record():
                loss = loss_of(net(*batch[: net.inputs]), y)
            loss.backward()
            trainer.step(options.batch)
            total += loss.mean()
        error = ((net(*inputs[: net.inputs]) - wanted) ** 2).mean().sqrt().asscalar()
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), len(loader)), RMSE=error)
    task.finish(error)


if __name__ == "__main__":
    main()
