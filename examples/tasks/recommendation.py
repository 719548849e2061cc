"""Predict how users rate items, with matrix factorization or Wide & Deep (https://arxiv.org/abs/1606.07792).

    neomx run -n 2 -s 1 examples/tasks/recommendation.py --network wide_deep

A batch uses few of the rows of the embeddings of users and items, so their gradients are row-sparse. With `-s 1`, the
workers send these rows to a server, which updates them. Without `-s`, they send them to each other. The metric is the
root mean square error of test ratings.

The ratings are made: a product of low rank, plus the taste of the user's group for the item's genre, plus noise with
standard deviation 0.3. `--data` reads those of MovieLens instead: `u.data` or `ratings.dat`, and the files of users and
films next to it. Their noise is larger, so the target does not apply to them.
"""

import numpy as np
from made.ratings import made_ratings, movielens
from task import Task, mean_over_workers

import neomx as mx
from neomx import autograd, gluon, nd
from neomx.gluon import nn

BATCH = 100


def embedding(count, width):
    return nn.Embedding(count, width, sparse_grad=True, weight_initializer=mx.init.Normal(0.1))


class MatrixFactorization(gluon.HybridBlock):
    """The product of a vector of the user and one of the item, plus a number for each.

    The vector of a user contains that of the group, and the vector of an item that of the genre.
    """

    def __init__(self, users, items, groups, genres, mean, width=12):
        super().__init__()
        self.user, self.item = embedding(users, width), embedding(items, width)
        self.group, self.genre = embedding(groups, width), embedding(genres, width)
        self.user_bias, self.item_bias = embedding(users, 1), embedding(items, 1)
        self.mean = mean

    def hybrid_forward(self, F, user, item, group, genre):
        product = (self.user(user) + self.group(group)) * (self.item(item) + self.genre(genre))
        return F.sum(product, axis=1, keepdims=True) + self.user_bias(user) + self.item_bias(item) + self.mean


class WideDeep(gluon.HybridBlock):
    """A weight for each pair of a group and a genre (wide), and a network on vectors of all four (deep)."""

    def __init__(self, users, items, groups, genres, mean, width=12):
        super().__init__()
        self.pair = embedding(groups * genres, 1)
        self.vectors = nn.HybridSequential()
        self.vectors.add(*(embedding(count, width) for count in (users, items, groups, genres)))
        self.deep = nn.HybridSequential()
        self.deep.add(nn.Dense(64, activation="relu"), nn.Dense(32, activation="relu"), nn.Dense(1))
        self.genres, self.mean = genres, mean

    def hybrid_forward(self, F, *numbers):
        user, item, group, genre = (vectors(number) for vectors, number in zip(self.vectors, numbers, strict=True))
        deep = self.deep(F.concat(user, item, user * item, group, genre, dim=1))
        return self.pair(numbers[2] * self.genres + numbers[3]) + deep + self.mean


def dataset(ratings):
    return gluon.data.ArrayDataset(*(column.astype("float32") for column in ratings))


def rmse(net, batches):
    """Return the root mean square error. Each worker tests a part of the ratings."""
    total = count = 0
    for *numbers, rating in batches:
        error = net(*numbers).reshape(-1) - rating
        total, count = total + error.square().sum().asscalar(), count + len(rating)
    return mean_over_workers(total, count) ** 0.5


def main():
    networks = {"mf": MatrixFactorization, "wide_deep": WideDeep}
    options = {"epochs": (10, 2), "count": (60000, 20000), "users": (1000, 200), "network": list(networks)}
    task = Task(__doc__, metric="RMSE", target=0.45, short=0.9, lower=True, **options)
    seed, count, users = task.options.seed, task.options.count, task.options.users
    ratings = movielens(task.options.data) if task.options.data else made_ratings(count, seed, users, users // 2)
    sizes = [int(column.max()) + 1 for column in ratings[:4]]
    order = np.random.default_rng(seed).permutation(len(ratings.rating))
    train, test = (ratings.part(rows) for rows in np.split(order, [len(order) * 9 // 10]))
    batches = gluon.data.DataLoader(mx.dist.shard(dataset(train), shuffle=True, seed=seed), task.part(BATCH))
    test_batches = gluon.data.DataLoader(mx.dist.shard(dataset(test)), 1000)

    net = networks[task.options.network](*sizes, mean=float(train.rating.mean()))
    net.initialize(mx.init.Xavier())
    net.hybridize()
    loss_of = gluon.loss.L2Loss()
    trainer = gluon.Trainer(net.collect_params(), "adam", {"learning_rate": 1e-2}, kvstore="dist_sync")

    for epoch in range(task.options.epochs):
        task.epoch(len(train.rating))
        total, seen = nd.zeros(1), 0
        for *numbers, rating in batches:
            with autograd.record():
                loss = loss_of(net(*numbers), rating)
            loss.backward()
            trainer.step(BATCH)
            total, seen = total + loss.sum(), seen + len(rating)
        found = rmse(net, test_batches)
        task.report(epoch + 1, loss=mean_over_workers(total.asscalar(), seen), rmse=found)
    task.finish(found)


if __name__ == "__main__":
    main()
